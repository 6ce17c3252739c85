"""What a card says of a scheme."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

PLACES = ("absolute", "rotary", "bias", "content", "conditional")


class Card(NamedTuple):
    """What is known of one scheme.

    `examples` are constructor arguments, small and of every kind the scheme offers, the plainest first. The number of
    axes of an example is that of the card if it is a number; else the length of its `shape` if it has one, else its
    `axes`. Positions must stay inside the shape.
    """

    name: str  # the public class: posenc.<name>
    place: str  # where it enters a transformer, one of PLACES
    title: str
    year: int
    paper: str  # title and arXiv number
    equation: str
    axes: str  # a number, or "any"
    trained: bool  # whether the defaults have trained parameters
    parameters: str  # how many, as a formula
    numbers: Callable[[dict[str, Any]], int]  # how many trained and drawn numbers an example has, computed
    relative: bool  # whether its effect depends on relative position alone
    reference: str  # the function of posenc.reference that computes it
    sizes: tuple[str, ...]  # the constructor arguments that follow from a model's sizes, for arguments()
    examples: tuple[dict[str, Any], ...]
    peers: tuple[str, ...] = ()  # import paths of implementations nobody here wrote
    second: str = ""  # where no peer is packaged: the second, differently written loop that it is checked against
    exempt: Mapping[str, str] = MappingProxyType({})  # law → why it does not apply
    causal: bool = False  # whether attention must be causal, whatever the arguments
