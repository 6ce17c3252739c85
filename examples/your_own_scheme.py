"""A scheme of your own is one function; attention, caching, packing and sharing come with the base class."""

import torch
from torch import nn

import posenc


class Gaussian(posenc.BiasEncoding):
    """b_h(relative) = -relative^2 / (2 width_h^2): each head looks within a trained width of its own."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.log_width = nn.Parameter(torch.arange(1.0, num_heads + 1))

    def bias(self, relative: torch.Tensor) -> torch.Tensor:
        """Relative positions `[..., axes]` to numbers `[heads, ...]`."""
        width = self.log_width.exp().reshape(-1, *[1] * (relative.ndim - 1))
        return -(relative[..., 0] ** 2) / (2 * width**2)


torch.manual_seed(0)
encoding = Gaussian(num_heads=4).double()
bias = encoding(posenc.sequence(20))
print("bias of the first head, query 5, keys 3 to 7:", [round(number, 3) for number in bias[0, 5, 3:8].tolist()])

# It trains ...
q, k, v = (torch.randn(2, 4, 20, 8, dtype=torch.float64) for _ in range(3))
out = posenc.attention(q, k, v, encoding, causal=True)
out.square().sum().backward()
assert (encoding.log_width.grad != 0).all()

# ... equals the formula ...
logits = q @ k.mT / 8**0.5 + bias
future = torch.ones(20, 20).triu(1).bool()
expected = logits.masked_fill(future, -torch.inf).softmax(-1) @ v
assert torch.allclose(out, expected, rtol=0, atol=1e-12)

# ... composes with others, decodes from a cache and keeps packed documents apart, all without another line in it.
layer = posenc.SelfAttention(32, 4, encoding, posenc.Rotary(8)).double()
x, cache = torch.randn(1, 20, 32, dtype=torch.float64), posenc.KeyValueCache()
with torch.no_grad():
    full = layer(x, causal=True)
    steps = torch.cat([layer(x[:, i : i + 1], causal=True, cache=cache) for i in range(20)], dim=1)
    packed = layer(x, positions=posenc.packed([8, 12]), causal=True)
    alone = torch.cat([layer(part, causal=True) for part in x.split([8, 12], dim=1)], dim=1)
assert torch.allclose(steps, full, rtol=0, atol=1e-12)
assert torch.allclose(packed, alone, rtol=0, atol=1e-12)
print("trained, composed, cached and packed: one function was written")
