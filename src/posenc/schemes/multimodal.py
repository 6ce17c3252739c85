"""M-RoPE: one rotary for text, images and video, with positions in time, height and width."""

from collections.abc import Sequence as SequenceOf
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from posenc.checks import flag, real, whole
from posenc.encoding import deal
from posenc.inside import RotaryEncoding
from posenc.layout import Device, Explicit, Positions
from posenc.positions import grid
from posenc.scaling import Scaling, spectrum
from posenc.scaling.checks import listed
from posenc.scaling.config import read, write

__all__ = ["MultimodalRotary", "multimodal"]


class MultimodalRotary(RotaryEncoding):
    """M-RoPE: the frequencies of one rotary over the whole width, each pair turned by one of several coordinates.

    Pair p of P turns by `angle = position_a(p) * f_p`, `f_p = base ** (-p / P)`. In chunks (Qwen2-VL), the first
    `sections[0]` pairs turn with axis 0, the next `sections[1]` with axis 1, and so on. Interleaved (Qwen3-VL), the
    axes take turns, pair p with axis p mod n, and the pairs that are left at the end turn with axis 0. Text, whose
    coordinates are all the same, is turned as by `Rotary`.

    Args:
        head_dim: channels of a head.
        sections: pairs of time, height and width; their sum is half the width that turns. Default: as even as they go.
        interleaved: whether the axes take turns.
        base: longest wavelength / 2 pi, in positions; more than 0.
        scaling: a value of `posenc.scaling`.
        layout: "half" pairs channel i with i + width / 2 (Qwen), "interleaved" 2i with 2i + 1.
        rotary_dim: how many leading channels turn, even. Default: all.
        precision: "exact", or "float32" as checkpoints were trained with; see `Rotary`.

    `multimodal(segments)` makes the positions. A length that a scaling depends on is 1 + the largest coordinate.

    Raises ValueError for sections of another sum, or that cannot take turns, and as `Rotary`.

    >>> rotary = posenc.MultimodalRotary(16, sections=(2, 3, 3))
    >>> q, k = rotary(*torch.randn(2, 1, 4, 9, 16), *[posenc.multimodal([2, (1, 2, 3), 1])] * 2)
    >>> q.shape
    torch.Size([1, 4, 9, 16])

    Wang et al., Qwen2-VL, 2024, arXiv:2409.12191; Bai et al., Qwen3-VL, 2025, arXiv:2511.21631.
    """

    def __init__(
        self,
        head_dim: int,
        sections: SequenceOf[int] | None = None,
        interleaved: bool = False,
        base: float = 10000.0,
        scaling: Scaling | None = None,
        layout: Literal["half", "interleaved"] = "half",
        rotary_dim: int | None = None,
        precision: Literal["exact", "float32"] = "exact",
    ) -> None:
        super().__init__()
        pairs = self._set_turning(head_dim, base, layout, rotary_dim=rotary_dim, partial=True, precision=precision)
        sections = deal(pairs, 3) if sections is None else sections
        given = listed("sections", sections, "pass pairs of time, height and width")
        self.sections = tuple(whole("each of sections", section) for section in given)
        self.axes, self.interleaved = len(self.sections), flag("interleaved", interleaved)
        if sum(self.sections) != pairs:
            raise ValueError(
                f"sections must sum to the {pairs} pairs of {self.rotary_dim} channels, got {self.sections} with sum "
                f"{sum(self.sections)}: give the rest to time"
            )
        counts = [self._axis_of_pairs().count(axis) for axis in range(self.axes)]
        if counts != list(self.sections):
            raise ValueError(
                f"interleaved sections must take turns pair by pair, got {self.sections}, of which there is room for "
                f"{tuple(counts)}: pass those"
            )
        self._set_scaling(scaling, [pairs])

    def wanted_positions(self) -> str:
        return "posenc.multimodal([tokens, (frames, height, width), ...])"

    def _axis_of_pairs(self) -> list[int]:
        pairs = range(self.rotary_dim // 2)
        if not self.interleaved:
            return [axis for axis, section in enumerate(self.sections) for _ in range(section)]
        turns = [p % self.axes for p in pairs]
        return [axis if p < self.axes * self.sections[axis] else 0 for p, axis in zip(pairs, turns, strict=True)]

    def frequencies(self, length: Shaped[Tensor, "#b #l"] | None = None, device: Device = None) -> Float[Tensor, "..."]:
        """`[axes, pairs]`, or `[b, l, axes, pairs]` for a scaling by length: 0 where a pair turns with another axis."""
        like, turns = torch.empty(0, device=device), self._axis_of_pairs()
        own = spectrum(like, self.base, len(turns), self.scaling, length, single=self.precision == "float32")
        return torch.stack([own * _marks(like, [turn == axis for turn in turns]) for axis in range(self.axes)], -2)

    @classmethod
    def from_config(
        cls,
        config: Any,
        head_dim: int | None = None,
        layer_type: str | None = None,
        *,
        interleaved: bool | None = None,
        precision: Literal["exact", "float32"] = "exact",
    ) -> "MultimodalRotary":
        """The rotary of a Hugging Face config with `mrope_section`; see `Rotary.from_config`.

        `interleaved`: Qwen3-VL always is, whether its config has `mrope_interleaved` or not. Default: what it has.

        Raises ValueError for a config without sections, and as `Rotary.from_config`.

        >>> rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
        >>> posenc.MultimodalRotary.from_config({"head_dim": 128, "rope_parameters": rope})
        MultimodalRotary(128, sections=(16, 24, 24), interleaved=False, base=1e+06)
        """
        found = read(config, head_dim, layer_type, sections=True)
        if found.sections is None:
            raise ValueError(
                "the config must have mrope_section, got none: make posenc.MultimodalRotary with sections, "
                "(16, 24, 24) for Qwen2-VL and (24, 20, 20), interleaved, for Qwen3-VL"
            )
        return cls(
            found.head_dim,
            found.sections,
            interleaved=found.interleaved_sections or False if interleaved is None else interleaved,
            base=found.base,
            scaling=found.scaling,
            rotary_dim=found.rotary_dim,
            precision=precision,
        )

    def to_config(self, form: Literal["new", "old"] = "new") -> dict[str, Any]:
        """The entries of a Hugging Face config that say this; see `Rotary.to_config`.

        >>> posenc.MultimodalRotary(16, (2, 3, 3)).to_config()["rope_parameters"]["mrope_section"]
        [2, 3, 3]
        """
        more: dict[str, Any] = {"mrope_section": list(self.sections)}
        more |= {"mrope_interleaved": True} if self.interleaved else {}
        return write(self.head_dim, self.rotary_dim, self.base, self.scaling, form, more)

    def extra_repr(self) -> str:
        text = f"{self.head_dim}, sections={self.sections}, interleaved={self.interleaved}, base={self.base:g}"
        text += f", scaling={self.scaling!r}" if self.scaling is not None else ""
        text += f", layout={self.layout!r}" if self.layout != "half" else ""
        text += f", rotary_dim={self.rotary_dim}" if self.rotary_dim != self.head_dim else ""
        return text + (f", precision={self.precision!r}" if self.precision != "exact" else "")


def multimodal(
    segments: SequenceOf[int | SequenceOf[int]],
    temporal_step: float = 1.0,
    start: int = 0,
    follow: Literal["largest", "space"] = "largest",
) -> Positions:
    """Positions in time, height and width of a sequence of text, images and video, for `MultimodalRotary`.

    A text token stands at the same place on all axes, one further than the token before it. An image or video that
    begins at c has its cells at `(c + floor(frame * temporal_step), c + row, c + column)`, row-major, and what follows
    begins 1 after its largest coordinate.

    Args:
        segments: an integer is so many tokens of text; `(frames, height, width)` an image (one frame) or a video, in
            tokens, which is after patches are merged.
        temporal_step: positions a frame: 1 in Qwen2-VL, tokens a second times seconds a frame in Qwen2.5-VL.
        start: where the first segment begins.
        follow: "largest" is the papers' rule; "space" leaves time out of the largest coordinate, as transformers 5 has
            it. They differ only where a video lasts longer than it is wide or high.

    The order of the tokens is that of the sequence, whatever their coordinates.

    Raises ValueError for segments that are neither, a negative step or start, or another rule.

    >>> posenc.multimodal([2, (1, 2, 2), 1]).coordinates().tolist()
    [[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 3], [2, 3, 2], [2, 3, 3], [4, 4, 4]]

    Wang et al., Qwen2-VL, 2024, arXiv:2409.12191; Bai et al., Qwen2.5-VL, 2025, arXiv:2502.13923.
    """
    temporal_step = real("temporal_step", temporal_step, "Qwen2-VL has 1")
    if not 0 <= temporal_step < 2**31:
        raise ValueError(f"temporal_step must be from 0 to 2**31, got {temporal_step:g}: Qwen2-VL has 1")
    if follow not in ("largest", "space"):
        raise ValueError(f"follow must be 'largest' (the papers) or 'space' (transformers 5), got {follow!r}: pass one")
    if not isinstance(segments, SequenceOf) or isinstance(segments, str | bytes):
        raise TypeError(f"segments must be a list, got {segments!r}: pass [tokens, (frames, height, width), ...]")
    here, parts = whole("start", start), [torch.zeros(0, 3, dtype=torch.int64)]
    for segment in segments:
        if not isinstance(segment, SequenceOf):
            tokens = whole("text in segments", segment)
            parts.append(here + torch.arange(tokens)[:, None].expand(-1, 3))
            here += tokens
            continue
        if len(segment) != 3:
            raise ValueError(f"segments must be tokens of text or (frames, height, width), got {segment}: give 3 sizes")
        sizes = [whole("each size of an image or video", size, 1) for size in segment]
        cells = grid(*sizes).coordinates()
        cells[:, 0] = (cells[:, 0].float() * temporal_step).floor()  # in float32, as in the models' own code
        parts.append(here + cells)
        here += 1 + int((cells if follow == "largest" else cells[:, 1:]).max())
    return Explicit(torch.cat(parts))


def _marks(like: Tensor, marks: list[bool]) -> Tensor:
    """1 where marked and 0 elsewhere, in float64 on the device of a tensor, without a copy from the host."""
    if like.device.type == "cpu":
        return torch.tensor(marks, dtype=torch.float64)
    one, zero = (torch.full((1,), value, dtype=torch.float64, device=like.device) for value in (1.0, 0.0))
    return torch.cat([one if mark else zero for mark in marks])
