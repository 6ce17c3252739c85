"""Encodings with one fault each, that a law must find out."""

import copy
import math
from typing import Any

import torch
from torch import Tensor

import posenc


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


class KeepsATensor(posenc.T5Bias):
    """Keeps a tensor from its first use, which is no use for training if that was inference."""

    kept: Tensor | None = None

    def bias(self, relative: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = self.table.exp()
        return super().bias(relative) + self.kept[:, :1].reshape(-1, *[1] * (relative.ndim - 1))


class LosesItsPlaceFarOut(posenc.Rotary):
    """Angles in float32, off by a radian at ten million."""

    def cos_sin(self, positions: posenc.Positions, **options: Any) -> tuple[Tensor, Tensor]:
        angles = positions.coordinates().float() * self.frequencies()[0].float()
        dtype = options.get("dtype", torch.float32)
        return angles.cos()[None, None].to(dtype), angles.sin()[None, None].to(dtype)


class MultipliesUnderAutocast(posenc.Sinusoidal):
    """A matrix product, which autocast rounds, between the table and the embeddings."""

    def forward(self, x: Tensor, positions: posenc.Positions | None = None) -> Tensor:
        return x + super().forward(torch.zeros_like(x), positions) @ torch.eye(self.dim, dtype=x.dtype)


class ReadsTheLargestPosition(posenc.ALiBi):
    """Waits for a number, which is nowhere to be read on the meta device."""

    def bias(self, relative: Tensor) -> Tensor:
        return super().bias(relative) * (1.0 if relative.max() >= 0 else 2.0)


class KeepsSlopesOfTheFirstDtype(posenc.ALiBi):
    """Makes its numbers in the default dtype, and they lose half their digits where that is narrow."""

    def bias(self, relative: Tensor) -> Tensor:
        slopes = torch.tensor([0.7**head for head in range(1, self.num_heads + 1)])
        return -slopes.reshape(-1, *[1] * (relative.ndim - 1)) * relative[..., 0].abs()


class BeginsOtherwise(posenc.ALiBi):
    """Does something of its own at the first position: a branch on a number that a graph does not know."""

    def _evaluate(self, relative: posenc.Relative, device: Any, dtype: torch.dtype) -> posenc.Term:
        term = super()._evaluate(relative, device, dtype)
        if relative.queries.coordinates().max() == 0:
            term.values = torch.zeros_like(term.values)
        return term


class CountsOnTheHost(posenc.ALiBi):
    """A loop over the lags, unrolled into the graph."""

    def bias(self, relative: Tensor) -> Tensor:
        return torch.stack([super(CountsOnTheHost, self).bias(lag) for lag in relative.unbind(-2)], -1)


class CountsTurns(posenc.Sinusoidal):
    """Angles in turns times 2 pi: right, but the exporter writes a Python number down in float32, and far out it shows."""

    def vectors(self, coordinates: Tensor) -> Tensor:
        turns_each = [self.base ** (-2 * i / self.dim) / (2 * math.pi) for i in range(self.dim // 2)]
        angles = coordinates.double() * torch.tensor(turns_each, dtype=torch.float64) * (2 * math.pi)
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


BROKEN: list[tuple[str, type[posenc.Encoding], dict[str, Any]]] = [
    ("equals the reference", TooSteep, {"num_heads": 4}),
    ("depends on relative position alone", SeesTheKey, {"num_heads": 4}),
    ("decoding token by token equals the full pass", ForgetsTheOffset, {"head_dim": 16}),
    ("padded equals alone", CountsThePadding, {"dim": 24}),
    ("packed equals separate", CountsThePadding, {"dim": 24}),
    ("batch rows are independent", TakesTheBatchForTokens, {"dim": 24}),
    ("the output dtype is the input's", AnswersInFloat32, {"dim": 24}),
    ("a cast moves no angle", KeepsFrequenciesInABuffer, {"head_dim": 16}),
    ("prefix tokens are untouched", TurnsThePrefix, {"head_dim": 16}),
    ("only trained or drawn numbers are saved", SavesItsSlopes, {"num_heads": 4}),
    ("a copy is equal", CopiesAreItself, {"num_heads": 4}),
    ("gradients are right and reach every parameter", DetachesItsTable, {"num_heads": 4}),
    ("axes are not mixed up", StridesByTheWrongAxis, {"num_heads": 4, "shape": (3, 4)}),
    ("grouped queries equal repeated heads", MovesKeyHeads, {"head_dim": 16}),
    ("a row that sees nothing is zero", HasASlopeOfInfinity, {"num_heads": 4}),
    ("one compiled graph serves all lengths", CachesByLength, {"num_heads": 4}),
    ("long positions are exact", LosesItsPlaceFarOut, {"head_dim": 16}),
    ("autocast moves no angle", MultipliesUnderAutocast, {"dim": 24}),
    ("built without memory, it loads", ReadsTheLargestPosition, {"num_heads": 4}),
    ("used without gradients first, it trains after", KeepsATensor, {"num_heads": 4}),
    ("any default dtype will do", KeepsSlopesOfTheFirstDtype, {"num_heads": 4}),
    ("one compiled graph decodes every step", BeginsOtherwise, {"num_heads": 4}),
    ("an exported program serves other sizes, in torch and in onnxruntime", CountsOnTheHost, {"num_heads": 4}),
    ("an exported program serves other sizes, in torch and in onnxruntime", CountsTurns, {"dim": 24}),
    ("a shift is a linear map", SquaresPositions, {"dim": 24}),
]
