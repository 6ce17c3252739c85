"""Rotary settings as Hugging Face configs write them, read and written.

Two forms are read, from an object or a dictionary. The old one has `rope_theta` and `rope_scaling` (with `type` or
`rope_type`) beside the sizes of the model; the new one has all in `rope_parameters`, which may hold one dictionary for
each layer type. What the reader does not know it refuses, and so it does what contradicts itself: a setting that is
ignored gives wrong numbers in silence.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from posenc.scaling import Scaling, dynamic_ntk, linear, llama3, longrope, proportional, yarn
from posenc.scaling.checks import flag, listed, number, whole
from posenc.scaling.reader import LENGTH, Reader, agreed, parameters, part_of, refuse, refuse_beside

__all__ = ["RotaryConfig", "read", "write"]

# type -> its keys, those that must be there first
_KEYS: dict[str, tuple[set[str], set[str]]] = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "dynamic": ({"factor"}, set()),
    "yarn": (
        {"factor"},
        {LENGTH, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
    ),
    "longrope": ({"short_factor", "long_factor"}, {LENGTH, "attention_factor", "factor"}),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor"}, {LENGTH}),
    "proportional": (set(), {"factor"}),
}
_ALWAYS = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_SECTIONS = {"mrope_section", "mrope_interleaved"}


class RotaryConfig(NamedTuple):
    """What a config says of rotary."""

    head_dim: int
    rotary_dim: int | None
    base: float
    scaling: Scaling | None
    interleaved: bool | None  # the pairs; None where it does not say
    latent: bool  # latent attention, whose models pair channels in either way
    sections: tuple[int, ...] | None
    interleaved_sections: bool | None


def read(
    config: Any, head_dim: int | None = None, layer_type: str | None = None, sections: bool = False
) -> RotaryConfig:
    """The settings of a config; `sections` is whether those of M-RoPE may be among them.

    Raises ValueError for a key or a type that is unknown (with the near name), for one that is missing, for two that
    contradict each other, and for a layer type that must be given or is not there; TypeError for what is no number.
    """
    own = part_of(config, layer_type)
    refuse_beside(own)
    rope, around = parameters(own, layer_type)
    kind = _kind(rope)
    if not sections and (kind == "mrope" or "mrope_section" in rope):
        raise ValueError("Rotary has one position a token, got a config of M-RoPE: use MultimodalRotary.from_config")
    kind = {"mrope": "default", "su": "longrope"}.get(kind, kind)  # as the first configs of Qwen2-VL and Phi-3 have it
    if kind not in _KEYS:
        near = difflib.get_close_matches(kind, _KEYS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"rope_type must be one of {', '.join(_KEYS)}, got {kind!r}: {hint}make the scaling yourself")
    required, optional = _KEYS[kind]
    refuse(rope, required | optional | _ALWAYS | (_SECTIONS if sections else set()), f"rope_type {kind!r}")
    for key in sorted(required - rope.keys()):
        raise ValueError(f"rope_type {kind!r} needs {key!r}, got {', '.join(sorted(rope))}: add it to the config")

    head_dim = own.head_dim() if head_dim is None else whole("head_dim", head_dim, 2, "pass the channels of a head")
    part = agreed(own, rope, around, "partial_rotary_factor", "rotary_pct")
    if part is not None and not 0 < part <= 1:
        raise ValueError(f"partial_rotary_factor must be more than 0 and at most 1, got {part:g}: 1 turns all channels")
    found, interleaved = rope.get("mrope_section"), rope.get("mrope_interleaved")
    pairing = own.get("rope_interleave")
    return RotaryConfig(
        head_dim=head_dim,
        rotary_dim=_width(own, kind, part, head_dim),
        base=_base(own, rope, around),
        scaling=_scaling(kind, rope, own, around, part),
        interleaved=None if pairing is None else flag("rope_interleave", pairing),
        latent=own.get("qk_rope_head_dim") not in (None, 0),
        sections=None if found is None else tuple(listed("mrope_section", found, "pass [16, 24, 24]")),
        interleaved_sections=None if interleaved is None else flag("mrope_interleaved", interleaved),
    )


def _width(own: Reader, kind: str, part: float | None, head_dim: int) -> int | None:
    """The channels that turn, where they are not all."""
    width = None if kind == "proportional" or part in (None, 1) else int(head_dim * (part or 1))
    if own.get("rotary_dim") is None:
        return width
    given = whole("rotary_dim", own.get("rotary_dim"), 2, "pass the channels that turn")
    if width not in (None, given):
        raise ValueError(
            f"the config contradicts itself, got rotary_dim {given} and partial_rotary_factor {part:g} of {head_dim}: "
            "leave one"
        )
    return given if given != head_dim else None


def _kind(rope: Mapping[str, Any]) -> str:
    said = {name: rope[name] for name in ("rope_type", "type") if rope.get(name) is not None}
    for name, kind in said.items():
        if not isinstance(kind, str):
            raise TypeError(f"{name} must be a string, got {kind!r}: pass one of {', '.join(_KEYS)}")
    if len({"default" if kind == "mrope" else kind for kind in said.values()}) > 1:
        raise ValueError(
            f"rope_type and type must be the same, got {said['rope_type']!r} and {said['type']!r}: drop type"
        )
    if said:
        return str(next(iter(said.values())))
    known = set[str]().union(*(required | optional for required, optional in _KEYS.values()))
    refuse(rope, known | _ALWAYS | _SECTIONS, "the config")  # a misspelt rope_type, with the near name
    settings = sorted(key for key in rope.keys() & known if rope[key] is not None)
    if settings:
        raise ValueError(f"rope_type is missing beside {', '.join(settings)}: add it, one of {', '.join(_KEYS)}")
    return "default"


def _base(own: Reader, rope: Mapping[str, Any], around: Mapping[str, Any] | None) -> float:
    base = agreed(own, rope, around, "rope_theta", "rotary_emb_base")
    if base is None and own.get("default_theta") is not None:  # which the classes of transformers have
        base = number("default_theta", own.get("default_theta"))
    if base is None and ("rope_theta" in rope or not {"rope_theta", "rotary_emb_base"}.isdisjoint(own.held)):
        raise ValueError("rope_theta must be a number, got None: give the base, 10000 in the papers, or leave it out")
    base = 10000.0 if base is None else base
    for name, value in own.held.items():  # local_rope_theta, layer_rope_theta: one for some layers, or a list
        if around is None and "rope_theta" in str(name).lower() and name != "rope_theta":
            bases = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
            if any(each not in (None, 0, base) for each in bases):
                raise ValueError(f"one base must serve all layers, got {name!r} = {value!r}: make each rotary yourself")
    return base


def _scaling(
    kind: str, rope: Mapping[str, Any], own: Reader, around: Mapping[str, Any] | None, part: float | None
) -> Scaling | None:
    if kind == "default":
        return None
    factor: Any = rope.get("factor")
    given = rope.get("attention_factor")
    if kind == "linear":
        return linear(factor)
    if kind == "proportional":
        return proportional(1.0 if part is None else part, 1.0 if factor is None else factor)
    if kind == "dynamic":
        return dynamic_ntk(factor, own.length("max_position_embeddings"))
    # As transformers has it: a trained length beside the parameters comes first, but not for one layer type of several.
    places = [own.get(LENGTH) if around is None else None, rope.get(LENGTH)]
    original = next((whole(LENGTH, place, 2, "pass the trained length") for place in places if place is not None), None)
    if original is None:
        original = own.length("max_position_embeddings")
    if kind == "llama3":
        return llama3(factor, original, rope["low_freq_factor"], rope["high_freq_factor"])
    if factor is None and own.get("max_position_embeddings") is not None:
        factor = max(own.length("max_position_embeddings") / original, 1.0)
    if kind == "longrope":
        return longrope(rope["short_factor"], rope["long_factor"], original, factor, given)
    # As transformers has it: `truncate` is looked for beside the layer types, never inside one.
    defaults = {"beta_fast": 32, "beta_slow": 1, "truncate": True}
    found: dict[str, Any] = {name: rope.get(name) for name in ("beta_fast", "beta_slow")}
    found["truncate"] = (rope if around is None else around).get("truncate")
    settings: Any = {name: defaults[name] if value is None else value for name, value in found.items()}
    weights: Any = {name: rope.get(name) for name in ("mscale", "mscale_all_dim")}
    return yarn(factor, original, **settings, **weights, attention_factor=given)


def write(
    head_dim: int, rotary_dim: int, base: float, scaling: Scaling | None, form: str, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The entries of a config, in the new form or the old; `more` goes among the parameters.

    Raises ValueError for another form, and for a scaling that Hugging Face configs have no words for.
    """
    if form not in ("new", "old"):
        raise ValueError(f"form must be 'new' (rope_parameters) or 'old' (rope_scaling), got {form!r}: pass one")
    settings = {} if scaling is None else {k: v for k, v in scaling.settings().items() if v is not None}
    kind, length, part = "default", settings.pop("original", None), None
    if scaling is not None and scaling.name == "ntk":  # which is another base
        base *= settings.pop("factor") ** (rotary_dim / max(rotary_dim - 2, 1))
    elif scaling is not None:
        kind = {"dynamic_ntk": "dynamic"}.get(scaling.name, scaling.name)
        if kind not in _KEYS:
            raise ValueError(f"a config has no words for the scaling {kind!r}, got {scaling!r}: keep it in the code")
        part = settings.pop("partial", None)
    if rotary_dim != head_dim:
        if part is not None:
            raise ValueError(f"proportional is of the whole head, got rotary_dim={rotary_dim}: leave rotary_dim out")
        part = rotary_dim / head_dim
        part = part if int(head_dim * part) == rotary_dim else math.nextafter(part, 2)  # which is cut off when read
    renamed = {"short": "short_factor", "long": "long_factor", "low": "low_freq_factor", "high": "high_freq_factor"}
    rope: dict[str, Any] = {"rope_type": kind}
    rope |= {renamed.get(k, k): list(v) if isinstance(v, tuple) else v for k, v in settings.items()}
    beside: dict[str, Any] = {"head_dim": head_dim}
    if length is not None:
        (beside if kind == "dynamic" else rope)["max_position_embeddings" if kind == "dynamic" else LENGTH] = length
    plain: dict[str, Any] = {"rope_theta": base} | ({} if part is None else {"partial_rotary_factor": part})
    if form == "new":
        return beside | {"rope_parameters": {**rope, **plain, **more}}
    scaled = kind != "default" or bool(more)
    return beside | plain | {"rope_scaling": {"type": kind, **rope, **more} if scaled else None}
