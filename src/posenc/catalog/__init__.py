"""One card a scheme: what it is, who published it, and arguments to try it with.

Standard library only, so that `posenc list` and the documentation can read the cards without torch. The laws of the
test-suite run over every example of every card: a new scheme is tested by being listed here.

Equations use the letters of the papers, and one convention throughout: relative position = query position − key
position, written i − j (one axis) or Δ = i − j (an axis of a grid).

>>> from posenc import catalog
>>> catalog.card("ALiBi").equation
'b_h(i − j) = −m_h |i − j|, m_h = 2^(−8h/H) for h = 1 … H; signed: −m_h (i − j)'
"""

import difflib
import re
from typing import Any

from posenc.catalog import absolute, bias, conditional, content, rotary
from posenc.catalog.card import PLACES, Card

__all__ = ["CARDS", "PLACES", "Card", "arguments", "card", "near", "plain", "unknown"]

CARDS: tuple[Card, ...] = (*absolute.CARDS, *rotary.CARDS, *bias.CARDS, *content.CARDS, *conditional.CARDS)


def plain(name: str) -> str:
    """A name without case, hyphens, underscores and spaces: `relative-position-bias` finds RelativePositionBias."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def near(name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The known names that `name` may have meant, best first.

    Those that contain it, or it them; else schemes that a paper or model of this name is known for; else those that
    are close in spelling.
    """
    spelled = {plain(each): each for each in known}
    wanted = plain(name)
    found = [each for each in spelled if wanted in each or each in wanted] if len(wanted) >= 2 else []
    if not found and wanted:
        words = {plain(each.name): re.findall(r"[a-z0-9]+", each.title.lower()) for each in CARDS}
        found = [each for each, title in words.items() if wanted in title]
    found = found or difflib.get_close_matches(wanted, spelled, n=3, cutoff=0.6)
    return tuple(dict.fromkeys(spelled[each] for each in found if each in spelled))[:3]


def unknown(name: str, known: tuple[str, ...]) -> str:
    """The message for a name that is not among the known ones."""
    names = near(name, known)
    hint = f"did you mean {' or '.join(names)}? " if names else ""
    return f"unknown scheme {name!r}: {hint}`posenc list` shows them all"


def card(name: str) -> Card:
    """The card of one scheme. Case, hyphens and underscores do not matter.

    Raises ValueError, with the near names, if there is no such scheme.

    >>> card("rotary").name
    'Rotary'
    >>> card("Rotery")
    Traceback (most recent call last):
    ...
    ValueError: unknown scheme 'Rotery': did you mean Rotary? `posenc list` shows them all
    """
    for each in CARDS:
        if plain(each.name) == plain(name):
            return each
    raise ValueError(unknown(name, tuple(each.name for each in CARDS)))


def arguments(
    scheme: str,
    *,
    shape: tuple[int, ...],
    dim: int = 512,
    num_heads: int = 8,
    head_dim: int = 64,
    max_distance: int = 16,
) -> dict[str, Any]:
    """Constructor arguments of a scheme for a model of these sizes and tokens of this shape, all else at its default.

    Raises ValueError if the scheme is unknown or has fewer axes than the shape.

    >>> arguments("RelativePositionBias", shape=(14, 14), num_heads=8)
    {'num_heads': 8, 'shape': (14, 14)}
    >>> arguments("Rotary", shape=(14, 14), head_dim=64)
    {'head_dim': 64, 'axes': 2}
    """
    known = card(scheme)
    if known.axes.isdigit() and int(known.axes) != len(shape):
        wanted = "one axis" if known.axes == "1" else f"{known.axes} axes"
        advice = "one length" if known.axes == "1" else f"{known.axes} sizes"
        raise ValueError(f"{known.name} has {wanted}, got shape {shape}: give it {advice}")
    sizes = {
        "shape": shape,
        "axes": len(shape),
        "dim": dim,
        "num_heads": num_heads,
        "head_dim": head_dim,
        "max_distance": max_distance,
    }
    return {name: sizes[name] for name in known.sizes}
