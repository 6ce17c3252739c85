"""Rotary settings as Hugging Face configs write them, read and written.

Two forms are read, from an object or a dictionary. The old one has `rope_theta` and `rope_scaling` (with `type` or
`rope_type`) beside the sizes of the model; the new one has all in `rope_parameters`, which may hold one dictionary for
each layer type. What the reader does not know it refuses: a setting that is ignored gives wrong numbers in silence.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from posenc.scaling import Scaling, dynamic_ntk, linear, llama3, longrope, proportional, yarn

__all__ = ["RotaryConfig", "read", "write"]

_LENGTH = "original_max_position_embeddings"
# type -> its keys, those that must be there first
_KEYS: dict[str, tuple[set[str], set[str]]] = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "dynamic": ({"factor"}, set()),
    "yarn": (
        {"factor"},
        {_LENGTH, "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
    ),
    "longrope": ({"short_factor", "long_factor"}, {_LENGTH, "attention_factor", "factor"}),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor"}, {_LENGTH}),
    "proportional": (set(), {"factor"}),
}
_ALWAYS = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_SECTIONS = {"mrope_section", "mrope_interleaved"}
_BESIDE = {
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rope_interleave",
    "partial_rotary_factor",
    "rotary_pct",
    "rotary_emb_base",
}


class RotaryConfig(NamedTuple):
    """What a config says of rotary."""

    head_dim: int
    rotary_dim: int | None
    base: float
    scaling: Scaling | None
    interleaved: bool  # the pairs
    sections: tuple[int, ...] | None
    interleaved_sections: bool | None


def read(
    config: Any, head_dim: int | None = None, layer_type: str | None = None, sections: bool = False
) -> RotaryConfig:
    """The settings of a config; `sections` is whether those of M-RoPE may be among them.

    Raises ValueError for a key or a type that is unknown (with the near name), for one that is missing, and for a
    layer type that must be given or is not there.
    """
    own = _own(config, layer_type)
    _refuse(own.names(), _BESIDE, "the config", only_rotary=True)
    rope, nested = _parameters(own, layer_type)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if not sections and (kind == "mrope" or "mrope_section" in rope):
        raise ValueError("Rotary has one position a token, got a config of M-RoPE: use MultimodalRotary.from_config")
    if kind == "mrope":  # as the first configs of Qwen2-VL have it
        kind = "default"
    if kind not in _KEYS:
        near = difflib.get_close_matches(str(kind), _KEYS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"rope_type must be one of {', '.join(_KEYS)}, got {kind!r}: {hint}make the scaling yourself")
    required, optional = _KEYS[kind]
    _refuse(rope, required | optional | _ALWAYS | (_SECTIONS if sections else set()), f"rope_type {kind!r}")
    for key in sorted(required - rope.keys()):
        raise ValueError(f"rope_type {kind!r} needs {key!r}, got {', '.join(sorted(rope))}: add it to the config")

    if head_dim is None:
        head_dim = own.get("head_dim") or _quotient(own)
    base = _first(rope.get("rope_theta"), own.get("rope_theta"), own.get("rotary_emb_base"), own.get("default_theta"))
    part = _first(rope.get("partial_rotary_factor"), own.get("partial_rotary_factor"), own.get("rotary_pct"))
    width = None
    if kind != "proportional" and part is not None and part != 1:
        width = int(head_dim * part)
    found = rope.get("mrope_section")
    return RotaryConfig(
        head_dim=head_dim,
        rotary_dim=width,
        base=float(base) if isinstance(base, int | float) else 10000.0,
        scaling=_scaling(kind, rope, own, nested, part),
        interleaved=bool(own.get("rope_interleave")),
        sections=None if found is None else tuple(found),
        interleaved_sections=rope.get("mrope_interleaved"),
    )


def _scaling(kind: str, rope: Mapping[str, Any], own: "_Reader", nested: bool, part: float | None) -> Scaling | None:
    if kind == "default":
        return None
    factor: Any = rope.get("factor")
    given = rope.get("attention_factor")
    if kind == "linear":
        return linear(factor)
    if kind == "proportional":
        return proportional(1.0 if part is None else part, 1.0 if factor is None else factor)
    if kind == "dynamic":
        return dynamic_ntk(factor, own.need("max_position_embeddings"))
    # As transformers has it: a trained length beside the parameters comes first, but not for one layer type of several.
    beside = None if nested else own.get(_LENGTH)
    original = _first(beside, rope.get(_LENGTH)) or own.need("max_position_embeddings")
    if kind == "llama3":
        return llama3(factor, original, rope["low_freq_factor"], rope["high_freq_factor"])
    length = own.get("max_position_embeddings")
    if factor is None and length is not None:
        factor = max(length / original, 1.0)
    if kind == "longrope":
        return longrope(rope["short_factor"], rope["long_factor"], original, factor, given)
    # As transformers has it: `truncate` is looked for beside the layer types, never inside one.
    truncate = None if nested else rope.get("truncate")
    fast, slow = rope.get("beta_fast") or 32, rope.get("beta_slow") or 1
    weights = rope.get("mscale"), rope.get("mscale_all_dim")
    return yarn(factor, original, fast, slow, True if truncate is None else truncate, *weights, given)


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
        (beside if kind == "dynamic" else rope)["max_position_embeddings" if kind == "dynamic" else _LENGTH] = length
    plain: dict[str, Any] = {"rope_theta": base} | ({} if part is None else {"partial_rotary_factor": part})
    if form == "new":
        return beside | {"rope_parameters": {**rope, **plain, **more}}
    scaled = kind != "default" or bool(more)
    return beside | plain | {"rope_scaling": {"type": kind, **rope, **more} if scaled else None}


class _Reader:
    """A config, whether an object or a dictionary."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def get(self, name: str) -> Any:
        return self._config.get(name) if isinstance(self._config, Mapping) else getattr(self._config, name, None)

    def need(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            raise ValueError(f"the config must have {name!r}, got none: add it")
        return value

    def names(self) -> Iterable[str]:
        return list(self._config if isinstance(self._config, Mapping) else vars(self._config))


def _own(config: Any, layer_type: str | None) -> _Reader:
    """The part of a config that speaks of the text model and of this layer type."""
    if not isinstance(config, Mapping) and not hasattr(config, "__dict__"):
        raise TypeError(f"config must be a Hugging Face config or a dictionary, got {type(config).__name__}: pass one")
    reader = _Reader(config)
    if reader.get("text_config") is not None and not any(
        reader.get(name) for name in ("rope_theta", "rope_scaling", "rope_parameters")
    ):
        config = reader.get("text_config")
    if layer_type is not None and not isinstance(config, Mapping):
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # only some have sizes of their own a layer
            config = config.per_layer_config[layer_type]
    return _Reader(config)


def _parameters(own: _Reader, layer_type: str | None) -> tuple[Mapping[str, Any], bool]:
    """The rotary parameters, and whether they were those of one layer type of several."""
    rope = own.get("rope_scaling") or own.get("rope_parameters") or {}
    if not isinstance(rope, Mapping):
        raise TypeError(f"rope_parameters must be a dictionary, got {type(rope).__name__}: pass one, or None")
    types = [name for name, value in rope.items() if isinstance(value, Mapping)]
    if not types:
        if layer_type is not None:
            raise ValueError(f"the config has one rotary for all layers, got layer_type={layer_type!r}: leave it out")
        return rope, False
    known = ", ".join(sorted(types))
    if layer_type is None:
        raise ValueError(f"layer_type must be given, the config has {known}: pass one of them")
    if layer_type not in types:
        raise ValueError(f"layer_type must be one with rotary, {known}, got {layer_type!r}: pass one of them")
    return rope[layer_type], True


def _refuse(names: Iterable[str], known: set[str], whose: str, only_rotary: bool = False) -> None:
    for name in names:
        if name in known:
            continue
        near = difflib.get_close_matches(str(name), sorted(known), n=1, cutoff=0.6)
        if only_rotary and not str(name).startswith(("rope", "rotary", "partial_rotary")):
            near = difflib.get_close_matches(str(name), sorted(known), n=1, cutoff=0.85)
            if not near:
                continue
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
        raise ValueError(f"{whose} has no key {name!r} that changes rotary as this library knows it: {hint}")


def _quotient(own: _Reader) -> int:
    hidden, heads = own.get("hidden_size"), own.get("num_attention_heads")
    if not hidden or not heads:
        raise ValueError(
            "the config must have head_dim, or hidden_size and num_attention_heads, got neither: pass head_dim="
        )
    size: int = hidden // heads
    return size


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
