"""`posenc compare`: train the same small transformer once per encoding, and report."""

import json
from pathlib import Path
from typing import Annotated

import typer

from posenc.cli.app import app, fail


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
            help="Names joined by commas (an unknown one lists them), or all: every scheme of `posenc list` that fits "
            "the data. The model without one, none, is always among them. [default: by the task]"
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
