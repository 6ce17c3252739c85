"""Bias encodings that are a formula of distance: ALiBi, KERPLE, Sandwich."""

from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from posenc.checks import flag, whole
from posenc.foreign import ForeignState
from posenc.inside import BiasEncoding
from posenc.layout import Device
from posenc.sinusoid import geometric

__all__ = ["ALiBi", "Kerple", "Sandwich", "alibi_slopes"]

Kernel = Literal["logarithmic", "power"]


class ALiBi(BiasEncoding):
    """A penalty in proportion to distance, with a slope a head: `b[h, i, j] = -m_h |i - j|`.

    Args:
        num_heads: number of heads, any number from 1.
        signed: `-m_h (i - j)` instead, so that keys ahead of the query gain. Where attention is causal there are none,
            and it is the same; it is BLOOM's `m_h j` less a constant a query.
        learned: train the slopes (`slopes`, `[heads]`), starting from those of the paper; otherwise they are fixed.

    Raises ValueError for fewer than one head.

    `load_foreign` reads "x_transformers", the `learned_logslopes` of its earlier releases, `[heads, 1, 1]`.

    >>> posenc.ALiBi(2)(posenc.sequence(3)).shape
    torch.Size([2, 3, 3])

    Press et al., Train Short, Test Long, 2021, arXiv:2108.12409.
    """

    def __init__(self, num_heads: int, signed: bool = False, learned: bool = False) -> None:
        super().__init__()
        self.num_heads: int = whole("num_heads", num_heads, 1)
        self.signed, self.learned = flag("signed", signed), flag("learned", learned)
        if self.learned:
            self.slopes = nn.Parameter(torch.empty(self.num_heads))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin again with the paper's slopes."""
        if self.learned:
            with torch.no_grad():
                self.slopes.copy_(alibi_slopes(self.num_heads, device=self.slopes.device))

    def bias(self, relative: Shaped[Tensor, "*b 1"]) -> Float[Tensor, "h *b"]:
        slopes = self.slopes if self.learned else alibi_slopes(self.num_heads, device=relative.device)
        distance = relative[..., 0] if self.signed else relative[..., 0].abs()
        return -_each_head(slopes, distance) * distance

    def extra_repr(self) -> str:
        return f"{self.num_heads}, signed={self.signed}, learned={self.learned}"

    def _from_x_transformers(self, state: ForeignState) -> dict[str, Tensor]:
        return {"slopes": state.shaped("learned_logslopes", self.num_heads, 1, 1).flatten().exp()}

    foreign: ClassVar = {"x_transformers": _from_x_transformers}


def alibi_slopes(num_heads: int, device: Device = None) -> Float[Tensor, "h"]:
    """The slopes m_h of ALiBi, in float64: `2 ** (-8 (h + 1) / H)` for H a power of two.

    For other head counts, those of the largest power of two below, then every other one of the next power's.

    Raises ValueError for fewer than one head.

    >>> posenc.alibi_slopes(6).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]

    Press et al., Train Short, Test Long, 2021, arXiv:2108.12409.
    """
    num_heads = whole("num_heads", num_heads, 1)
    power = 1 << (num_heads.bit_length() - 1)
    own = geometric(2.0, power + 1, power / 8, device)[1:]
    between = geometric(2.0, 2 * (num_heads - power), power / 4, device)[1::2]
    return torch.cat([own, between])


class Kerple(BiasEncoding):
    """A conditionally positive definite kernel of distance, with two trained numbers a head.

    `b[h, i, j] = -r1_h log(1 + r2_h |i - j|)`, or with kind "power" `-r1_h |i - j| ** r2_h`.

    What is trained is `raw_r1` and `raw_r2`, `[heads]`, so that the kernel's numbers stay where they must:
    `r1 = softplus(raw_r1) > 0`; `r2 = softplus(raw_r2) > 0`, or `2 sigmoid(raw_r2)` between 0 and 2 for the power.
    A saved state does not say which kind it is of.

    Args:
        num_heads: number of heads.
        kind: "logarithmic" (the better of the two in the paper) or "power" (ALiBi where r2 is 1).

    Raises ValueError for another kind.

    `load_foreign` reads "kerple", the authors' `bias_p` and `bias_a`, `[heads, 1, 1]`.

    >>> posenc.Kerple(4)(posenc.sequence(3)).shape
    torch.Size([4, 3, 3])

    Chi et al., KERPLE, 2022, arXiv:2205.09921.
    """

    def __init__(self, num_heads: int, kind: Kernel = "logarithmic") -> None:
        super().__init__()
        if kind not in get_args(Kernel):
            raise ValueError(f"kind must be 'logarithmic' or 'power', got {kind!r}: the paper prefers 'logarithmic'")
        self.num_heads: int = whole("num_heads", num_heads, 1)
        self.kind = kind
        self.raw_r1 = nn.Parameter(torch.empty(self.num_heads))
        self.raw_r2 = nn.Parameter(torch.empty(self.num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the kernels anew, evenly between 0 and 2 (r1) or 1 (r2), as the authors do; the other way for power."""
        power = self.kind == "power"
        with torch.no_grad():
            r1 = torch.empty_like(self.raw_r1).uniform_(0.01, 1.0 if power else 2.0)
            r2 = torch.empty_like(self.raw_r2).uniform_(0.01, 1.99 if power else 1.0)
            self.raw_r1.copy_(_inverse_softplus(r1))
            self.raw_r2.copy_((r2 / 2).logit() if power else _inverse_softplus(r2))

    def bias(self, relative: Shaped[Tensor, "*b 1"]) -> Float[Tensor, "h *b"]:
        distance = relative[..., 0].abs().double()
        raw_r1, raw_r2 = _each_head(self.raw_r1, distance), _each_head(self.raw_r2, distance)
        if self.kind == "logarithmic":
            return -F.softplus(raw_r1) * (F.softplus(raw_r2) * distance).log1p()
        # 0 ** r2 is 0, but the derivative by r2 has a logarithm of the distance in it: distance 0 stays outside
        apart = distance > 0
        power = torch.where(apart, distance, 1.0) ** (2 * raw_r2.sigmoid())
        return -F.softplus(raw_r1) * torch.where(apart, power, 0.0)

    def extra_repr(self) -> str:
        return f"{self.num_heads}, kind={self.kind!r}"

    def _from_kerple(self, state: ForeignState) -> dict[str, Tensor]:
        # the authors' -bias_p log(1 + bias_a n), and -bias_a n ** bias_p; they clamp both before each use
        size = self.num_heads, 1, 1
        p, a = (state.shaped(name, *size).flatten().double().clamp(min=0.01) for name in ("bias_p", "bias_a"))
        if self.kind == "logarithmic":
            return {"raw_r1": _inverse_softplus(p), "raw_r2": _inverse_softplus(a)}
        if (p >= 2).any():
            raise ValueError(f"bias_p of the power kernel must be below 2, got {float(p.max()):g}: pass another layer")
        return {"raw_r1": _inverse_softplus(a), "raw_r2": (p / 2).logit()}

    foreign: ClassVar = {"kerple": _from_kerple}


class Sandwich(BiasEncoding):
    """The inner product of two sinusoidal embeddings, compressed head by head; nothing is trained.

    `b[h, i, j] = H / (8 (h + 1)) p(i) . p(j) = H / (8 (h + 1)) sum_k cos((i - j) 10000 ** (-2k / dim))`,
    over k = 0 ... dim / 2 - 1 and heads h from 0.

    Args:
        num_heads: number of heads H.
        dim: width of the sinusoidal embeddings, even; the paper's own number, whatever the model's width.

    Raises ValueError for an odd width, or one below 2.

    >>> posenc.Sandwich(8, dim=4)(posenc.sequence(2))[0]
    tensor([[2.0000, 1.5403],
            [1.5403, 2.0000]])

    Chi et al., Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis, 2022,
    arXiv:2212.10356.
    """

    def __init__(self, num_heads: int, dim: int = 128) -> None:
        super().__init__()
        self.num_heads: int = whole("num_heads", num_heads, 1)
        self.dim = whole("dim", dim, 2)
        if self.dim % 2:
            raise ValueError(f"dim must be even for pairs of sine and cosine, got {dim}: pass {dim + 1}")

    def bias(self, relative: Shaped[Tensor, "*b 1"]) -> Float[Tensor, "h *b"]:
        relative = relative[..., 0].double()
        product = torch.zeros_like(relative)
        for pair in range(self.dim // 2):  # one at a time: what is kept is a number a lag, not one a lag and pair
            product = product + (relative * 10000.0 ** (-2 * pair / self.dim)).cos()
        head = torch.arange(1, self.num_heads + 1, dtype=torch.float64, device=relative.device)
        return _each_head(self.num_heads / (8 * head), relative) * product

    def extra_repr(self) -> str:
        return f"{self.num_heads}, dim={self.dim}"


def _each_head(numbers: Float[Tensor, "h"], distance: Shaped[Tensor, "*b"]) -> Float[Tensor, "h *_"]:
    """One number a head beside the distances, in float64: they are few, and a cast module's are narrow."""
    return numbers.double().reshape(-1, *[1] * distance.ndim)


def _inverse_softplus(x: Tensor) -> Tensor:
    return x.expm1().log()
