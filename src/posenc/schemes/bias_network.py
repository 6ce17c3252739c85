"""Bias encodings that are a small trained network of relative position: log-CPB (Swin-v2) and FIRE."""

import math
from collections.abc import Sequence as SequenceOf
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from posenc.checks import real, sizes, whole
from posenc.encoding import arithmetic_dtype
from posenc.foreign import ForeignState
from posenc.inside import BiasEncoding

__all__ = ["ContinuousPositionBias", "Fire"]


AT_ONCE = 2048
"""Relative positions, whose hidden numbers are held at a time."""


class ContinuousPositionBias(BiasEncoding):
    """A network of log-spaced relative positions: `b[h, i, j] = 16 sigmoid(W2_h relu(W1 c(i - j) + b1))`.

    `c(x) = sign(x) log2(1 + 8 |x| / (n - 1)) / log2(8)` on each axis, n being the size of the window: within -1.06 and
    1.06 inside it, and no table to resize for another.

    Trained: `hidden.weight` `[hidden, axes]`, `hidden.bias` `[hidden]`, `output.weight` `[heads, hidden]`.

    Args:
        num_heads: number of heads.
        shape: size of each axis of the window. An axis of size 1 has one relative position, 0, and divides by nothing.
        pretrained_shape: the window that the network was trained in, if that was another: it is what coordinates are
            divided by.
        hidden: width of the network.

    Raises ValueError for shapes of different numbers of axes.

    >>> posenc.ContinuousPositionBias(num_heads=3, shape=(2, 5))(posenc.grid(2, 5)).shape
    torch.Size([3, 10, 10])

    Liu et al., Swin Transformer V2, 2021, arXiv:2111.09883.
    """

    def __init__(
        self,
        num_heads: int,
        shape: int | SequenceOf[int],
        pretrained_shape: int | SequenceOf[int] | None = None,
        hidden: int = 512,
    ) -> None:
        super().__init__()
        self.shape = sizes("shape", shape)
        self.pretrained_shape = self.shape if pretrained_shape is None else sizes("pretrained_shape", pretrained_shape)
        self.axes = len(self.shape)
        if len(self.pretrained_shape) != self.axes:
            raise ValueError(
                f"pretrained_shape must have the {self.axes} axes of shape, got {self.pretrained_shape}: "
                "pass one size an axis"
            )
        self.num_heads: int = whole("num_heads", num_heads, 1)
        width = whole("hidden", hidden, 1)
        self.hidden, self.output = nn.Linear(self.axes, width), nn.Linear(width, self.num_heads, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the network anew."""
        nn.init.trunc_normal_(self.hidden.weight, std=0.02)
        nn.init.trunc_normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.hidden.bias)

    def bias(self, relative: Shaped[Tensor, "*b n"]) -> Float[Tensor, "h *b"]:
        columns = []
        for axis, size in enumerate(self.pretrained_shape):
            stretched = relative[..., axis].double() * (8 / max(size - 1, 1))
            columns.append(stretched.sign() * stretched.abs().log1p() / math.log(8))
        features = torch.stack(columns, -1).to(arithmetic_dtype(self.hidden.weight.dtype))
        return 16 * _network(features, self.hidden, self.output).sigmoid()

    def extra_repr(self) -> str:
        return f"{self.num_heads}, {self.shape}, pretrained_shape={self.pretrained_shape}"

    def _from_swinv2(self, state: ForeignState) -> dict[str, Tensor]:
        # transformers calls the network by its full name, timm and the authors by initials
        name = "cpb_mlp" if "cpb_mlp.0.weight" in state else "continuous_position_bias_mlp"
        return _layers(state, f"{name}.0", f"{name}.2")

    def _from_timm(self, state: ForeignState) -> dict[str, Tensor]:
        return _layers(state, "mlp.fc1", "mlp.fc2")

    foreign: ClassVar = {"swinv2": _from_swinv2, "timm": _from_timm}


class Fire(BiasEncoding):
    """A network of distance, measured in parts of what the query can look back on (progressive interpolation).

    `b[h, i, j] = W2_h relu(W1 psi(|i - j|) / psi(max(|L|, i)) + b1) + b2_h`, `psi(x) = log(1 + |c| x)`.

    A query at position i has i tokens behind it, so that the farthest is at 1 whatever the length; up to position L
    (the threshold) distances are parts of L instead. The network therefore reads the query's position too.

    Trained: `c` `[1]`, `threshold` (L) `[1]`, `hidden.weight` `[hidden, 1]`, `hidden.bias` `[hidden]`,
    `output.weight` `[heads, hidden]`, `output.bias` `[heads]`.

    Args:
        num_heads: number of heads.
        hidden: width of the network.
        threshold: L to begin with, in tokens, more than 0 and finite.

    The paper's listing trains a factor of a fixed threshold, which moves it so many times faster: for the same training
    give `threshold` a learning rate of its own, or keep it. `load_foreign` reads "fire", the names of that listing
    (`mlp.0`, `mlp.2`, `c`, `L_multiplier`, `init_L`).

    Raises ValueError for another threshold.

    >>> posenc.Fire(num_heads=3)(posenc.sequence(5)).shape
    torch.Size([3, 5, 5])

    Li et al., Functional Interpolation for Relative Positions Improves Long Context Transformers, 2023,
    arXiv:2310.04418.
    """

    reads_query = True

    def __init__(self, num_heads: int, hidden: int = 32, threshold: float = 512.0) -> None:
        super().__init__()
        self.first_threshold = real("threshold", threshold, "the paper has 512")
        if self.first_threshold <= 0:
            raise ValueError(f"threshold must be more than 0, got {threshold}: the paper has 512")
        self.num_heads: int = whole("num_heads", num_heads, 1)
        width = whole("hidden", hidden, 1)
        self.hidden, self.output = nn.Linear(1, width), nn.Linear(width, self.num_heads)
        self.c, self.threshold = nn.Parameter(torch.empty(1)), nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the network anew, and begin again with the authors' c and the threshold given."""
        self.hidden.reset_parameters()
        self.output.reset_parameters()
        nn.init.constant_(self.c, 0.1)
        nn.init.constant_(self.threshold, self.first_threshold)

    def bias_from(
        self, relative: Shaped[Tensor, "b i j 1"], query: Shaped[Tensor, "b i 1 1"]
    ) -> Float[Tensor, "h b i j"]:
        # a denominator of 0 has no gradient, so that neither number may be 0
        stretch, threshold = (number.double().abs().clamp(min=1e-12) for number in (self.c, self.threshold))
        distance, reach = relative.double().abs(), torch.maximum(query.double(), threshold)
        interpolated = (stretch * distance).log1p() / (stretch * reach).log1p()
        # there is one a pair, not one a lag: float32 for a model in float32
        return _network(interpolated.to(arithmetic_dtype(self.c.dtype)), self.hidden, self.output)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, threshold={self.first_threshold}"

    def _from_fire(self, state: ForeignState) -> dict[str, Tensor]:
        # the paper's listing trains a factor of a fixed threshold
        return {
            "hidden.weight": state["mlp.0.weight"],
            "hidden.bias": state["mlp.0.bias"],
            "output.weight": state["mlp.2.weight"],
            "output.bias": state["mlp.2.bias"],
            "c": state.shaped("c")[None],
            "threshold": (state.shaped("L_multiplier") * state.shaped("init_L"))[None],
        }

    foreign: ClassVar = {"fire": _from_fire}


def _network(features: Float[Tensor, "*b n"], hidden: nn.Linear, output: nn.Linear) -> Float[Tensor, "h *b"]:
    """Linear, ReLU, linear, in the dtype of the features: a cast module's own is too narrow."""
    first, second = _wide(hidden, features.dtype), _wide(output, features.dtype)
    if torch.compiler.is_compiling():  # which fuses the three
        return F.linear(F.linear(features, *first).relu(), *second).movedim(-1, 0)
    pieces = features.reshape(-1, features.shape[-1]).split(AT_ONCE)
    numbers = torch.cat([F.linear(F.linear(piece, *first).relu_(), *second) for piece in pieces])
    return numbers.reshape(*features.shape[:-1], numbers.shape[-1]).movedim(-1, 0)


def _wide(layer: nn.Linear, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    bias: Tensor | None = layer.bias
    return layer.weight.to(dtype), None if bias is None else bias.to(dtype)


def _layers(state: ForeignState, hidden: str, output: str) -> dict[str, Tensor]:
    state.without(f"{output}.bias", "a bias of the output (timm's mode 'cr')")
    return {
        "hidden.weight": state[f"{hidden}.weight"],
        "hidden.bias": state[f"{hidden}.bias"],
        "output.weight": state[f"{output}.weight"],
    }
