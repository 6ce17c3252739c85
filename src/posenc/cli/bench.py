"""`posenc bench`: speed, memory and error beside plain attention, and beside other packages."""

import json
from typing import Annotated, Any

import typer

from posenc import catalog
from posenc.cli.app import app, fail


@app.command()
def bench(
    schemes: Annotated[str, typer.Option(help="Schemes of `posenc list`, as ALiBi,Rotary. [default: all]")] = "",
    lengths: Annotated[
        str, typer.Option(help="Tokens of sequences, as 1024,4096. [default: the cells of --grids]")
    ] = "",
    grids: Annotated[str, typer.Option(help="Grids, as 32x32,64x64. [default: 20x20; with --lengths alone none]")] = "",
    train: Annotated[bool, typer.Option("--train", help="Measure the backward pass too.")] = False,
    peers: Annotated[bool, typer.Option("--peers", help="Measure other packages that are installed too.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Batch size.")] = 1,
    heads: Annotated[int, typer.Option(min=1, help="Heads.")] = 8,
    head_dim: Annotated[int, typer.Option(min=1, help="Channels of a head.")] = 64,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    backend: Annotated[str, typer.Option(help="auto, or one that `explain` names: dense, …")] = "auto",
    repeats: Annotated[int, typer.Option(min=1, help="Turns of all; ratios are of medians.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
) -> None:
    """Measure speed, memory and error of each scheme beside torch's plain attention, in the same run.

    Example: posenc bench --schemes Rotary,ALiBi --lengths 1024,4096 --train --peers
    """
    try:
        names = [catalog.card(name.strip()).name for name in schemes.split(",") if name.strip()]
    except ValueError as error:
        fail(str(error))
    sizes: dict[str, Any] = {"lengths": _lengths(lengths), "grids": _grids(grids)}
    from rich.console import Console
    from rich.live import Live
    from torch import OutOfMemoryError

    from posenc import bench as benchmark

    rows: list[benchmark.Row] = []
    missing = benchmark.missing_peers() if peers else []
    # drawn when something changes and at no other time, which would be that of what is measured
    live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
    try:
        measured = benchmark.measure(
            names,
            **sizes,
            batch=batch,
            heads=heads,
            head_dim=head_dim,
            dtype=dtype,
            device=device,
            backend=backend,
            repeats=repeats,
            train=train,
            with_peers=peers,
            say=lambda text: live.update(text, refresh=True),
        )
        about = benchmark.about()
        title = f"batch {batch}, {heads} heads of {head_dim}, {dtype}, {device}, threads: {about['threads']}"
        above = [title, benchmark.line(benchmark.headings(train), train)]
        with live:
            for row in measured:
                rows.append(row)
                if not as_json and row.inference is not None:
                    live.stop()
                    typer.echo("\n".join([*above, benchmark.line(benchmark.cells(row, train), train)]))
                    live.start()
                    above = []
    except (ValueError, MemoryError, OutOfMemoryError) as error:  # a size that a scheme cannot have, or the machine
        fail(str(error))
    refused = [row.refused for row in rows if row.refused] + missing
    if all(row.inference is None for row in rows):
        fail("\n".join(["nothing can be measured with these options:", *refused]))
    if as_json:
        found = {"repeats": repeats, "rows": [row.as_dict() for row in rows if row.inference is not None]}
        typer.echo(json.dumps(about | found | {"left_out": refused}, indent=2))
    else:
        _echo_notes(refused)
    if busy := benchmark.warning(rows):
        typer.echo(busy, err=True)


def _echo_notes(refused: list[str]) -> None:
    """What the columns are, and what is not among the rows."""
    typer.echo(
        "\nTime: ratio to plain attention in the same run (range over turns). MiB: peak memory beyond plain's.\n"
        "Errors: largest difference from float64 over the largest number (of the dense path in the same dtype)."
    )
    for text in refused:
        typer.echo(text)


def _lengths(text: str) -> list[int]:
    """`1024,4096` → [1024, 4096]."""
    try:
        found = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        found = [0]
    if found and min(found) < 1:
        fail(f"--lengths must be numbers of tokens joined by commas, got {text!r}: for example --lengths 1024,4096")
    return found


def _grids(text: str) -> list[tuple[int, ...]]:
    """`32x32,64x64` → [(32, 32), (64, 64)]."""
    try:
        found = [tuple(int(size) for size in part.lower().split("x")) for part in text.split(",")] if text else []
    except ValueError:
        found = [()]
    if any(len(grid) < 2 or min(grid) < 1 for grid in found):
        fail(f"--grids must be sizes joined by x, and grids by commas, got {text!r}: for example --grids 32x32,64x64")
    return found
