"""What terms can hold beyond what one scheme shows, each against the formula written out a pair at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import posenc

pytestmark = pytest.mark.usefixtures("seed")


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


class Turning(posenc.RotaryEncoding):
    """Frequencies of each head's own."""

    def __init__(self, frequencies: Tensor) -> None:
        super().__init__()
        self.num_heads, self.axes, self.head_dim = len(frequencies), frequencies.shape[1], 2 * frequencies.shape[2]
        self.own = frequencies

    def frequencies(self, length: Tensor | None = None, device: object = None) -> Tensor:
        return self.own


def turned(x: Tensor, angle: Tensor) -> Tensor:
    """One vector, its halves paired."""
    a, b = x.chunk(2)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()])


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_heads_may_turn_differently_with_grouped_queries(groups: int) -> None:
    frequencies = draw(4, 2, 3)
    encoding, positions = Turning(frequencies), posenc.grid(2, 4)
    q, k, v = draw(2, 4, 8, 6), draw(2, groups, 8, 6), draw(2, groups, 8, 6)
    angles = torch.einsum("na,hap->hnp", positions.coordinates().double(), frequencies)
    logits = torch.empty(2, 4, 8, 8, dtype=torch.float64)
    for b in range(2):
        for h in range(4):
            for i in range(8):
                for j in range(8):
                    key = turned(k[b, h * groups // 4, j], angles[h, j])
                    logits[b, h, i, j] = turned(q[b, h, i], angles[h, i]) @ key / 6**0.5
    wanted = logits.softmax(-1) @ v.repeat_interleave(4 // groups, 1)
    torch.testing.assert_close(posenc.attention(q, k, v, encoding, positions=positions), wanted)
    turned_q, turned_k = encoding(q, k, positions)
    torch.testing.assert_close(turned_q @ turned_k.mT / 6**0.5, logits)


class Fading(posenc.RotaryEncoding):
    """A rotation with a decay."""

    head_dim = 6

    def __init__(self, layout: str = "half", scale: float = 50.0) -> None:
        super().__init__()
        self.layout, self.rate = layout, -torch.tensor([0.1, 0.7]) / scale

    def frequencies(self, length: Tensor | None = None, device: object = None) -> Tensor:
        return torch.tensor([[1.0, 0.05]], dtype=torch.float64, device=device)

    def _evaluate(self, relative: posenc.Relative, device: object, dtype: torch.dtype) -> posenc.Decay:
        steepest = float(-self.rate.min())
        return posenc.Decay(relative, *self._turns(relative, device, dtype), self.layout, self.rate, steepest)


def faded(q: Tensor, k: Tensor, where: Tensor, layout: str, rate: Tensor) -> Tensor:
    """q_i . k_j a pair: turned by (i - j) and multiplied by exp(rate (i - j)); two channels stay as they are."""
    logits = torch.empty(*q.shape[:3], k.shape[2], dtype=torch.float64)
    pairs = [(0, 2), (1, 3)] if layout == "half" else [(0, 1), (2, 3)]
    for i, at in enumerate(where.double()):
        for j, there in enumerate(where.double()):
            total = (q[:, :, i, 4:] * k[:, :, j, 4:]).sum(-1)
            for pair, (a, b) in enumerate(pairs):
                angle, factor = (at - there) * (1.0, 0.05)[pair], (rate[pair].double() * (at - there)).exp()
                qa, qb, ka, kb = q[:, :, i, a], q[:, :, i, b], k[:, :, j, a], k[:, :, j, b]
                total = total + factor * (angle.cos() * (qa * ka + qb * kb) + angle.sin() * (qa * kb - qb * ka))
            logits[:, :, i, j] = total
    return logits


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("block", [1, 5, 128])
def test_a_decay_is_a_factor_for_the_distance(layout: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posenc.Decay, "block", block)
    encoding, length = Fading(layout), 13
    q, k, v = draw(3, 2, 2, length, 6)
    start = int(torch.randint(0, 10**6, ()))
    positions = posenc.sequence(length, start=start)
    logits = faded(q, k, positions.coordinates()[:, 0].double(), layout, encoding.rate) / 6**0.5
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    wanted = logits.masked_fill(future, -torch.inf).softmax(-1) @ v
    ours = posenc.attention(q, k, v, encoding, positions=positions, causal=True)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-8)  # angles of a million, in float64
    plain = (encoding(q, k, positions)[0] @ encoding(q, k, positions)[1].mT) / 6**0.5
    torch.testing.assert_close(plain, logits, rtol=0, atol=1e-8)


def test_a_decay_is_finite_far_beyond_the_range_of_its_factors() -> None:
    """At 3,000 tokens, exp(0.7 * 3000 / 2) is 1e456: only differences within a block may ever be taken."""
    encoding, length = Fading(scale=2.0), 3000
    q, k, v = (draw(1, 1, length, 6).requires_grad_() for _ in range(3))
    out = posenc.attention(q, k, v, encoding, causal=True)
    out.square().sum().backward()
    assert all(x.isfinite().all() for x in (out, q.grad, k.grad, v.grad))
    near = slice(length - 40, None)
    at = torch.arange(length, dtype=torch.float64)[near]
    logits = faded(q[:, :, near], k[:, :, near], at, "half", encoding.rate)[..., -1, :]
    far = (q[:, :, -1:, 4:] @ k[:, :, : length - 40, 4:].mT)[..., 0, :]  # what decays is gone: exp(-14) and less
    pairs = [(0, 2), (1, 3)]
    for pair, (a, b) in enumerate(pairs):
        distance = length - 1 - torch.arange(length - 40, dtype=torch.float64)
        angle, factor = distance * (1.0, 0.05)[pair], (encoding.rate[pair].double() * distance).exp()
        qa, qb, ka, kb = q[:, :, -1:, a], q[:, :, -1:, b], k[:, :, : length - 40, a], k[:, :, : length - 40, b]
        far = far + factor * (angle.cos() * (qa * ka + qb * kb) + angle.sin() * (qa * kb - qb * ka))
    weights = (torch.cat([far, logits], -1) / 6**0.5).softmax(-1)
    torch.testing.assert_close(out[:, :, -1], (weights[..., None] * v).sum(2), rtol=0, atol=1e-9)


def test_a_decay_needs_causal_attention_and_positions_near_each_other() -> None:
    q = torch.randn(1, 1, 4, 6)
    with pytest.raises(
        ValueError, match="Fading is for queries that see nothing ahead of them, got causal=False: pass causal=True"
    ):
        posenc.attention(q, q, q, Fading())
    apart = posenc.coordinates([[0], [1], [10**6], [10**6 + 1]], order=torch.arange(4))
    with pytest.raises(ValueError, match=r"positions of 128 consecutive queries must be near each other.*got 1000001"):
        posenc.attention(q, q, q, Fading(), positions=apart, causal=True)
    with pytest.raises(ValueError, match=r"positions, from their middle, must be near each other.*: use attention"):
        Fading()(q, q, apart)


@pytest.mark.parametrize("scale", [0.01, 1.0, 40.0])
def test_a_steep_decay_is_centred_more_often(scale: float) -> None:
    encoding, length = posenc.XPos(6, scale_base=scale), 300
    q, k, v = draw(3, 1, 2, length, 6).float()
    out = posenc.attention(q, k, v, encoding, causal=True)
    assert out.isfinite().all()
    wanted = posenc.attention(q.double(), k.double(), v.double(), encoding, causal=True)
    torch.testing.assert_close(out, wanted.float(), rtol=0, atol=2e-5)


def test_a_decay_counts_within_documents_however_long_the_one_before() -> None:
    encoding, lengths = posenc.XPos(6, scale_base=4.0), [1000, 44]  # two factors of 1e136
    q, k, v = draw(3, 1, 2, sum(lengths), 6).float()
    packed = posenc.attention(q, k, v, encoding, positions=posenc.packed(lengths), causal=True)
    parts = [x.split(lengths, 2) for x in (q, k, v)]
    alone = [posenc.attention(*document, encoding, causal=True) for document in zip(*parts, strict=True)]
    torch.testing.assert_close(packed, torch.cat(alone, 2), rtol=0, atol=1e-5)
    newest = posenc.attention(q[:, :, -3:], k, v, encoding, positions=posenc.packed(lengths), causal=True)
    torch.testing.assert_close(newest, packed[:, :, -3:], rtol=0, atol=1e-5)


def test_a_decay_refuses_a_key_far_ahead_that_comes_before_the_query() -> None:
    term = posenc.XPos(6, scale_base=1.0).term(
        posenc.coordinates([[0]], order=torch.tensor([2])),
        posenc.coordinates([[5000], [0]], order=torch.tensor([0, 1])),
    )
    with pytest.raises(ValueError, match=r"must not be far ahead of it.*order tokens by their positions"):
        term.product(torch.ones(1, 1, 1, 6), torch.ones(1, 1, 2, 6))


@pytest.mark.parametrize("queries", [posenc.grid(0, 0, prefix=2), posenc.grid(2, 3, prefix=2), posenc.grid(1, 0)])
@pytest.mark.parametrize("keys", [posenc.grid(0, 0, prefix=3), posenc.grid(2, 3, prefix=3), posenc.grid(2, 3)])
def test_prefix_tokens_alone_have_the_numbers_that_they_have_among_others(
    queries: posenc.Positions, keys: posenc.Positions
) -> None:
    bias = posenc.RelativePositionBias(2, (2, 3), prefix_bias=True)
    with torch.no_grad():
        bias.prefix_table.copy_(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    for h in range(2):
        dense, (to_token, from_token, between) = bias(queries, keys)[h], bias.prefix_table[h]
        assert (dense[: queries.prefix, keys.prefix :] == to_token).all()
        assert (dense[queries.prefix :, : keys.prefix] == from_token).all()
        assert (dense[: queries.prefix, : keys.prefix] == between).all()
    inner = [posenc.grid(*side.shape) for side in (queries, keys)]
    if all(side.length for side in inner):
        assert torch.equal(bias(queries, keys)[:, queries.prefix :, keys.prefix :], bias(*inner))
    plain = posenc.ContinuousPositionBias(2, (2, 3), hidden=4)(queries, keys)
    assert not plain[:, : queries.prefix].any()
    assert not plain[:, :, : keys.prefix].any()


def test_what_hides_pairs_is_known_to_what_counts_the_others_in_either_order() -> None:
    positions = posenc.coordinates(torch.randperm(8)[:, None], order=torch.arange(8))
    q, k, v = draw(3, 1, 2, 8, 6)
    cope = posenc.CoPE(6, max_position=5).double()
    bias = posenc.RelativePositionBias(2, (3,), windowed=True)
    both = [
        posenc.attention(q, k, v, *order, positions=positions, causal=True) for order in ((cope, bias), (bias, cope))
    ]
    assert torch.equal(*both)
    near = bias(positions) > -torch.inf
    torch.testing.assert_close(
        both[0], posenc.attention(q, k, v, cope, bias, positions=positions, causal=True, mask=near[None])
    )


def test_plain_calls_ask_for_queries_and_keys_that_go_together() -> None:
    q, meets = torch.randn(2, 4, 6, 16), posenc.Deberta(4, 16, buckets=4, max_distance=8)
    turns = posenc.Rotary(16)
    wrong = [
        (torch.randn(1, 4, 6, 16), r"q and k must be of one device, dtype and batch"),
        (q.double(), r"q and k must be of one device, dtype and batch"),
        (q.to("meta"), r"q and k must be of one device, dtype and batch"),
        (torch.randn(2, 3, 6, 16), r"heads of k must divide those of q, got 3 and 4"),
        (torch.randn(2, 0, 6, 16), r"heads of k must divide those of q, got 0 and 4"),
    ]
    for k, message in wrong:
        for call in (lambda k: meets(q, k=k), lambda k: turns(q, k)):
            with pytest.raises(ValueError, match=message):
                call(k)


def test_a_bias_has_numbers_for_one_head_or_for_all() -> None:
    class Unsaid(posenc.BiasEncoding):
        def bias(self, relative: Tensor) -> Tensor:
            return torch.zeros(3, *relative.shape[:-1])

    q = torch.randn(1, 4, 5, 8)
    with pytest.raises(ValueError, match="Unsaid gave numbers for 3 heads, got q with 4: give one for each head"):
        posenc.attention(q, q, q, Unsaid())


def test_plain_calls_of_content_schemes_are_exact_under_autocast() -> None:
    q, shaw = torch.randn(1, 2, 7, 16), posenc.Shaw(16, 3)
    logits = shaw(q)
    values = shaw.values(logits.softmax(-1))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(shaw(q), logits)
        assert torch.equal(shaw.values(logits.softmax(-1)), values)


def test_a_ready_term_is_for_rows_as_many_as_the_batch() -> None:
    q = torch.randn(3, 1, 4, 16)
    term = posenc.Rotary(16).term(posenc.sequence(4, start=torch.tensor([0, 5])))
    with pytest.raises(ValueError, match="positions must be for the 3 rows of the batch, got 2"):
        posenc.attention(q, q, q, term)
    with pytest.raises(ValueError, match="positions must be for the 3 rows of the batch, got 2"):
        posenc.attention(q, q, q, term, positions=posenc.sequence(4))


def test_a_ready_term_is_for_the_order_and_the_rows_that_it_was_evaluated_at() -> None:
    q, places = torch.randn(2, 1, 4, 16), torch.arange(4)[:, None]
    ordered = [posenc.coordinates(places, order=order) for order in (torch.arange(4), torch.arange(4).flip(0))]
    term = posenc.CoPE(16, 8).term(ordered[0])
    elsewhere = "the term was evaluated at other positions than those of this attention"
    posenc.attention(q, q, q, term, positions=ordered[0], causal=True)
    with pytest.raises(ValueError, match=elsewhere):
        posenc.attention(q, q, q, term, positions=ordered[1], causal=True)
    two, three = (posenc.padded(torch.ones(rows, 4, dtype=torch.bool)) for rows in (2, 3))
    with pytest.raises(ValueError, match="positions must be for the 2 rows of the batch, got 3"):
        posenc.attention(q, q, q, posenc.Rotary(16).term(three), positions=two)


@pytest.mark.parametrize(("queries", "keys"), [(0, 0), (0, 5), (5, 0)])
def test_a_decay_of_no_tokens_is_none(queries: int, keys: int) -> None:
    q, k = draw(1, 2, queries, 6), draw(1, 2, keys, 6)
    layouts = [posenc.sequence(queries), posenc.sequence(keys)]
    assert [x.shape for x in posenc.XPos(6)(q, k, *layouts)] == [q.shape, k.shape]


def test_a_decay_leaves_prefix_tokens_alone() -> None:
    encoding, positions = Fading(), posenc.grid(5, prefix=2)
    q, k = draw(2, 1, 2, 7, 6)
    term = encoding.term(positions, dtype=torch.float64)
    logits = term.product(q, k)
    turned_q, turned_k = term.rotate(q, k)
    torch.testing.assert_close(logits[..., :2, :], q[..., :2, :] @ turned_k.mT)
    torch.testing.assert_close(logits[..., :, :2], turned_q @ k[..., :2, :].mT)
    inner = faded(q[:, :, 2:], k[:, :, 2:], torch.arange(5.0), "half", encoding.rate)
    torch.testing.assert_close(logits[..., 2:, 2:], inner)


class Meeting(posenc.ContentEncoding):
    """Vectors that meet the keys, and something added to the queries; rows over both axes at once."""

    meets_keys, scale_factor, head_dim, axes, num_heads = True, 0.5, 6, 2, 4

    def __init__(self) -> None:
        super().__init__()
        self.on_keys, self.on_queries, self.extra = draw(4, 9, 6), draw(1, 25, 6), draw(4, 1, 6)

    def parts(self, relative: posenc.Relative, device: object = None) -> list[posenc.Part]:
        return [
            posenc.Part("key", 1, self.on_keys[None], lambda lag: lag + 4),
            posenc.Part(
                "query",
                None,
                self.on_queries[None],
                lambda lags: (lags[..., 0] + 2) * 5 + (lags[..., 1] + 2).clamp(0, 4),
                added=self.extra[None],
            ),
        ]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("prefix", [0, 2])
def test_parts_meet_keys_and_read_all_axes(groups: int, prefix: int) -> None:
    encoding, positions = Meeting(), posenc.grid(3, 4, prefix=prefix)
    tokens = 12 + prefix
    q, k, v = draw(2, 4, 5, 6), draw(2, groups, tokens, 6), draw(2, groups, tokens, 6)
    repeated = k.repeat_interleave(4 // groups, 1)
    cells = positions.coordinates()
    logits = torch.zeros(2, 4, 5, tokens, dtype=torch.float64)
    for i in range(5):
        for j in range(prefix, tokens):
            down, right = cells[i + tokens - 5 - prefix] - cells[j - prefix]
            for h in range(4):
                logits[:, h, i, j] = (
                    repeated[:, h, j] @ encoding.on_keys[h, right + 4]
                    + (q[:, h, i] + encoding.extra[h, 0])
                    @ encoding.on_queries[0, (down + 2) * 5 + int((right + 2).clamp(0, 4))]
                )
    torch.testing.assert_close(encoding(q, positions.last(5), positions, k=k), logits)
    scale = 0.5 * 6**-0.5  # attention's default, times what the scheme makes of it
    wanted = ((q @ repeated.mT + logits) * scale).softmax(-1) @ v.repeat_interleave(4 // groups, 1)
    torch.testing.assert_close(posenc.attention(q, k, v, encoding, positions=positions), wanted)
    given = ((q @ repeated.mT + logits) * 0.3).softmax(-1) @ v.repeat_interleave(4 // groups, 1)
    torch.testing.assert_close(posenc.attention(q, k, v, encoding, positions=positions, scale=0.3), given)


def test_keys_are_asked_for_where_they_are_met() -> None:
    q = draw(1, 4, 12, 6)
    with pytest.raises(TypeError, match="Meeting meets the keys too, got none: pass k="):
        Meeting()(q, posenc.grid(3, 4))
    with pytest.raises(TypeError, match="Shaw meets the queries alone, got keys: leave k out"):
        posenc.Shaw(6, 2)(q, k=q)


class Hiding(posenc.BiasEncoding):
    """Nobody sees farther than one token, nor itself."""

    hides, num_heads = True, 2

    def bias(self, relative: Tensor) -> Tensor:
        near = relative[..., 0].abs() == 1
        return torch.where(near, 0.0, -torch.inf).expand(2, *near.shape)


def test_minus_infinity_hides_a_pair_and_a_row_of_it_is_zero() -> None:
    q, k, v = (draw(1, 2, 6, 4).requires_grad_() for _ in range(3))
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[..., 0, 1] = False  # all that the first query would see
    out = posenc.attention(q, k, v, Hiding(), mask=mask)
    assert not out[:, :, 0].any()
    distance = torch.arange(6)[:, None] - torch.arange(6)
    near = ((distance.abs() == 1) & mask[0, 0])[1:]
    wanted = (q[:, :, 1:] @ k.mT / 2).masked_fill(~near, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(out[:, :, 1:], wanted)
    out.square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


class FromQuery(posenc.BiasEncoding):
    """A number that depends on where the query stands."""

    reads_query, num_heads, axes = True, 3, 2

    def bias_from(self, relative: Tensor, query: Tensor) -> Tensor:
        number = relative[..., 0] * 10 + relative[..., 1] + query[..., 0] * 1000 + query[..., 1] * 100
        return torch.stack([number.double()] * 3)


def test_a_bias_may_read_the_position_of_the_query() -> None:
    positions = posenc.grid(2, 3, prefix=1)
    bias = FromQuery().double()(positions)
    assert bias.shape == (3, 7, 7)
    assert not bias[:, 0].any()
    assert not bias[:, :, 0].any()
    cells = positions.coordinates()
    for i in range(6):
        for j in range(6):
            (down, right), (row, column) = (cells[i] - cells[j]).tolist(), cells[i].tolist()
            assert bias[1, i + 1, j + 1] == down * 10 + right + row * 1000 + column * 100


def test_lengths_are_those_of_each_row_and_document() -> None:
    def lengths(queries: posenc.Positions, keys: posenc.Positions | None = None) -> list[list[list[int]]]:
        return [x.tolist() for x in posenc.Relative(queries, keys).lengths()]

    assert lengths(posenc.sequence(5)) == [[[5]], [[5]]]
    assert lengths(posenc.sequence(1, start=6), posenc.sequence(7)) == [[[7]], [[7]]]
    assert lengths(posenc.sequence(2, start=torch.tensor([0, 3]))) == [[[2], [5]], [[2], [5]]]
    assert lengths(posenc.packed([2, 1, 3])) == [[[2, 2, 1, 3, 3, 3]]] * 2
    assert lengths(posenc.packed([0, 0, 2, 0, 1])) == [[[2, 2, 1]]] * 2
    assert lengths(posenc.packed([2, 3]).last(1), posenc.packed([2, 3])) == [[[3]], [[2, 2, 3, 3, 3]]]
    mask = torch.tensor([[False, True, True], [True, True, True], [False, False, False]])
    assert lengths(posenc.padded(mask))[0] == [[2], [3], [1]]
    assert lengths(posenc.grid(2, 5, prefix=3)) == [[[5]], [[5]]]
    document = torch.tensor([[7, 7, 9], [4, 4, 4]])
    mixed = posenc.coordinates([[5], [6], [0]], document=document)
    assert lengths(mixed)[0] == [[7, 7, 1], [7, 7, 7]]
    assert lengths(posenc.sequence(0)) == [[[0]], [[0]]]


class Foreign(posenc.T5Bias):
    foreign = {  # noqa: RUF012
        "upside down": lambda self, state: {"table": state["weights"].flip(0)},
        "of another name": lambda self, state: {"tables": state["weights"]},
    }


def test_numbers_of_another_library_are_taken_over_or_refused() -> None:
    encoding, weights = Foreign(4), torch.randn(4, 32)
    assert encoding.load_foreign({"layer.weights": weights, "other": 1}, "upside down", prefix="layer.") is encoding
    assert torch.equal(encoding.table, weights.flip(0))
    assert encoding.table.requires_grad
    refused = [
        ({"weights": weights}, "sideways", "source of a Foreign must be one of of another name, upside down, got 'sid"),
        ({}, "upside down", "must have a tensor 'weights', got none: pass the state of the module that has it, this"),
        ({"layer.weights": weights}, "upside down", "got none: pass prefix='layer.'"),
        ({"weights": weights[:3]}, "upside down", r"table of this Foreign has shape \(4, 32\), got \(3, 32\)"),
        ({"weights": weights}, "of another name", r"Foreign has \['table'\], got numbers for \['tables'\]"),
    ]
    for state, source, message in refused:
        with pytest.raises(ValueError, match=message):
            encoding.load_foreign(state, source)
    assert torch.equal(encoding.table, weights.flip(0))
    with pytest.raises(ValueError, match="Sinusoidal has no trained numbers and nothing to load, got 'swin'"):
        posenc.Sinusoidal(4).load_foreign({}, "swin")


def test_term_arithmetic_is_not_narrowed_by_autocast() -> None:
    class Network(posenc.BiasEncoding):
        num_heads = 2

        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.nn.Linear(1, 2)

        def bias(self, relative: Tensor) -> Tensor:
            return self.hidden(relative.float()).movedim(-1, 0)

    network, positions = Network(), posenc.sequence(9)
    wanted = network.term(positions).dense()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(network.term(positions).dense(), wanted)
