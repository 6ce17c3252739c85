"""The references of positions: padded images as DETR counts them, and texts with images and videos."""

import math

import numpy as np
import pytest

import second_loops
from posenc import reference


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


def test_padding_on_either_side_counts_for_nothing():
    masks = ([0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0])
    got = [reference.padded_positions(np.array(mask, dtype=bool)).ravel().tolist() for mask in masks]
    assert got == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_roberta_begins_after_its_padding(padding):
    """create_position_ids: cumulative count of real tokens, plus padding_idx, for a real token."""
    mask = np.array([True, True, False, True])
    got = reference.padded_positions(mask, start=padding + 1).ravel()
    assert got[mask].tolist() == (np.cumsum(mask) + padding)[mask].tolist()


def test_detr_counts_each_axis_and_stretches_it(rng):
    mask = rng.random(size=(5, 7)) < 0.7
    mask[:, 3] = False  # a line without tokens
    rows, columns = mask.cumsum(0, dtype=float), mask.cumsum(1, dtype=float)
    counted = np.stack([rows, columns], -1).reshape(-1, 2)
    np.testing.assert_array_equal(reference.padded_positions(mask, start=1), counted)
    rows, columns = rows / (rows[-1:] + 1e-6), columns / (columns[:, -1:] + 1e-6)
    stretched = np.stack([rows, columns], -1).reshape(-1, 2) * 2 * math.pi
    np.testing.assert_allclose(reference.padded_positions(mask, start=1, span=2 * math.pi), stretched, rtol=1e-13)


def test_a_full_mask_is_a_grid():
    got = reference.padded_positions(np.ones((2, 3, 2), dtype=bool))
    np.testing.assert_array_equal(got, np.indices((2, 3, 2)).reshape(3, -1).T)


def test_text_image_text_by_hand():
    """Three words, an image of 2 × 2, one word: the image begins at 3 and reaches to 4."""
    got = reference.multimodal_positions([3, (1, 2, 2), 1]).astype(int).tolist()
    assert got == [[0] * 3, [1] * 3, [2] * 3, [3, 3, 3], [3, 3, 4], [3, 4, 3], [3, 4, 4], [5] * 3]


def test_a_long_video_pushes_the_text_behind_its_last_frame():
    got = reference.multimodal_positions([1, (5, 1, 2), 1]).astype(int)
    assert got[1:-1, 0].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert got[-1].tolist() == [6, 6, 6]


def test_text_alone_is_a_sequence():
    np.testing.assert_array_equal(
        reference.multimodal_positions([2, 0, 3], start=7), np.tile(np.arange(7, 12), (3, 1)).T
    )


def test_frames_may_stand_further_apart_and_the_text_need_not_wait_for_them():
    video = (3, 1, 2)
    got = [reference.multimodal_positions([video, 1], 2.5, follow=rule).astype(int) for rule in ("largest", "space")]
    assert got[0][:-1, 0].tolist() == got[1][:-1, 0].tolist() == [0, 0, 2, 2, 5, 5]
    assert [each[-1].tolist() for each in got] == [[6, 6, 6], [2, 2, 2]]


@pytest.mark.parametrize("segments", [[], [4], [(1, 2, 3)], [(3, 2, 2), (1, 4, 1)], [2, (1, 2, 3), 0, 5, (4, 1, 1), 1]])
@pytest.mark.parametrize("follow", ["largest", "space"])
def test_segments_equal_the_second_version(segments, follow):
    got = reference.multimodal_positions(segments, 1.7, start=3, follow=follow)
    np.testing.assert_array_equal(got, second_loops.multimodal_positions(segments, 1.7, start=3, follow=follow))
    assert got.shape[1] == 3
