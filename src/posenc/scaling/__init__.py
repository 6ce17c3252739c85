"""Rotary frequency scalings: how a model that was trained on short sequences is run on long ones.

Pair p of P turns by position * f_p, and a scaling is a list of multipliers, `f_p = base ** (-p / P) * m_p`, with an
attention factor that multiplies all cosines and sines. `s` is the factor by which the length grows, `L` the length that
the model was trained with. A scaling is a small value: two that were made alike are equal, and nothing changes them.

>>> posenc.Rotary(64, scaling=posenc.scaling.yarn(factor=4, original=4096)).attention_factor
1.138629436111989

Standard library only: scalings that depend on the length of a sequence use the methods of the tensor they are given.
"""

from collections.abc import Sequence
from typing import Any

from posenc.scaling.checks import flag, listed, number, positive, whole
from posenc.scaling.rules import (
    DynamicNtk,
    Linear,
    Llama3,
    LongRope,
    Ntk,
    Periods,
    Proportional,
    Scaling,
    Yarn,
    spectrum,
)

__all__ = [
    "Scaling",
    "dynamic_ntk",
    "linear",
    "llama3",
    "longrope",
    "ntk",
    "periods",
    "proportional",
    "spectrum",
    "yarn",
]


def linear(factor: float) -> Scaling:
    """Position interpolation: positions are divided by the factor, `m_p = 1 / s`.

    Raises ValueError for a factor below 1.

    >>> linear(4).frequencies(10000.0, 2)
    [0.25, 0.0025]

    Chen et al., Extending Context Window of Large Language Models via Positional Interpolation, 2023, arXiv:2306.15595.
    """
    return Linear(_factor(factor))


def ntk(factor: float) -> Scaling:
    """NTK-aware interpolation: the fastest pair stays, the slowest slows down by s, `m_p = s ** (-p / (P - 1))`.

    The same as the base `base * s ** (d / (d - 2))` for d channels. Raises ValueError for a factor below 1.

    >>> ntk(4).multipliers(10000.0, 3)
    [1.0, 0.5, 0.25]

    bloc97, 2023, as described in Peng et al., YaRN, arXiv:2309.00071.
    """
    return Ntk(_factor(factor))


def dynamic_ntk(factor: float, original: int) -> Scaling:
    """NTK-aware interpolation by the length l of the sequence: `m_p = max(s l / L - (s - 1), 1) ** (-p / (P - 1))`.

    Sequences of up to `original` = L tokens are left as they were. Raises ValueError for a factor below 1, or an
    original length below 2.

    >>> dynamic_ntk(2, original=8).at(torch.tensor([8, 12]), 10000.0, 2).tolist()
    [[1.0, 1.0], [1.0, 0.5]]

    emozilla, 2023, as described in Peng et al., YaRN, arXiv:2309.00071.
    """
    return DynamicNtk(_factor(factor), _length(original))


def yarn(
    factor: float,
    original: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    attention_factor: float | None = None,
) -> Scaling:
    """YaRN: pairs that turn often in the trained length stay, slow ones are divided by s, with a ramp between.

    `m_p = r_p / s + 1 - r_p`; r_p rises from 0 at the pair that turns `beta_fast` times in L positions to 1 at the one
    that turns `beta_slow` times. Cosines and sines are multiplied by `0.1 ln s + 1`.

    Args:
        factor: s, 1 or more.
        original: L, in tokens.
        beta_fast: turns in L positions where the ramp begins.
        beta_slow: turns in L positions where the ramp ends, at most `beta_fast`.
        truncate: whether the two ends are moved apart to whole pairs.
        mscale: DeepSeek's weight: the attention factor is `(0.1 mscale ln s + 1) / (0.1 mscale_all_dim ln s + 1)`.
        mscale_all_dim: as in the released code, the two weights count only where both are given and neither is 0.
        attention_factor: given outright, it wins over all of these.

    Raises ValueError for a factor below 1, an original length below 2, ends that are not more than 0 or the wrong way
    round, or an attention factor that is not more than 0.

    >>> [round(m, 4) for m in yarn(factor=4, original=4096).multipliers(10000.0, 4)]
    [1.0, 1.0, 0.625, 0.25]

    Peng et al., YaRN: Efficient Context Window Extension of Large Language Models, 2023, arXiv:2309.00071.
    """
    fast, slow = positive("beta_fast", beta_fast), positive("beta_slow", beta_slow)
    if fast < slow:
        raise ValueError(f"beta_fast must not be below beta_slow, got {fast:g} and {slow:g}: the paper has 32 and 1")
    weight = None if mscale is None else number("mscale", mscale)
    weight_all = None if mscale_all_dim is None else number("mscale_all_dim", mscale_all_dim)
    growth, length, given = _factor(factor), _length(original), _attention(attention_factor)
    yarn = Yarn(growth, length, fast, slow, flag("truncate", truncate), weight, weight_all, given)
    for name, each in (("mscale", weight), ("mscale_all_dim", weight_all)):
        if each is not None and yarn.temperature(each) <= 0:
            raise ValueError(
                f"{name} must leave an attention factor of more than 0, got {each:g} with factor {growth:g}: "
                "DeepSeek has 0.707 and 1"
            )
    return yarn


def longrope(
    short: Sequence[float],
    long: Sequence[float],
    original: int,
    factor: float | None = None,
    attention_factor: float | None = None,
) -> Scaling:
    """LongRoPE: a searched factor for each pair, one set for sequences of up to L tokens and one for longer ones.

    `m_p = 1 / short_p` where the sequence has at most `original` = L tokens, else `1 / long_p`; one set for a whole
    sequence. Cosines and sines are multiplied by `attention_factor`; without it by `sqrt(1 + ln s / ln L)`, whatever
    the length; without a `factor` s either, by nothing.

    Raises ValueError for sets of different sizes or numbers that are not more than 0, an original length below 2, a
    factor below 1, or an attention factor that is not more than 0.

    >>> round(longrope([1.0], [2.0], original=4096, factor=32).attention_factor, 5)
    1.19024
    >>> longrope([1.0], [2.0], original=4096).at(torch.tensor([4096, 4097]), 10000.0, 1).tolist()
    [[1.0], [0.5]]

    Ding et al., LongRoPE, 2024, arXiv:2402.13753, as released with Phi-3.
    """
    sets = []
    for name, values in (("short", short), ("long", long)):
        factors = listed(name, values, "pass one factor a pair of channels")
        sets.append(tuple(positive(f"each factor of {name}", value) for value in factors))
    if len(sets[0]) != len(sets[1]) or not sets[0]:
        raise ValueError(
            f"short and long must each have one factor a pair of channels, got {len(sets[0])} and {len(sets[1])}: "
            "give as many of both"
        )
    growth = None if factor is None else _factor(factor)
    return LongRope(sets[0], sets[1], _length(original), growth, _attention(attention_factor))


def llama3(factor: float, original: int, low: float = 1.0, high: float = 4.0) -> Scaling:
    """Llama 3.1: pairs that turn more than `high` times in L positions stay, fewer than `low` times are divided by s.

    `m_p = (1 - r_p) / s + r_p`, `r_p = (L f_p / 2 pi - low) / (high - low)` held between 0 and 1, f_p unscaled.

    Raises ValueError for a factor below 1, an original length below 2, or not 0 < low < high.

    >>> round(llama3(factor=32, original=8192).frequencies(500000.0, 32)[15], 8)
    0.00129055

    Grattafiori et al., The Llama 3 Herd of Models, 2024, arXiv:2407.21783; the rule is that of the released code.
    """
    slow, fast = positive("low", low), positive("high", high)
    if fast <= slow:
        raise ValueError(f"high must be more than low, got low={slow:g} and high={fast:g}: Llama 3.1 has 1 and 4")
    return Llama3(_factor(factor), _length(original), slow, fast)


def proportional(partial: float, factor: float = 1.0) -> Scaling:
    """Only the fastest pairs of the whole head turn: `m_p = 1 / s` for p < partial * P, else 0.

    Partial rotary with `rotary_dim` is another thing: there the frequencies of the part alone span the whole range.

    Raises ValueError for a part that is not from 0 to 1, or a factor below 1.

    >>> [round(f, 6) for f in proportional(0.5).frequencies(10000.0, 4)]
    [1.0, 0.1, 0.0, 0.0]

    As released with Gemma 4 in transformers 5.
    """
    part = number("partial", partial)
    if not 0 <= part <= 1:
        raise ValueError(f"partial must be from 0 to 1, got {part:g}: pass the part of the pairs that turns")
    return Proportional(part, _factor(factor))


def periods(shortest: float, longest: float) -> Scaling:
    """Periods in the place of a base: `f_p = 2 pi / (shortest * (longest / shortest) ** (p / (P - 1)))`.

    In units of the coordinates: DINOv3's are for `grid(height, width).rescaled(-1, 1)`. The base has no effect.

    Raises ValueError where not 0 < shortest <= longest.

    >>> [round(2 * torch.pi / f, 6) for f in periods(0.5, 8).frequencies(100.0, 3)]
    [0.5, 2.0, 8.0]

    Siméoni et al., DINOv3, 2025, arXiv:2508.10104.
    """
    least, most = positive("shortest", shortest), positive("longest", longest)
    if most < least:
        raise ValueError(f"longest must not be below shortest, got {most:g} and {least:g}: swap them")
    return Periods(least, most)


def _factor(value: Any) -> float:
    growth = number("factor", value)
    if growth < 1:
        advice = f"pass {1 / growth:g}" if growth > 0 else "pass 4 for four times the trained length"
        raise ValueError(f"factor must be 1 or more, got {growth:g}: {advice}")
    return growth


def _attention(value: Any) -> float | None:
    if value is None:
        return None
    given = number("attention_factor", value)
    if given <= 0:
        raise ValueError(f"attention_factor must be more than 0, got {given:g}: leave it out for the published one")
    return given


def _length(value: Any) -> int:
    return whole("original", value, 2, "pass the trained length in tokens")
