"""Numbers that another library trained: read with care, and taken over whole or not at all."""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["ForeignState", "take_over"]


class ForeignState(Mapping[str, Tensor]):
    """Another library's state, by the names after a prefix: what is missing, or is no number, is an error."""

    def __init__(self, state: Mapping[str, Tensor], source: str, prefix: str) -> None:
        self._source, self._prefix = source, prefix
        self._state = {name: found for name, found in state.items() if isinstance(name, str)}
        self.shapes: dict[str, tuple[int, ...]] = {}
        """The shapes of what was read, for messages."""

    def __getitem__(self, name: str) -> Tensor:
        full, found = self._prefix + name, self._state.get(self._prefix + name)
        if found is None:
            raise ValueError(f"{self._source!r} must have a tensor {full!r}, got none: {self._hint(name)}")
        if not isinstance(found, Tensor):
            raise TypeError(f"{full!r} must be a tensor, got {type(found).__name__}: convert it with torch.as_tensor")
        if not found.is_floating_point() or found.dtype.itemsize < 2 or found.layout is not torch.strided:
            kind = found.dtype if found.layout is torch.strided else found.layout
            raise TypeError(f"{full!r} must be a dense tensor of real numbers, got {kind}: dequantise or convert it")
        if found.is_meta:
            raise ValueError(f"{full!r} must have numbers, got a tensor on meta: load the state on the CPU")
        if not found.isfinite().all():
            raise ValueError(f"{full!r} must be finite, got NaN or infinity: load the numbers as they were saved")
        self.shapes[full] = tuple(found.shape)
        return found.detach()

    def __contains__(self, name: object) -> bool:
        return f"{self._prefix}{name}" in self._state

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._state if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def shaped(self, name: str, *shape: int) -> Tensor:
        """The tensor of that name, which must be of this shape."""
        found = self[name]
        if found.shape != shape:
            raise ValueError(
                f"{self._prefix + name!r} must have shape {shape} here, got {tuple(found.shape)} from "
                f"{self._source!r}: make the encoding with the sizes that it was trained with"
            )
        return found

    def trained_with(self, encoding: nn.Module, **options: Any) -> None:
        """Raise where the encoding was made with other options than these, with which the source always trains."""
        for option, value in options.items():
            if getattr(encoding, option) != value:
                raise ValueError(
                    f"{self._source!r} trains with {option}={value}, got a {type(encoding).__name__} with "
                    f"{option}={getattr(encoding, option)}: make it with {option}={value}"
                )

    def without(self, name: str, what: str) -> None:
        """Raise where there is a tensor that only another function than the scheme's has."""
        if name in self:
            raise ValueError(
                f"{self._source!r} must be without {what} to be this scheme, got {self._prefix + name!r}: "
                "take over a model that was trained without"
            )

    def _hint(self, name: str) -> str:
        fitting = [key.removesuffix(name) for key in self._state if f".{key}".endswith(f".{name}")]
        if fitting:
            return "pass prefix=" + " or ".join(map(repr, fitting[:3])) + (" or another" if len(fitting) > 3 else "")
        near = get_close_matches(name, self._state, 5, 0.0)
        has = f"has names such as {', '.join(map(repr, near))}" if near else "is empty"
        return f"pass the state of the module that has it, this one {has}"


def take_over(
    module: nn.Module,
    converters: Mapping[str, Callable[[Any, ForeignState], dict[str, Tensor]]],
    state: Mapping[str, Tensor],
    source: str,
    prefix: str,
) -> None:
    """Copy into a module what the converter of a source makes of a state, where all of it fits."""
    name, own = type(module).__name__, module.state_dict()
    if not own:
        raise ValueError(
            f"{name} has no trained numbers and nothing to load, got {source!r}: "
            "give it the arguments that the model was made with"
        )
    if not converters:
        raise ValueError(f"{name} knows no other library's numbers, got {source!r}: use load_state_dict for its own")
    if not isinstance(source, str) or source not in converters:
        known = ", ".join(sorted(converters))
        raise ValueError(f"source of a {name} must be one of {known}, got {source!r}: pass one of them")
    if not isinstance(state, Mapping):
        raise TypeError(f"state must be a dictionary of tensors, got {type(state).__name__}: pass its state_dict()")
    if not isinstance(prefix, str):
        raise TypeError(f"prefix must be a string, got {prefix!r}: pass what stands before the names, or ''")
    if any(tensor.is_meta for tensor in own.values()):
        raise ValueError(f"{name} is on meta and has no numbers to fill: materialise it with to_empty first")
    reader = ForeignState(state, source, prefix)
    try:
        given = converters[source](module, reader)
    except (RuntimeError, IndexError) as error:  # of an operation that the tensors are too few or too narrow for
        raise ValueError(
            f"{source!r} must have tensors that fit together for this {name}, got {reader.shapes}: "
            "pass them in the shapes that the model saves, and make the encoding with its sizes"
        ) from error
    if own.keys() != given.keys():
        raise ValueError(
            f"{name} has {sorted(own)}, got numbers for {sorted(given)} from {source!r}: "
            "make the encoding with the options that it was trained with"
        )
    for key, tensor in given.items():
        if own[key].shape != tensor.shape:
            raise ValueError(
                f"{key} of this {name} has shape {tuple(own[key].shape)}, got {tuple(tensor.shape)} "
                f"from {source!r}: make the encoding with the sizes that it was trained with"
            )
        if not tensor.to(own[key].dtype).isfinite().all():
            raise ValueError(
                f"{key} of this {name} is {own[key].dtype}, got numbers up to {float(tensor.abs().max()):.3g} from "
                f"{source!r}, which are infinite there: load into a wider dtype, float32 or float64"
            )
    module.load_state_dict(given)
