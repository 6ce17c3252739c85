"""`posenc bench`: speed and memory beside plain attention."""

import json
import sys
from typing import Annotated, Any

import typer

from posenc import catalog
from posenc.cli.app import app, fail, parse_grid


@app.command()
def bench(
    schemes: Annotated[list[str] | None, typer.Argument(help="Schemes of `posenc list`. [default: all]")] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Tokens of a sequence. [default: those of --grid]")] = None,
    grid: Annotated[str, typer.Option(help="Sizes of the grid, for schemes of several axes.")] = "20x20",
    batch: Annotated[int, typer.Option(min=1, help="Batch size.")] = 1,
    heads: Annotated[int, typer.Option(min=1, help="Heads.")] = 8,
    head_dim: Annotated[int, typer.Option(min=1, help="Channels of a head.")] = 64,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or float64.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    repeats: Annotated[int, typer.Option(min=1, help="Pairs of runs; the ratio is of their medians.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
) -> None:
    """Measure speed and memory of each scheme beside torch's plain attention, in the same run.

    Example: posenc bench Rotary ALiBi --grid 32x32
    """
    cells = parse_grid(grid)
    try:
        known = [catalog.card(name).name for name in schemes or ()]
    except ValueError as error:
        fail(str(error))
    from rich.console import Console
    from rich.table import Table
    from torch import OutOfMemoryError

    from posenc import bench as benchmark

    sizes: dict[str, Any] = {
        "length": length,
        "grid": cells,
        "batch": batch,
        "heads": heads,
        "head_dim": head_dim,
        "dtype": dtype,
        "device": device,
    }
    try:
        measured = benchmark.measure(known, **sizes, repeats=repeats)
        refused = [] if known else benchmark.refusals(**sizes)
        rows = []
        with Console(stderr=True).status("measuring memory") as status:
            for row in measured:
                rows.append(row)
                status.update(f"measured {row.scheme}, {len(rows)} so far")
    except (ValueError, MemoryError, OutOfMemoryError) as error:  # a size that a scheme cannot have, or the machine
        fail(str(error))
    if as_json:
        found = {"repeats": repeats, "rows": [row.as_dict() for row in rows]}
        found["left_out"] = [{"scheme": case.scheme, "why": case.refused} for case in refused]
        typer.echo(json.dumps(benchmark.about() | found, indent=2))
        return
    title = f"batch {batch}, {heads} heads of {head_dim}, {dtype}, {device}, threads: {benchmark.about()['threads']}"
    caption = "Time: ratio to plain attention in the same run (range over pairs). Memory: peak in MiB, beside plain's."
    table = Table(title=title, caption=caption)
    table.add_column("scheme", no_wrap=True)
    table.add_column("tokens", no_wrap=True)
    for heading in ("parameters", "inference", "training", "memory", "memory, training"):
        table.add_column(heading, justify="right")
    for row in rows:
        tokens = "×".join(map(str, row.setting.shape))
        times = (f"{time.ratio:.2f} ({time.low:.2f}–{time.high:.2f})" for time in (row.inference, row.training))
        pairs = (
            (row.inference_memory, row.inference_memory_plain),
            (row.training_memory, row.training_memory_plain),
        )
        peaks = ("" if own is None else f"{own:.1f} / {plain:.1f}" for own, plain in pairs)
        causal = " (causal)" if row.setting.causal else ""
        table.add_row(row.scheme + causal, tokens, f"{row.parameters:,}", *times, *peaks)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for case in refused:
        console.print(f"{case.scheme} is left out: {case.refused}", highlight=False, markup=False)
