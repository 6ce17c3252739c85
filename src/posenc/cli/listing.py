"""`posenc list`: what the cards say, as a table, as pages, or as JSON."""

import json
import re
import shutil
import sys
import textwrap
from typing import Annotated

import typer

from posenc import catalog
from posenc.catalog import Card
from posenc.cli.app import app, fail

HEADINGS = (
    *("scheme", "place", "year", "axes", "trained", "relative"),
    *("peers", "laws", "paper", "parameters", "title"),
)
LEAST = 12  # a column that is cut to fewer letters says nothing


@app.command("list")
def list_schemes(
    schemes: Annotated[list[str] | None, typer.Argument(help="Say everything of these. [default: a line each]")] = None,
    place: Annotated[str | None, typer.Option(help=f"Only those of one place: {', '.join(catalog.PLACES)}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything the cards say, as JSON.")] = False,
) -> None:
    """List the schemes: where each enters a transformer, who published it, and how it is proven.

    trained: whether there are trained numbers by default, and parameters: how many. relative: whether the effect
    depends on relative position alone. peers: how many implementations of others it is checked against, or loop: none
    is packaged, and a second, differently written loop stands in. laws: all hold, or all but so many that do not apply
    to it. A terminal shows the columns that it has room for.

    Example: posenc list ALiBi
    """
    if place is not None and place not in catalog.PLACES:
        fail(f"--place must be one of {', '.join(catalog.PLACES)}, got {place!r}")
    if schemes and place is not None:
        fail("--place chooses among all schemes, got names too: give one of them")
    try:
        named = [catalog.card(name) for name in schemes or ()]
    except ValueError as error:
        fail(str(error))
    cards = named or [card for card in catalog.CARDS if place in (None, card.place)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if as_json:
        typer.echo(json.dumps([plain(card) for card in cards], indent=2, ensure_ascii=False, default=repr))
    elif named:
        typer.echo("\n\n".join(page(card, width) for card in named))
    else:
        typer.echo("\n".join(table(cards, width)))
        if width is not None:
            typer.echo("\nposenc list NAME says everything of a scheme, posenc show NAME draws it.")


def plain(card: Card) -> dict[str, object]:
    """Everything a card says but for functions; a scaling among the examples is written as the call that makes it."""
    said = {name: value for name, value in card._asdict().items() if not callable(value)}
    return said | {"exempt": dict(card.exempt)}


def row(card: Card) -> tuple[str, ...]:
    """A card under the headings."""
    found = re.search(r"arXiv:([0-9.]*[0-9])", card.paper)
    return (
        card.name,
        card.place,
        str(card.year),
        card.axes,
        yes(card.trained),
        yes(card.relative),
        str(len(card.peers)) if card.peers else "loop",
        f"all−{len(card.exempt)}" if card.exempt else "all",
        found.group(1) if found else card.paper,
        card.parameters,
        card.title,
    )


def table(cards: list[Card], width: int | None) -> list[str]:
    """Lines of aligned columns: as many as a width has room for, the last of them cut."""
    rows = [HEADINGS, *(row(card) for card in cards)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(HEADINGS))]
    if width is not None:
        room = width
        for column, size in enumerate(widths):
            widths[column] = size if size <= room else room if room >= LEAST else 0
            room = max(0, room - size - 2)
    lines = []
    for cells in rows:
        fitted = [cut(text, size).ljust(size) for text, size in zip(cells, widths, strict=True) if size]
        lines.append("  ".join(fitted).rstrip())
    return lines


def page(card: Card, width: int | None) -> str:
    """Everything a card says, a line each."""
    said: dict[str, list[str]] = {
        "place": [card.place],
        "paper": [f"{card.paper} ({card.year})"],
        "equation": [card.equation],
        "axes": [card.axes],
        "trained": [yes(card.trained)],
        "parameters": [card.parameters],
        "relative": ["yes, on relative position alone" if card.relative else "no, on more than relative position"],
        "attention": ["must be causal"] if card.causal else [],
        "laws": [f"all but {law}: {why}" for law, why in card.exempt.items()] or ["all"],
        "peers": list(card.peers) or [f"none is packaged; a second loop: {card.second}"],
        "reference": [f"posenc.reference.{card.reference}"],
    }
    lines = [f"{card.name}: {card.title}"]
    for name, parts in said.items():
        for number, part in enumerate(parts):
            label = f"  {name if number == 0 else '':12}"
            if width is None:
                lines.append(label + part)
            else:
                lines += textwrap.wrap(
                    part,
                    max(width, 40),
                    initial_indent=label,
                    subsequent_indent=" " * len(label),
                    break_long_words=False,
                    break_on_hyphens=False,
                )
    return "\n".join(lines)


def yes(value: bool) -> str:
    """A truth in words."""
    return "yes" if value else "no"


def cut(text: str, size: int) -> str:
    """A text that is no longer than so many letters."""
    return text if len(text) <= size else text[: size - 1] + "…"
