"""The scalings as small immutable values, and the frequencies that come of them.

They hold numbers, never tensors, so a policy that rewrites the tensors inside dataclasses finds nothing here.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar

__all__ = [
    "DynamicNtk",
    "Linear",
    "Llama3",
    "LongRope",
    "Ntk",
    "Periods",
    "Proportional",
    "Scaling",
    "Yarn",
    "spectrum",
]


@dataclass(frozen=True, repr=False)
class Scaling:
    """Base of the scalings: multipliers of the frequencies `base ** (-p / pairs)`, and a factor on cos and sin."""

    name: ClassVar[str]
    """The function of `posenc.scaling` that makes it."""
    by_length: ClassVar[bool] = False
    """Whether the multipliers depend on the length of the sequence; then `at` gives them for a tensor of lengths."""

    @property
    def attention_factor(self) -> float:
        """What multiplies cosines and sines."""
        return 1.0

    def multipliers(self, base: float, pairs: int) -> list[float]:
        """m_p for p = 0 ... pairs - 1; for scalings by length, in sequences no longer than the trained ones."""
        raise TypeError("Scaling is made by a function of posenc.scaling, such as linear, yarn or llama3: call one")

    def frequencies(self, base: float, pairs: int) -> list[float]:
        """Radians a unit of position, `f_p = base ** (-p / pairs) * m_p`, as Python floats."""
        return [base ** (-p / pairs) * m for p, m in enumerate(self.multipliers(base, pairs))]

    def at(self, lengths: Any, base: float, pairs: int) -> Any:
        """m_p in sequences of these lengths: a tensor `[*b]` gives a float64 tensor `[*b, pairs]` on its device.

        No branch on data and no copy from the host, so it can be compiled, captured and run on the meta device.
        """
        raise TypeError(f"{self.name} does not depend on the length of the sequence: use multipliers")

    def settings(self) -> dict[str, Any]:
        """The arguments that make it, by name."""
        return {field.name.removeprefix("given_"): getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.settings().items())})"


@dataclass(frozen=True, repr=False)
class Linear(Scaling):
    factor: float
    name = "linear"

    def multipliers(self, base: float, pairs: int) -> list[float]:
        return [1 / self.factor] * pairs


@dataclass(frozen=True, repr=False)
class Ntk(Scaling):
    factor: float
    name = "ntk"

    def multipliers(self, base: float, pairs: int) -> list[float]:
        # base -> base s ** (d / (d - 2)) for d = 2 P channels; the first pair stays, and so does a single one
        return [self.factor ** (-p / max(pairs - 1, 1)) for p in range(pairs)]


@dataclass(frozen=True, repr=False)
class DynamicNtk(Scaling):
    factor: float
    original: int
    name = "dynamic_ntk"
    by_length = True

    def multipliers(self, base: float, pairs: int) -> list[float]:
        return [1.0] * pairs

    def at(self, lengths: Any, base: float, pairs: int) -> Any:
        growth = (lengths.double() * (self.factor / self.original) - (self.factor - 1)).clamp(min=1.0)
        p = growth.new_ones(pairs).cumsum(-1) - 1
        return growth[..., None] ** (p / -max(pairs - 1, 1))


@dataclass(frozen=True, repr=False)
class Yarn(Scaling):
    factor: float
    original: int
    beta_fast: float
    beta_slow: float
    truncate: bool
    mscale: float | None
    mscale_all_dim: float | None
    given_attention_factor: float | None
    name = "yarn"

    @property
    def attention_factor(self) -> float:
        if self.given_attention_factor is not None:
            return self.given_attention_factor
        if self.mscale and self.mscale_all_dim:
            return self.temperature(self.mscale) / self.temperature(self.mscale_all_dim)
        return self.temperature(1.0)

    def temperature(self, weight: float) -> float:
        """What a weight makes of the attention factor."""
        return 0.1 * weight * math.log(self.factor) + 1.0

    def multipliers(self, base: float, pairs: int) -> list[float]:
        if base <= 1:
            raise ValueError(f"yarn needs a base of more than 1, got {base:g}: the papers use 10000")
        low, high = self._pair(self.beta_fast, base, pairs), self._pair(self.beta_slow, base, pairs)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * pairs - 1)  # not pairs - 1: as released
        width = high - low if high != low else 0.001
        ramps = [min(max((p - low) / width, 0.0), 1.0) for p in range(pairs)]
        return [ramp / self.factor + (1 - ramp) for ramp in ramps]

    def _pair(self, turns: float, base: float, pairs: int) -> float:
        """The pair, as a real number, that turns so many times in the trained length."""
        return pairs * math.log(self.original / (turns * 2 * math.pi)) / math.log(base)


@dataclass(frozen=True, repr=False)
class LongRope(Scaling):
    short: tuple[float, ...]
    long: tuple[float, ...]
    original: int
    factor: float | None
    given_attention_factor: float | None
    name = "longrope"
    by_length = True

    @property
    def attention_factor(self) -> float:
        if self.given_attention_factor is not None:
            return self.given_attention_factor
        return 1.0 if self.factor is None else math.sqrt(1 + math.log(self.factor) / math.log(self.original))

    def multipliers(self, base: float, pairs: int) -> list[float]:
        if len(self.short) != pairs:
            raise ValueError(
                f"longrope must have one factor a pair of channels, got {len(self.short)} for {pairs} pairs: "
                f"pass {pairs} factors, or rotate {2 * len(self.short)} channels"
            )
        return [1 / factor for factor in self.short]

    def at(self, lengths: Any, base: float, pairs: int) -> Any:
        short = _numbers(lengths, self.multipliers(base, pairs))
        long = _numbers(lengths, [1 / factor for factor in self.long])
        return long.where((lengths > self.original)[..., None], short)


@dataclass(frozen=True, repr=False)
class Llama3(Scaling):
    factor: float
    original: int
    low: float
    high: float
    name = "llama3"

    def multipliers(self, base: float, pairs: int) -> list[float]:
        turns = [self.original * base ** (-p / pairs) / (2 * math.pi) for p in range(pairs)]  # in the trained length
        blends = [min(max((each - self.low) / (self.high - self.low), 0.0), 1.0) for each in turns]
        return [(1 - blend) / self.factor + blend for blend in blends]


@dataclass(frozen=True, repr=False)
class Proportional(Scaling):
    partial: float
    factor: float
    name = "proportional"

    def multipliers(self, base: float, pairs: int) -> list[float]:
        turning = int(self.partial * (2 * pairs) // 2)
        return [1 / self.factor] * turning + [0.0] * (pairs - turning)


@dataclass(frozen=True, repr=False)
class Periods(Scaling):
    shortest: float
    longest: float
    name = "periods"

    def multipliers(self, base: float, pairs: int) -> list[float]:
        ratio, steps = self.longest / self.shortest, max(pairs - 1, 1)
        lengths = [self.shortest * ratio ** (p / steps) for p in range(pairs)]
        return [2 * math.pi / length * base ** (p / pairs) for p, length in enumerate(lengths)]  # the base cancels


def spectrum(
    like: Any, base: float, pairs: int, scaling: Scaling | None = None, lengths: Any = None, single: bool = False
) -> Any:
    """The frequencies f_p in float64, `[pairs]`, on the device of the tensor `like`.

    For a scaling by length, `[*b, pairs]` for `lengths` `[*b]`. `single`: the plain frequencies are first rounded to
    float32 by the operations that the models' own code has, so that their last bit is the one of the training.
    """
    if single:
        plain = (1.0 / base ** ((like.float().new_ones(pairs).cumsum(-1) - 1) / pairs)).double()
    elif like.device.type == "cpu":  # Python's own powers, to the last bit
        plain = like.double().new_tensor([base ** (-p / pairs) for p in range(pairs)])
    else:
        plain = base ** ((like.double().new_ones(pairs).cumsum(-1) - 1) / -pairs)
    if scaling is None:
        return plain
    if scaling.by_length and lengths is not None:
        return plain * scaling.at(lengths, base, pairs)
    return plain * _numbers(like, scaling.multipliers(base, pairs))


def _numbers(like: Any, values: list[float]) -> Any:
    """Numbers in float64 on the device of a tensor, without a copy from the host, which no captured step allows."""
    if like.device.type == "cpu":
        return like.double().new_tensor(values)
    numbers = like.double().new_empty(len(values))
    for p, value in enumerate(values):
        numbers[p] = value
    return numbers
