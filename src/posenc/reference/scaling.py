"""Rotary frequencies, and the rules by which a model trained on short sequences is run on long ones.

`P` pairs of channels turn with one axis, `d = 2P`; pair `t` by `f_t` radians a unit of position. `s` is the factor by
which sequences grow, `L` the length that the model was trained with.
"""

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from posenc.reference._shared import Array, check


def rotary_frequencies(
    pairs: int, base: float = 10000.0, scaling: Any = None, length: int | None = None
) -> tuple[Float[Array, "{pairs}"], float]:
    """The frequencies of the pairs of an axis, and the factor on cosines and sines.

    `f_t = base^(−t/P)`, or what the scaling makes of it.

    Args:
        pairs: `P`.
        base: ratio of the slowest wavelength to the fastest, nearly.
        scaling: a value of `posenc.scaling`, of which the numbers alone are read; None for none.
        length: positions of the sequence, for the rules that depend on it.

    Raises:
        ValueError: for an unknown scaling, or no length where the rule needs one.

    >>> rotary_frequencies(2)
    (array([1.  , 0.01]), 1.0)

    Su et al., RoFormer, arXiv:2104.09864.
    """
    rule = type(scaling).__name__
    known = is_dataclass(scaling) and not isinstance(scaling, type)
    given = {field.name: getattr(scaling, field.name) for field in fields(scaling)} if known else {}
    own_factor = given.pop("given_attention_factor", None)
    if rule in ("DynamicNtk", "LongRope"):
        check(length is not None, f"{rule} depends on the length of the sequence, got none: pass length=")
        given["length"] = length
    attention_factor = 1.0
    if scaling is None:
        frequencies = np.array([base ** (-t / pairs) for t in range(pairs)])
    elif rule == "Linear":
        frequencies = linear_frequencies(pairs, base, **given)
    elif rule == "Ntk":
        frequencies = ntk_frequencies(pairs, base, **given)
    elif rule == "DynamicNtk":
        frequencies = dynamic_ntk_frequencies(pairs, base, **given)
    elif rule == "Yarn":
        weights = given.pop("mscale"), given.pop("mscale_all_dim")
        frequencies, attention_factor = yarn_frequencies(pairs, base, **given), yarn_factor(given["factor"], *weights)
    elif rule == "LongRope":
        attention_factor = longrope_factor(given.pop("factor"), given["original"])
        frequencies = longrope_frequencies(pairs, base, **given)
    elif rule == "Llama3":
        frequencies = llama3_frequencies(pairs, base, **given)
    elif rule == "Proportional":
        frequencies = proportional_frequencies(pairs, base, **given)
    elif rule == "Periods":
        frequencies = period_frequencies(pairs, **given)
    else:
        raise ValueError(f"scaling must be a value of posenc.scaling, got {scaling!r}")
    return frequencies, attention_factor if own_factor is None else own_factor


def linear_frequencies(pairs: int, base: float, factor: float) -> Float[Array, "{pairs}"]:
    """Position interpolation: every position divided by the factor.

    `f_t = base^(−t/P) / s`.

    >>> linear_frequencies(2, 10000.0, 4).tolist()
    [0.25, 0.0025]

    Chen et al., Extending Context Window via Positional Interpolation, arXiv:2306.15595.
    """
    return np.array([1 / (factor * base ** (t / pairs)) for t in range(pairs)])


def ntk_frequencies(pairs: int, base: float, factor: float) -> Float[Array, "{pairs}"]:
    """Another base, such that the fastest pair stays and the slowest is slower by the factor.

    `f_t = b^(−t/P)`, `b = base · s^(d / (d − 2))`.

    >>> ntk_frequencies(3, 1e6, 4).round(12).tolist()
    [1.0, 0.005, 2.5e-05]

    bloc97's rule, as in Peng et al., YaRN, arXiv:2309.00071, section 3.1.
    """
    if pairs == 1:  # the fastest and the slowest at once: it stays
        return np.ones(1)
    changed = base * factor ** (2 * pairs / (2 * pairs - 2))
    return np.array([changed ** (-t / pairs) for t in range(pairs)])


def dynamic_ntk_frequencies(
    pairs: int, base: float, factor: float, original: int, length: int
) -> Float[Array, "{pairs}"]:
    """The change of base that the length of the sequence calls for; none up to the trained length.

    As `ntk_frequencies`, with `s l / L − (s − 1)` in place of `s`, `l` the length but at least `L`.

    >>> dynamic_ntk_frequencies(2, 10000.0, 2, original=8, length=16).round(12).tolist()
    [1.0, 0.003333333333]

    emozilla's rule, as in Peng et al., YaRN, arXiv:2309.00071, section 3.3; with a factor, as in transformers.
    """
    return ntk_frequencies(pairs, base, factor * max(length, original) / original - (factor - 1))


def yarn_frequencies(
    pairs: int,
    base: float,
    factor: float,
    original: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Float[Array, "{pairs}"]:
    """Fast pairs stay, slow ones are interpolated, with a ramp between.

    `f_t = (1 − γ_t) base^(−t/P) / s + γ_t base^(−t/P)`; `γ` falls from 1 to 0 between the pairs
    `D(β) = d ln(L / (2π β)) / (2 ln base)` that turn `β_fast` and `β_slow` times within `L`.

    Args:
        pairs: `P`.
        base: ratio of the slowest wavelength to the fastest, nearly.
        factor: `s`.
        original: `L`, in positions.
        beta_fast: turns within `L` from which on a pair stays.
        beta_slow: turns within `L` below which a pair is interpolated.
        truncate: whether the ramp reaches to whole pairs, outward. Its ends are kept within 0 and `d − 1`, as in the
            authors' code: not `P − 1`.

    >>> yarn_frequencies(4, 10000.0, 4, original=4096).round(6).tolist()
    [1.0, 0.1, 0.00625, 0.00025]

    Peng et al., YaRN: Efficient Context Window Extension of Large Language Models, arXiv:2309.00071.
    """
    first, last = (
        2 * pairs * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (beta_fast, beta_slow)
    )
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    if first == last:
        last += 0.001  # the authors' way out of a division by zero
    frequencies = np.zeros(pairs)
    for t in range(pairs):
        stays = 1 - min(max((t - first) / (last - first), 0), 1)
        plain = base ** (-t / pairs)
        frequencies[t] = (1 - stays) * plain / factor + stays * plain
    return frequencies


def yarn_factor(factor: float, mscale: float | None = None, mscale_all_dim: float | None = None) -> float:
    """YaRN's factor on cosines and sines, whose square is the temperature of the softmax.

    `0.1 ln s + 1`, or, as in DeepSeek, `(0.1 mscale ln s + 1) / (0.1 mscale_all_dim ln s + 1)` where both are given and
    neither is 0.

    >>> round(yarn_factor(4), 6)
    1.138629
    >>> yarn_factor(40, mscale=0.7, mscale_all_dim=0.7)
    1.0

    Peng et al., YaRN, arXiv:2309.00071; DeepSeek-V2, arXiv:2405.04434.
    """
    grown = math.log(max(factor, 1))
    if mscale and mscale_all_dim:
        return (0.1 * mscale * grown + 1) / (0.1 * mscale_all_dim * grown + 1)
    return 0.1 * grown + 1


def longrope_frequencies(
    pairs: int, base: float, short: Sequence[float], long: Sequence[float], original: int, length: int
) -> Float[Array, "{pairs}"]:
    """A factor of its own for every pair, found by search: one set for short sequences, one for long ones.

    `f_t = base^(−t/P) / λ_t`, `λ` the short set for at most `L` positions, else the long set.

    Raises:
        ValueError: for another number of factors than pairs.

    >>> sets = {"short": [1.0, 2.0], "long": [4.0, 8.0]}
    >>> [longrope_frequencies(2, 10000.0, **sets, original=4096, length=length).tolist() for length in (4096, 4097)]
    [[1.0, 0.005], [0.25, 0.00125]]

    Ding et al., LongRoPE, arXiv:2402.13753; as released with Phi-3, arXiv:2404.14219.
    """
    factors = short if length <= original else long
    check(len(factors) == pairs, f"longrope needs a factor for each of {pairs} pairs, got {len(factors)}")
    return np.array([1 / (factors[t] * base ** (t / pairs)) for t in range(pairs)])


def longrope_factor(factor: float | None, original: int) -> float:
    """LongRoPE's factor on cosines and sines.

    `√(1 + ln s / ln L)`; 1 where sequences do not grow, or nothing is said of it.

    >>> round(longrope_factor(32, 4096), 5)
    1.19024

    Ding et al., LongRoPE, arXiv:2402.13753.
    """
    if factor is None or factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(original))


def llama3_frequencies(
    pairs: int, base: float, factor: float, original: int, low: float = 1.0, high: float = 4.0
) -> Float[Array, "{pairs}"]:
    """Pairs of short wavelength stay, those of long wavelength are interpolated, those between are blended.

    With wavelength `λ = 2π / f`: `f` where `λ < L / high`, `f / s` where `λ > L / low`, else
    `(1 − r) f / s + r f`, `r = (L / λ − low) / (high − low)`.

    >>> frequencies = llama3_frequencies(32, 500000.0, 32, original=8192)
    >>> round(float(frequencies[15]), 8)
    0.00129055

    Grattafiori et al., The Llama 3 Herd of Models, arXiv:2407.21783; the rule is that of the released code.
    """
    frequencies = np.array([base ** (-t / pairs) for t in range(pairs)])
    for t in range(pairs):
        wavelength = 2 * math.pi / frequencies[t]
        if wavelength < original / high:
            continue
        if wavelength > original / low:
            frequencies[t] /= factor
        else:
            r = (original / wavelength - low) / (high - low)
            frequencies[t] = (1 - r) * frequencies[t] / factor + r * frequencies[t]
    return frequencies


def proportional_frequencies(pairs: int, base: float, partial: float, factor: float = 1.0) -> Float[Array, "{pairs}"]:
    """The first part of the pairs turns, with the frequencies of the whole; the others stand still.

    `f_t = base^(−t/P) / s` for `t < ⌊partial · d / 2⌋`, else 0.

    >>> proportional_frequencies(4, 10000.0, 0.5).tolist()
    [1.0, 0.1, 0.0, 0.0]

    As in transformers, `rope_type: proportional`; the idea is Barbero et al.'s p-RoPE, arXiv:2410.06205.
    """
    turning = int(partial * (2 * pairs) // 2)
    return np.array([base ** (-t / pairs) / factor if t < turning else 0.0 for t in range(pairs)])


def period_frequencies(pairs: int, shortest: float, longest: float) -> Float[Array, "{pairs}"]:
    """Periods in geometric progression, the shortest and the longest both reached.

    `f_t = 2π / T_t`, `T_t = shortest · (longest / shortest)^(t / (P − 1))`.

    >>> (2 * math.pi / period_frequencies(3, 0.5, 8.0)).round(9).tolist()
    [0.5, 2.0, 8.0]

    Siméoni et al., DINOv3, arXiv:2508.10104.
    """
    ratio = longest / shortest
    return np.array([2 * math.pi / (shortest * ratio ** (t / max(pairs - 1, 1))) for t in range(pairs)])
