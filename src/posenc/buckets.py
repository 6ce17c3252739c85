"""Buckets of whole distances, found among borders that are whole numbers."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

__all__ = ["bucket_of", "whole_lags"]


def whole_lags(relative: Int[Tensor, "*b"], what: str) -> Int[Tensor, "*b"]:
    """Relative positions in int64, of which even the smallest has an absolute value there."""
    if not isinstance(relative, Tensor):
        raise TypeError(f"relative must be an integer tensor for {what}, got {type(relative).__name__}: convert it")
    if relative.is_floating_point() or relative.is_complex() or relative.dtype in (torch.bool, torch.uint64):
        raise TypeError(f"relative must be integer for {what}, got {relative.dtype}: round it first")
    return relative.long().clamp(min=-torch.iinfo(torch.int64).max)


def bucket_of(distance: Int[Tensor, "*b"], borders: Sequence[int]) -> Int[Tensor, "*b"]:
    """How many borders each distance has reached."""
    return torch.bucketize(distance, torch.tensor(borders, device=distance.device), right=True)
