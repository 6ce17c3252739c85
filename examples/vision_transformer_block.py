"""A vision transformer block with a CLS token, axial rotary and a relative position bias, on a wide grid."""

import torch
from torch import nn

import posenc


class Block(nn.Module):
    """Attention and a two-layer network, each behind a norm and beside a shortcut."""

    def __init__(self, dim: int, num_heads: int, shape: tuple[int, int]) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim)
        rotary = posenc.Rotary(dim // num_heads, axes=2, base=100.0)
        bias = posenc.RelativePositionBias(num_heads, shape, prefix_bias=True)
        self.attention = posenc.SelfAttention(dim, num_heads, rotary, bias)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor, positions: posenc.Positions) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x), positions=positions)
        return x + self.mlp(self.before_mlp(x))


torch.manual_seed(0)
shape = (6, 10)
block = Block(dim=48, num_heads=4, shape=shape)
table = block.attention.encodings[1].table
nn.init.normal_(table)  # as if trained, so that it can be seen at work

tokens = torch.randn(2, 1 + 60, 48)  # CLS, then six rows of ten patches
positions = posenc.grid(*shape, prefix=1)
out = block(tokens, positions)
out.square().mean().backward()
assert out.shape == tokens.shape
assert (table.grad != 0).all()  # every relative position occurs, so every row trains

# Patches that swap places are other images, while the same patches in an unordered bag would be the same.
swapped = tokens.clone()
swapped[:, [1, 60]] = tokens[:, [60, 1]]
with torch.no_grad():
    difference = (block(swapped, positions)[:, 0] - out[:, 0]).abs().max()
assert difference > 1e-3
numbers = sum(parameter.numel() for parameter in block.parameters())
print(f"a block of {numbers:,} numbers maps {tuple(tokens.shape)} to {tuple(out.shape)}")
print(f"swapping the first patch with the last one moves the CLS token by {difference:.3f}")
