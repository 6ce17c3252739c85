"""The command line: each command checks its options, then makes one call.

torch, NumPy, matplotlib and rich are imported inside the commands that need them, so that `posenc list` and `--help`
are about as quick as importing typer. Bad input ends in one message on stderr and exit code 2, before anything is
written; a missing package in the command that installs it and exit code 1.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, NoReturn

from posenc import __version__, catalog

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "matplotlib": "plots",
    "scipy": "data",
    "sklearn": "data",
    "PIL": "data",
    "joblib": "data",
    "jinja2": "data",
    "dask": "cluster",
    "distributed": "cluster",
}


def needs(package: str) -> str:
    """The message for a package that is not installed."""
    return f'posenc: this command needs {package}, which is not installed: pip install "posenc[{EXTRAS[package]}]"'


try:
    import typer
except ModuleNotFoundError:  # the console script imports this module: a sentence instead of a traceback
    sys.exit(needs("typer"))

app = typer.Typer(
    name="posenc",
    help="Position encodings for transformers: as published, exact, and comparable on your own data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

STEPS = ("relative_to_absolute", "skew")  # functions that `show` explains step by step


def fail(message: str) -> NoReturn:
    """End the command for bad input: one message on stderr, exit code 2."""
    typer.echo(f"posenc: {message}", err=True)
    raise typer.Exit(2)


def parse_grid(text: str) -> tuple[int, ...]:
    """`14x14` → (14, 14)."""
    try:
        shape = tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        shape = ()
    if len(shape) < 2 or min(shape) < 1:
        fail(f"--grid must be sizes joined by x, got {text!r}: for example --grid 14x14")
    return shape


def check_out(path: Path, endings: tuple[str, ...]) -> Path:
    """Refuse a file that could not be written, before any work is done."""
    if path.suffix.lower() not in endings:
        fail(f"--out must end in {' or '.join(endings)}, got {str(path)!r}")
    if not path.parent.is_dir():
        fail(f"--out: the folder {str(path.parent)!r} does not exist: create it first")
    if path.is_dir():
        fail(f"--out: {str(path)!r} is a folder: give a file name")
    return path


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"posenc {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Position encodings for transformers: as published, exact, and comparable on your own data."""


# --- list ------------------------------------------------------------------------------------------------------------


@app.command("list")
def list_schemes(
    place: Annotated[str | None, typer.Option(help=f"Only those of one place: {', '.join(catalog.PLACES)}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything the cards say, as JSON.")] = False,
) -> None:
    """List the schemes: where each enters a transformer, its axes, whether it is trained, and the year it appeared.

    Example: posenc list --place bias
    """
    if place is not None and place not in catalog.PLACES:
        fail(f"--place must be one of {', '.join(catalog.PLACES)}, got {place!r}")
    cards = [card for card in catalog.CARDS if place in (None, card.place)]
    if as_json:
        typer.echo(json.dumps([card._asdict() | {"exempt": dict(card.exempt)} for card in cards], indent=2))
        return
    rows = [("scheme", "place", "axes", "trained", "relative", "year", "")]
    for card in cards:
        trained, relative = ("yes" if value else "no" for value in (card.trained, card.relative))
        rows.append((card.name, card.place, card.axes, trained, relative, str(card.year), card.title))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in rows:
        line = "  ".join(text.ljust(size) for text, size in zip(row, widths, strict=True)).rstrip()
        typer.echo(line if width is None or len(line) <= width else line[: width - 1] + "…")


# --- show ------------------------------------------------------------------------------------------------------------


@app.command()
def show(
    scheme: Annotated[str, typer.Argument(help="A scheme of `posenc list`, or relative_to_absolute, or skew.")],
    out: Annotated[Path | None, typer.Option(help="The picture, .png or .svg. [default: SCHEME.png]")] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Tokens of a sequence. [default: 64]")] = None,
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
        shape = parse_grid(grid) if grid is not None else (length or 64,)
        try:
            arguments = catalog.arguments(name, shape=shape, dim=dim, num_heads=heads, head_dim=dim)
        except ValueError as error:
            fail(str(error))
        from posenc import plots

        try:
            figure = plots.untrained(name, arguments, shape)
        except ValueError as error:  # a width the scheme cannot have
            fail(str(error))
        card = catalog.card(name)
        typer.echo(f"{card.title}\n{card.equation}\n{card.paper}")
    figure.savefig(path, dpi=150)
    typer.echo(f"wrote {path}")


# --- bench -----------------------------------------------------------------------------------------------------------


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

    from posenc import bench as benchmark

    try:
        measured = benchmark.measure(
            known,
            length=length,
            grid=cells,
            batch=batch,
            heads=heads,
            head_dim=head_dim,
            dtype=dtype,
            device=device,
            repeats=repeats,
        )
    except ValueError as error:  # a size that a scheme cannot have
        fail(str(error))
    rows = []
    with Console(stderr=True).status("measuring memory") as status:
        for row in measured:
            rows.append(row)
            status.update(f"measured {row.scheme}, {len(rows)} so far")
    if as_json:
        typer.echo(
            json.dumps(benchmark.about() | {"repeats": repeats, "rows": [row.as_dict() for row in rows]}, indent=2)
        )
        return
    title = f"batch {batch}, {heads} heads of {head_dim}, {dtype}, {device}, threads: {benchmark.about()['threads']}"
    caption = "Time: ratio to plain attention in the same run (range over pairs). Memory: peak in MiB, beside plain's."
    table = Table("scheme", "tokens", title=title, caption=caption)
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
        table.add_row(row.scheme, tokens, f"{row.parameters:,}", *times, *peaks)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


# --- compare ---------------------------------------------------------------------------------------------------------


def parse_list(text: str | None) -> tuple[str, ...] | None:
    """`a, b` → ("a", "b"); None where the option was not given."""
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def parse_lengths(text: str | None) -> tuple[float, ...] | None:
    """`1,1.5,2` → (1.0, 1.5, 2.0)."""
    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        fail(f"--lengths must be numbers joined by commas, got {text!r}: for example --lengths 1,2,4")


@app.command()
def compare(
    tasks: Annotated[
        str | None, typer.Option(help="digits, code, images, text, series. [default: digits,code]")
    ] = None,
    encodings: Annotated[
        str | None,
        typer.Option(
            help="Names joined by commas; an unknown one lists them all. The model without one, none, is always "
            "among them. [default: by the task]"
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Trainings of each, from seed 0 on. [default: 3]")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps. [default: by the task and the budget]")] = None,
    lengths: Annotated[
        str | None,
        typer.Option(help="Where to evaluate, as multiples of the trained length (0.25 to 64); always at 1."),
    ] = None,
    budget: Annotated[str, typer.Option(help="quick, default, or thorough (all encodings, longer).")] = "default",
    jobs: Annotated[int | None, typer.Option(help="Trials at a time. [default: one per core]")] = None,
    images: Annotated[
        Path | None, typer.Option(help="Your images: a folder with one folder per class, any sizes, colour or grey.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="Your text: a UTF-8 file, or a folder of them.")] = None,
    series: Annotated[
        Path | None, typer.Option(help="Your series: an .npz with x, [N, T, C] or ragged, and y.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The report.")] = Path("report.html"),
    runs: Annotated[Path, typer.Option(help="Where trials are kept, so that a stopped comparison continues.")] = Path(
        "runs"
    ),
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler to run the trials on.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON at the end.")] = False,
) -> None:
    """Train the same small transformer once per encoding on real data, and report which serves it best, at what cost.

    Example: posenc compare --text notes.txt --encodings rotary,alibi,t5 --out notes.html
    """
    from posenc.compare import BadInput, Settings, WorkerLost
    from posenc.compare import compare as run

    settings = Settings(
        tasks=parse_list(tasks),
        encodings=parse_list(encodings),
        seeds=seeds,
        steps=steps,
        lengths=parse_lengths(lengths),
        budget=budget,
        jobs=jobs,
        images=images,
        text=text,
        series=series,
        out=out,
        runs=runs,
        dask=dask,
    )
    try:
        summaries = run(settings)
    except BadInput as error:
        fail(str(error))
    except WorkerLost as error:
        typer.echo(f"posenc: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("posenc: stopped; finished trials are kept, and the same command continues", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps([summary.as_dict() for summary in summaries], indent=2))


def main() -> None:
    """The console script."""
    try:
        app()
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        sys.exit(needs(package))


if __name__ == "__main__":
    main()
