"""What is measured, and at which sizes."""

import math
from typing import Any, NamedTuple

import torch

import posenc
from posenc import catalog

__all__ = ["DTYPES", "PLAIN", "SHORT", "Setting", "Subject", "build", "require_count"]

DTYPES = ("float32", "bfloat16", "float16", "float64")
SHORT = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "fp64": "float64"}
SHORT |= {"float": "float32", "double": "float64"} | {name: name for name in DTYPES}
"""What dtypes are called elsewhere."""

Options = tuple[tuple[str, Any], ...]


class Setting(NamedTuple):
    """The size of what is measured: `shape` is that of the tokens, one size an axis."""

    shape: tuple[int, ...] = (400,)
    batch: int = 1
    heads: int = 8
    head_dim: int = 64
    dtype: str = "float32"
    device: str = "cpu"
    causal: bool = False
    """Whether attention is causal, plain's too."""
    prefix: int = 0
    """Tokens that come first and stand nowhere."""
    queries: int = 0
    """How many of the last tokens ask; 0: all of them."""

    @property
    def tokens(self) -> int:
        """How many tokens there are, prefix included."""
        return math.prod(self.shape) + self.prefix

    @property
    def asking(self) -> int:
        """How many of them ask."""
        return self.queries or self.tokens

    @property
    def size(self) -> str:
        """The tokens in words: `4096`, `64×64+1` with a prefix, `1 of 4096` where few ask."""
        text = "×".join(map(str, self.shape)) + (f"+{self.prefix}" if self.prefix else "")
        return f"{self.queries} of {text}" if self.queries else text

    @property
    def logits(self) -> int:
        """How many pairs of a query and a key there are, over all heads."""
        return self.batch * self.heads * self.asking * self.tokens

    def positions(self) -> posenc.Positions:
        """Where the tokens stand."""
        if len(self.shape) == 1 and not self.prefix:
            return posenc.sequence(*self.shape)
        return posenc.grid(*self.shape, prefix=self.prefix)

    def smaller(self) -> "Setting":
        """Half as many tokens on each of two axes, or a quarter on the only one."""
        if len(self.shape) == 1:
            shape: tuple[int, ...] = (max(1, self.shape[0] // 4),)
        else:
            shape = (*self.shape[:-2], *(max(1, size // 2) for size in self.shape[-2:]))
        return self._replace(shape=shape, queries=min(self.queries, math.prod(shape)))

    def tiny(self) -> "Setting":
        """Two tokens on each axis at most."""
        return self._replace(shape=tuple(min(2, size) for size in self.shape), queries=min(self.queries, 1))


class Subject(NamedTuple):
    """What is measured at a setting: a scheme, and the way in which it is computed."""

    scheme: str = ""
    """The name of its card; "" is no encoding."""
    options: Options = ()
    """Arguments of its constructor beside those that follow from the setting."""
    way: str = "attention"
    """One of `calls.WAYS`, or the name of a peer."""
    frozen: bool = False
    """Whether its numbers are trained no further."""
    backend: str = "auto"

    @property
    def title(self) -> str:
        """The scheme with its options: `Shaw(max_distance=64, values=False), frozen`."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.options)
        text = (self.scheme or "no encoding") + (f"({options})" if options else "")
        return text + (", frozen" if self.frozen else "")


PLAIN = Subject(way="plain")
"""torch's own attention, without an encoding."""


def require_count(name: str, number: object) -> None:
    """Raise where there are not so many."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"{name} must be 1 or more, got {number!r}: pass a whole number")


def build(subject: Subject, setting: Setting) -> Any:
    """The encoding of a subject for a setting, in its dtype and on its device."""
    arguments = catalog.arguments(
        subject.scheme,
        shape=setting.shape,
        dim=setting.heads * setting.head_dim,
        num_heads=setting.heads,
        head_dim=setting.head_dim,
    )
    encoding = getattr(posenc, catalog.card(subject.scheme).name)(**arguments | dict(subject.options))
    encoding.requires_grad_(not subject.frozen)
    return encoding.to(setting.device, getattr(torch, setting.dtype))
