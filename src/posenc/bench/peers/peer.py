"""What a peer is: code that people use today, computing what a scheme of ours computes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from posenc.bench.peers.packages import taken
from posenc.bench.setting import Options, Setting

__all__ = ["Made", "Peer", "masked", "numbered", "placed"]


class Made(NamedTuple):
    """A peer at a setting: its attention of q, k and v, or its embeddings with position, and what it trains."""

    call: Callable[..., Any]
    parameters: list[Tensor]


class Peer(NamedTuple):
    """Another package's way to compute a scheme."""

    scheme: str
    package: str
    code: str
    """What of the package computes it."""
    module: str
    """Where it is."""
    make: Callable[[Any, Any, Setting], Made]
    """Module, our encoding, setting -> the peer, with the same numbers as our encoding."""
    axes: tuple[int, ...] = (1,)
    """The numbers of axes that it is for."""
    options: Options = ()
    """The arguments with which ours computes the same."""
    prefix: int = 0
    """How many prefix tokens it is for."""
    causal: bool | None = None
    """Whether attention must be causal, or must not; None where it may."""
    some: bool = False
    """Whether fewer queries than keys can be asked for."""
    multiple: int = 1
    """What the channels that it reads must be a multiple of: those of a head, or of the model for embeddings."""
    compiled: bool = False
    """Whether it is compiled: forward only on a CPU, and its memory is not told from the compiler's."""

    @property
    def name(self) -> str:
        """What it is called in results."""
        return f"{self.package}: {self.code}"

    def made(self, encoding: Any, setting: Setting) -> Made:
        """The peer at a setting; our encoding has its numbers afterwards."""
        return self.make(taken(self.module), encoding, setting)

    def fits(self, setting: Setting) -> bool:
        """Whether it is meant for such a layout."""
        return len(setting.shape) in self.axes and setting.prefix == self.prefix

    def trains(self, setting: Setting) -> bool:
        """Whether it has gradients there."""
        return not self.compiled or setting.device.startswith("cuda")

    def refuses(self, setting: Setting) -> str:
        """Why it cannot compute this; empty where it can."""
        if self.causal is not None and self.causal != setting.causal:
            return f"it is for attention that is {'' if self.causal else 'not '}causal"
        if setting.queries and not self.some:
            return "it is for as many queries as keys"
        if self.compiled and setting.dtype == "float64":
            return "compiled, it has no float64 on a CPU"
        width = setting.head_dim * (1 if self.scheme not in ("Sinusoidal", "ConditionalEncoding") else setting.heads)
        if width % self.multiple:
            return f"it needs a multiple of {self.multiple} channels, got {width}"
        return ""


def masked(setting: Setting) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """torch's attention with a bias as its mask, of q's dtype; minus infinity for keys ahead where it is causal."""
    if not setting.causal:
        return lambda q, k, v, bias: functional.scaled_dot_product_attention(q, k, v, bias.to(q.dtype))
    shape = setting.asking, setting.tokens
    ahead = torch.ones(shape, dtype=torch.bool, device=setting.device).triu(1 + setting.tokens - setting.asking)
    return lambda q, k, v, bias: functional.scaled_dot_product_attention(
        q, k, v, bias.to(q.dtype).masked_fill(ahead, -torch.inf)
    )


def placed(module: nn.Module, setting: Setting) -> Any:
    """A module for evaluation, as it is in a model of this dtype."""
    module.eval()
    return module.to(setting.device, getattr(torch, setting.dtype))


def numbered(setting: Setting, *shape: int, std: float) -> nn.Parameter:
    """Trained numbers that a peer takes as a tensor."""
    numbers = torch.randn(shape) * std
    return nn.Parameter(numbers.to(setting.device, getattr(torch, setting.dtype)))
