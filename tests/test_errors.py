"""Bad input in Python: a clear error on the host, by value, before anything runs."""

from typing import Any

import numpy as np
import pytest
import torch

import posenc

q = k = v = torch.randn(2, 4, 6, 16)
x = torch.randn(2, 6, 24)


class WithoutHeads(posenc.BiasEncoding):
    def bias(self, relative: torch.Tensor) -> torch.Tensor:
        return relative[..., 0].float()


ROWS = torch.tensor([0, 1, 2])

ERRORS: dict[str, tuple[Any, type[Exception], str]] = {
    # rotary
    "odd head_dim": (
        lambda: posenc.Rotary(63),
        ValueError,
        "head_dim must be even for rotary, got 63: pass rotary_dim=62 to rotate part of it",
    ),
    "odd rotary_dim": (lambda: posenc.Rotary(16, rotary_dim=5), ValueError, "got 5: pass rotary_dim=4"),
    "rotary_dim too wide": (lambda: posenc.Rotary(16, rotary_dim=18), ValueError, "got 18: pass rotary_dim=16"),
    "more axes than pairs": (lambda: posenc.Rotary(4, axes=3), ValueError, "got 4 channels for 3 axes"),
    "unknown rotary layout": (
        lambda: posenc.Rotary(16, layout="gptj"),
        ValueError,
        "'interleaved' (GPT-J), got 'gptj'",
    ),
    "base of zero": (lambda: posenc.Rotary(16, base=0), ValueError, "base must be more than 0 and finite, got 0"),
    "wrong head_dim": (
        lambda: posenc.attention(q, k, v, posenc.Rotary(32)),
        ValueError,
        "Rotary was made for head_dim 32, got q with 16: make it with head_dim=16",
    ),
    "wrong head_dim, called": (lambda: posenc.Rotary(8)(q, k), ValueError, "q must be [batch, heads, tokens, 8]"),
    "axes of the positions": (
        lambda: posenc.attention(q, k, v, posenc.Rotary(16, axes=2)),
        ValueError,
        "Rotary was made for positions with 2 axes, got 1 axis: pass positions=posenc.grid(height, width)",
    ),
    # embeddings
    "wrong width": (
        lambda: posenc.Sinusoidal(5)(torch.randn(1, 3, 10)),
        ValueError,
        "x must be [batch, tokens, 5] for Sinusoidal(5), got shape (1, 3, 10)",
    ),
    "no batch axis": (lambda: posenc.Sinusoidal(24)(x[0]), ValueError, "got shape (6, 24)"),
    "integer embeddings": (
        lambda: posenc.Sinusoidal(24)(x.long()),
        TypeError,
        "got torch.int64: embed the tokens first",
    ),
    "axis_order": (
        lambda: posenc.Sinusoidal(24, axes=2, axis_order=(1, 1)),
        ValueError,
        "got (1, 1): for MAE pass (1, 0)",
    ),
    "unknown layout": (lambda: posenc.Sinusoidal(24, layout="half"), ValueError, "or 'concatenated', got 'half'"),
    "fewer channels than axes": (lambda: posenc.Sinusoidal(1, axes=2), ValueError, "got dim=1 for axes=2"),
    "longer than the table": (
        lambda: posenc.Learned(5, 24)(x),
        ValueError,
        "Learned has 5 positions, got 6 (position 5 is past the end): make a longer table, or resize this one",
    ),
    "outside of a grid": (
        lambda: posenc.Learned((3, 2), 24)(x, posenc.grid(2, 3)),
        ValueError,
        "Learned has 2 positions on axis 1, got 3 (position 2 is past the end)",
    ),
    "a grid that is not said": (lambda: posenc.Learned((2, 4), 24)(x), ValueError, "needs positions, got none"),
    "a prefix without rows": (
        lambda: posenc.Learned((2, 2), 24, prefix=1)(x, posenc.grid(2, 2, prefix=2)),
        ValueError,
        "Learned has rows for 1 prefix tokens, got positions with 2",
    ),
    "real positions in a table": (
        lambda: posenc.Learned(9, 24)(x, posenc.sequence(6).rescaled(0, 1)),
        ValueError,
        "Learned looks up integer positions, got real coordinates",
    ),
    "odd Fourier": (
        lambda: posenc.Fourier(5),
        ValueError,
        "dim must be even for Fourier, a sine and a cosine each, got 5",
    ),
    "convolution without a grid": (
        lambda: posenc.ConditionalEncoding(24)(x),
        ValueError,
        "ConditionalEncoding for 2 axes needs positions, got none: pass posenc.grid(height, width)",
    ),
    "convolution over padding": (
        lambda: posenc.ConditionalEncoding(24, axes=1)(x, posenc.padded(torch.ones(2, 6).bool())),
        ValueError,
        "needs tokens that fill a grid",
    ),
    "even kernel": (
        lambda: posenc.ConditionalEncoding(24, kernel_size=4),
        ValueError,
        "kernel_size must be odd, got 4",
    ),
    "positions of another length": (
        lambda: posenc.Sinusoidal(24)(x, posenc.sequence(5)),
        ValueError,
        "positions must cover the 6 tokens of x, got 5",
    ),
    "a tensor for positions": (
        lambda: posenc.Sinusoidal(24)(x, torch.arange(6)),
        TypeError,
        "positions must be made by posenc.sequence, grid, packed, padded, multimodal or coordinates, got Tensor",
    ),
    # attention
    "integer q": (lambda: posenc.attention(q.long(), k, v), TypeError, "q must be a real tensor, got torch.int64"),
    "three dimensions": (
        lambda: posenc.attention(q[0], k, v),
        ValueError,
        "q must be [batch, heads, tokens, channels]",
    ),
    "another dtype": (
        lambda: posenc.attention(q, k.double(), v),
        TypeError,
        "got k in torch.float64 and q in torch.float32",
    ),
    "two devices": (
        lambda: posenc.attention(q, k.to("meta"), v),
        ValueError,
        "q, k and v must be on one device, got k on meta and q on cpu",
    ),
    "an encoding elsewhere": (
        lambda: posenc.attention(q, k, v, posenc.T5Bias(4).to("meta")),
        ValueError,
        "T5Bias is on meta, got tensors on cpu: move it with .to('cpu')",
    ),
    "another batch": (lambda: posenc.attention(q, k[:1], v), ValueError, "got 1 in k and 2 in q"),
    "another width of k": (
        lambda: posenc.attention(q, k[..., :8], v),
        ValueError,
        "k must have the 16 channels of q, got 8",
    ),
    "lengths of k and v": (lambda: posenc.attention(q, k, v[:, :, :5]), ValueError, "k and v must have the same heads"),
    "heads that do not divide": (
        lambda: posenc.attention(q, k[:, :3], v[:, :3]),
        ValueError,
        "heads of k must divide those of q, got 3 and 4",
    ),
    "another number of heads": (
        lambda: posenc.attention(q, k, v, posenc.ALiBi(8)),
        ValueError,
        "ALiBi was made for 8 heads, got q with 4: make it with num_heads=4",
    ),
    "one head for four": (
        lambda: posenc.attention(q, k, v, posenc.ALiBi(1)),
        ValueError,
        "made for 1 heads, got q with 4",
    ),
    "content for other heads": (
        lambda: posenc.attention(q, k, v, posenc.Shaw(16, 2, num_heads=2)),
        ValueError,
        "Shaw was made for 2 heads, got q with 4",
    ),
    "absolute in attention": (
        lambda: posenc.attention(q, k, v, posenc.Sinusoidal(16)),
        TypeError,
        "Sinusoidal acts on embeddings and has no term: apply it to them before attention, as in x = encoding(x)",
    ),
    "conditional in attention": (
        lambda: posenc.attention(q, k, v, posenc.ConditionalEncoding(16, axes=1)),
        TypeError,
        "ConditionalEncoding acts on embeddings and has no term",
    ),
    "an absolute encoding too short": (
        lambda: posenc.attention(q, k, v, posenc.Learned(3, 16)),
        TypeError,
        "Learned acts on embeddings and has no term",
    ),
    "a class": (lambda: posenc.attention(q, k, v, posenc.ALiBi), TypeError, "got the class ALiBi: ALiBi(...)"),
    "a bias without heads": (
        lambda: posenc.attention(q, k, v, WithoutHeads()),
        ValueError,
        "WithoutHeads.bias must return [heads, ...] for relative positions [..., axes], got shape (1, 11)",
    ),
    "something else": (
        lambda: posenc.attention(q, k, v, torch.zeros(6, 6)),
        TypeError,
        "got Tensor: did you mean mask=?",
    ),
    "positions by place": (
        lambda: posenc.attention(q, k, v, posenc.sequence(6)),
        TypeError,
        "got Sequence: did you mean positions=?",
    ),
    "Music Transformer without causal": (
        lambda: posenc.attention(q, k, v, posenc.RelativeLogits(16, 6, causal=True)),
        ValueError,
        "RelativeLogits is for queries that see nothing ahead of them, got causal=False: pass causal=True",
    ),
    "beyond a bias table": (
        lambda: posenc.attention(q, k, v, posenc.RelativePositionBias(4, 5)),
        ValueError,
        "RelativePositionBias has relative positions up to 4, got 5: make a table for this size",
    ),
    "beyond a grid of logits": (
        lambda: posenc.attention(q, k, v, posenc.RelativeLogits(16, (3, 2)), positions=posenc.grid(2, 3)),
        ValueError,
        "RelativeLogits has relative positions up to (2, 1), got 2 on axis 1",
    ),
    "more queries than keys": (
        lambda: posenc.attention(q, k[:, :, :4], v[:, :, :4], causal=True),
        ValueError,
        "got 6 queries for 4 positions: pass positions for the queries and key_positions for the keys",
    ),
    "positions of neither": (
        lambda: posenc.attention(q, k, v, positions=posenc.sequence(5)),
        ValueError,
        "positions must cover the 6 keys, got 5 tokens",
    ),
    "key positions alone": (
        lambda: posenc.attention(q, k, v, key_positions=posenc.sequence(6)),
        ValueError,
        "key_positions needs positions too",
    ),
    "key positions of another length": (
        lambda: posenc.attention(q, k, v, positions=posenc.sequence(6), key_positions=posenc.sequence(7)),
        ValueError,
        "key_positions must cover 6 tokens, got 7",
    ),
    "padding for another batch": (
        lambda: posenc.attention(q, k, v, positions=posenc.padded(torch.ones(3, 6).bool())),
        ValueError,
        "positions must be for the 2 rows of the batch, got 3",
    ),
    "a mask of numbers": (
        lambda: posenc.attention(q, k, v, mask=torch.zeros(1, 1, 6, 6)),
        TypeError,
        "mask must be boolean, True = may attend, got torch.float32",
    ),
    "a mask of two dimensions": (
        lambda: posenc.attention(q, k, v, mask=torch.ones(6, 6).bool()),
        ValueError,
        "mask must have four dimensions that broadcast to (2, 4, 6, 6), got shape (6, 6)",
    ),
    "a key mask of another length": (
        lambda: posenc.attention(q, k, v, key_mask=torch.ones(2, 5).bool()),
        ValueError,
        "key_mask must be [batch, keys] = (2, 6), got shape (2, 5)",
    ),
    "negative window": (lambda: posenc.attention(q, k, v, window=-1), ValueError, "window must be 0 or more, got -1"),
    "real window": (lambda: posenc.attention(q, k, v, window=2.0), TypeError, "window must be an integer"),
    "certain dropout": (lambda: posenc.attention(q, k, v, dropout=1.0), ValueError, "dropout must be from 0 up to"),
    "an option that does not exist": (lambda: posenc.attention(q, k, v, casual=True), TypeError, "casual"),
    # layers
    "a layer that does not divide": (lambda: posenc.SelfAttention(30, 4), ValueError, "got dim=30 and num_heads=4"),
    "groups that do not divide": (
        lambda: posenc.SelfAttention(32, 4, num_key_value_heads=3),
        ValueError,
        "num_key_value_heads must divide num_heads = 4, got 3",
    ),
    "an absolute encoding in a layer": (
        lambda: posenc.SelfAttention(32, 4, posenc.Sinusoidal(32)),
        TypeError,
        "Sinusoidal acts on embeddings, got it in an attention layer: apply it before, x = encoding(x)",
    ),
    "a layer of other heads": (
        lambda: posenc.SelfAttention(32, 4, posenc.ALiBi(8)),
        ValueError,
        "ALiBi was made for 8 heads, got a layer of 4",
    ),
    # bias and content constructors
    "no heads": (lambda: posenc.ALiBi(0), ValueError, "num_heads must be 1 or more, got 0"),
    "odd buckets": (lambda: posenc.T5Bias(4, num_buckets=9), ValueError, "got num_buckets=9, max_distance=128"),
    "no room for buckets": (lambda: posenc.T5Bias(4, max_distance=8), ValueError, "beyond the 8 exact ones"),
    "real positions in buckets": (
        lambda: posenc.T5Bias(4)(posenc.sequence(6).rescaled(0, 1)),
        ValueError,
        "T5Bias looks up integer positions, got real coordinates",
    ),
    "clipped at nothing": (lambda: posenc.Shaw(16, 0), ValueError, "max_distance must be 1 or more, got 0"),
    "no value vectors": (
        lambda: posenc.Shaw(16, 2, values=False).values(torch.rand(1, 1, 6, 6)),
        TypeError,
        "Shaw adds nothing to the values",
    ),
    "causal on a grid": (
        lambda: posenc.RelativeLogits(16, (2, 3), causal=True),
        ValueError,
        "causal is for one axis, got shape (2, 3)",
    ),
    "a sinusoid of anything": (
        lambda: posenc.SinusoidalLogits(16)(q, posenc.coordinates(torch.arange(6)[:, None])),
        ValueError,
        "SinusoidalLogits needs integer positions with an extent",
    ),
    # positions
    "negative length": (lambda: posenc.sequence(-1), ValueError, "length must be 0 or more, got -1"),
    "real length": (lambda: posenc.sequence(2.0), TypeError, "length must be an integer, got 2.0"),
    "real start": (lambda: posenc.sequence(2, start=0.5), TypeError, "start must be an integer, got 0.5"),
    "no axes": (lambda: posenc.grid(), ValueError, "grid needs at least one size"),
    "mask of integers": (
        lambda: posenc.padded(torch.ones(2, 3, dtype=torch.long)),
        TypeError,
        "mask must be a boolean tensor, True = a token, got torch.int64: pass mask.bool()",
    ),
    "half positions": (
        lambda: posenc.coordinates(torch.arange(3).half()[:, None]),
        TypeError,
        "half precision cannot tell neighbours apart",
    ),
    "coordinates without axes": (lambda: posenc.coordinates([1, 2]), ValueError, "pass values[..., None]"),
    "coordinates beyond their extent": (
        lambda: posenc.coordinates([[0], [4]], extent=4),
        ValueError,
        "coordinates must be from 0 up to, not including, extent (4,), got 0 to 4",
    ),
    "packed twice": (lambda: posenc.packed([1], cu_seqlens=[0, 1]), ValueError, "got both or neither"),
    "packed backwards": (
        lambda: posenc.packed([2, -1]),
        ValueError,
        "lengths must be 0 or more, got -1",
    ),
    "rescaled padding": (
        lambda: posenc.padded(torch.ones(1, 3).bool()).rescaled(0, 1),
        ValueError,
        "rescaled needs tokens that fill a grid",
    ),
    "packed by parts of tokens": (
        lambda: posenc.packed([2.5, 1.9]),
        TypeError,
        "lengths must be one list of integers, got [2.5, 1.9]",
    ),
    "coordinates that are no numbers": (
        lambda: posenc.coordinates([[0.0], [float("nan")]]),
        ValueError,
        "coordinates must be finite, got NaN or infinity",
    ),
    "coordinates of different lengths": (
        lambda: posenc.coordinates([[0], [1, 2]]),
        TypeError,
        "coordinates must be numbers of one shape, got list",
    ),
    "an order of another batch": (
        lambda: posenc.coordinates(torch.zeros(3, 6, 1), order=torch.zeros(2, 6)),
        ValueError,
        "must be of one batch, got 3 and 2",
    ),
    "an order as a list": (
        lambda: posenc.coordinates([[0], [1]], order=[1, 0]),
        TypeError,
        "order must be a tensor of numbers, got [1, 0]",
    ),
    "rescaled to nowhere": (
        lambda: posenc.grid(2).rescaled(0, float("inf")),
        ValueError,
        "high must be finite, got inf",
    ),
    "fewer than no tokens": (lambda: posenc.sequence(3).last(-1), ValueError, "count must be 0 or more, got -1"),
    # batches
    "rows for other rows": (
        lambda: posenc.Sinusoidal(24)(x, posenc.sequence(6, ROWS)),
        ValueError,
        "positions must be for the 2 rows of the batch, got 3",
    ),
    "rows for other rows, rotary": (lambda: posenc.Rotary(16)(q, k, posenc.sequence(6, ROWS)), ValueError, "2 rows"),
    "rows for other rows, content": (lambda: posenc.Shaw(16, 2)(q, posenc.sequence(6, ROWS)), ValueError, "2 rows"),
    "rows for other rows, a term": (
        lambda: posenc.attention(q[:1], k[:1], v[:1], posenc.ALiBi(4).term(posenc.sequence(6, ROWS))),
        ValueError,
        "positions must be for the 1 rows of the batch, got 3",
    ),
    "queries and keys of two batches": (
        lambda: posenc.ALiBi(4)(posenc.sequence(6, ROWS), posenc.sequence(6, ROWS[:2])),
        ValueError,
        "queries and keys must be of one batch, got 3 and 2 rows of positions",
    ),
    # terms
    "a term of elsewhere": (
        lambda: posenc.attention(q, k, v, posenc.Rotary(16).term(posenc.sequence(6)), positions=posenc.grid(2, 3)),
        ValueError,
        "the term was evaluated at other positions than those of this attention",
    ),
    "a term of another document": (
        lambda: posenc.attention(q, k, v, posenc.ALiBi(4).term(posenc.packed([2, 4])), positions=posenc.packed([3, 3])),
        ValueError,
        "the term was evaluated at other positions",
    ),
    "a term in another dtype": (
        lambda: posenc.attention(q.double(), k.double(), v.double(), posenc.Shaw(16, 2).term(posenc.sequence(6))),
        ValueError,
        "the term must be in torch.float64 on cpu for q in torch.float64, got torch.float32 on cpu",
    ),
    "a term in half precision": (
        lambda: posenc.attention(q, k, v, posenc.Rotary(16).term(posenc.sequence(6), dtype=torch.bfloat16)),
        ValueError,
        "the term must be in torch.float32 on cpu for q in torch.float32, got torch.bfloat16 on cpu",
    ),
    "a term in integers": (
        lambda: posenc.Rotary(16).term(posenc.sequence(6), dtype=torch.int32),
        TypeError,
        "dtype must be a real dtype, got torch.int32",
    ),
    "documents on one side": (
        lambda: posenc.attention(q, k, v, positions=posenc.packed([3, 3]), key_positions=posenc.sequence(6)),
        ValueError,
        "queries and keys must both say their documents",
    ),
    # numbers
    "a scale of nothing": (
        lambda: posenc.attention(q, k, v, scale=0.0),
        ValueError,
        "scale must be more than 0 and finite",
    ),
    "a scale of NaN": (lambda: posenc.attention(q, k, v, scale=float("nan")), ValueError, "got nan"),
    "a tensor for a scale": (
        lambda: posenc.attention(q, k, v, scale=torch.ones(())),
        TypeError,
        "scale must be a number",
    ),
    "no channels": (lambda: posenc.attention(q[..., :0], k[..., :0], v), ValueError, "at least one channel"),
    "an array for q": (lambda: posenc.attention(q.numpy(), k, v), TypeError, "q must be a tensor, got ndarray"),
    "a list for a mask": (
        lambda: posenc.attention(q, k, v, mask=[True]),
        TypeError,
        "mask must be a boolean tensor, got list",
    ),
    "values of another width": (
        lambda: posenc.attention(q, k, v[..., :4], posenc.Shaw(16, 2)),
        ValueError,
        "vectors by relative position join values of q's 16 channels, got v with 4",
    ),
    "rotary of two dtypes": (
        lambda: posenc.Rotary(16)(q, k.double()),
        ValueError,
        "q and k must be of one device, dtype",
    ),
    "learned elsewhere": (
        lambda: posenc.Learned(9, 24).to("meta")(x),
        ValueError,
        "Learned is on meta, got tensors on cpu",
    ),
    "a real number of heads": (lambda: posenc.ALiBi(2.0), TypeError, "num_heads must be an integer, got 2.0"),
    "True heads": (lambda: posenc.T5Bias(True), TypeError, "num_heads must be an integer, got True"),
    "text for a width": (lambda: posenc.Rotary("64"), TypeError, "head_dim must be an integer, got '64'"),
    "a real size": (lambda: posenc.Learned((3.0, 4), 8), TypeError, "each size of shape must be an integer, got 3.0"),
    "std of NaN": (
        lambda: posenc.Learned(4, 8, std=float("nan")),
        ValueError,
        "std must be finite, got nan: ViT uses 0.02",
    ),
    "a layer of another width": (
        lambda: posenc.SelfAttention(64, 4, posenc.Rotary(8)),
        ValueError,
        "Rotary was made for head_dim 8, got a layer of 16",
    ),
    "a dictionary for a cache": (
        lambda: posenc.SelfAttention(24, 4)(x, cache={}),
        TypeError,
        "cache must be a posenc.KeyValueCache, got dict",
    ),
    # functions
    "one dimension": (
        lambda: posenc.skew(torch.zeros(3)),
        ValueError,
        "x must be a tensor [..., L, L], got shape (3,)",
    ),
    "buckets of truth": (lambda: posenc.t5_bucket(torch.ones(3).bool()), TypeError, "got torch.bool"),
    "an integer table": (
        lambda: posenc.resize_table(torch.zeros(4, 8, dtype=torch.long), 4, 8),
        TypeError,
        "table must be a tensor of real numbers, got torch.int64",
    ),
    "relative_to_absolute": (
        lambda: posenc.relative_to_absolute(torch.zeros(3, 6)),
        ValueError,
        "x must be [..., L, 2L - 1], got shape (3, 6): for L = 3 give 5 columns",
    ),
    "skew": (lambda: posenc.skew(torch.zeros(3, 5)), ValueError, "x must be [..., L, L], got shape (3, 5)"),
    "relative_index": (
        lambda: posenc.relative_index((3, 0)),
        ValueError,
        "each size of shape must be 1 or more, got 0",
    ),
    "buckets of real numbers": (lambda: posenc.t5_bucket(torch.zeros(3)), TypeError, "relative must be integer"),
    "a guessed grid": (
        lambda: posenc.resize_table(torch.zeros(196, 8), (14, 14), (16, 16), prefix=1),
        ValueError,
        "table must have 1 prefix rows and 196 for the grid (14, 14), got shape (196, 8)",
    ),
    "a name that is not there": (lambda: posenc.Rotaryy, AttributeError, "module 'posenc' has no attribute 'Rotaryy'"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_error(name: str) -> None:
    call, kind, message = ERRORS[name]
    with pytest.raises(kind) as caught:
        call()
    assert message in str(caught.value)


def test_positions_on_an_accelerator_are_checked_there() -> None:
    """Where numbers cannot be read on the host, the device raises: under compile, as here, and on an accelerator."""
    learned = posenc.Learned(8, 24)

    def embed(x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        return learned(x, posenc.sequence(x.shape[1], start=start))

    compiled = torch.compile(embed, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, torch.tensor(2)), embed(x, torch.tensor(2)))
    with pytest.raises(RuntimeError, match="Learned has positions for 8, got one outside"):
        compiled(x, torch.tensor(3))


def test_a_total_is_checked_on_an_accelerator() -> None:
    def attend(lengths: torch.Tensor) -> torch.Tensor:
        return posenc.attention(q, k, v, posenc.Rotary(16), positions=posenc.packed(lengths, total=6))

    compiled = torch.compile(attend, fullgraph=True, backend="eager")
    lengths = torch.tensor([4, 2])
    torch.testing.assert_close(compiled(lengths), attend(lengths))
    for wrong in ([4, 1], [4, 3], [8, -2]):
        with pytest.raises(RuntimeError, match="documents need lengths of 0 or more that sum to total"):
            compiled(torch.tensor(wrong))


def test_numpy_integers_are_integers() -> None:
    four = np.int64(4)
    assert posenc.ALiBi(four)(posenc.sequence(four)).shape == (4, 4, 4)
    assert posenc.Learned(four, np.int32(8)).table.shape == (4, 8)
    assert posenc.RelativePositionBias(2, np.int64(4)).table.shape == (2, 7)
    assert posenc.grid(np.int64(2), 3).length == 6
    assert posenc.attention(q, k, v, window=np.int64(1)).shape == q.shape
