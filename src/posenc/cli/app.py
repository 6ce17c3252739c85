"""What the commands share: the application, its extras, and how a command ends for bad input."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

from posenc import __version__

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


def main() -> None:
    """The console script."""
    try:
        app()
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        sys.exit(needs(package))
