"""`posenc show`: draw a scheme, or explain a function on tables step by step."""

import re
from pathlib import Path
from typing import Annotated

import typer

from posenc import catalog
from posenc.cli.app import app, check_out, fail, parse_grid

SHAPES = {"1": (64,), "any": (64,), "2": (8, 8), "3": (16, 32, 32)}  # what is drawn by default, by the axes of a scheme
STEPS = ("relative_to_absolute", "skew")  # functions that are explained step by step


@app.command()
def show(
    scheme: Annotated[str, typer.Argument(help="A scheme of `posenc list`, or relative_to_absolute, or skew.")],
    out: Annotated[
        Path | None, typer.Option(help="The picture, .png or .svg. [default: the name in small letters, as rotary.png]")
    ] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Tokens of a sequence. [default: 64, or a grid]")] = None,
    grid: Annotated[str | None, typer.Option(help="Sizes of a grid instead, for example 14x14.")] = None,
    dim: Annotated[int, typer.Option(min=2, help="Channels: of the model, or of one head.")] = 64,
    heads: Annotated[int, typer.Option(min=1, help="Heads, where the scheme has its own numbers for each.")] = 4,
) -> None:
    """Draw a scheme: the encoding and the similarity of positions, or the bias by relative position.

    For relative_to_absolute and skew: step by step, which entry of the table lands where.

    Example: posenc show Rotary --grid 14x14 --out rotary.svg
    """
    known = {catalog.plain(name): name for name in (*(card.name for card in catalog.CARDS), *STEPS)}
    name = known.get(catalog.plain(scheme))
    if name is None:
        fail(catalog.unknown(scheme, tuple(known.values())))
    path = check_out(out or Path(f"{name.lower()}.png"), (".png", ".svg"))
    if grid is not None and length is not None:
        fail("--length and --grid exclude each other: give one")
    if name in STEPS:
        if grid is not None:
            fail(f"{name} works along one axis: give --length instead of --grid")
        if length is not None and not 2 <= length <= 6:
            fail(f"--length must be 2 to 6 for {name}, got {length}: every entry is drawn with its number")
        from posenc import steps

        figure = steps.relative_to_absolute(length or 4) if name == "relative_to_absolute" else steps.skew(length or 4)
    else:
        shape = SHAPES[catalog.card(name).axes] if length is None else (length,)
        shape = shape if grid is None else parse_grid(grid)
        try:
            arguments = catalog.arguments(name, shape=shape, dim=dim, num_heads=heads, head_dim=dim)
        except ValueError as error:
            fail(str(error))
        from posenc import plots

        try:
            figure = plots.untrained(name, arguments, shape)
        except ValueError as error:  # a width the scheme cannot have
            fail(_as_options(str(error)))
        card = catalog.card(name)
        typer.echo(f"{card.title}\n{card.equation}\n{card.paper}")
    figure.savefig(path, dpi=150)
    typer.echo(f"wrote {path}")


def _as_options(message: str) -> str:
    """What a constructor advises, as the option of this command: it has no rotary_dim.

    >>> _as_options("head_dim must be even for rotary, got 7: pass rotary_dim=6 to rotate part of it")
    'head_dim must be even for rotary, got 7: give --dim 6'
    """
    return re.sub(
        r"^(head_dim .*): pass (?:rotary_dim=)?(\d+)(?: to rotate part of it)?$", r"\1: give --dim \2", message
    )
