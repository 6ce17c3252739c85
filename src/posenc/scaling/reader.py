"""What a config holds, wherever it holds it, and what it holds that nobody would read."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from posenc.scaling.checks import number, whole

__all__ = ["LENGTH", "Reader", "agreed", "parameters", "part_of", "refuse", "refuse_beside"]

LENGTH = "original_max_position_embeddings"
_FORMS = ("rope_scaling", "rope_parameters")
_ROTARY = {
    *_FORMS,
    "partial_rotary_factor",
    "rope_interleave",
    "rope_local_base_freq",
    "rope_theta",
    "rotary_dim",
    "rotary_emb_base",
    "rotary_pct",
}
_HEAD = ("head_dim", "qk_rope_head_dim")  # the second is that of latent attention, where a part of a head turns
_READ = {*_ROTARY, *_HEAD, "hidden_size", "num_attention_heads", "max_position_embeddings", LENGTH, "text_config"}


class Reader:
    """A config, whether an object or a dictionary."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def get(self, name: str) -> Any:
        """What it has by this name, or None."""
        return self._config.get(name) if isinstance(self._config, Mapping) else getattr(self._config, name, None)

    @property
    def held(self) -> Mapping[str, Any]:
        """All that it says itself, without what its class does."""
        return self._config if isinstance(self._config, Mapping) else vars(self._config)

    def length(self, name: str) -> int:
        """A length in tokens that it must have."""
        if self.get(name) is None:
            raise ValueError(f"the config must have {name!r}, got none: add it")
        return whole(name, self.get(name), 2, "pass the trained length")

    def head_dim(self) -> int:
        """Channels of a head that rotary is for."""
        for name in _HEAD:
            if self.get(name) not in (None, 0):  # 0 says the same in some
                return whole(name, self.get(name), 2, "pass the channels of a head")
        hidden, heads = self.get("hidden_size"), self.get("num_attention_heads")
        if hidden is None or heads is None:
            raise ValueError(
                "the config must have head_dim, or hidden_size and num_attention_heads, got neither: pass head_dim="
            )
        hidden = whole("hidden_size", hidden, 1, "pass head_dim=")
        heads = whole("num_attention_heads", heads, 1, "pass head_dim=")
        if hidden % heads:
            raise ValueError(
                f"hidden_size must be a multiple of num_attention_heads, got {hidden} and {heads}: pass head_dim="
            )
        return hidden // heads


def part_of(config: Any, layer_type: str | None) -> Reader:
    """The part of a config that speaks of the text model and of this layer type."""
    _require_config("config", config)
    reader = Reader(config)
    text = reader.get("text_config")
    if text is not None:
        _require_config("text_config", text)
        if all(_empty(reader.get(name)) for name in ("rope_theta", *_FORMS)):
            config = text
    if layer_type is not None and not isinstance(config, Mapping):
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # only some have sizes of their own a layer
            config = config.per_layer_config[layer_type]
    return Reader(config)


def parameters(own: Reader, layer_type: str | None) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """The rotary parameters, and what is around them where they are those of one layer type of several, else None."""
    rope = _by_layer(own, _one_form(own))
    types = [name for name, value in rope.items() if isinstance(value, Mapping)]
    if not types:
        if layer_type is not None:
            raise ValueError(f"the config has one rotary for all layers, got layer_type={layer_type!r}: leave it out")
        return rope, None
    known = ", ".join(sorted(types))
    for name, value in rope.items():  # None is a layer type without rotary; transformers reads `truncate` alone
        if name not in types and name != "truncate" and value is not None:
            raise ValueError(
                f"rope_parameters has layer types ({known}), got {name!r} beside them, where transformers ignores it: "
                "put it into each"
            )
    if layer_type is None:
        raise ValueError(f"layer_type must be given, the config has {known}: pass one of them")
    if layer_type not in types:
        raise ValueError(f"layer_type must be one with rotary, {known}, got {layer_type!r}: pass one of them")
    return rope[layer_type], rope


def agreed(
    own: Reader, rope: Mapping[str, Any], around: Mapping[str, Any] | None, name: str, other: str
) -> float | None:
    """A number that may be said among the parameters, beside them, or beside them by another name; None if nowhere."""
    inside = f"{name} among the parameters"
    places = {inside: rope.get(name), name: own.get(name), other: own.get(other)}
    found = {place: number(place, value) for place, value in places.items() if value is not None}
    if around is not None and inside in found:  # beside is what other layer types go by
        return found[inside]
    if len(set(found.values())) > 1:
        said = " and ".join(f"{place} {value:g}" for place, value in found.items())
        raise ValueError(f"the config contradicts itself, got {said}: leave one")
    return next(iter(found.values()), None)


def refuse(names: Iterable[str], known: set[str], whose: str) -> None:
    """Raise for a name that is not known, with the near one."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(str(name).lower(), sorted(known), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
            raise ValueError(f"{whose} has no key {name!r} that changes rotary as this library knows it: {hint}")


def refuse_beside(own: Reader) -> None:
    """Raise for a name in a config that is of rotary and unknown, or near one that is read and not there."""
    absent = sorted(name for name in _READ if own.held.get(name) is None)
    for name, value in own.held.items():
        if name in _READ or value is None:
            continue
        plain = str(name).lower()
        if plain == "theta" or plain.startswith(("rope", "rotary", "partial_rotary")):
            refuse([name], _ROTARY, "the config")
        near = [meant for meant in absent if _misspelt(plain, meant)]
        if near and not isinstance(value, Sequence):  # hidden_sizes of stages are another thing
            refuse([name], set(near), "the config")


def _misspelt(name: str, meant: str) -> bool:
    """Whether a name is another spelling of the one that is meant: as many words, all alike."""
    if name.replace("_", "") == meant.replace("_", ""):
        return True
    words, right = name.split("_"), meant.split("_")
    return len(words) == len(right) and all(
        difflib.SequenceMatcher(None, *pair).ratio() > 0.76 for pair in zip(words, right, strict=True)
    )


def _one_form(own: Reader) -> Mapping[str, Any]:
    old, new = (own.get(name) for name in _FORMS)
    for name, form in zip(_FORMS, (old, new), strict=True):
        if form is not None and not isinstance(form, Mapping):
            raise TypeError(f"{name} must be a dictionary, got {type(form).__name__}: pass one, or None")
    if not old or not new:
        return old or new or {}
    ours, theirs = ({"rope_type" if key == "type" else key: form[key] for key in form} for form in (old, new))
    apart = (ours.keys() ^ theirs.keys()) - {"rope_theta", "partial_rotary_factor"}
    if apart or any(ours[key] != theirs[key] for key in ours.keys() & theirs.keys()):
        raise ValueError(f"rope_scaling and rope_parameters must say the same, got {old} and {new}: drop one of them")
    return {**new, **old}


def _by_layer(own: Reader, rope: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters by layer type, where a config in Gemma 3's old form has a base of its own for the local layers."""
    local = own.get("rope_local_base_freq")
    if local is None or any(isinstance(value, Mapping) for value in rope.values()):
        return rope
    return {
        "full_attention": {"rope_theta": own.get("rope_theta"), **(rope or {"rope_type": "default"})},
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    }


def _require_config(name: str, config: Any) -> None:
    if not isinstance(config, Mapping) and not hasattr(config, "__dict__"):
        raise TypeError(f"{name} must be a Hugging Face config or a dictionary, got {type(config).__name__}: pass one")


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and not value)
