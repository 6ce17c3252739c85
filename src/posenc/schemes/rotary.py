"""Rotary encodings: pairs of channels of queries and keys turn with the position."""

from collections.abc import Sequence as SequenceOf
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from posenc.checks import whole
from posenc.encoding import deal
from posenc.inside import RotaryEncoding
from posenc.layout import Device
from posenc.scaling import Scaling, spectrum
from posenc.scaling.checks import listed
from posenc.scaling.config import read, write

__all__ = ["Rotary"]


class Rotary(RotaryEncoding):
    """Rotary position embedding, for any number of axes; q . k then depends on the relative position alone.

    Pair p of an axis turns by `angle = position * f_p`, `f_p = base ** (-p / pairs)`:
    `(a, b) -> (a cos - b sin, b cos + a sin)`. The pairs are dealt to the axes in order, as evenly as they go.

    Args:
        head_dim: channels of a head.
        axes: number of coordinates of a token.
        base: longest wavelength / 2 pi, in positions; more than 0. 10000 is usual for text, 100 for images.
        layout: "half" pairs channel i with i + rotary_dim / 2 (Llama), "interleaved" 2i with 2i + 1 (the paper, GPT-J).
        rotary_dim: how many leading channels turn, even; the others stay as they are. Default: all.
        scaling: a value of `posenc.scaling`, such as `yarn(factor=4, original=4096)`: it changes the frequencies of
            each axis, and may multiply cosines and sines.
        axis_order: the order in which the axes have their pairs; `(1, 0)` puts width first. Default: axis 0 first.
        precision: "exact" takes cosines of float64 angles; "float32" rounds frequencies, positions and angles to
            float32, as the code did that most checkpoints were trained with. At position 1e5 the two differ by 6e-3.

    Models of images, where positions are `grid(height, width, prefix=1)`:

    * rope-vit: `Rotary(d, axes=2, base=100.0, layout="interleaved", axis_order=(1, 0))`
    * timm and EVA: `Rotary(d, axes=2, layout="interleaved")`, height first; at another size than the trained h x w, at
      `grid(H, W).rescaled((-h / H / 2, -w / W / 2), (h - h / H / 2, w - w / W / 2))`: corner to corner.
    * DINOv3: `Rotary(d, axes=2, base=100.0)` at `grid(H, W).rescaled(-2 * pi, 2 * pi)`: angles are whole turns times a
      centred coordinate over a period `base ** (p / pairs)`; with `scaling=periods(shortest, longest)` at
      `rescaled(-1, 1)`. Coordinates divided by the longer side are `rescaled(-1, (2 H / m - 1, 2 W / m - 1))`,
      m = max(H, W).

    Frequencies that depend on the length (`dynamic_ntk`, `longrope`) are one set for a whole sequence, by 1 + its
    largest position: a document of a pack and a row of a padded batch each have their own. The cache of a decoder holds
    keys that are not rotated, so that step n is the last row of the full pass over n tokens, all with the set for n;
    transformers keeps old keys as they were rotated, and its steps after a switch mix two sets.

    Raises ValueError for an odd width, a width beyond head_dim, fewer pairs than axes, an unknown layout or precision,
    an order that is no permutation, or a scaling for another number of pairs.

    >>> q, k = posenc.Rotary(64)(torch.randn(2, 8, 10, 64), torch.randn(2, 2, 10, 64))
    >>> q.shape, k.shape
    (torch.Size([2, 8, 10, 64]), torch.Size([2, 2, 10, 64]))
    >>> posenc.Rotary(4, scaling=posenc.scaling.linear(factor=4)).frequencies().tolist()
    [[0.25, 0.0025]]

    Su et al., RoFormer, 2021, arXiv:2104.09864; Heo et al., RoPE for Vision Transformer, 2024, arXiv:2403.13298;
    Siméoni et al., DINOv3, 2025, arXiv:2508.10104.
    """

    def __init__(
        self,
        head_dim: int,
        axes: int = 1,
        base: float = 10000.0,
        layout: Literal["half", "interleaved"] = "half",
        rotary_dim: int | None = None,
        scaling: Scaling | None = None,
        axis_order: SequenceOf[int] | None = None,
        precision: Literal["exact", "float32"] = "exact",
    ) -> None:
        super().__init__()
        pairs = self._set_turning(head_dim, base, layout, rotary_dim=rotary_dim, partial=True, precision=precision)
        self.axes = axes = whole("axes", axes, 1)
        if pairs < axes:
            raise ValueError(
                f"rotary needs a pair of channels an axis, got {2 * pairs} channels for {axes} axes: widen it"
            )
        named = range(axes) if axis_order is None else listed("axis_order", axis_order, "(1, 0)")
        order = tuple(whole("axis_order", axis) for axis in named)
        if sorted(order) != list(range(axes)):
            raise ValueError(f"axis_order must name each of the {axes} axes once, got {order}: for width first (1, 0)")
        self.axis_order = order
        self._set_scaling(scaling, deal(pairs, axes))

    def frequencies(self, length: Shaped[Tensor, "#b #l"] | None = None, device: Device = None) -> Float[Tensor, "..."]:
        """`[axes, pairs]`: row a holds the frequencies of the pairs that turn with axis a, and 0 elsewhere.

        For a scaling by length, `[b, l, axes, pairs]` for the lengths `[b, l]` of the sequences.
        """
        shares, like = deal(self.rotary_dim // 2, self.axes), torch.empty(0, device=device)
        rows, start = {}, 0
        for axis in self.axis_order:
            pairs = shares[axis]
            own = spectrum(like, self.base, pairs, self.scaling, length, single=self.precision == "float32")
            rows[axis] = torch.nn.functional.pad(own, (start, sum(shares) - start - pairs))
            start += pairs
        return torch.stack([rows[axis] for axis in range(self.axes)], -2)

    @classmethod
    def from_config(
        cls,
        config: Any,
        head_dim: int | None = None,
        layer_type: str | None = None,
        *,
        layout: Literal["half", "interleaved"] | None = None,
        precision: Literal["exact", "float32"] = "exact",
    ) -> "Rotary":
        """The rotary of a Hugging Face config, an object or a dictionary, with its frequencies and attention factor.

        Reads `rope_theta` and `rope_scaling` (old) or `rope_parameters` (new), `partial_rotary_factor`, and `head_dim`
        (`qk_rope_head_dim`) or `hidden_size` and `num_attention_heads`. The base is 10000 where a config has no name
        for it; what is misspelt, contradicts itself or is no number is refused.

        Args:
            config: the config; of one with a `text_config`, that is read.
            head_dim: for configs that have it by another name.
            layer_type: which rotary, where the config has one a layer type.
            layout: configs do not say how channels are paired, but for DeepSeek's `rope_interleave`; default "half",
                and none for latent attention (`qk_rope_head_dim`) that does not say. GPT-J's is "interleaved".
            precision: as in the constructor.

        Raises ValueError for a key or a type that is unknown, with the near name, or missing, and for two settings that
        contradict each other; TypeError for a setting that is no number.

        >>> scaling = {"rope_type": "linear", "factor": 4.0}
        >>> posenc.Rotary.from_config({"head_dim": 64, "rope_theta": 5e5, "rope_scaling": scaling})
        Rotary(64, axes=1, base=500000, layout='half', scaling=linear(factor=4.0))
        """
        found = read(config, head_dim, layer_type)
        if layout is None:
            if found.latent and found.interleaved is None:
                raise ValueError(
                    "layout must be given where a config has qk_rope_head_dim and no rope_interleave, whose models "
                    "pair channels in either way: pass layout='interleaved', as DeepSeek does, or 'half'"
                )
            layout = "interleaved" if found.interleaved else "half"
        return cls(
            found.head_dim,
            base=found.base,
            layout=layout,
            rotary_dim=found.rotary_dim,
            scaling=found.scaling,
            precision=precision,
        )

    def to_config(self, form: Literal["new", "old"] = "new") -> dict[str, Any]:
        """The entries of a Hugging Face config that say this: `from_config` makes an equal one of them.

        Layout and precision are the model's code, not its config, and are left out; `ntk` is written as a base.

        Raises ValueError for more than one axis, a scaling that configs have no words for, and another form.

        >>> posenc.Rotary(64).to_config("old")
        {'head_dim': 64, 'rope_theta': 10000.0, 'rope_scaling': None}
        """
        if self.axes != 1:
            raise ValueError(f"a config has words for one axis, got {self.axes}: keep the arguments in the code")
        return write(self.head_dim, self.rotary_dim, self.base, self.scaling, form, {})

    def extra_repr(self) -> str:
        text = f"{self.head_dim}, axes={self.axes}, base={self.base:g}, layout={self.layout!r}"
        text += f", rotary_dim={self.rotary_dim}" if self.rotary_dim != self.head_dim else ""
        text += f", scaling={self.scaling!r}" if self.scaling is not None else ""
        text += f", axis_order={self.axis_order}" if self.axis_order != tuple(range(self.axes)) else ""
        return text + (f", precision={self.precision!r}" if self.precision != "exact" else "")
