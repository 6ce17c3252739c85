"""The bias schemes by value: windows at the border, tables that others trained, and where a formula could break."""

import itertools
import math
import re

import numpy as np
import pytest
import torch

import posenc
from posenc.windows import neighbourhood

pytestmark = pytest.mark.usefixtures("seed")

TRAINED = {
    "alibi": lambda: posenc.ALiBi(3, learned=True),
    "alibi, signed": lambda: posenc.ALiBi(3, signed=True, learned=True),
    "t5": lambda: posenc.T5Bias(3),
    "kerple": lambda: posenc.Kerple(3),
    "kerple, power": lambda: posenc.Kerple(3, kind="power"),
    "fire": lambda: posenc.Fire(3, threshold=4.0),
    "window": lambda: posenc.RelativePositionBias(3, 12),
    "window, prefix": lambda: posenc.RelativePositionBias(3, 12, prefix_bias=True),
    "window, symmetric": lambda: posenc.RelativePositionBias(3, 12, symmetric=True),
    "window, hiding": lambda: posenc.RelativePositionBias(3, 4, windowed=True),
    "continuous": lambda: posenc.ContinuousPositionBias(3, 12, hidden=16),
}
FIXED = {
    "alibi": lambda: posenc.ALiBi(3),
    "alibi, signed": lambda: posenc.ALiBi(3, signed=True),
    "sandwich": lambda: posenc.Sandwich(3, dim=8),
}
EVERY = {f"{name}, trained": make for name, make in TRAINED.items()} | FIXED
each = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY.keys())
each_trained = pytest.mark.parametrize("make", TRAINED.values(), ids=TRAINED.keys())


def attend(encoding, length, positions=None, **options):
    q, k, v = torch.randn(3, 2, 3, length, 8, dtype=torch.float64)
    return posenc.attention(q, k, v, encoding, positions=positions, **options)


# 13, 14. Tables that others trained


@pytest.mark.parametrize(("window", "rows"), [(7, 169), (12, 529), ((3, 5), 45)])
def test_13_a_swin_table_is_loaded_without_its_index(window, rows):
    table, shape = torch.randn(rows, 3), (window, window) if isinstance(window, int) else window
    state = {"relative_position_bias_table": table, "relative_position_index": torch.zeros(49, 49), "qkv.weight": table}
    encoding = posenc.RelativePositionBias(3, shape).load_foreign(state, "swin")
    assert list(encoding.state_dict()) == ["table"]
    bias = encoding(posenc.grid(*shape))
    cells = list(itertools.product(*map(range, shape)))
    for (i, query), (j, key) in itertools.product(enumerate(cells), repeat=2):
        row = (query[0] - key[0] + shape[0] - 1) * (2 * shape[1] - 1) + query[1] - key[1] + shape[1] - 1
        if (i + j) % 7 == 0:
            assert torch.equal(bias[:, i, j], table[row])


def test_13_a_table_of_another_window_is_refused():
    state = {"relative_position_bias_table": torch.randn(169, 3)}
    message = (
        "table of this RelativePositionBias has shape (3, 529), got (3, 169) from 'swin': "
        "make the encoding with the sizes that it was trained with"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        posenc.RelativePositionBias(3, (12, 12)).load_foreign(state, "swin")


@pytest.mark.parametrize(("shape", "rows"), [((14, 14), 732), ((16, 20), 1212), ((1, 3), 8)])
def test_14_the_last_three_rows_of_beit_are_the_class_tokens(shape, rows):
    table = torch.randn(rows, 2)
    encoding = posenc.RelativePositionBias(2, shape, prefix_bias=True)
    encoding.load_foreign({"relative_position_bias_table": table}, "beit")
    assert torch.equal(encoding.prefix_table, table[-3:].T)
    bias = encoding(posenc.grid(*shape, prefix=1))
    assert torch.equal(bias[:, 0, 1:], table[-3, :, None].expand_as(bias[:, 0, 1:]))  # from the class token
    assert torch.equal(bias[:, 1:, 0], table[-2, :, None].expand_as(bias[:, 1:, 0]))  # to it
    assert torch.equal(bias[:, 0, 0], table[-1])
    assert torch.equal(bias[:, 1, -1], table[0])  # the first cell is farthest before the last
    assert torch.equal(bias[:, -1, 1], table[-4])


def test_14_a_table_with_class_tokens_needs_prefix_bias():
    state = {"relative_position_bias_table": torch.randn(732, 2)}
    message = (
        "RelativePositionBias has ['table'], got numbers for ['prefix_table', 'table'] from 'beit': "
        "make the encoding with the options that it was trained with"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        posenc.RelativePositionBias(2, (14, 14)).load_foreign(state, "beit")


@pytest.mark.parametrize(
    ("encoding", "source", "name"),
    [
        (posenc.RelativePositionBias(2, 3), "swin", "relative_position_bias_table"),
        (posenc.RelativePositionBias(2, 3, symmetric=True), "levit", "attention_biases"),
        (posenc.T5Bias(2), "t5", "relative_attention_bias.weight"),
        (posenc.ContinuousPositionBias(2, 3), "swinv2", "continuous_position_bias_mlp.0.weight"),
        (posenc.ContinuousPositionBias(2, 3), "timm", "mlp.fc1.weight"),
    ],
)
def test_a_missing_name_is_an_error_that_says_it(encoding, source, name):
    with pytest.raises(ValueError, match=re.escape(f"'{source}' must have a tensor 'blocks.0.{name}', got none")):
        encoding.load_foreign({"blocks.1.x": torch.zeros(1)}, source, prefix="blocks.0.")


# 16. Neighbourhood windows at the border


def seen(mask, query):
    return mask[0, 0, query].nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("length", "size", "dilation", "query", "keys"),
    [
        (10, 5, 1, 0, [0, 1, 2, 3, 4]),
        (10, 5, 1, 1, [0, 1, 2, 3, 4]),
        (10, 5, 1, 2, [0, 1, 2, 3, 4]),
        (10, 5, 1, 3, [1, 2, 3, 4, 5]),
        (10, 5, 1, 8, [5, 6, 7, 8, 9]),
        (10, 5, 1, 9, [5, 6, 7, 8, 9]),
        (5, 5, 1, 4, [0, 1, 2, 3, 4]),
        (6, 1, 1, 5, [5]),
        (9, 4, 1, 4, [2, 3, 4, 5]),
        (9, 4, 1, 0, [0, 1, 2, 3]),
        (10, 3, 2, 0, [0, 2, 4]),
        (10, 3, 2, 1, [1, 3, 5]),
        (10, 3, 2, 4, [2, 4, 6]),
        (10, 3, 2, 9, [5, 7, 9]),
        (11, 3, 3, 10, [4, 7, 10]),
        (11, 3, 3, 8, [2, 5, 8]),
        (11, 3, 3, 5, [2, 5, 8]),
        (11, 3, 3, 9, [3, 6, 9]),
        (20, 5, 4, 19, [3, 7, 11, 15, 19]),
    ],
)
def test_16_windows_shift_at_the_border(length, size, dilation, query, keys):
    assert seen(neighbourhood(length, size, dilation), query) == keys


@pytest.mark.parametrize(
    ("length", "size", "dilation", "query", "keys"),
    [
        (10, 5, 1, 0, [0, 1, 2]),
        (10, 5, 1, 9, [7, 8, 9]),
        (10, 4, 1, 5, [3, 4, 5, 6]),
        (10, 3, 4, 1, [1, 5]),
        (3, 7, 1, 1, [0, 1, 2]),
        (3, 3, 5, 1, [1]),
    ],
)
def test_16_or_are_cut_there(length, size, dilation, query, keys):
    assert seen(neighbourhood(length, size, dilation, shifted=False), query) == keys


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("extra", [0, 1, 2, 7])
def test_16_every_query_sees_just_as_many_as_near_as_can_be(size, dilation, extra):
    length = size * dilation + extra
    mask = neighbourhood(length, size, dilation)
    assert mask.shape == (1, 1, length, length)
    for query in range(length):
        members = range(query % dilation, length, dilation)
        runs = [list(members[first : first + size]) for first in range(len(members) - size + 1)]
        # of all runs of neighbours, the one whose places stand nearest to the query's; the earlier of two
        best = min(runs, key=lambda run: sum(abs(key - query) for key in run))
        assert seen(mask, query) == best


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize(
    ("shape", "size", "dilation", "prefix"),
    [(11, 4, 2, 0), ((5, 6), (3, 2), 1, 1), ((6, 4), 2, (3, 2), 0), ((4, 3, 5), (2, 3, 2), (2, 1, 2), 2)],
)
def test_16_windows_equal_the_reference(shape, size, dilation, prefix, shifted):
    ours = neighbourhood(shape, size, dilation, shifted, prefix=prefix)
    theirs = posenc.reference.neighbourhood(shape, size, dilation, shifted, prefix)
    assert ours[0, 0].tolist() == theirs.tolist()


def test_16_axes_have_windows_of_their_own():
    shape, sizes, dilations = (4, 7, 3), (3, 2, 1), (1, 3, 2)
    mask = neighbourhood(shape, sizes, dilations)[0, 0].reshape(*shape, *shape)
    single = [neighbourhood(*axis)[0, 0] for axis in zip(shape, sizes, dilations, strict=True)]
    for query, key in itertools.product(itertools.product(*map(range, shape)), repeat=2):
        near = all(own[i, j] for own, i, j in zip(single, query, key, strict=True))
        assert bool(mask[(*query, *key)]) == near
    assert int(mask.sum()) == math.prod(shape) * 3 * 2 * 1


def test_16_prefix_tokens_see_and_are_seen():
    mask = neighbourhood((3, 4), 3, prefix=2)
    assert mask.shape == (1, 1, 14, 14)
    assert mask[..., :2, :].all()
    assert mask[..., :, :2].all()
    assert torch.equal(mask[..., 2:, 2:], neighbourhood((3, 4), (3, 3)))


def test_16_the_rows_of_a_table():
    # As reported: the table ascends by key - query there, and query 0 reads rows 4 to 8 of 9; ours ascends the other way
    rows = torch.arange(9.0)
    encoding = posenc.RelativePositionBias(1, 5, windowed=True).load_foreign({"rpb": rows[None]}, "natten")
    assert torch.equal(encoding.table[0], rows.flip(0))
    bias, mask = encoding(posenc.sequence(10))[0], neighbourhood(10, 5)[0, 0]
    for query, wanted in [(0, range(4, 9)), (1, range(3, 8)), (2, range(2, 7)), (5, range(2, 7)), (9, range(5))]:
        assert bias[query, mask[query]].tolist() == list(wanted)
    assert bias[0, 5:].eq(-torch.inf).all()


@pytest.mark.parametrize(("shape", "size"), [((4, 6), (3, 3)), ((5, 3), (2, 3)), ((2, 5, 3), (1, 3, 2))])
def test_16_attention_in_shifted_windows_equals_a_loop(shape, size):
    rpb = torch.randn(3, *(2 * window - 1 for window in size), dtype=torch.float64)
    encoding = posenc.RelativePositionBias(3, size, windowed=True).double().load_foreign({"rpb": rpb}, "natten")
    length, positions = math.prod(shape), posenc.grid(*shape)
    q, k, v = torch.randn(3, 2, 3, length, 8, dtype=torch.float64)
    ours = posenc.attention(q, k, v, encoding, positions=positions, mask=neighbourhood(shape, size))
    cells = list(itertools.product(*map(range, shape)))
    for i, query in enumerate(cells):
        starts = [
            min(max(at - window // 2, 0), length - window)
            for at, window, length in zip(query, size, shape, strict=True)
        ]
        window = list(itertools.product(*(range(s, s + w) for s, w in zip(starts, size, strict=True))))
        keys = [cells.index(key) for key in window]
        rows = [tuple(b - a + w - 1 for a, b, w in zip(query, key, size, strict=True)) for key in window]  # key - query
        logits = (q[:, :, i, None] * k[:, :, keys]).sum(-1) * 8**-0.5 + torch.stack([rpb[:, *row] for row in rows], -1)
        wanted = (logits.softmax(-1)[..., None] * v[:, :, keys]).sum(-2)
        torch.testing.assert_close(ours[:, :, i], wanted, rtol=1e-12, atol=1e-12)


def test_16_a_dilated_window_has_its_table_in_steps_of_the_dilation():
    # positions divided by the dilation: keys that a query sees are whole steps away
    length, size, dilation = 14, 3, 4
    encoding = posenc.RelativePositionBias(3, size, windowed=True).double()
    positions = posenc.coordinates(torch.arange(length)[:, None] // dilation)
    q, k, v = torch.randn(3, 1, 3, length, 8, dtype=torch.float64)
    mask = neighbourhood(length, size, dilation)
    ours = posenc.attention(q, k, v, encoding, positions=positions, mask=mask)
    for group in range(dilation):  # each group is a sequence of its own, of every fourth token
        own = slice(group, None, dilation)
        part = [x[:, :, own] for x in (q, k, v)]
        count = part[0].shape[2]
        wanted = posenc.attention(*part, encoding, mask=neighbourhood(count, size))
        torch.testing.assert_close(ours[:, :, own], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (4, 5),
            "size times dilation must be at most the 4 positions, got 5 times 1: "
            "take a smaller window, or shifted=False to cut it at the border",
        ),
        (
            ((8, 9), 3, (2, 4)),
            "size times dilation must be at most the 9 positions on axis 1, got 3 times 4: "
            "take a smaller window, or shifted=False to cut it at the border",
        ),
        (((8, 9), (3, 3, 3)), "size needs one number, or one an axis, got 3 for 2 axes: pass 2"),
        ((8, 3, (1, 1)), "dilation needs one number, or one an axis, got 2 for 1 axes: pass 1"),
        ((8, 0), "each size of size must be 1 or more, got 0: pass a larger number"),
    ],
)
def test_windows_that_cannot_be_are_an_error(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        neighbourhood(*arguments)


# Pairs beyond a windowed table


@pytest.mark.parametrize("shape", [(9,), (4, 5)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_what_is_beyond_a_windowed_table_is_not_seen(shape, symmetric):
    size = (2, 3)[: len(shape)]
    encoding = posenc.RelativePositionBias(3, size, symmetric=symmetric, windowed=True).double()
    whole = posenc.RelativePositionBias(3, shape, symmetric=symmetric).double()
    cells = posenc.grid(*shape).coordinates()
    near = ((cells[:, None] - cells).abs() < torch.tensor(size)).all(-1)
    if not symmetric:
        assert torch.equal(near, neighbourhood(shape, [2 * s - 1 for s in size], shifted=False)[0, 0])
    bias = encoding(posenc.grid(*shape))
    assert torch.equal(bias.isfinite(), near.expand_as(bias))
    with torch.no_grad():  # a table of the whole grid with the window's numbers in its middle
        spread = whole.table.view(3, *(s if symmetric else 2 * s - 1 for s in shape))
        middle = [slice(0, s) if symmetric else slice(n - s, n + s - 1) for n, s in zip(shape, size, strict=True)]
        spread[(slice(None), *middle)] = encoding.table.view(3, *(s if symmetric else 2 * s - 1 for s in size))
    q, k, v = torch.randn(3, 2, 3, len(cells), 8, dtype=torch.float64)
    ours = posenc.attention(q, k, v, encoding, positions=posenc.grid(*shape))
    masked = posenc.attention(q, k, v, whole, positions=posenc.grid(*shape), mask=near[None, None])
    torch.testing.assert_close(ours, masked, rtol=1e-12, atol=1e-12)


def test_keys_that_are_not_seen_change_nothing_and_have_no_gradient():
    encoding = posenc.RelativePositionBias(3, 2, windowed=True).double()
    q, k, v = torch.randn(3, 1, 3, 6, 8, dtype=torch.float64)
    k.requires_grad_()
    posenc.attention(q, k, v, encoding)[:, :, 0].square().sum().backward()
    assert k.grad[:, :, :2].abs().sum() > 0
    assert not k.grad[:, :, 2:].any()
    assert encoding.table.grad.isfinite().all()


@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_sees_nothing_gives_zero(causal):
    encoding = posenc.RelativePositionBias(3, 2, windowed=True).double()
    far = posenc.sequence(3, start=40)
    q, k, v = torch.randn(3, 1, 3, 3, 8, dtype=torch.float64)
    out = posenc.attention(q, k, v, encoding, positions=far, key_positions=posenc.sequence(3), causal=causal)
    assert not out.any()
    out.sum().backward()
    assert encoding.table.grad.isfinite().all()


def test_prefix_tokens_see_everything_through_a_window():
    encoding = posenc.RelativePositionBias(2, (2, 2), windowed=True, prefix_bias=True)
    bias = encoding(posenc.grid(4, 4, prefix=1))
    assert bias[:, 0].isfinite().all()
    assert bias[:, :, 0].isfinite().all()
    assert torch.equal(bias[:, 0, 1:], encoding.prefix_table[:, :1].expand(-1, 16))


def test_a_window_looks_up_whole_positions():
    with pytest.raises(ValueError, match="RelativePositionBias looks up integer positions, got real coordinates"):
        posenc.RelativePositionBias(2, 3, windowed=True)(posenc.coordinates([[0.5], [1.0]]))


# Queries and keys on grids of different sizes


@pytest.mark.parametrize("make", [posenc.RelativePositionBias, posenc.ContinuousPositionBias])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        (posenc.grid(2, 3, step=2), posenc.grid(4, 5)),
        (posenc.grid(4, 5), posenc.grid(2, 3, step=2)),
        (posenc.grid(4, 5), posenc.grid(1, 5, step=(3, 1))),
        (posenc.grid(2, 2, step=(3, 2)), posenc.coordinates([[0, 4], [3, 0], [1, 2]])),
        (posenc.coordinates([[1, 1], [3, 4]], extent=(4, 5)), posenc.grid(4, 5)),
    ],
)
def test_grids_of_different_sizes(make, queries, keys):
    encoding = make(2, (4, 5)).double()
    bias, whole = encoding(queries, keys), encoding(posenc.grid(4, 5))
    assert bias.shape == (2, queries.length, keys.length)
    for i, (a, b) in enumerate(queries.coordinates().tolist()):
        for j, (c, d) in enumerate(keys.coordinates().tolist()):
            torch.testing.assert_close(bias[:, i, j], whole[:, 5 * a + b, 5 * c + d], rtol=1e-13, atol=1e-13)


def test_pooled_keys_of_half_a_cell():
    # keys pooled two by two stand between the cells: real coordinates, for a scheme that is a function of them
    encoding = posenc.ContinuousPositionBias(2, (4, 4), hidden=8).double()
    keys = posenc.grid(2, 2).rescaled(-0.5, 3.5)
    assert keys.coordinates()[:, 1].tolist() == [0.5, 2.5, 0.5, 2.5]
    bias = encoding(posenc.grid(4, 4), keys)
    mirrored = encoding(posenc.coordinates([[0, 1], [3, 1]]), posenc.coordinates([[0.5, 0.5], [2.5, 2.5]]))
    torch.testing.assert_close(bias[:, [1, 13]][:, :, [0, 3]], mirrored)


# Axes of size 1


@pytest.mark.parametrize("shape", [(1,), (1, 4), (4, 1), (1, 1), (3, 1, 2)])
def test_a_window_of_one_divides_by_nothing(shape):
    for pretrained in (None, (1,) * len(shape), (5,) * len(shape)):
        encoding = posenc.ContinuousPositionBias(2, shape, pretrained, hidden=8).double()
        bias = encoding(posenc.grid(*shape))
        assert bias.isfinite().all()
        bias.sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in encoding.parameters())
    lengthened = posenc.ContinuousPositionBias(2, tuple(max(size, 2) for size in shape), hidden=8).double()
    encoding = posenc.ContinuousPositionBias(2, shape, hidden=8).double()
    encoding.load_state_dict(lengthened.state_dict())
    torch.testing.assert_close(encoding(posenc.grid(*shape)), lengthened(posenc.grid(*shape)))


@pytest.mark.parametrize("shape", [(1,), (1, 4), (4, 1), (1, 1)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_a_table_of_one_position_on_an_axis(shape, symmetric):
    encoding = posenc.RelativePositionBias(2, shape, symmetric=symmetric)
    long = posenc.RelativePositionBias(2, math.prod(shape), symmetric=symmetric)
    long.load_state_dict(encoding.state_dict())
    assert torch.equal(encoding(posenc.grid(*shape)), long(posenc.sequence(math.prod(shape))))


# The formulas, by value


def test_signed_and_learned_alibi():
    assert posenc.ALiBi(2)(posenc.sequence(3))[0].tolist() == [
        [0, -0.0625, -0.125],
        [-0.0625, 0, -0.0625],
        [-0.125, -0.0625, 0],
    ]
    signed = posenc.ALiBi(2, signed=True)(posenc.sequence(3))[0]
    assert signed.tolist() == [[0, 0.0625, 0.125], [-0.0625, 0, 0.0625], [-0.125, -0.0625, 0]]
    learned = posenc.ALiBi(6, learned=True)
    assert learned.slopes.tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    learned(posenc.sequence(3)).sum().backward()
    assert learned.slopes.grad.tolist() == [-8.0] * 6
    with torch.no_grad():
        learned.slopes.zero_()
    learned.reset_parameters()
    assert torch.equal(learned(posenc.sequence(5)), posenc.ALiBi(6)(posenc.sequence(5)))
    assert not list(posenc.ALiBi(6).state_dict())


def test_signed_alibi_is_alibi_where_attention_is_causal():
    q, k, v = torch.randn(3, 2, 4, 9, 8, dtype=torch.float64)
    plain, signed = (posenc.attention(q, k, v, posenc.ALiBi(4, signed), causal=True) for signed in (False, True))
    torch.testing.assert_close(signed, plain, rtol=1e-13, atol=1e-13)


def test_kerple_by_value():
    encoding = posenc.Kerple(2).double()
    with torch.no_grad():  # softplus(log(e^x - 1)) = x
        encoding.raw_r1.copy_(torch.tensor([1.0, 3.0]).double().expm1().log())
        encoding.raw_r2.copy_(torch.tensor([1.0, 0.5]).double().expm1().log())
    wanted = torch.tensor([[0, math.log(2), math.log(3)], [0, 3 * math.log(1.5), 3 * math.log(2)]], dtype=torch.float64)
    torch.testing.assert_close(encoding(posenc.sequence(3))[:, 0], -wanted)
    torch.testing.assert_close(encoding(posenc.sequence(3))[:, 2].flip(1), -wanted)


def test_kerple_of_power_one_is_alibi():
    encoding = posenc.Kerple(4, kind="power").double()
    with torch.no_grad():
        encoding.raw_r1.copy_(posenc.alibi_slopes(4).expm1().log())
        encoding.raw_r2.zero_()  # 2 sigmoid(0) = 1
    positions = posenc.sequence(40)
    torch.testing.assert_close(encoding(positions), posenc.ALiBi(4).double()(positions).double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["logarithmic", "power"])
def test_kerple_begins_inside_its_bounds(kind):
    encoding = posenc.Kerple(4000, kind=kind)
    r1 = torch.nn.functional.softplus(encoding.raw_r1)
    r2 = 2 * encoding.raw_r2.sigmoid() if kind == "power" else torch.nn.functional.softplus(encoding.raw_r2)
    for numbers, bound in ((r1, 1 if kind == "power" else 2), (r2, 2 if kind == "power" else 1)):
        assert 0 < numbers.min() < 0.05 < bound - 0.05 < numbers.max() < bound + 1e-4


@pytest.mark.parametrize("dim", [2, 16, 128])
def test_sandwich_is_the_product_of_sinusoidal_embeddings(dim):
    positions = posenc.sequence(50, start=7)
    vectors = posenc.Sinusoidal(dim).vectors(positions.coordinates())
    bias = posenc.Sandwich(12, dim).term(positions, dtype=torch.float64).dense()[0]
    for head in range(12):
        torch.testing.assert_close(bias[head] * (8 * (head + 1) / 12), vectors @ vectors.T, rtol=1e-12, atol=1e-12)


def test_fire_measures_distance_in_parts_of_what_is_behind():
    encoding = posenc.Fire(1, hidden=1, threshold=4.0).double()
    with torch.no_grad():  # the network passes its input on
        encoding.hidden.weight.fill_(1.0)
        encoding.hidden.bias.zero_()
        encoding.output.weight.fill_(1.0)
        encoding.output.bias.zero_()
    bias = encoding(posenc.sequence(30))[0]
    assert bias.diagonal().eq(0).all()
    torch.testing.assert_close(bias[4:, 0], torch.ones(26, dtype=torch.float64))  # the farthest, from the threshold on
    psi = [math.log(1 + 0.1 * distance) for distance in range(30)]
    for query, key in [(1, 0), (3, 0), (3, 2), (4, 1), (9, 2), (29, 28), (2, 6), (20, 25)]:
        wanted = psi[abs(query - key)] / psi[max(4, query)]
        assert float(bias[query, key].detach()) == pytest.approx(wanted, rel=1e-6)
    assert bias[9, 8] < bias[5, 4]  # the same distance is a smaller part of more


def test_fire_has_no_use_for_the_sign_of_its_scales():
    encoding, positions = posenc.Fire(2, threshold=3.0).double(), posenc.sequence(9)
    before = encoding(positions)
    with torch.no_grad():
        encoding.c.neg_()
        encoding.threshold.neg_()
    assert torch.equal(encoding(positions), before)


@pytest.mark.parametrize("name", ["c", "threshold"])
def test_fire_is_finite_where_a_scale_is_zero(name):
    encoding = posenc.Fire(2, threshold=3.0)
    with torch.no_grad():
        getattr(encoding, name).zero_()
    bias = encoding(posenc.sequence(9))
    bias.square().sum().backward()
    assert bias.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in encoding.parameters())


def test_continuous_position_bias_by_value():
    encoding = posenc.ContinuousPositionBias(1, (8, 3), pretrained_shape=(8, 5), hidden=2).double()
    with torch.no_grad():
        encoding.hidden.weight.copy_(torch.eye(2))
        encoding.hidden.bias.zero_()
        encoding.output.weight.copy_(torch.tensor([[1.0, -2.0]]))
    bias = encoding(posenc.grid(8, 3))[0]
    # relative (7, 2): log2(1 + 8) / 3 on the first axis, log2(1 + 8 * 2 / 4) / 3 on the second; relu drops what is behind
    u, w = math.log2(9) / 3, math.log2(5) / 3
    for query, key, logit in [(23, 0, u - 2 * w), (21, 2, u), (2, 21, -2 * w), (0, 23, 0.0), (5, 5, 0.0)]:
        assert float(bias[query, key].detach()) == pytest.approx(16 / (1 + math.exp(-logit)), rel=1e-12)


# Gradients, devices, casts


@each_trained
@pytest.mark.parametrize("positions", [posenc.sequence(12), posenc.sequence(1), posenc.grid(9, prefix=3)])
def test_gradients_are_finite_everywhere(make, positions):
    encoding = make().double()
    out = attend(encoding, positions.length, positions)
    out.square().sum().backward()
    assert out.isfinite().all()
    for name, parameter in encoding.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@each
def test_a_forward_pass_on_the_meta_device(make):
    with torch.device("meta"):
        encoding = make()
    q = torch.empty(2, 3, 12, 8, device="meta")
    assert posenc.attention(q, q, q, encoding).shape == q.shape
    assert encoding(posenc.sequence(12)).shape == (3, 12, 12)


@each
def test_built_on_meta_and_loaded(make):
    there = make()
    with torch.device("meta"):
        encoding = make()
    encoding.to_empty(device="cpu").load_state_dict(there.state_dict())
    assert torch.equal(encoding(posenc.sequence(12)), there(posenc.sequence(12)))
    if hasattr(encoding, "reset_parameters"):
        for parameter in encoding.parameters():
            torch.nn.init.constant_(parameter, torch.nan)
        encoding.reset_parameters()
        bias = encoding(posenc.sequence(12))
        assert not bias.isnan().any()


@each_trained
def test_numbers_cast_to_bfloat16_are_computed_with_in_float32(make):
    cast = make().to(torch.bfloat16)
    exact = make().double()
    exact.load_state_dict({name: tensor.double() for name, tensor in cast.state_dict().items()})
    for length in (12, 2000):
        if length > 12 and isinstance(cast, posenc.RelativePositionBias) and not cast.windowed:
            continue
        term = cast.term(posenc.sequence(1, start=length - 1), posenc.sequence(length), dtype=torch.float32).dense()
        wanted = exact.term(posenc.sequence(1, start=length - 1), posenc.sequence(length), dtype=torch.float64).dense()
        assert term.dtype == torch.float32
        torch.testing.assert_close(term.double(), wanted, rtol=2e-6, atol=2e-6)


@each
def test_autocast_changes_nothing(make):
    encoding = make()
    q, k, v = torch.randn(3, 2, 3, 12, 8)
    wanted = posenc.attention(q, k, v, encoding)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = posenc.attention(q, k, v, encoding)
        table = encoding(posenc.sequence(12))
    assert torch.equal(ours, wanted)
    assert torch.equal(table, encoding(posenc.sequence(12)))


# What cannot be made


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: posenc.Kerple(2, kind="log"),
            "kind must be 'logarithmic' or 'power', got 'log': the paper prefers 'logarithmic'",
        ),
        (lambda: posenc.Kerple(0), "num_heads must be 1 or more, got 0: pass a larger number"),
        (lambda: posenc.Sandwich(2, dim=7), "dim must be even for pairs of sine and cosine, got 7: pass 8"),
        (lambda: posenc.Sandwich(2, dim=0), "dim must be 2 or more, got 0: pass a larger number"),
        (lambda: posenc.Fire(2, threshold=0), "threshold must be more than 0, got 0: the paper has 512"),
        (
            lambda: posenc.Fire(2, threshold=math.inf),
            "threshold must be finite, got inf: the paper has 512",
        ),
        (lambda: posenc.Fire(2, hidden=0), "hidden must be 1 or more, got 0: pass a larger number"),
        (
            lambda: posenc.ContinuousPositionBias(2, (7, 7), pretrained_shape=12),
            "pretrained_shape must have the 2 axes of shape, got (12,): pass one size an axis",
        ),
        (
            lambda: posenc.ContinuousPositionBias(2, (7, 0)),
            "each size of shape must be 1 or more, got 0: pass a larger number",
        ),
    ],
)
def test_what_cannot_be_made_says_why(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()


def test_a_threshold_is_a_number():
    with pytest.raises(TypeError, match=r"^threshold must be a number, got '512': the paper has 512$"):
        posenc.Fire(2, threshold="512")
    assert posenc.Fire(2, threshold=np.float32(0.5)).threshold.item() == 0.5


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: posenc.ALiBi(2, signed="no"), "signed"),
        (lambda: posenc.ALiBi(2, learned="no"), "learned"),
        (lambda: posenc.T5Bias(2, bidirectional="no"), "bidirectional"),
        (lambda: posenc.t5_bucket(torch.ones(2).long(), bidirectional="no"), "bidirectional"),
        (lambda: posenc.RelativePositionBias(2, 3, symmetric="no"), "symmetric"),
        (lambda: posenc.RelativePositionBias(2, 3, windowed="no"), "windowed"),
        (lambda: posenc.RelativePositionBias(2, 3, prefix_bias="no"), "prefix_bias"),
    ],
)
def test_what_says_no_is_not_true(make, name):
    with pytest.raises(TypeError, match=f"^{name} must be True or False, got 'no': pass one of them$"):
        make()


def test_numpys_flags_are_flags():
    assert posenc.ALiBi(2, learned=np.True_).slopes.shape == (2,)
    assert posenc.RelativePositionBias(2, 3, symmetric=np.True_, windowed=np.False_).table.shape == (2, 3)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_the_smallest_integer_is_as_far_as_it_is(dtype, bidirectional):
    ends = [torch.iinfo(dtype).min, torch.iinfo(dtype).max]
    buckets = posenc.t5_bucket(torch.tensor(ends, dtype=dtype), bidirectional=bidirectional, max_distance=100)
    assert buckets.dtype == torch.int64
    assert buckets.tolist() == ([31, 15] if bidirectional else [0, 31])


@pytest.mark.parametrize(("relative", "kind"), [(3, "int"), (np.arange(3), "ndarray"), ([1], "list")])
def test_buckets_are_of_tensors(relative, kind):
    message = f"^relative must be an integer tensor for T5 buckets, got {kind}: convert it$"
    with pytest.raises(TypeError, match=message):
        posenc.t5_bucket(relative)


@pytest.mark.parametrize("make", [lambda: posenc.Kerple(2), lambda: posenc.Fire(2), lambda: posenc.Sandwich(2)])
def test_schemes_of_one_axis_refuse_grids(make):
    with pytest.raises(ValueError, match=r"was made for positions with 1 axis, got 2 axes"):
        make()(posenc.grid(3, 4))
