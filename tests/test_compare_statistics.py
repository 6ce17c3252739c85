"""Means, intervals, paired differences and ties, by value."""

import math

import pytest

from posenc.compare.statistics import Estimate, estimate, paired, standing


def test_estimate_by_value():
    found = estimate([0.90, 0.92, 0.97])
    spread = math.sqrt((0.03**2 + 0.01**2 + 0.04**2) / 2)
    assert found.mean == pytest.approx(0.93)
    assert found.spread == pytest.approx(spread)
    assert found.margin == pytest.approx(4.302652729749 * spread / math.sqrt(3))  # t(0.975) with 2 degrees of freedom
    assert (found.low, found.high) == pytest.approx((0.93 - found.margin, 0.93 + found.margin))


def test_the_quantile_follows_the_number_of_seeds():
    margins = [estimate([0.0, 1.0] * pairs).margin for pairs in (1, 2, 3)]
    # s / sqrt(n) times 12.706, 3.182, 2.571
    assert margins == pytest.approx([12.706204736 * 0.5, 3.182446305 * 0.288675135, 2.570581836 * 0.223606798])


def test_one_seed_has_no_interval_and_overlaps_everything():
    found = estimate([0.5])
    assert (found.mean, found.low, found.high) == (0.5, -math.inf, math.inf)
    assert found.overlaps(estimate([9.0, 9.1]))
    assert not found.excludes_zero


def test_no_values_are_an_error():
    with pytest.raises(ValueError, match="got none"):
        estimate([])


@pytest.mark.parametrize(("low", "high", "excludes"), [(0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False)])
def test_excludes_zero(low, high, excludes):
    assert Estimate((low + high) / 2, low, high, 0.1, 3).excludes_zero is excludes


def test_overlap_counts_touching_and_is_symmetric():
    one, two, far = (Estimate(0, *ends, 0.1, 3) for ends in ((0.0, 1.0), (1.0, 2.0), (2.1, 3.0)))
    assert one.overlaps(two)
    assert two.overlaps(one)
    assert not one.overlaps(far)
    assert not far.overlaps(one)


def test_paired_differences_take_the_seeds_that_both_have():
    found = paired({0: 0.5, 1: 0.7, 2: 0.9}, {1: 0.6, 2: 0.7, 5: 0.0})
    assert found is not None
    assert (found.mean, found.seeds) == (pytest.approx(0.15), 2)
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_pairing_sees_what_separate_intervals_do_not():
    hard, easy = {0: 0.1, 1: 0.5, 2: 0.9}, {0: 0.15, 1: 0.55, 2: 0.951}
    assert estimate(list(hard.values())).overlaps(estimate(list(easy.values())))
    difference = paired(easy, hard)
    assert difference is not None
    assert difference.excludes_zero


def test_a_clear_winner_needs_separate_intervals():
    scores = {"a": {0: 0.90, 1: 0.91, 2: 0.92}, "b": {0: 0.50, 1: 0.51, 2: 0.52}, "c": {0: 0.1, 1: 0.11, 2: 0.12}}
    found = standing(scores, higher_is_better=True)
    assert found is not None
    assert (found.best, found.tied, found.clear) == ("a", ("a",), True)
    found = standing(scores, higher_is_better=False)
    assert found is not None
    assert found.best == "c"


def test_overlapping_intervals_are_a_tie_even_where_the_pairs_differ():
    scores = {"a": {0: 0.15, 1: 0.55, 2: 0.951}, "b": {0: 0.1, 1: 0.5, 2: 0.9}, "far": {0: -9.0, 1: -9.1, 2: -9.05}}
    found = standing(scores, higher_is_better=True)
    assert found is not None
    assert (found.best, found.tied, found.clear) == ("a", ("a", "b"), False)


def test_separate_intervals_whose_pairs_allow_zero_are_a_tie():
    # disjoint seeds: nothing is paired, so nothing is shown to differ
    found = standing({"a": {0: 0.9, 1: 0.91}, "b": {2: 0.1, 3: 0.11}}, higher_is_better=True)
    assert found is not None
    assert not found.clear


def test_one_seed_never_wins_clearly():
    found = standing({"a": {0: 0.99}, "b": {0: 0.01}}, higher_is_better=True)
    assert found is not None
    assert (found.best, found.clear) == ("a", False)


def test_what_cannot_run_does_not_take_part():
    found = standing({"a": {}, "b": {0: 0.1, 1: 0.2}}, higher_is_better=True)
    assert found is not None
    assert (found.best, found.clear) == ("b", True)
    assert standing({"a": {}}, higher_is_better=True) is None
