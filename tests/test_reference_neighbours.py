"""The reference of the neighbourhood: centred, shifted, dilated, on any number of axes."""

import numpy as np
import pytest

import second_loops
from posenc import reference


def seen(mask, query):
    return np.flatnonzero(mask[query]).tolist()


def test_case_16_windows_at_the_border():
    """k = 5, L = 10: query 0 sees offsets 0 to 4, which are rows 4 to 8 of 9 where rows ascend by key − query."""
    mask = reference.neighbourhood(10, 5)
    assert seen(mask, 0) == seen(mask, 1) == seen(mask, 2) == [0, 1, 2, 3, 4]
    assert seen(mask, 5) == [3, 4, 5, 6, 7]
    assert seen(mask, 9) == [5, 6, 7, 8, 9]
    assert [key - 0 + 4 for key in seen(mask, 0)] == [4, 5, 6, 7, 8]
    bias = reference.relative_position_bias(np.arange(10), np.arange(10), 1, 5, np.arange(9.0)[None], windowed=True)
    assert bias[0, 0, mask[0]].tolist() == [4, 3, 2, 1, 0]  # ours ascend by query − key


def test_a_centred_window_is_cut_at_the_border():
    mask = reference.neighbourhood(6, 3, shifted=False)
    assert [seen(mask, query) for query in (0, 2, 5)] == [[0, 1], [1, 2, 3], [4, 5]]
    even = reference.neighbourhood(6, 4, shifted=False)  # one key more before than after
    assert [seen(even, query) for query in (0, 3, 5)] == [[0, 1], [1, 2, 3, 4], [3, 4, 5]]


def test_a_dilated_window_keeps_to_the_tokens_of_its_remainder():
    mask = reference.neighbourhood(11, 3, dilation=3)
    assert [seen(mask, query) for query in (0, 4, 10, 5)] == [[0, 3, 6], [1, 4, 7], [4, 7, 10], [2, 5, 8]]


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize(
    ("shape", "size", "dilation", "prefix"),
    [
        (10, 5, 1, 0),
        (9, 4, 2, 2),
        (7, 1, 3, 0),
        (8, 8, 1, 0),
        ((5, 7), 3, (1, 2), 1),
        ((4, 6), (2, 5), 1, 0),
        ((3, 4, 5), (3, 2, 2), (1, 2, 2), 0),
    ],
)
def test_neighbourhood_equals_the_second_version(shape, size, dilation, prefix, shifted):
    arguments = {"dilation": dilation, "shifted": shifted, "prefix": prefix}
    mask = reference.neighbourhood(shape, size, **arguments)
    np.testing.assert_array_equal(mask, second_loops.neighbourhood(shape, size, **arguments))
    assert mask.dtype == bool
    if shifted:  # every query sees as many
        assert (mask[prefix:].sum(axis=1) == prefix + np.prod(np.broadcast_to(size, np.size(shape)))).all()


def test_a_window_as_large_as_the_grid_sees_all():
    assert reference.neighbourhood((3, 4), (3, 4)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reference.neighbourhood(4, 5), "a window of 5 must fit 4 tokens, 1 apart"),
        (lambda: reference.neighbourhood(7, 4, dilation=2), "a window of 4 must fit 3 tokens, 2 apart"),
        (lambda: reference.neighbourhood((4, 4), (3,)), r"size must be 1 or more, one an axis of 2, got \(3,\)"),
        (lambda: reference.neighbourhood(4, 3, dilation=0), "dilation must be 1 or more, one an axis of 1, got 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
