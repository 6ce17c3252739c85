"""Layouts by value: coordinates, order, documents, padding, slices, rescaling; and the tables of the initial draw."""

import math
from math import nan

import numpy as np
import pytest
import torch

import posenc
from posenc import reference
from posenc.sinusoid import geometric
from posenc.validate import require_numbers

MASK = torch.ones(1, 3, dtype=torch.bool)
BIG = torch.tensor([[2**63 - 1]]).to(torch.uint64)


def test_sequence() -> None:
    layout = posenc.sequence(4, start=3)
    assert (layout.length, layout.axes, layout.prefix, layout.shape) == (4, 1, 0, (4,))
    assert layout.coordinates().tolist() == [[3], [4], [5], [6]]
    assert layout.order().tolist() == [3, 4, 5, 6]
    assert layout.bounds() == [(3, 6)]
    assert posenc.sequence(2, start=-2).coordinates().flatten().tolist() == [-2, -1]
    rows = posenc.sequence(2, start=torch.tensor([0, 7], dtype=torch.int32))
    assert rows.batch == 2
    assert rows.coordinates()[..., 0].tolist() == [[0, 1], [7, 8]]
    assert rows.bounds() == [(0, 8)]


def test_grid() -> None:
    layout = posenc.grid(8, 32)
    assert layout.coordinates()[40].tolist() == [1, 8]  # row-major, last axis fastest
    layout = posenc.grid(2, 1, 3, prefix=2)
    assert layout.length == 8
    assert layout.coordinates().tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 0], [1, 0, 1], [1, 0, 2]]
    assert layout.order().tolist() == list(range(8))


def test_grids_whose_neighbours_stand_apart() -> None:
    pooled = posenc.grid(2, 3, prefix=1, step=(4, 2))
    assert (pooled.length, pooled.axes, pooled.prefix, pooled.shape) == (7, 2, 1, (2, 3))
    assert pooled.coordinates().tolist() == [[0, 0], [0, 2], [0, 4], [4, 0], [4, 2], [4, 4]]
    assert (pooled.extent, pooled.bounds()) == ((5, 5), [(0, 4), (0, 4)])
    assert pooled.order().tolist() == list(range(7))
    assert pooled.last(2).coordinates().tolist() == [[4, 2], [4, 4]]
    assert posenc.grid(5, step=3).coordinates().flatten().tolist() == [0, 3, 6, 9, 12]
    assert posenc.grid(2, 3, step=1).agrees(posenc.grid(2, 3))
    assert not posenc.grid(2, 3, step=2).agrees(posenc.grid(2, 3))
    for shape in ((0, 3), (1, 1)):
        layout = posenc.grid(*shape, step=7)
        assert layout.extent == tuple(7 * (size - 1) + 1 if size else 0 for size in shape)
        assert layout.coordinates().shape == (shape[0] * shape[1], 2)


@pytest.mark.parametrize("step", [1, 2, (1, 3), (3, 2)])
def test_pooled_keys_read_the_entries_of_their_own_lags(step: int | tuple[int, int]) -> None:
    queries, keys = posenc.grid(4, 5), posenc.grid(2, 2, step=step)
    relative = posenc.Relative(queries, keys)
    assert torch.equal(relative.lag_table()[0][relative.index()[0]], relative.pairs()[0])


def test_padded_sequences() -> None:
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    layout = posenc.padded(mask)
    assert layout.coordinates()[..., 0].tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4], [0, 1, 1, 1, 1], [0] * 5]
    assert (layout.extent, layout.bounds(), layout.batch, layout.axes) == ((5,), [(0, 4)], 4, 1)
    present = layout.present()
    assert present is not None
    assert torch.equal(present, mask)
    assert layout.order().tolist() == [0, 1, 2, 3, 4]

    later = posenc.padded(mask, start=3)  # RoBERTa's with padding_idx=2: padding that comes first has row 2
    assert later.coordinates()[..., 0].tolist() == [[2, 2, 3, 4, 5], [3, 4, 5, 6, 7], [3, 4, 4, 4, 4], [2] * 5]
    assert (later.extent, later.bounds()) == ((6,), [(2, 7)])
    assert later.last(2).coordinates()[..., 0].tolist() == [[4, 5], [6, 7], [4, 4], [2, 2]]
    assert later.last(2).bounds() == [(2, 7)]
    assert later.agrees(posenc.padded(mask, start=3))
    assert not later.agrees(layout)


@pytest.mark.parametrize("start", [0, 1, 2, 9])
def test_padded_lags_are_those_of_the_coordinates(start: int, seed: int) -> None:
    mask = torch.rand(3, 4, 5) < 0.6
    queries, keys = posenc.padded(mask, start=start), posenc.padded(mask.roll(1, 0))
    for relative in (posenc.Relative(queries), posenc.Relative(queries, keys)):
        table, index = relative.lag_table(), relative.index()
        table, index = table.expand(3, -1, -1), index.expand(3, -1, -1)
        looked_up = torch.stack([rows[entries] for rows, entries in zip(table, index, strict=True)])
        assert torch.equal(looked_up, relative.pairs())


def test_padded_images() -> None:
    mask = torch.zeros(2, 3, 4, dtype=torch.bool)
    mask[0, :2, :3] = mask[1] = True
    layout = posenc.padded(mask, start=1)
    assert (layout.length, layout.axes, layout.batch, layout.shape) == (12, 2, 2, None)
    rows, columns = layout.coordinates().unflatten(1, (3, 4)).unbind(-1)
    assert rows[0].tolist() == [[1, 1, 1, 0], [2, 2, 2, 0], [2, 2, 2, 0]]
    assert columns[0].tolist() == [[1, 2, 3, 3], [1, 2, 3, 3], [0, 0, 0, 0]]
    assert torch.equal(layout.coordinates()[1], posenc.grid(3, 4).coordinates() + 1)
    zero = posenc.padded(mask).coordinates()
    assert torch.equal(zero[1], posenc.grid(3, 4).coordinates())
    assert torch.equal(zero[0], (layout.coordinates()[0] - 1).clamp(min=0))
    assert posenc.padded(mask).extent == (3, 4)
    video = posenc.padded(torch.ones(1, 2, 3, 2, dtype=torch.bool))
    assert torch.equal(video.coordinates()[0], posenc.grid(2, 3, 2).coordinates())


def test_padded_images_in_a_span() -> None:
    mask = torch.tensor([[[True, True, False], [False, False, False]]])
    layout = posenc.padded(mask, start=1, span=6.0)
    assert layout.extent is None
    assert layout.bounds() is None
    assert layout.coordinates().dtype == torch.float64
    rows, columns = layout.coordinates().unflatten(1, (2, 3)).unbind(-1)
    full, half = 6 / (1 + 1e-6), 3 / (1 + 5e-7)  # DETR's: 1e-6 is added to the number of tokens of the line
    assert rows[0].tolist() == [pytest.approx([full, full, 0], rel=1e-15)] * 2
    assert columns[0].tolist() == [pytest.approx([half, 2 * half, 2 * half], rel=1e-15), [0, 0, 0]]
    middles = posenc.padded(torch.ones(1, 4, dtype=torch.bool), start=0.5, span=4).coordinates().flatten()
    torch.testing.assert_close(middles, torch.tensor([0.5, 1.5, 2.5, 3.5]).double(), rtol=1e-6, atol=0)
    assert posenc.padded(mask, span=6.0).coordinates()[0, 0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: posenc.grid(2, 3, step=0), ValueError, "step must be 1 or more, got 0"),
        (lambda: posenc.grid(2, 3, step=0.5), TypeError, "step must be an integer, got 0.5"),
        (
            lambda: posenc.grid(2, 3, step=(1, 2, 3)),
            ValueError,
            "step must be one number, or one an axis, got 3 for 2 axes",
        ),
        (
            lambda: posenc.padded(torch.ones(3).bool()),
            ValueError,
            r"mask must be \[batch, tokens\] or \[batch, \*shape\], got shape \(3,\)",
        ),
        (lambda: posenc.padded(torch.ones(1, 3).bool(), start=-1), ValueError, "start must be 0 or more, got -1"),
        (lambda: posenc.padded(torch.ones(1, 3).bool(), start=0.5), TypeError, "start must be an integer, got 0.5"),
        (
            lambda: posenc.padded(torch.ones(1, 3).bool(), start=True, span=1),
            TypeError,
            "start must be a number, got True",
        ),
        (
            lambda: posenc.padded(torch.ones(1, 3).bool(), span=0),
            ValueError,
            "span more than 0, got start=0.0 and span=0.0",
        ),
        (
            lambda: posenc.padded(torch.ones(1, 3).bool(), start=-0.5, span=1),
            ValueError,
            "start must be 0 or more .* got start=-0.5",
        ),
        (lambda: posenc.padded(torch.ones(1, 3).bool(), span="2"), TypeError, "span must be a number, got '2'"),
        (lambda: posenc.padded(MASK, start=2**63), ValueError, "start must fit in 62 bits, got 9223372036854775808"),
        (lambda: posenc.sequence(3, 2**63 - 2), ValueError, "start must fit in 62 bits, got 9223372036854775806"),
        (lambda: posenc.sequence(3, torch.tensor(2**63 - 2)), ValueError, "start must fit in 62 bits, got larger"),
        (lambda: posenc.sequence(3, torch.ones(2) * 1j), TypeError, r"got torch.complex64 of shape \(2,\)"),
        (lambda: posenc.sequence(3, torch.zeros(0).long()), TypeError, r"got torch.int64 of shape \(0,\): pass start"),
        (lambda: posenc.grid(3, step=2**62), ValueError, r"must fit in 62 bits, got sizes \(3,\) in steps of \(4611"),
        (lambda: posenc.packed({2, 3}), TypeError, "lengths must be one list of integers, got {2, 3}"),
        (lambda: posenc.packed(torch.ones(2) * 1j), TypeError, "lengths must be one list of integers, got torch.compl"),
        (lambda: posenc.coordinates(BIG), ValueError, "coordinates must fit in 62 bits, got larger numbers"),
        (lambda: posenc.coordinates(BIG.long()), ValueError, "coordinates must fit in 62 bits, got larger numbers"),
        (lambda: posenc.coordinates([[1j]]), TypeError, "got torch.complex64: pass real numbers, an axis each"),
        (lambda: posenc.coordinates([[0]], extent=[3, 3]), ValueError, "extent needs one size an axis, got 2 for 1"),
        (lambda: posenc.coordinates([[0]], order=torch.tensor([nan])), ValueError, "order must be numbers, got NaN"),
        (
            lambda: posenc.coordinates([[0]], document=torch.tensor([nan])),
            ValueError,
            "document must be numbers, got NaN",
        ),
        (lambda: posenc.coordinates([[0]], order=torch.tensor([1j])), TypeError, "order must be a tensor of numbers"),
        (
            lambda: posenc.grid(3, 4).rescaled("12", "34"),
            TypeError,
            "low must be a number, got '12': pass the coordinate",
        ),
        (lambda: posenc.grid(3, 4).rescaled(True, 2), TypeError, "low must be a number, got True"),
        (lambda: posenc.grid(3, 4).rescaled(0, None), TypeError, "high must be a number, got None"),
        (lambda: posenc.grid(3, 4).rescaled(0, torch.tensor(1.0)), TypeError, r"high must be a number, got tensor\(1"),
        (lambda: posenc.grid(3, 4).rescaled(0, math.inf), ValueError, "high must be finite, got inf: pass the coordin"),
        (
            lambda: posenc.grid(3, 4).rescaled(0, (1, 2, 3)),
            ValueError,
            "high needs one number, or one an axis, got 3 for 2",
        ),
        (lambda: posenc.neighbourhood(5, 3, shifted="no"), TypeError, "shifted must be True or False, got 'no'"),
        (lambda: posenc.neighbourhood((5, 5), (3, 3, 3)), ValueError, "size needs .*, got 3 for 2 axes: pass 2"),
        (lambda: posenc.neighbourhood(np.array([5, 5]), 3), TypeError, r"each size of shape .*, got array\(\[5, 5\]\)"),
        (lambda: posenc.neighbourhood(b"ab", 3), TypeError, "each size of shape must be an integer, got b'ab'"),
    ],
)
def test_layouts_that_cannot_be_made(make, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_layouts_are_made_inside_one_graph() -> None:
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def places(mask):
        height, width = mask.shape[1:]
        layouts = [posenc.padded(mask), posenc.padded(mask, start=2), posenc.padded(mask, start=1, span=6.3)]
        layouts += [posenc.padded(mask.flatten(1), start=1), posenc.grid(height, width, step=(2, 3))]
        return [layout.coordinates() for layout in layouts] + [posenc.Relative(layouts[1]).index()]

    compiled = torch.compile(places, fullgraph=True, dynamic=True, backend=backend)
    for height, width in ((3, 4), (5, 2), (7, 9)):
        mask = torch.rand(2, height, width) < 0.7
        for ours, eager in zip(compiled(mask), places(mask), strict=True):
            assert torch.equal(ours, eager)
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_layouts_on_a_device_that_has_no_numbers() -> None:
    mask = torch.ones(2, 3, 4, dtype=torch.bool, device="meta")
    for layout in (posenc.padded(mask), posenc.padded(mask, start=1), posenc.padded(mask, start=1, span=6.3)):
        assert layout.coordinates().device.type == "meta"
        assert layout.bounds() is None
        assert layout.last(3).coordinates().shape == (2, 3, 2)
    assert posenc.grid(3, 4, step=2).coordinates("meta").shape == (12, 2)


def test_last() -> None:
    assert posenc.sequence(5).last(2).coordinates().flatten().tolist() == [3, 4]
    grid = posenc.grid(2, 2, prefix=2)
    assert grid.last(6) is grid
    assert grid.last(3).prefix == 0
    assert grid.last(3).coordinates().tolist() == [[0, 1], [1, 0], [1, 1]]
    assert grid.last(5).prefix == 1
    assert grid.last(5).order().tolist() == [1, 2, 3, 4, 5]
    mask = torch.tensor([[True, True, False], [False, True, True]])
    padded = posenc.padded(mask).last(2)
    assert padded.coordinates()[..., 0].tolist() == [[1, 1], [0, 1]]
    present = padded.present()
    assert present is not None
    assert present.tolist() == [[True, False], [True, True]]
    document = posenc.packed([2, 2]).last(3).document()
    assert document is not None
    assert document.tolist() == [0, 1, 1]


def test_numbers_of_numpy_are_taken_over() -> None:
    low, high = np.float32(-1), np.array([1.0, 1.0])
    taken = posenc.grid(np.int64(2), 3).rescaled(low, high)
    assert torch.equal(taken.coordinates(), posenc.grid(2, 3).rescaled(-1, 1).coordinates())
    assert posenc.coordinates([[2, 0]], extent=[np.int64(3), 1]).extent == (3, 1)
    assert posenc.coordinates(np.array([[7]], dtype=np.uint64)).coordinates().tolist() == [[7]]
    assert torch.equal(
        posenc.padded(MASK, start=np.float32(1), span=np.float64(6)).coordinates(),
        posenc.padded(MASK, start=1, span=6).coordinates(),
    )
    assert posenc.packed(np.array([2, 1])).coordinates().flatten().tolist() == [0, 1, 0]


def test_scale_and_dropout_are_numbers() -> None:
    q = torch.randn(1, 1, 3, 4)
    scale, dropout = require_numbers(np.float32(0.5), np.float64(0), q)
    assert (scale, dropout, type(scale)) == (0.5, 0.0, float)
    assert require_numbers(None, 0, q) == (None, 0.0)
    assert torch.equal(posenc.attention(q, q, q, scale=np.float32(0.5)), posenc.attention(q, q, q, scale=0.5))
    for given, message in [
        ({"scale": torch.tensor(0.5)}, r"scale must be a number, got tensor\(0.5000\): pass a float"),
        ({"scale": "1"}, "scale must be a number, got '1': pass a float"),
        ({"dropout": True}, "dropout must be a number, got True: pass a float"),
        ({"dropout": None}, "dropout must be a number, got None: pass a float"),
    ]:
        with pytest.raises(TypeError, match=message):
            posenc.attention(q, q, q, **given)


def test_rescaled() -> None:
    squeezed = posenc.grid(12, 6).rescaled(-0.5, (7.5, 3.5))
    assert squeezed.coordinates()[0].tolist() == pytest.approx([-1 / 6, -1 / 6])
    assert squeezed.coordinates()[-1].tolist() == pytest.approx([7 + 1 / 6, 3 + 1 / 6])
    same = posenc.grid(3, 5).rescaled(-0.5, (2.5, 4.5))
    torch.testing.assert_close(same.coordinates(), posenc.grid(3, 5).coordinates().double(), rtol=0, atol=1e-12)
    prefixed = posenc.grid(2, 2, prefix=1).rescaled(0, 1)
    assert (prefixed.prefix, prefixed.length, prefixed.shape) == (1, 5, (2, 2))
    assert prefixed.coordinates()[-1].tolist() == [0.75, 0.75]
    assert posenc.sequence(2).rescaled(0, 1).coordinates().flatten().tolist() == [0.25, 0.75]


def test_coordinates_keep_what_they_are_given() -> None:
    values = torch.tensor([[257.0], [256.0]], dtype=torch.float32)
    assert posenc.coordinates(values).coordinates().dtype == torch.float64
    assert posenc.coordinates(torch.tensor([[3]], dtype=torch.int32)).coordinates().dtype == torch.int64
    far = posenc.coordinates(torch.tensor([[2**53 + 1]])).coordinates()
    assert far.item() == 2**53 + 1
    assert posenc.coordinates([[0, 1], [1, 0]], prefix=1).length == 3


def test_empty_layouts() -> None:
    for layout in (posenc.sequence(0), posenc.grid(0, 3), posenc.packed([]), posenc.packed([0, 0])):
        assert layout.length == 0
        assert layout.coordinates().shape == (0, layout.axes)


def test_layouts_cannot_be_changed() -> None:
    layout = posenc.grid(2, 3)
    for name in ("length", "axes", "prefix", "shape", "extent"):
        with pytest.raises(AttributeError):
            setattr(layout, name, 1)


def test_learned_tables_at_the_start(seed: int) -> None:
    assert not posenc.Learned(50, 40, std=0.0).table.any()
    truncated = posenc.Learned(500, 40, std=0.1).table
    assert truncated.abs().max() <= 0.2
    assert 0.07 < truncated.std() < 0.1
    normal = posenc.Learned(500, 40, std=0.1, truncated=False).table
    assert normal.abs().max() > 0.2
    assert 0.097 < normal.std() < 0.103


def test_gradients_reach_exactly_the_rows_used(seed: int) -> None:
    learned = posenc.Learned((3, 4), 5, prefix=1)
    cells = torch.tensor([[2, 1], [0, 3]])
    learned(torch.randn(2, 3, 5), posenc.coordinates(cells, prefix=1)).sum().backward()
    assert learned.table.grad is not None
    assert learned.table.grad.any(1).nonzero().flatten().tolist() == [0, 1 + 3, 1 + 2 * 4 + 1]


def test_smaller_windows_use_part_of_the_tables(seed: int) -> None:
    bias = posenc.RelativePositionBias(2, (5, 7))
    whole, part = bias(posenc.grid(5, 7)), bias(posenc.grid(3, 2))
    rows = [row * 7 + column for row in range(3) for column in range(2)]
    assert torch.equal(part, whole[:, rows][:, :, rows])
    cross = bias(posenc.grid(3, 2), posenc.grid(5, 7))  # queries and keys on grids of different sizes
    assert torch.equal(cross, whole[:, rows])


@pytest.mark.parametrize("width", [64, 96, 128, 31])
def test_far_positions_agree_with_the_reference(width: int, seed: int) -> None:
    """To 1e-12 in float64 at positions up to 1e4; an error of one unit in the last place of a frequency would show."""
    start = int(torch.randint(9000, 9900, ()))
    places = np.arange(start, start + 100)
    x = torch.randn(1, 1, 100, width + width % 2, dtype=torch.float64)
    turned = posenc.Rotary(x.shape[-1])(x, x, posenc.sequence(100, start=start))[0][0, 0]
    wanted = reference.rotary(x[0, 0].numpy(), places, x.shape[-1])
    torch.testing.assert_close(turned, torch.from_numpy(wanted), rtol=0, atol=1e-12)
    added = posenc.Sinusoidal(width).vectors(torch.from_numpy(places)[:, None])
    torch.testing.assert_close(added, torch.from_numpy(reference.sinusoidal(places, width)), rtol=0, atol=1e-12)


def test_frequencies_made_on_a_device_are_the_same() -> None:
    """Where no copy from the host is allowed they are powers of that device: equal to a few roundings."""
    for count, period in ((48, 48), (16, 15.5)):
        host = geometric(10000.0, count, period)
        device = 10000.0 ** (torch.arange(count, dtype=torch.float64) / -period)
        torch.testing.assert_close(host, device, rtol=1e-15, atol=0)
        assert geometric(10000.0, count, period, "meta").device.type == "meta"


@pytest.mark.parametrize("heads", [8, 12, 16, 24, 40])
def test_far_biases_agree_with_the_reference(heads: int) -> None:
    """One unit in the last place of a slope would be 2e-12 at a distance of 1e4."""
    queries, keys = np.array([9999.0]), np.arange(10000.0)
    ours = posenc.ALiBi(heads).term(posenc.sequence(1, 9999), posenc.sequence(10000), dtype=torch.float64)
    assert isinstance(ours, posenc.Bias)
    wanted = torch.from_numpy(reference.alibi(queries, keys, heads))
    torch.testing.assert_close(ours.dense()[0], wanted, rtol=0, atol=1e-12)
