"""What the operands of an attention must be so that nothing is read or written beyond a tensor.

Terms of the catalog always are; those that somebody made by hand may not be.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from posenc.kernels.structures import Attention

__all__ = ["require_dtype", "require_rotation", "require_sizes"]

WHERE = "make the term of the sizes of q, k and v"


def require_dtype(numbers: Sequence[Tensor], dtype: torch.dtype) -> None:
    """Raise where numbers are of another dtype than the arithmetic."""
    for each in numbers:
        if each.dtype != dtype:
            raise ValueError(f"the numbers of a term must be in {dtype}, got {each.dtype}: convert them")


def require_sizes(what: str, given: Tensor, *wanted: int | tuple[int, ...]) -> None:
    """Raise where a tensor is of other sizes; where one says several, any of them will do."""
    sizes = [each if isinstance(each, tuple) else (each,) for each in wanted]
    if len(given.shape) != len(sizes) or any(n not in some for n, some in zip(given.shape, sizes, strict=True)):
        said = ", ".join(" or ".join(map(str, dict.fromkeys(some))) for some in sizes)
        raise ValueError(f"{what} of a term must be [{said}] here, got {list(given.shape)}: {WHERE}")


def require_rotation(
    problem: Attention, query: tuple[Tensor, Tensor], key: tuple[Tensor, Tensor], dtype: torch.dtype
) -> None:
    """Raise where cosines and sines are not [1 or batch, 1 or heads, tokens after the prefix, pairs], in `dtype`."""
    pairs = query[0].shape[-1]
    if 2 * pairs > problem.channels:
        raise ValueError(f"a rotation turns {2 * pairs} channels, got q with {problem.channels}: {WHERE}")
    require_dtype((*query, *key), dtype)
    for turns, heads, tokens in (
        (query, problem.heads, problem.queries - problem.query_prefix),
        (key, problem.groups, problem.keys - problem.key_prefix),
    ):
        for each in turns:
            require_sizes("cosines and sines", each, (1, problem.batch), (1, heads), tokens, pairs)
        if turns[0].shape != turns[1].shape:
            raise ValueError(f"cosines and sines must be of one shape, got {[list(x.shape) for x in turns]}: {WHERE}")
