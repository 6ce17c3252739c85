"""What goes wrong in practice with content encodings, by value (cases 17 to 20 and their kin), and their messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

import posenc

pytestmark = pytest.mark.usefixtures("seed")

SCHEMES: dict[str, Callable[[], posenc.ContentEncoding]] = {
    "Shaw": lambda: posenc.Shaw(6, 3),
    "RelativeLogits": lambda: posenc.RelativeLogits(6, (12,), num_heads=4),
    "SinusoidalLogits": lambda: posenc.SinusoidalLogits(6),
    "TransformerXL": lambda: posenc.TransformerXL(4, 6),
    "Deberta": lambda: posenc.Deberta(4, 6, buckets=6, max_distance=9),
    "Deberta, published": lambda: posenc.Deberta(4, 6, buckets=6, max_distance=9, published=True),
    "Deberta, clipped": lambda: posenc.Deberta(4, 6, buckets=None, max_distance=4, terms=("p2c",)),
    "IRPE": lambda: posenc.IRPE(6),
    "IRPE, cross": lambda: posenc.IRPE(6, "cross", num_heads=4),
    "CoPE": lambda: posenc.CoPE(6, 4),
    "CoPE, scaled": lambda: posenc.CoPE(6, 20, num_heads=4, scaled=True),
}
EACH = pytest.mark.parametrize("scheme", SCHEMES)
ONE_AXIS = pytest.mark.parametrize("scheme", [name for name in SCHEMES if not name.startswith("IRPE")])


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def made(scheme: str, dtype: torch.dtype = torch.float64) -> posenc.ContentEncoding:
    encoding = SCHEMES[scheme]().to(dtype)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_()
    return encoding


def layout(encoding: posenc.ContentEncoding, prefix: int = 0) -> posenc.Positions:
    return posenc.grid(*(12,) if encoding.axes == 1 else (3, 4), prefix=prefix)


def logits(encoding: posenc.ContentEncoding, q: Tensor, k: Tensor, positions: posenc.Positions) -> Tensor:
    return encoding(q, positions, positions, **({"k": k} if encoding.meets_keys else {}))


def attend(encoding: posenc.ContentEncoding, q: Tensor, k: Tensor, v: Tensor, **options: object) -> Tensor:
    return posenc.attention(q, k, v, encoding, causal=encoding.causal, **options)


def equal(ours: Tensor, wanted: Tensor, tolerance: float = 1e-11) -> None:
    torch.testing.assert_close(ours, wanted, rtol=tolerance, atol=tolerance)


# --- case 20: DeBERTa's buckets, and the sign of its position-to-content term ---


def test_deberta_buckets_by_value() -> None:
    relative = torch.tensor([0, 1, 127, 128, 129, 200, 510, 511, 512, 10**9])
    assert posenc.deberta_bucket(relative).tolist() == [0, 1, 127, 128, 129, 169, 255, 255, 255, 255]
    assert posenc.deberta_bucket(-relative).tolist() == [0, -1, -127, -128, -129, -169, -255, -255, -256, -256]


def test_deberta_bucket_borders_are_exact() -> None:
    # mid = 9, reach = 9 * 2**8: each distance 9 * 2**n ends a bucket, wherever a logarithm would be rounded to.
    ends = torch.tensor([9 * 2**n for n in range(9)])
    assert posenc.deberta_bucket(ends, buckets=18, max_distance=9 * 2**8 + 1).tolist() == list(range(9, 18))
    assert posenc.deberta_bucket(ends + 1, buckets=18, max_distance=9 * 2**8 + 1).tolist() == [*range(10, 18), 17]


@pytest.mark.parametrize("published", [False, True])
def test_sign_of_position_to_content(published: bool) -> None:
    # Rows that say their own bucket: the released weights read that of i - j, the paper that of j - i.
    encoding = posenc.Deberta(1, 1, terms=("p2c",), published=published)
    with torch.no_grad():
        encoding.query_table.copy_(torch.arange(-256.0, 256.0)[None, :, None])
    positions, one = posenc.coordinates(torch.tensor([[0], [128], [200], [511]]), extent=512), torch.ones(1, 1, 4, 1)
    ours = encoding(one, positions, positions, k=one)[0, 0]
    assert ours[:, 0].tolist() == ([0, -128, -169, -255] if published else [0, 128, 169, 255])
    assert ours[0].tolist() == ([0, 128, 169, 255] if published else [0, -128, -169, -255])


def test_content_to_position_reads_query_minus_key_whatever_the_other_does() -> None:
    for published in (False, True):
        encoding = posenc.Deberta(1, 1, terms=("c2p",), published=published)
        with torch.no_grad():
            encoding.key_table.copy_(torch.arange(-256.0, 256.0)[None, :, None])
        ours = encoding(torch.ones(1, 1, 300, 1))[0, 0]
        assert ours[[128, 200, 0, 0], [0, 0, 128, 200]].tolist() == [128, 169, -128, -169]


@pytest.mark.parametrize(("terms", "parts"), [(("c2p", "p2c"), 3), (("p2c", "c2p"), 3), (("c2p",), 2), ("p2c", 2)])
def test_deberta_lowers_the_scale_of_every_logit(terms: tuple[str, ...] | str, parts: int) -> None:
    # sqrt(3 d) in place of sqrt(d), also for q k: nothing else is the paper's.
    encoding = posenc.Deberta(4, 6, 6, 9, terms=terms).double()
    q, k, v = (draw(2, 4, 12, 6) for _ in range(3))
    added = encoding(q, **({"k": k} if encoding.meets_keys else {}))
    wanted = ((q @ k.mT + added) / (parts * 6) ** 0.5).softmax(-1) @ v
    equal(posenc.attention(q, k, v, encoding), wanted)
    equal(posenc.attention(q, k, v, encoding, scale=0.3), ((q @ k.mT + added) * 0.3).softmax(-1) @ v)


# --- cases 17 to 19: axes, what lies above the diagonal, the end of a table ---


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (4, 7), (1, 5)])
@pytest.mark.parametrize("method", ["product", "cross"])
def test_irpe_on_a_grid_that_is_not_square_equals_nested_loops(method: str, shape: tuple[int, int]) -> None:
    height, width = shape
    encoding = posenc.IRPE(5, method, num_heads=4).double()
    q = draw(1, 4, height * width, 5)
    ours = encoding(q, posenc.grid(*shape))[0].unflatten(1, shape).unflatten(3, shape)
    index = {0: 0, 1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 3}  # alpha 1.9, beta 3.8, gamma 15.2
    for head in range(4):
        for row in range(height):
            for column in range(width):
                for key_row in range(height):
                    for key_column in range(width):
                        down, right = row - key_row, column - key_column
                        down, right = (index[abs(x)] * (1 if x > 0 else -1) + 3 for x in (down, right))
                        if method == "product":
                            vector = encoding.table[head, down * 7 + right]
                        else:
                            vector = encoding.tables[0][head, down] + encoding.tables[1][head, right]
                        wanted = q[0, head, row * width + column] @ vector
                        equal(ours[head, row, column, key_row, key_column], wanted)


def test_irpe_depends_on_the_relative_position_of_shuffled_cells_alone() -> None:
    encoding, cells = posenc.IRPE(6).double(), posenc.grid(3, 4).coordinates()
    q, shuffle = draw(2, 4, 12, 6), torch.randperm(12)
    ours = encoding(q, posenc.grid(3, 4))[:, :, shuffle][..., shuffle]
    for extent in ((3, 4), None):
        equal(encoding(q[:, :, shuffle], posenc.coordinates(cells[shuffle], extent=extent)), ours)
    far = posenc.coordinates(cells + torch.tensor([1000, -70]))
    equal(encoding(q, far), encoding(q, posenc.grid(3, 4)))


def test_piecewise_index_by_value() -> None:
    relative = torch.tensor([0, 1, 2, 3, 4, 5, 15, 16, 10**6])
    assert posenc.piecewise_index(relative).tolist() == [0, 1, 2, 2, 3, 3, 3, 3, 3]
    assert posenc.piecewise_index(-relative).tolist() == [0, -1, -2, -2, -3, -3, -3, -3, -3]
    assert posenc.piecewise_index(relative, alpha=2, beta=4, gamma=16).tolist() == [0, 1, 2, 2, 3, 3, 4, 4, 4]


def test_far_tokens_share_the_last_rows() -> None:
    q, k = draw(1, 1, 10, 3), draw(1, 1, 10, 3)
    clipped = posenc.Deberta(1, 3, buckets=None, max_distance=4, terms=("c2p",)).double()
    ours = clipped(q)[0, 0]  # rows -4 ... 3: keys 4 and more ahead share one, keys 3 and more behind another
    for i in range(10):
        assert len(ours[i].unique()) == len({min(max(i - j, -4), 3) for j in range(10)})
    mirrored = posenc.Deberta(1, 3, buckets=None, max_distance=4, terms=("p2c",), published=True).double()
    theirs = mirrored(q, k=k)[0, 0]
    for j in range(10):
        assert len(theirs[:, j].unique()) == len({min(max(j - i, -4), 3) for i in range(10)})


def test_transformer_xl_by_value() -> None:
    # One channel, u = 5, v = 0, W picks the cosine of i - j: u k_j + q_i cos(i - j).
    encoding = posenc.TransformerXL(1, 1, dim=2).double()
    with torch.no_grad():
        encoding.projection.copy_(torch.tensor([[[0.0, 1.0]]]))
        encoding.content_bias.fill_(5.0)
        encoding.position_bias.fill_(0.0)
    q = k = torch.ones(1, 1, 3, 1, dtype=torch.float64)
    lags = torch.arange(3)[:, None] - torch.arange(3)
    equal(encoding(q, k=2 * k)[0, 0], 10 + lags.double().cos())


def test_transformer_xl_reaches_both_ways() -> None:
    # Its sinusoid has a sine of i - j: a key ahead is told from one behind.
    encoding = made("TransformerXL")
    q, k = draw(1, 4, 1, 6).expand(-1, -1, 9, -1), draw(1, 4, 1, 6).expand(-1, -1, 9, -1)
    ours = encoding(q, k=k)[0, 0]
    assert len(ours.round(decimals=9).unique()) == 17
    equal(ours[0, :-1], ours[1, 1:])  # and depends on i - j alone


# --- CoPE: counting ---


def halves(rows: int) -> posenc.CoPE:
    """A CoPE whose rows say their own number."""
    encoding = posenc.CoPE(1, rows).double()
    with torch.no_grad():
        encoding.table.copy_(torch.arange(rows, dtype=torch.float64)[None, :, None])
    return encoding


def test_cope_counts_from_the_key_to_the_query() -> None:
    # Keys of zero have gates of 1/2, and q = 1: the logit is the count itself, at most the last row.
    one, zero = torch.ones(1, 1, 6, 1).double(), torch.zeros(1, 1, 6, 1).double()
    count = (torch.arange(6)[:, None] - torch.arange(6) + 1).clamp(min=0) / 2
    equal(halves(10)(one, k=zero)[0, 0], count.double())
    equal(halves(3)(one, k=zero)[0, 0], count.double().clamp(max=2.0))
    equal(halves(1)(one, k=zero)[0, 0], torch.zeros(6, 6).double())
    # One query, the newest of six keys.
    equal(halves(10)(one[:, :, :1], posenc.sequence(6).last(1), posenc.sequence(6), k=zero)[0, 0], count[5:].double())


def test_cope_gates_see_the_scaled_logits() -> None:
    encoding = posenc.CoPE(4, 9).double()
    with torch.no_grad():
        encoding.table.copy_(torch.arange(9.0)[None, :, None] * torch.tensor([1.0, 0.0, 0.0, 0.0]))
    q = k = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).double()[None, None]
    equal(encoding(q, k=k)[0, 0, 0, 0], torch.tensor(0.5).double().sigmoid())  # 1 * 1 / sqrt(4), not 1
    value = posenc.attention(q, k, k, encoding, causal=True, scale=3.0)
    equal(value, k)  # alone with itself


@pytest.mark.parametrize("scaled", [False, True])
def test_cope_counts_only_what_is_attended_to(scaled: bool) -> None:
    encoding = posenc.CoPE(6, 20, scaled=scaled).double()
    q, k, v = (draw(2, 4, 12, 6) for _ in range(3))
    mask = torch.rand(2, 4, 12, 12) < 0.6
    seen = mask & torch.ones(12, 12).tril().bool()
    product = q @ k.mT * 6**-0.5
    gates = product.sigmoid() * seen
    counts = torch.stack([gates[..., j:].sum(-1) for j in range(12)], -1)
    below = counts.floor().long()
    vectors = torch.lerp(encoding.table[0][below], encoding.table[0][below + 1], (counts - below)[..., None])
    added = (q[:, :, :, None] * vectors).sum(-1) * (6**-0.5 if scaled else 1.0)
    wanted = (product + added).masked_fill(~seen, -1e300).softmax(-1) * seen @ v
    equal(posenc.attention(q, k, v, encoding, causal=True, mask=mask), wanted)


def test_cope_counts_in_the_order_of_the_tokens() -> None:
    # A shard's keys in another order than that of the sequence: the same counts.
    encoding, shuffle = made("CoPE, scaled"), torch.randperm(12)
    q, k, v = (draw(2, 4, 12, 6) for _ in range(3))
    whole = posenc.attention(q, k, v, encoding, causal=True)
    for order in (shuffle, torch.stack([shuffle, shuffle])):
        shard = posenc.coordinates(order[..., None], order=order, extent=12)
        q2, k2, v2 = (x[:, :, shuffle] for x in (q, k, v))
        equal(posenc.attention(q2, k2, v2, encoding, positions=shard, causal=True), whole[:, :, shuffle])
    equal(
        encoding(q2, shard, shard, k=k2).masked_fill(shuffle[:, None] < shuffle, 0.0),
        encoding(q, k=k).tril()[:, :, shuffle][..., shuffle],
    )


def test_cope_meets_rotated_queries_in_its_gates_and_plain_ones_in_its_rows() -> None:
    # As where attention is rotary: the gates see the logits of attention.
    encoding, rotary = made("CoPE"), posenc.Rotary(6)
    q, k, v = (draw(2, 4, 12, 6) for _ in range(3))
    turned_q, turned_k = rotary(q, k)
    product = turned_q @ turned_k.mT * 6**-0.5
    gates = product.sigmoid().tril()
    counts = torch.stack([gates[..., j:].sum(-1) for j in range(12)], -1).clamp(max=3)
    vectors = torch.lerp(
        encoding.table[0][counts.floor().long()], encoding.table[0][counts.ceil().long()], counts.frac()[..., None]
    )
    added = (q[:, :, :, None] * vectors).sum(-1)
    future = torch.ones(12, 12).triu(1).bool()
    wanted = (product + added).masked_fill(future, -torch.inf).softmax(-1) @ v
    equal(posenc.attention(q, k, v, rotary, encoding, causal=True), wanted)


@pytest.mark.parametrize("scheme", ["CoPE", "CoPE, scaled"])
def test_a_later_token_changes_nothing_before_it(scheme: str) -> None:
    encoding = made(scheme)
    q, k, v = (draw(1, 4, 12, 6) for _ in range(3))
    before = attend(encoding, q, k, v)
    for x in (q, k, v):
        x[:, :, 7:] = 100 * draw(1, 4, 5, 6)
    assert torch.equal(attend(encoding, q, k, v)[:, :, :7], before[:, :, :7])


# --- every content scheme: prefix, padding, packing, heads, casts, devices, gradients ---


@EACH
def test_prefix_tokens_get_nothing(scheme: str) -> None:
    encoding = made(scheme)
    q, k = draw(2, 4, 14, 6), draw(2, 4, 14, 6)
    framed = logits(encoding, q, k, layout(encoding, prefix=2))
    assert not framed[..., :2].any()
    assert not framed[..., :2, :].any()
    equal(framed[..., 2:, 2:], logits(encoding, q[:, :, 2:], k[:, :, 2:], layout(encoding)))


@ONE_AXIS
def test_padded_and_packed_equal_alone(scheme: str) -> None:
    encoding = made(scheme)
    q, k, v = (draw(2, 4, 12, 6) for _ in range(3))
    for real in (slice(0, 7), slice(5, 12)):  # padding on the right, and on the left
        keep = torch.zeros(2, 12, dtype=torch.bool)
        keep[:, real] = True
        alone = attend(encoding, *(x[:, :, real] for x in (q, k, v)))
        equal(attend(encoding, q, k, v, positions=posenc.padded(keep))[:, :, real], alone)
    together = attend(encoding, q, k, v, positions=posenc.packed([5, 4, 3]))
    parts = [attend(encoding, *xs) for xs in zip(*(x.split([5, 4, 3], 2) for x in (q, k, v)), strict=True)]
    equal(together, torch.cat(parts, 2))


@ONE_AXIS
def test_decoding_equals_the_full_pass(scheme: str) -> None:
    encoding = made(scheme)
    q, k, v = (draw(2, 4, 12, 6) for _ in range(3))
    whole = posenc.attention(q, k, v, encoding, causal=True)
    for end in range(2, 13):
        newest = slice(end - 2, end)
        ours = posenc.attention(q[:, :, newest], k[:, :, :end], v[:, :, :end], encoding, causal=True)
        equal(ours, whole[:, :, newest])


@EACH
@pytest.mark.parametrize("groups", [1, 2])
def test_grouped_keys_equal_repeated_ones(scheme: str, groups: int) -> None:
    encoding = made(scheme)
    q, k, v = draw(2, 4, 12, 6), draw(2, groups, 12, 6), draw(2, groups, 12, 6)
    repeated = [x.repeat_interleave(4 // groups, 1) for x in (k, v)]
    positions = layout(encoding)
    equal(attend(encoding, q, k, v, positions=positions), attend(encoding, q, *repeated, positions=positions))
    equal(logits(encoding, q, k, positions), logits(encoding, q, repeated[0], positions))


@EACH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_parameters_in_bfloat16_are_computed_with_in_full(scheme: str, dtype: torch.dtype) -> None:
    exact = made(scheme, torch.bfloat16).double()
    cast = SCHEMES[scheme]().to(torch.bfloat16)
    cast.load_state_dict(exact.state_dict())
    q, k, v = (draw(2, 4, 12, 6, dtype=dtype) for _ in range(3))
    ours = attend(cast, q, k, v, positions=layout(cast))
    assert ours.dtype == dtype
    wanted = attend(exact, q.double(), k.double(), v.double(), positions=layout(exact)).detach()
    step = {torch.bfloat16: 2**-8, torch.float32: 2e-5, torch.float64: 2e-5}[dtype]  # a table made in float32
    torch.testing.assert_close(ours.detach().double(), wanted, rtol=step, atol=step * float(wanted.abs().max()))


@EACH
def test_autocast_narrows_nothing(scheme: str) -> None:
    encoding = made(scheme, torch.float32)
    q, k, v = (draw(2, 4, 12, 6, dtype=torch.float32) for _ in range(3))
    wanted = attend(encoding, q, k, v, positions=layout(encoding))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(attend(encoding, q, k, v, positions=layout(encoding)), wanted)


@EACH
def test_the_meta_device_does(scheme: str) -> None:
    with torch.device("meta"):
        encoding = SCHEMES[scheme]()
    x = torch.empty(2, 4, 12, 6, device="meta")
    assert attend(encoding, x, x, x, positions=layout(encoding)).device.type == "meta"
    trained = made(scheme, torch.float32)
    loaded = encoding.to_empty(device="cpu")
    loaded.load_state_dict(trained.state_dict())
    q, k, v = (draw(2, 4, 12, 6, dtype=torch.float32) for _ in range(3))
    ours, wanted = (attend(each, q, k, v, positions=layout(each)) for each in (loaded, trained))
    assert torch.equal(ours, wanted)


@EACH
def test_gradients_are_finite_and_reach_every_number(scheme: str) -> None:
    encoding = made(scheme)
    q, k, v = (draw(2, 4, 12, 6).requires_grad_() for _ in range(3))
    mask = torch.rand(2, 4, 12, 12) < 0.7
    mask[0, :, 3] = False  # a query that sees nothing
    out = attend(encoding, q, k, v, positions=layout(encoding), mask=mask)
    assert not out[0, :, 3].any()
    out.square().sum().backward()
    for x in (q, k, v, *encoding.parameters()):
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert x.grad.any()


# --- messages ---

LENGTHS = posenc.sequence(3)
REAL = posenc.coordinates(torch.rand(3, 1))
Q = torch.zeros(1, 2, 3, 4)

MESSAGES: list[tuple[Callable[[], object], str]] = [
    (lambda: posenc.Deberta(2, 4, max_distance=0), "max_distance must be 1 or more, got 0: pass a larger number"),
    (
        lambda: posenc.Deberta(2, 4, buckets=256, max_distance=129),
        "DeBERTa's buckets need buckets of 4 or more and max_distance of at least buckets // 2 + 2 = 130, "
        "got buckets=256, max_distance=129: the released ones are 256 and 512",
    ),
    (
        lambda: posenc.deberta_bucket(torch.tensor([1]), buckets=3),
        "DeBERTa's buckets need buckets of 4 or more and max_distance of at least buckets // 2 + 2 = 3, "
        "got buckets=3, max_distance=512: the released ones are 256 and 512",
    ),
    (lambda: posenc.Deberta(2, 4, terms=()), "terms must be 'c2p', 'p2c' or both, got (): pass terms=('c2p', 'p2c')"),
    (
        lambda: posenc.Deberta(2, 4, terms="p2p"),
        "terms must be 'c2p', 'p2c' or both, got 'p2p': pass terms=('c2p', 'p2c')",
    ),
    (
        lambda: posenc.Deberta(2, 4, terms=("c2p", "c2p")),
        "terms must be 'c2p', 'p2c' or both, got ('c2p', 'c2p'): pass terms=('c2p', 'p2c')",
    ),
    (
        lambda: posenc.Deberta(2, 4)(Q, REAL, k=Q),
        "Deberta looks up integer positions, got real coordinates: "
        "pass integer positions, or use an encoding that is a function of real ones",
    ),
    (
        lambda: posenc.TransformerXL(2, 4)(Q, posenc.coordinates([[0], [1], [2]]), k=Q),
        "TransformerXL needs integer positions with an extent, got coordinates without one: "
        "pass extent= to posenc.coordinates",
    ),
    (lambda: posenc.TransformerXL(2, 4, dim=0), "dim must be 1 or more, got 0: pass a larger number"),
    (lambda: posenc.IRPE(4, "euclidean"), "method must be 'product' or 'cross', got 'euclidean': pass one of them"),
    (
        lambda: posenc.IRPE(4, alpha=4.0),
        "alpha, beta and gamma must be 0 < alpha <= beta, alpha < gamma and beta of 1 or more, "
        "got 4.0, 3.8 and 15.2: the paper's are 1.9, 3.8 and 15.2",
    ),
    (
        lambda: posenc.IRPE(4)(Q[:, :, :2], posenc.coordinates(torch.rand(2, 2))),
        "IRPE looks up integer positions, got real coordinates: "
        "pass integer positions, or use an encoding that is a function of real ones",
    ),
    (lambda: posenc.CoPE(4, 0), "max_position must be 1 or more, got 0: pass a larger number"),
    (
        lambda: posenc.Shaw(4, 2, values=False).load_foreign({"distance_embedding.weight": torch.zeros(6, 4)}, "shaw"),
        "distance_embedding must have 3 to 5 rows for max_distance=2, got 6: "
        "make the Shaw with max_distance=left_max_position_embeddings",
    ),
    (
        lambda: posenc.TransformerXL(2, 4).load_foreign(
            {"relative_k_proj.weight": torch.zeros(9, 8), "bias_u": torch.zeros(2, 4), "bias_v": torch.zeros(2, 4)},
            "parakeet",
        ),
        "projection of this TransformerXL has shape (2, 4, 8), got (9, 8) from 'parakeet': "
        "make the encoding with the sizes that it was trained with",
    ),
    (
        lambda: posenc.Deberta(2, 4, buckets=None, max_distance=4, terms="c2p").load_foreign(
            {"rel_embeddings.weight": torch.zeros(8, 6), "pos_proj.weight": torch.zeros(6, 6)}, "deberta_v1"
        ),
        "'pos_proj.weight' must have shape (8, 6) here, got (6, 6) from 'deberta_v1': "
        "make the encoding with the sizes that it was trained with",
    ),
    (
        lambda: posenc.IRPE(4).load_foreign({"lookup_table_weight": torch.zeros(1, 4, 50)}, "irpe"),
        "table of this IRPE has shape (1, 49, 4), got (1, 50, 4) from 'irpe': "
        "make the encoding with the sizes that it was trained with",
    ),
]


@pytest.mark.parametrize(("call", "message"), MESSAGES)
def test_messages(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


NAMES = {posenc.deberta_bucket: "DeBERTa's buckets", posenc.piecewise_index: "the piecewise index"}
each_bucket = pytest.mark.parametrize(("bucket", "name"), NAMES.items(), ids=["deberta", "irpe"])


@each_bucket
def test_buckets_are_of_integers(bucket: Callable[[object], Tensor], name: str) -> None:
    with pytest.raises(TypeError, match=rf"^relative must be integer for {name}, got torch\.float32: round it first$"):
        bucket(torch.ones(2))
    for relative in (3, np.arange(3), [1]):
        kind = type(relative).__name__
        message = f"^relative must be an integer tensor for {name}, got {kind}: convert it$"
        with pytest.raises(TypeError, match=message):
            bucket(relative)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_the_smallest_integer_is_as_far_as_it_is(dtype: torch.dtype) -> None:
    ends = torch.tensor([torch.iinfo(dtype).min, torch.iinfo(dtype).max], dtype=dtype)
    assert posenc.deberta_bucket(ends, 8, 100).tolist() == [-8, 7]
    assert posenc.piecewise_index(ends).tolist() == [-3, 3]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: posenc.Shaw(4, 2, values="no"), "values"),
        (lambda: posenc.RelativeLogits(4, 3, causal="no"), "causal"),
        (lambda: posenc.RelativeLogits(4, 3, scaled="no"), "scaled"),
        (lambda: posenc.CoPE(4, scaled="no"), "scaled"),
        (lambda: posenc.Deberta(2, 4, published="no"), "published"),
    ],
)
def test_what_says_no_is_not_true(make: Callable[[], object], name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be True or False, got 'no': pass one of them$"):
        make()


@pytest.mark.parametrize("terms", [5, None, [["c2p"]], (), ("c2p", "p2c", "c2p"), {"c2p"}])
def test_terms_are_names(terms: object) -> None:
    message = f"terms must be 'c2p', 'p2c' or both, got {terms!r}: pass terms=('c2p', 'p2c')"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        posenc.Deberta(2, 4, terms=terms)
    assert posenc.Deberta(2, 4, terms=["p2c", "c2p"]).scale_factor == 3**-0.5


@pytest.mark.parametrize("alpha", ["1", None, True, torch.tensor(1.9), np.array([1.9])])
@pytest.mark.parametrize("call", [lambda **c: posenc.IRPE(4, **c), partial(posenc.piecewise_index, torch.arange(3))])
def test_coefficients_are_numbers(call: Callable[..., object], alpha: object) -> None:
    message = f"alpha must be a number, got {alpha!r}: the paper's are 1.9, 3.8 and 15.2"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        call(alpha=alpha)


def test_coefficients_that_no_table_has() -> None:
    message = r"^beta must be at most 2 \*\* 16 and gamma 2 \*\* 62, got "
    with pytest.raises(ValueError, match=message + r"3.8 and 1e\+30: pass smaller ones$"):
        posenc.IRPE(4, gamma=1e30)
    with pytest.raises(ValueError, match=message + r"1e\+30 and 15.2: pass smaller ones$"):
        posenc.IRPE(4, beta=1e30)
    assert posenc.IRPE(4, alpha=np.float32(1.5), gamma=2**62).side == 7


@pytest.mark.parametrize("scheme", ["TransformerXL", "Deberta", "CoPE"])
def test_the_plain_call_of_what_meets_keys_needs_them(scheme: str) -> None:
    with pytest.raises(TypeError, match="meets the keys too, got none: pass k="):
        made(scheme)(draw(1, 4, 3, 6))


def test_cope_is_for_decoders() -> None:
    with pytest.raises(ValueError, match=r"^CoPE .* got causal=False: pass causal=True"):
        posenc.attention(Q, Q, Q, posenc.CoPE(4, 3))


# --- what others trained, where no package has it ---


def test_irpe_loads_what_the_authors_released() -> None:
    theirs = torch.randn(4, 6, 49)
    product = posenc.IRPE(6, num_heads=4).load_foreign({"rpe_k.lookup_table_weight": theirs}, "irpe", prefix="rpe_k.")
    assert torch.equal(product.table, theirs.mT)
    rows, columns = torch.randn(1, 6, 7), torch.randn(1, 6, 7)
    state = {"rp_rows.lookup_table_weight": rows, "rp_cols.lookup_table_weight": columns}
    cross = posenc.IRPE(6, "cross").load_foreign(state, "irpe")
    assert torch.equal(cross.tables[0], rows.mT)
    assert torch.equal(cross.tables[1], columns.mT)


def test_cope_loads_what_the_authors_released() -> None:
    theirs = torch.randn(1, 6, 5)
    assert torch.equal(posenc.CoPE(6, 5).load_foreign({"pos_emb": theirs}, "cope").table, theirs.mT)
