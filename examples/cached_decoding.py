"""Token by token with a key/value cache gives what one pass over the whole sequence gives."""

import torch

import posenc

torch.manual_seed(0)
encodings = {
    "rotary": posenc.Rotary(16),
    "ALiBi": posenc.ALiBi(4),
    "T5 bias": posenc.T5Bias(4, bidirectional=False),
    "Shaw": posenc.Shaw(16, max_distance=8),
}
x = torch.randn(2, 24, 64, dtype=torch.float64)
for name, encoding in encodings.items():
    # four heads of queries share two heads of keys and values, so the cache is half as large
    layer = posenc.SelfAttention(64, 4, encoding, num_key_value_heads=2).double()
    with torch.no_grad():
        full = layer(x, causal=True)

        cache = posenc.KeyValueCache()
        steps = [layer(x[:, :10], causal=True, cache=cache)]  # the prompt at once ...
        steps += [layer(x[:, i : i + 1], causal=True, cache=cache) for i in range(10, 24)]  # ... then one a step
    difference = (torch.cat(steps, dim=1) - full).abs().max().item()
    assert difference < 1e-12, name
    print(f"{name:8} largest difference between 15 cached steps and one full pass: {difference:.0e}")
