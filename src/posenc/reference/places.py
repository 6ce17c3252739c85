"""Where tokens stand: in a padded image, and in a text with images and videos."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from posenc.reference._shared import Array, check


def padded_positions(
    mask: Bool[NDArray[np.bool_], "*shape"], start: float = 0, span: float | None = None
) -> Float[Array, "n axes"]:
    """Positions in one padded sequence, image or volume, which count the real tokens along each axis.

    `c_a = max(start − 1 + count, 0)`, the count of real tokens on the line along axis `a` up to this one, itself
    included; with a span, `c_a · span / (n + 10⁻⁶)` for a line of `n` real tokens.

    Args:
        mask: True where there is a token, `[length]`, `[height, width]` or `[*shape]`.
        start: the position of a line's first token: 1 in DETR, 2 in BART, `padding_idx + 1` in RoBERTa.
        span: what positions are stretched to, real numbers then; `2π` in DETR, whose `10⁻⁶` it is.

    Raises:
        ValueError: for a mask without axes.

    >>> padded_positions(np.array([False, False, True, True])).ravel().tolist()
    [0.0, 0.0, 0.0, 1.0]
    >>> padded_positions(np.array([[True, True, False]]), start=1).tolist()
    [[1.0, 1.0], [1.0, 2.0], [0.0, 2.0]]

    Carion et al., End-to-End Object Detection with Transformers, arXiv:2005.12872.
    """
    check(mask.ndim >= 1, "mask must have an axis at least, got none")
    positions = np.zeros((mask.size, mask.ndim))
    for token, place in enumerate(itertools.product(*(range(size) for size in mask.shape))):
        for axis in range(mask.ndim):
            line = [mask[(*place[:axis], step, *place[axis + 1 :])] for step in range(mask.shape[axis])]
            position = max(start - 1 + sum(line[: place[axis] + 1]), 0)
            positions[token, axis] = position if span is None else position * span / (sum(line) + 1e-6)
    return positions


def multimodal_positions(
    segments: Sequence[int | Sequence[int]], temporal_step: float = 1.0, start: int = 0, follow: str = "largest"
) -> Float[Array, "n 3"]:
    """Time, height and width of the tokens of a text with images and videos.

    A text of `n` tokens from `p` on stands at `(p, p, p) … (p + n − 1, …)`; the tokens of an image or a video,
    row-major, at `(p + ⌊s t⌋, p + y, p + x)`. What follows begins at one more than the largest coordinate so far.

    Args:
        segments: tokens of a text, or frames, height and width of a video in tokens; an image has one frame.
        temporal_step: `s`, positions a frame: 1 in Qwen2-VL, tokens a second times seconds a frame in Qwen2.5-VL.
        start: where the first segment begins.
        follow: `largest`, or `space` to leave time out of the largest coordinate, as transformers 5 does.

    Raises:
        ValueError: for an unknown rule, or a segment with another number of sizes, or too small ones.

    >>> multimodal_positions([2, (1, 1, 2), 1]).astype(int).tolist()
    [[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 3], [4, 4, 4]]

    Wang et al., Qwen2-VL, arXiv:2409.12191; Bai et al., Qwen2.5-VL, arXiv:2502.13923.
    """
    check(follow in ("largest", "space"), f"follow must be largest or space, got {follow!r}")
    positions: list[tuple[int, int, int]] = []
    begin = start
    for segment in segments:
        if isinstance(segment, int):
            check(segment >= 0, f"a text must have 0 tokens or more, got {segment}")
            positions += [(begin + step,) * 3 for step in range(segment)]
            begin += segment
        else:
            check(len(segment) == 3 and min(segment) >= 1, f"an image must have 3 sizes of 1 or more, got {segment}")
            largest = 0
            for frame, row, column in itertools.product(*(range(size) for size in segment)):
                moment = math.floor(np.float32(frame) * np.float32(temporal_step))  # as rounded as in the models' code
                positions.append((begin + moment, begin + row, begin + column))
                largest = max(largest, row, column, moment if follow == "largest" else 0)
            begin += 1 + largest
    return np.array(positions, dtype=np.float64).reshape(-1, 3)
