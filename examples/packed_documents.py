"""Documents of several lengths in one row: positions restart, and no document sees another."""

import torch

import posenc

torch.manual_seed(0)
lengths = [5, 11, 2, 6]
layer = posenc.SelfAttention(32, 4, posenc.Rotary(8), posenc.T5Bias(4)).double()
torch.nn.init.normal_(layer.encodings[1].table)  # as if trained
documents = [torch.randn(1, length, 32, dtype=torch.float64) for length in lengths]

row = torch.cat(documents, dim=1)  # [1, 24, 32]: no padding anywhere
positions = posenc.packed(lengths)
with torch.no_grad():
    together = layer(row, positions=positions, causal=True)
    alone = torch.cat([layer(document, causal=True) for document in documents], dim=1)
    as_one_text = layer(row, causal=True)

print("positions:", positions.coordinates().flatten().tolist())
print("documents:", positions.document().flatten().tolist())
assert torch.allclose(together, alone, rtol=0, atol=1e-12)
assert not torch.allclose(together, as_one_text)  # without `packed`, later documents would read earlier ones

# The same layout from the offsets that data loaders of packed batches hand out.
offsets = torch.tensor([0, 5, 16, 18, 24])
with torch.no_grad():
    assert torch.equal(layer(row, positions=posenc.packed(cu_seqlens=offsets), causal=True), together)
print(f"packed equals separate to {(together - alone).abs().max():.0e}")
