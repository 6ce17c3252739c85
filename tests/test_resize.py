"""`resize_table`: what is kept, what is interpolated, for any number of axes."""

import pytest
import torch

import posenc

SHAPES = [((5,), (9,)), ((2, 3), (4, 6)), ((7, 4), (3, 5)), ((2, 3, 2), (3, 3, 5)), ((2, 2, 2, 2), (3, 1, 2, 4))]


@pytest.mark.parametrize(("source", "target"), SHAPES)
@pytest.mark.parametrize("mode", ["bicubic", "linear", "nearest"])
@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_rows_and_prefix(source: tuple[int, ...], target: tuple[int, ...], mode: str, prefix: int, seed: int) -> None:
    table = torch.randn(prefix + torch.Size(source).numel(), 6)
    resized = posenc.resize_table(table, source, target, prefix=prefix, mode=mode)
    assert resized.shape == (prefix + torch.Size(target).numel(), 6)
    assert torch.equal(resized[:prefix], table[:prefix])
    same = posenc.resize_table(table, source, source, prefix=prefix, mode=mode)
    assert torch.equal(same, table)
    assert same.data_ptr() != table.data_ptr()


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("mode", ["bicubic", "linear"])
def test_a_ramp_stays_a_ramp_inside(axes: int, mode: str) -> None:
    """Linear in the coordinates: cell centres move to (i + 1/2) size / new - 1/2, and so do the values there."""
    source, target = (9, 8, 10)[:axes], (18, 24, 20)[:axes]
    slope = torch.arange(1.0, axes + 1, dtype=torch.float64)
    table = (posenc.grid(*source).coordinates() * slope).sum(-1, keepdim=True)
    places = [(torch.arange(new) + 0.5) * old / new - 0.5 for old, new in zip(source, target, strict=True)]
    wanted = sum(mesh * factor for mesh, factor in zip(torch.meshgrid(*places, indexing="ij"), slope, strict=True))
    resized = posenc.resize_table(table, source, target, mode=mode).reshape(target)
    inside = tuple(slice(2 * new // old, -2 * new // old) for old, new in zip(source, target, strict=True))
    torch.testing.assert_close(resized[inside], wanted[inside].double(), rtol=1e-6, atol=1e-6)


def test_axes_are_not_mixed_up(seed: int) -> None:
    rows = torch.randn(3, 1).repeat_interleave(4, 0)  # constant along the second axis of (3, 4)
    resized = posenc.resize_table(rows, (3, 4), (3, 9)).reshape(3, 9)
    torch.testing.assert_close(resized, rows.reshape(3, 4)[:, :1].expand(3, 9), rtol=1e-5, atol=1e-5)


def test_narrow_dtypes_are_interpolated_in_float32(seed: int) -> None:
    table = torch.randn(12, 4)
    narrow = posenc.resize_table(table.bfloat16(), (3, 4), (5, 6))
    assert narrow.dtype == torch.bfloat16
    assert torch.equal(narrow, posenc.resize_table(table.bfloat16().float(), (3, 4), (5, 6)).bfloat16())


def test_gradients_reach_the_table(seed: int) -> None:
    table = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda table: posenc.resize_table(table, (2, 3), (3, 5)), (table,))


def test_a_learned_encoding_at_another_resolution(seed: int) -> None:
    small = posenc.Learned((4, 6), 8, prefix=1)
    large = posenc.Learned((8, 9), 8, prefix=1)
    large.load_state_dict({"table": posenc.resize_table(small.table.detach(), (4, 6), (8, 9), prefix=1)})
    x = torch.randn(2, 73, 8)
    added = large(x) - x
    torch.testing.assert_close(added[0, 0], small.table[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("source", "target", "mode", "message"),
    [
        (
            (2, 3),
            (4,),
            "bicubic",
            "source and target must be of the same axes, got (2, 3) and (4,)",
        ),
        ((2, 3), (0, 4), "bicubic", "each size of target must be 1 or more, got 0"),
        ((2, 4), (4, 4), "bicubic", "table must have 0 prefix rows and 8 for the grid (2, 4), got shape (6, 5)"),
        ((2, 3), (4, 4), "cubic", "mode must be 'bicubic', 'linear' or 'nearest', got 'cubic'"),
    ],
)
def test_errors(source: tuple[int, ...], target: tuple[int, ...], mode: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared below
        posenc.resize_table(torch.zeros(6, 5), source, target, mode=mode)
    assert message in str(caught.value)
