"""What the tests against peers share: draws, tolerances, layers with a peer's weights, and the list of peers.

A test says with `@against(scheme, path, ...)` which implementations it checks a scheme against; `test_peers.py` holds
the cards to that list, so that a card promises what is tested and nothing more.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

import posenc
import second_loops

Test = TypeVar("Test", bound=Callable)

# What the peers deprecate or warn of is shown, and is not our failure.
PEERS = [pytest.mark.usefixtures("seed"), pytest.mark.filterwarnings("default")]

CHECKED: dict[str, set[str]] = defaultdict(set)
"""Scheme -> the import paths of the peers that it is checked against."""
LOOPED: dict[str, str] = {}
"""Scheme that no package has -> the function of `second_loops` that it is checked against."""


def against(scheme: str, *paths: str) -> Callable[[Test], Test]:
    """Say that a test checks a scheme against the implementations at these import paths."""

    def enter(test: Test) -> Test:
        CHECKED[scheme].update(paths)
        return test

    return enter


EPS = torch.finfo(torch.float32).eps
GRIDS = [(3, 5), (5, 2), (1, 4), (4, 4)]


def beside(scheme: str, loop: str) -> Callable[[Test], Test]:
    """Say that a test checks a scheme, which no package has, against this function of `second_loops`."""

    def enter(test: Test) -> Test:
        assert callable(getattr(second_loops, loop))
        assert loop in inspect.getsource(test), "the test does not name the loop"
        LOOPED[scheme] = f"second_loops.{loop}"
        return test

    return enter


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def assert_equal(ours: Tensor, theirs: Tensor) -> None:
    """Equal to 1e-10, both in float64."""
    assert ours.dtype == theirs.dtype == torch.float64
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def assert_within(ours: Tensor, theirs: Tensor, roundings: float) -> None:
    """Equal up to so many float32 roundings of a number of size one, nothing relative."""
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=0.0, atol=roundings * EPS)


def set_table(parameter: Tensor, values: Tensor) -> None:
    """Write a peer's table into one of ours, whose shape must be just that."""
    assert parameter.shape == values.shape
    with torch.no_grad():
        parameter.copy_(values)


def set_linear(linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    set_table(linear.weight, weight)
    if linear.bias is not None:
        set_table(linear.bias, torch.zeros_like(linear.bias) if bias is None else bias)


def layer_like(
    dim: int, heads: int, *encodings: nn.Module, projections: list[nn.Linear], **options: object
) -> posenc.SelfAttention:
    """Our ready layer in float64 with the query, key, value and output projections of a peer's layer."""
    layer = posenc.SelfAttention(dim, heads, *encodings, **options).double()
    for ours, theirs in zip((layer.query, layer.key, layer.value, layer.output), projections, strict=True):
        set_linear(ours, theirs.weight, theirs.bias)
    return layer


def split_projection(packed: nn.Linear, bias: Tensor | None = None) -> list[nn.Linear]:
    """A packed q, k, v projection as three linear layers."""
    bias = packed.bias if bias is None else bias
    parts = []
    for rows in range(3):
        width = packed.out_features // 3
        part = nn.Linear(packed.in_features, width, bias=bias is not None).double()
        chosen = slice(rows * width, (rows + 1) * width)
        set_linear(part, packed.weight[chosen], None if bias is None else bias[chosen])
        parts.append(part)
    return parts


def randomize(module: nn.Module) -> nn.Module:
    """Float64, evaluation mode, and every parameter drawn anew: peers start tables at zero, which hides mistakes."""
    module.double().eval()  # not chained: one peer's `train` returns nothing
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


def encoded(encoding: nn.Module, dim: int, positions: posenc.Positions, dtype: torch.dtype = torch.float64) -> Tensor:
    """The vectors that an absolute encoding adds, `[tokens, dim]`."""
    return encoding(torch.zeros(1, positions.length, dim, dtype=dtype), positions)[0]
