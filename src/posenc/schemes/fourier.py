"""Fourier features: sines and cosines of directions of the coordinates that are drawn, fixed, or learned."""

import math
from collections.abc import Sequence as SequenceOf
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from posenc.checks import flag, real, sizes, whole
from posenc.embedding import Absolute
from posenc.encoding import arithmetic_dtype
from posenc.foreign import ForeignState
from posenc.layout import Device

__all__ = ["Fourier", "FourierBands", "LearnableFourier"]


_PARTS = ("weight", "bias")


class Fourier(Absolute):
    """Sines and cosines of random (or learned) directions of the coordinates.

    `p(x) = [sin(2 pi x B), cos(2 pi x B)]`, `B ~ N(0, scale ** 2)`, `[axes, dim / 2]`.

    Coordinates are taken as they stand: `positions.rescaled(-1, 1)` gives the centred ones of SAM, and for whole
    positions up to L a scale near 1 / L is a good start (a scale of 1 turns more than once from token to token).

    Args:
        dim: channels, even.
        axes: number of coordinates of a token.
        scale: standard deviation of the frequencies, in turns a unit of position; more than 0.
        learnable: train the frequencies. They are saved either way, as they are drawn, and rounded where the module is
            cast, as any saved number is: keep it in float32.

    `load_foreign` reads "sam" (the state of its positional embedding, of the prompt encoder or of the whole model):
    its directions are of (x, y), ours of (height, width).

    Raises ValueError for an odd width or a scale of 0 or less.

    >>> posenc.Fourier(6, axes=2)(torch.zeros(1, 4, 6), posenc.grid(2, 2).rescaled(-1, 1)).shape
    torch.Size([1, 4, 6])

    Tancik et al., Fourier Features, 2020, arXiv:2006.10739; Kirillov et al., Segment Anything, 2023, arXiv:2304.02643.
    """

    frequencies: Tensor

    def __init__(self, dim: int, axes: int = 1, scale: float = 1.0, learnable: bool = False) -> None:
        super().__init__()
        self.dim, self.axes = _even("dim", "Fourier", dim), whole("axes", axes, 1)
        self.scale, self.learnable = _scale(scale), flag("learnable", learnable)
        drawn = torch.empty(self.axes, self.dim // 2)
        if self.learnable:
            self.frequencies = nn.Parameter(drawn)
        else:
            self.register_buffer("frequencies", drawn)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the frequencies anew."""
        nn.init.normal_(self.frequencies, std=self.scale)

    def vectors(self, coordinates: Shaped[Tensor, "*b l n"]) -> Float[Tensor, "*b l dim"]:
        turns = _project(coordinates, self.frequencies)
        angles = (turns - turns.round()) * (2 * math.pi)  # whole turns are dropped exactly, while they are whole
        return torch.cat([angles.sin(), angles.cos()], -1)

    def _from_sam(self, state: ForeignState) -> dict[str, Tensor]:
        published, ported = "positional_encoding_gaussian_matrix", "positional_embedding"
        names = [f"{module}{published}" for module in ("", "pe_layer.", "prompt_encoder.pe_layer.")]
        names += [f"{module}{ported}" for module in ("", "shared_embedding.", "shared_image_embedding.")]
        found = next((name for name in names if name in state), published)
        return {"frequencies": state[found].flip(0)}

    foreign: ClassVar = {"sam": _from_sam}

    def extra_repr(self) -> str:
        return f"{self.dim}, axes={self.axes}, scale={self.scale:g}, learnable={self.learnable}"


class FourierBands(Absolute):
    """Sines and cosines of each coordinate at fixed frequencies: NeRF's octaves, or Perceiver's even spacing.

    `sin(pi f_k s x)`, `cos(pi f_k s x)` for each axis, s = scale, with `f_k = 2 ** k` (octaves), or `f_k` evenly spaced
    from 1 to `resolution / 2`, the highest frequency that so many samples of -1 ... 1 can show.

    Coordinates are taken as they stand, and one period of the slowest wave is 2: `positions.rescaled(-1, 1)` puts a
    grid there; whole positions up to L want scale=1 / L, as all whole numbers look alike to octaves at a scale of 1.

    Args:
        axes: number of coordinates of a token.
        bands: frequencies of an axis; NeRF has 10 for points and 4 for directions. Beyond 52 octaves no float64
            coordinate has digits left.
        resolution: samples along each axis, 2 or more, a number or one an axis, for evenly spaced frequencies
            (Perceiver); None gives octaves (NeRF).
        scale: multiplies the coordinates; 1 / pi gives the waves of NeRF's released code, which drops the pi.
        layout: "interleaved" goes through the axes, each axis through the bands, sin before cos (NeRF's equation);
            "concatenated" has all sines, axis after axis, then all cosines (Perceiver).
        dim: width of the embeddings, at least the `2 * axes * bands` that are used, which is the default. Nothing is
            added to channels beyond them.

    Raises ValueError for too many octaves, a resolution below 2, a scale of 0 or less, and a width that is too small.

    >>> posenc.FourierBands(1, 2).vectors(torch.tensor([[0.25]])).round(decimals=4).tolist()
    [[0.7071, 0.7071, 1.0, 0.0]]

    Mildenhall et al., NeRF, 2020, arXiv:2003.08934; Jaegle et al., Perceiver, 2021, arXiv:2103.03206.
    """

    def __init__(
        self,
        axes: int = 1,
        bands: int = 4,
        resolution: int | SequenceOf[int] | None = None,
        scale: float = 1.0,
        layout: Literal["interleaved", "concatenated"] = "interleaved",
        dim: int | None = None,
    ) -> None:
        super().__init__()
        axes, bands = whole("axes", axes, 1), whole("bands", bands, 1)
        if resolution is None and bands > 52:
            raise ValueError(
                f"bands must be 52 or fewer in octaves, got {bands}: pass resolution= to space them evenly"
            )
        if layout not in ("interleaved", "concatenated"):
            raise ValueError(f"layout must be 'interleaved' or 'concatenated', got {layout!r}: pass one of the two")
        self.axes, self.bands, self.scale, self.layout = axes, bands, _scale(scale), layout
        self.resolution = None if resolution is None else _resolution(resolution, axes)
        self.dim = 2 * axes * bands if dim is None else whole("dim", dim, 1)
        if self.dim < 2 * axes * bands:
            raise ValueError(
                f"dim must hold a sine and a cosine of {axes * bands} waves, got {self.dim}: "
                f"pass {2 * axes * bands} or more, or fewer bands"
            )

    def frequencies(self, device: Device = None) -> Float[Tensor, "n bands"]:
        """Half turns a unit of position, in float64: `scale * f_k` for each axis and band."""
        spans = (None,) * self.axes if self.resolution is None else self.resolution
        if torch.empty(0, device=device).device.type == "cpu":
            rows = [[self._band(k, size) for k in range(self.bands)] for size in spans]
            return torch.tensor(rows, dtype=torch.float64, device=device)
        index = torch.arange(self.bands, dtype=torch.float64, device=device)  # a captured step copies nothing there
        return torch.stack([self._band(index, size) for size in spans])

    def _band(self, k: Any, size: int | None) -> Any:
        """`scale * f_k`, where k is a number or a tensor of them."""
        return self.scale * (2.0**k if size is None else 1 + k * ((size / 2 - 1) / max(self.bands - 1, 1)))

    def vectors(self, coordinates: Shaped[Tensor, "*b l n"]) -> Float[Tensor, "*b l dim"]:
        half_turns = coordinates.double()[..., None] * self.frequencies(coordinates.device)
        half_turns = half_turns - 2 * (half_turns / 2).round()  # whole turns are dropped exactly, while they are whole
        angles = (half_turns * math.pi).flatten(-2)  # axis after axis, each with all its bands
        if self.layout == "concatenated":
            waves = torch.cat([angles.sin(), angles.cos()], -1)
        else:
            waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
        return F.pad(waves, (0, self.dim - waves.shape[-1]))

    def extra_repr(self) -> str:
        return f"{self.axes}, {self.bands}, resolution={self.resolution}, scale={self.scale:g}, layout={self.layout!r}"


class LearnableFourier(Absolute):
    """Learned directions of the coordinates, their cosines and sines mixed by a small network.

    `r(x) = [cos(x W), sin(x W)] / sqrt(features)`, `p(x) = gelu(r(x) H + a) O + b`, W starts as `N(0, scale ** 2)`.

    Coordinates are taken as they stand, in radians after W: for whole positions up to L a scale near 1 / L is a good
    start, and `positions.rescaled(0, 1)` gives those of the unit square.

    Args:
        dim: channels.
        axes: number of coordinates of a token.
        features: cosines and sines, even.
        hidden: width of the hidden layer.
        scale: standard deviation of the frequencies at the start, in radians a unit of position, more than 0; the
            paper's 1 / gamma.

    Raises ValueError for an odd number of features or a scale of 0 or less.

    `load_foreign` reads "learnable_fourier", the names of the copies of the paper's algorithm 1: `Wr.weight`, `mlp.0`
    and `mlp.2`, with one group.

    >>> posenc.LearnableFourier(6, axes=2)(torch.zeros(1, 4, 6), posenc.grid(2, 2).rescaled(0, 1)).shape
    torch.Size([1, 4, 6])

    Li et al., Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding, 2021, arXiv:2106.02795.
    """

    def __init__(self, dim: int, axes: int = 1, features: int = 384, hidden: int = 32, scale: float = 1.0) -> None:
        super().__init__()
        self.dim, self.axes, self.scale = whole("dim", dim, 1), whole("axes", axes, 1), _scale(scale)
        self.features = _even("features", "LearnableFourier", features)
        self.frequencies = nn.Parameter(torch.empty(self.axes, self.features // 2))
        self.hidden = nn.Linear(self.features, whole("hidden", hidden, 1))
        self.output = nn.Linear(self.hidden.out_features, self.dim)
        nn.init.normal_(self.frequencies, std=self.scale)

    def reset_parameters(self) -> None:
        """Draw the frequencies and the network anew."""
        nn.init.normal_(self.frequencies, std=self.scale)
        self.hidden.reset_parameters()
        self.output.reset_parameters()

    def vectors(self, coordinates: Shaped[Tensor, "*b l n"]) -> Float[Tensor, "*b l dim"]:
        angles = _project(coordinates, self.frequencies)
        waves = torch.cat([angles.cos(), angles.sin()], -1) / math.sqrt(self.features)
        dtype = arithmetic_dtype(self.hidden.weight.dtype)
        return _linear(self.output, F.gelu(_linear(self.hidden, waves.to(dtype))))

    def extra_repr(self) -> str:
        return f"{self.dim}, axes={self.axes}, features={self.features}, scale={self.scale:g}"

    def _from_listing(self, state: ForeignState) -> dict[str, Tensor]:
        layers = {"hidden": "mlp.0", "output": "mlp.2"}
        network = {f"{ours}.{part}": state[f"{theirs}.{part}"] for ours, theirs in layers.items() for part in _PARTS}
        return {"frequencies": state.shaped("Wr.weight", self.features // 2, self.axes).mT, **network}

    foreign: ClassVar = {"learnable_fourier": _from_listing}


def _project(coordinates: Tensor, frequencies: Tensor) -> Tensor:
    """`x W` in float64, summed over the axes."""
    return (coordinates.double()[..., None] * frequencies.double()).sum(-2)


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """The layer in the dtype of x, wider perhaps than that of its weights."""
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))


def _even(name: str, scheme: str, value: int) -> int:
    value = whole(name, value, 1)
    if value % 2:
        raise ValueError(f"{name} must be even for {scheme}, a sine and a cosine each, got {value}: pass {value + 1}")
    return value


def _scale(scale: float) -> float:
    number = real("scale", scale, "pass the spread of the frequencies")
    if number <= 0:
        raise ValueError(f"scale must be more than 0, got {scale}: pass the spread of the frequencies")
    return number


def _resolution(resolution: int | SequenceOf[int], axes: int) -> tuple[int, ...]:
    given = sizes("resolution", resolution)
    given = given * axes if len(given) == 1 else given
    if len(given) != axes:
        raise ValueError(f"resolution must be one number, or one an axis, got {len(given)} for {axes} axes: drop some")
    return tuple(whole("resolution", size, 2) for size in given)
