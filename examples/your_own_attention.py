"""Bring your own attention: the plain forms of encodings are tensors and functions that any code can use."""

import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

import posenc

torch.manual_seed(0)
q, k, v = (torch.randn(2, 4, 33, 16, dtype=torch.float64) for _ in range(3))
positions = posenc.sequence(33)

# 1. Rotary: a term turns queries and keys, here and in every other layer that has them at these positions.
rotary = posenc.Rotary(16)
turn = rotary.term(positions, dtype=torch.float64)
mine = F.scaled_dot_product_attention(*turn.rotate(q, k), v)
assert torch.allclose(mine, posenc.attention(q, k, v, rotary), rtol=0, atol=1e-12)

# 2. A bias as a matrix, [heads, queries, keys], for anything that takes a mask to add.
bias = posenc.T5Bias(num_heads=4).double()
torch.nn.init.normal_(bias.table)
mine = F.scaled_dot_product_attention(q, k, v, attn_mask=bias(positions))
whole = posenc.attention(q, k, v, bias)
assert torch.allclose(mine, whole, rtol=0, atol=1e-12)

# 3. A bias as a function of indices, for FlexAttention. Compiled, it makes nothing of size queries x keys; here is one
# look at it without, which torch warns of.
with torch.no_grad(), warnings.catch_warnings(action="ignore"):
    term = bias.term(positions, dtype=torch.float64)
    mine = flex_attention(q, k, v, score_mod=term.score_mod)
assert torch.allclose(mine, whole, rtol=0, atol=1e-12)

# 4. The pieces themselves. Cosines and sines are one a pair of channels; `half` pairs channel i with i + d/2.
cos, sin = rotary.cos_sin(positions, dtype=torch.float64)
first, second = q.chunk(2, dim=-1)
turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
assert torch.allclose(turned, turn.rotate(q, k)[0], rtol=0, atol=1e-12)
slopes = posenc.alibi_slopes(4)
buckets = posenc.t5_bucket(torch.arange(-3, 4))
index = posenc.relative_index((2, 3))
by_relative_position = torch.arange(15).reshape(3, 5)
assert posenc.relative_to_absolute(by_relative_position).tolist() == [[2, 3, 4], [6, 7, 8], [10, 11, 12]]
print(f"rotary, bias matrix and score_mod agree with posenc.attention on {tuple(q.shape)}")
print(f"ALiBi slopes {slopes.tolist()}, T5 buckets {buckets.tolist()}, {int(index.max()) + 1} rows for a 2 x 3 grid")
