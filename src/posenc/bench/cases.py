"""What is measured: schemes at the sizes that they can have, and the call to each."""

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional

import posenc
from posenc import catalog

__all__ = ["PLAIN", "Case", "Setting", "build", "chosen", "prepare", "require_count"]

PLAIN = "plain"
DTYPES = ("float32", "bfloat16", "float16", "float64")


class Setting(NamedTuple):
    """The size of what is measured: `shape` is that of the tokens, one size an axis."""

    shape: tuple[int, ...] = (400,)
    batch: int = 1
    heads: int = 8
    head_dim: int = 64
    dtype: str = "float32"
    device: str = "cpu"
    causal: bool = False  # whether attention is causal, plain's too

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return math.prod(self.shape)


class Case(NamedTuple):
    """A scheme at a setting, or why it cannot be measured there."""

    scheme: str
    setting: Setting
    refused: str = ""


def chosen(schemes: Sequence[str], length: int | None, grid: tuple[int, ...], common: Setting) -> list[Case]:
    """Schemes, all if empty, each along a sequence and on a grid as its axes have it.

    Raises ValueError for an unknown scheme, dtype or device, for a length that none of the named schemes has, and for
    more tokens than memory holds.
    """
    cards = [catalog.card(name) for name in schemes] or list(catalog.CARDS)
    for name in ("batch", "heads", "head_dim"):
        require_count(name, getattr(common, name))
    for name, size in [("length", 1 if length is None else length), *(("each size of grid", size) for size in grid)]:
        require_count(name, size)
    if common.dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {common.dtype!r}")
    try:
        torch.empty(0, device=common.device)
    except (AssertionError, RuntimeError) as error:  # unknown to torch, or not there
        given = f"got {common.device!r}: for example cpu"
        raise ValueError(f"device must be one that torch can use here, {given}") from error
    if common.device.partition(":")[0] == "meta":
        raise ValueError("device must be one that computes, got 'meta', which has no numbers: for example cpu")
    if schemes and length and not any(card.axes in ("1", "any") for card in cards):
        given = ", ".join(f"{card.name} has {card.axes}" for card in cards)
        raise ValueError(f"length is for schemes of one axis, got {length} ({given}): give the grid instead")
    line = (length or math.prod(grid),)
    _require_memory(common, max(line[0], math.prod(grid)))
    shapes: dict[str, list[tuple[int, ...]]] = {
        "1": [line],
        "any": [line, grid],
        "3": [(1, *grid) if len(grid) == 2 else grid],
    }
    found = []
    for card in cards:
        for shape in shapes.get(card.axes, [grid]):
            setting = common._replace(shape=shape, causal=card.causal)
            try:
                build(card.name, setting)
            except ValueError as error:  # a size that the scheme cannot have
                found.append(Case(card.name, setting, str(error)))
            else:
                found.append(Case(card.name, setting))
    return found


def require_count(name: str, number: object) -> None:
    """Raise where there are not so many."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"{name} must be 1 or more, got {number!r}: pass a whole number")


def _require_memory(common: Setting, tokens: int) -> None:
    """Raise where queries, keys, values and the output alone are more than this machine has."""
    if not common.device.startswith("cpu") or "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return
    itemsize = getattr(torch, common.dtype).itemsize
    needed = 4 * common.batch * common.heads * common.head_dim * tokens * itemsize
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > memory:
        raise ValueError(
            f"{tokens} tokens need {needed / 2**30:.0f} GiB for q, k, v and the output, got a machine of "
            f"{memory / 2**30:.0f} GiB: measure fewer"
        )


def build(scheme: str, setting: Setting) -> Any:
    """The encoding of a scheme for a setting, in its dtype and on its device."""
    arguments = catalog.arguments(
        scheme,
        shape=setting.shape,
        dim=setting.heads * setting.head_dim,
        num_heads=setting.heads,
        head_dim=setting.head_dim,
    )
    encoding = getattr(posenc, catalog.card(scheme).name)(**arguments)
    return encoding.to(setting.device, getattr(torch, setting.dtype))


def prepare(scheme: str, setting: Setting, train: bool) -> Callable[[], object]:
    """The call to measure: attention with a scheme, or `plain`; with the backward pass if `train`."""
    options: dict[str, Any] = {"device": setting.device, "dtype": getattr(torch, setting.dtype), "requires_grad": train}
    q, k, v = (torch.randn(setting.batch, setting.heads, setting.tokens, setting.head_dim, **options) for _ in range(3))
    inputs = [q, k, v]
    attend = partial(functional.scaled_dot_product_attention, is_causal=setting.causal)
    if scheme == PLAIN:

        def forward() -> list[torch.Tensor]:
            return [attend(q, k, v)]

    else:
        encoding = build(scheme, setting)
        inputs += [parameter for parameter in encoding.parameters() if parameter.requires_grad]
        positions = posenc.grid(*setting.shape) if len(setting.shape) > 1 else posenc.sequence(*setting.shape)
        if catalog.card(scheme).place in ("absolute", "conditional"):
            x = torch.randn(setting.batch, setting.tokens, setting.heads * setting.head_dim, **options)
            inputs.append(x)

            def forward() -> list[torch.Tensor]:
                return [attend(q, k, v), encoding(x, positions)]

        else:

            def forward() -> list[torch.Tensor]:
                return [posenc.attention(q, k, v, encoding, positions=positions, causal=setting.causal)]

    if not train:
        return lambda: _infer(forward)
    gradients = [torch.randn_like(output) for output in forward()]
    return lambda: torch.autograd.grad(forward(), inputs, gradients)


def _infer(forward: Callable[[], list[torch.Tensor]]) -> list[torch.Tensor]:
    with torch.inference_mode():
        return forward()
