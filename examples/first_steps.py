"""A first look: two encodings in one attention, and one of each kind in its plain form."""

# ruff: noqa: E401, I001
# fmt: off
import torch, posenc

q = k = v = torch.randn(2, 8, 197, 64)            # [batch, heads, tokens, head_dim], as in SDPA
pos = posenc.grid(14, 14, prefix=1)               # a CLS token, then 14 × 14 patches, row-major

rope = posenc.Rotary(64, axes=2, base=100.0)
bias = posenc.RelativePositionBias(num_heads=8, shape=(14, 14), prefix_bias=True)
out = posenc.attention(q, k, v, rope, bias, positions=pos)      # encodings compose
print(posenc.explain(q, k, v, rope, bias, positions=pos))       # which backend, and why not the others

x = torch.randn(2, 50, 512)
x = posenc.Sinusoidal(512)(x)                     # absolute: position added, same shape
q2, k2 = posenc.Rotary(64)(q, k)                  # rotary: rotated queries and keys
b = posenc.T5Bias(num_heads=8)(posenc.sequence(128))   # bias: [heads, 128, 128], to add to logits yourself
# fmt: on

assert out.shape == (2, 8, 197, 64)
assert x.shape == (2, 50, 512)
assert q2.shape == k2.shape == q.shape
assert b.shape == (8, 128, 128)

# Rotary turns and never stretches, and the logits know the distance alone: moving both tokens changes nothing.
assert torch.allclose(q2.norm(dim=-1), q.norm(dim=-1), rtol=1e-4)
near, far = posenc.sequence(197), posenc.sequence(197, start=1000)
shifted = posenc.attention(q, k, v, posenc.Rotary(64), positions=far)
assert torch.allclose(shifted, posenc.attention(q, k, v, posenc.Rotary(64), positions=near), atol=1e-4)
print(f"attention over a class token and 14 x 14 patches: {tuple(out.shape)}; shifting all positions changes nothing")
