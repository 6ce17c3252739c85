"""Every law, on every example of every card; and on a broken encoding that it must find out."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import posenc
from laws import LAWS, Subject
from posenc import catalog

CASES = [
    pytest.param(name, subject, id=f"{name}: {card.name}-{number}")
    for card in catalog.CARDS
    for number, arguments in enumerate(card.examples)
    for subject in [Subject(card, arguments, getattr(posenc, card.name))]
    for name, law in LAWS.items()
    if subject.place in law.places and law.applies(subject) and name not in card.exempt
]


@pytest.mark.parametrize(("name", "subject"), CASES)
def test_law(name: str, subject: Subject, seed: int) -> None:
    LAWS[name].check(subject)


# --- each law, tested: an encoding with one fault, which the law finds ---


class TooSteep(posenc.ALiBi):
    """Slopes of another rule."""

    def bias(self, relative: Tensor) -> Tensor:
        return 2 * super().bias(relative)


class SeesTheKey(posenc.ALiBi):
    """Grows with the position of the key, not only with its distance."""

    def _evaluate(self, relative: posenc.Relative, device: Any, dtype: torch.dtype) -> posenc.Term:
        term = super()._evaluate(relative, device, dtype)
        term.values = term.values * (1 + relative.keys.coordinates().max())
        return term


class ForgetsTheOffset(posenc.Rotary):
    """Always counts from 0, so that a decode step stands at the beginning."""

    def cos_sin(self, positions: posenc.Positions, **options: Any) -> tuple[Tensor, Tensor]:
        return super().cos_sin(posenc.sequence(positions.length), **options)


class CountsThePadding(posenc.Sinusoidal):
    """Takes the index of a token for its position."""

    def forward(self, x: Tensor, positions: posenc.Positions | None = None) -> Tensor:
        return super().forward(x, posenc.sequence(x.shape[1]))


class TakesTheBatchForTokens(posenc.Sinusoidal):
    """Broadcasts along the batch where it is as long as the sequence."""

    def forward(self, x: Tensor, positions: posenc.Positions | None = None) -> Tensor:
        y = super().forward(x, positions)
        return x + (y - x).transpose(0, 1) if x.shape[0] == x.shape[1] else y


class AnswersInFloat32(posenc.Sinusoidal):
    """Gives its table's dtype."""

    def forward(self, x: Tensor, positions: posenc.Positions | None = None) -> Tensor:
        return super().forward(x, positions).float()


class KeepsFrequenciesInABuffer(posenc.Rotary):
    """A buffer follows the module's casts, and bfloat16 spoils it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register_buffer("inverse", super().frequencies(), persistent=False)

    def frequencies(self, length: int | None = None, device: Any = None) -> Tensor:
        return self.inverse.double()


class TurnsThePrefix(posenc.Rotary):
    """A CLS token turned like any other."""

    def _evaluate(self, relative: posenc.Relative, device: Any, dtype: torch.dtype) -> posenc.Term:
        everywhere = posenc.sequence(relative.keys.length)
        return super()._evaluate(posenc.Relative(everywhere), device, dtype)


class SavesItsSlopes(posenc.ALiBi):
    """Writes derived numbers into checkpoints."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.register_buffer("slopes", posenc.alibi_slopes(num_heads))


class CopiesAreItself(posenc.T5Bias):
    """Shares its table with its copies."""

    def __deepcopy__(self, memo: Any) -> "CopiesAreItself":
        return self


class DetachesItsTable(posenc.T5Bias):
    """The table is not trained."""

    def bias(self, relative: Tensor) -> Tensor:
        return torch.func.functional_call(_Bias(self), {"inner.table": self.table.detach()}, (relative,))


class _Bias(torch.nn.Module):
    def __init__(self, encoding: posenc.T5Bias) -> None:
        super().__init__()
        self.inner = copy.copy(encoding)

    def forward(self, relative: Tensor) -> Tensor:
        return posenc.T5Bias.bias(self.inner, relative)


class StridesByTheWrongAxis(posenc.RelativePositionBias):
    """Multiplies the row by the number of rows."""

    def bias(self, relative: Tensor) -> Tensor:
        index = (relative[..., 0] + self.shape[0] - 1) * (2 * self.shape[0] - 1) + relative[..., 1] + self.shape[1] - 1
        return self.table[:, index % self.table.shape[1]]


class _RollsKeys(posenc.Rotation):
    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = super().rotate(q, k)
        return q, k.roll(1, 1)


class MovesKeyHeads(posenc.Rotary):
    """Takes one key head for another."""

    def _evaluate(self, relative: posenc.Relative, device: Any, dtype: torch.dtype) -> posenc.Term:
        term = super()._evaluate(relative, device, dtype)
        return _RollsKeys(relative, term.query, term.key, term.layout)


class HasASlopeOfInfinity(posenc.T5Bias):
    """The square root of the distance times a trained number: no derivative at distance 0."""

    def bias(self, relative: Tensor) -> Tensor:
        return (self.table[:, 0].abs().reshape(-1, *[1] * (relative.ndim - 1)) * relative[..., 0].abs()).sqrt()


class CachesByLength(posenc.ALiBi):
    """Keeps what it computed, by length."""

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.cache: dict[int, Tensor] = {}

    def bias(self, relative: Tensor) -> Tensor:
        length = relative.shape[-2]
        if length not in self.cache:
            self.cache[length] = super().bias(relative)
        return self.cache[length]


class SquaresPositions(posenc.Sinusoidal):
    """Not a rotation of its own past."""

    def vectors(self, coordinates: Tensor) -> Tensor:
        return super().vectors(coordinates**2)


BROKEN: dict[str, tuple[type[posenc.Encoding], dict[str, Any]]] = {
    "equals the reference": (TooSteep, {"num_heads": 4}),
    "depends on relative position alone": (SeesTheKey, {"num_heads": 4}),
    "decoding token by token equals the full pass": (ForgetsTheOffset, {"head_dim": 16}),
    "padded equals alone": (CountsThePadding, {"dim": 24}),
    "packed equals separate": (CountsThePadding, {"dim": 24}),
    "batch rows are independent": (TakesTheBatchForTokens, {"dim": 24}),
    "the output dtype is the input's": (AnswersInFloat32, {"dim": 24}),
    "a cast moves no angle": (KeepsFrequenciesInABuffer, {"head_dim": 16}),
    "prefix tokens are untouched": (TurnsThePrefix, {"head_dim": 16}),
    "only trained or drawn numbers are saved": (SavesItsSlopes, {"num_heads": 4}),
    "a copy is equal": (CopiesAreItself, {"num_heads": 4}),
    "gradients are right and reach every parameter": (DetachesItsTable, {"num_heads": 4}),
    "axes are not mixed up": (StridesByTheWrongAxis, {"num_heads": 4, "shape": (3, 4)}),
    "grouped queries equal repeated heads": (MovesKeyHeads, {"head_dim": 16}),
    "a row that sees nothing is zero": (HasASlopeOfInfinity, {"num_heads": 4}),
    "one compiled graph serves all lengths": (CachesByLength, {"num_heads": 4}),
    "a shift is a linear map": (SquaresPositions, {"dim": 24}),
}


def test_every_law_has_a_broken_encoding() -> None:
    assert BROKEN.keys() == LAWS.keys()


@pytest.mark.parametrize("name", LAWS)
def test_law_finds_a_broken_encoding(name: str, seed: int) -> None:
    kind, arguments = BROKEN[name]
    scheme = kind.__mro__[1].__name__
    subject = Subject(catalog.card(scheme), arguments, kind)
    assert subject.place in LAWS[name].places
    assert LAWS[name].applies(subject)
    with pytest.raises(AssertionError):
        LAWS[name].check(subject)
