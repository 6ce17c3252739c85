"""What to compare: the options, checked and turned into tasks and trials before anything is trained or written."""

import os
import shlex
from dataclasses import dataclass, fields
from pathlib import Path

from posenc.compare import data
from posenc.compare.characters import TextTask
from posenc.compare.data import Warn
from posenc.compare.encodings import ALL, Sizes, chosen, contestant, spelled
from posenc.compare.errors import BadInput, near
from posenc.compare.signals import ImageTask, SeriesTask
from posenc.compare.tasks import Task
from posenc.compare.trial import Trial

__all__ = ["BUDGETS", "Comparison", "Settings", "prepare"]

OWN = {"images": "DIR", "text": "FILE_OR_DIR", "series": "FILE.npz"}
SHIPPED = ("digits", "code")
IMAGE_FACTORS = (1.0, 1.5, 2.0)
TEXT_FACTORS = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Budget:
    """How much is trained where --seeds and --steps do not say."""

    seeds: int
    effort: float  # times the task's own number of steps
    everything: bool  # all encodings that fit, or the default set


BUDGETS = {
    "quick": Budget(seeds=3, effort=0.2, everything=False),
    "default": Budget(seeds=3, effort=1.0, everything=False),
    "thorough": Budget(seeds=5, effort=5.0, everything=True),
}


@dataclass(frozen=True)
class Settings:
    """The options of `posenc compare`; None leaves a choice to the budget or to the task."""

    tasks: tuple[str, ...] | None = None
    encodings: tuple[str, ...] | None = None
    seeds: int | None = None
    steps: int | None = None
    lengths: tuple[float, ...] | None = None
    budget: str = "default"
    jobs: int | None = None
    images: Path | None = None
    text: Path | None = None
    series: Path | None = None
    out: Path = Path("report.html")
    runs: Path = Path("runs")
    dask: str | None = None

    def command(self) -> str:
        """The command line with these options."""
        words = ["posenc", "compare"]
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value != field.default:
                text = (
                    ",".join(format(item, "g") if isinstance(item, float) else item for item in value)
                    if isinstance(value, tuple)
                    else str(value)
                )
                words += [f"--{field.name}", text]
        return shlex.join(words)


@dataclass(frozen=True)
class Comparison:
    """Checked settings with the tasks, the rows to show for each, and the trials that give them."""

    settings: Settings
    tasks: tuple[Task, ...]
    rows: dict[str, list[str]]  # task -> names of rows
    left_out: dict[str, list[tuple[str, str]]]  # task -> titles that were asked for and do not fit it, and why
    trials: tuple[Trial, ...]
    sizes: Sizes
    warnings: tuple[str, ...] = ()

    @property
    def models(self) -> str:
        """What is trained, in words: "22 encodings and the model without"."""
        count = len({trial.encoding for trial in self.trials} - {"none"})
        if count == 0:
            return "the model without encoding"
        return f"{count} encoding{'s' if count > 1 else ''} and the model without"

    @property
    def changed(self) -> int:
        """How many rows show a trained encoding changed for other lengths, without training."""
        return len({name for names in self.rows.values() for name in names} - {trial.encoding for trial in self.trials})


def prepare(settings: Settings, sizes: Sizes | None = None) -> Comparison:
    """Check the settings, read the data and list the trials. Writes nothing.

    Raises BadInput for anything that cannot be compared.
    """
    if settings.budget not in BUDGETS:
        raise near("budget", settings.budget, BUDGETS)
    budget, sizes = BUDGETS[settings.budget], sizes or Sizes()
    seeds = _at_least_one("--seeds", budget.seeds if settings.seeds is None else settings.seeds)
    for option, value in (("--steps", settings.steps), ("--jobs", settings.jobs)):
        if value is not None:
            _at_least_one(option, value)
    _check_lengths(settings.lengths)
    _check_paths(settings)
    names = _task_names(settings)
    for name in settings.encodings or ():
        _ = name == ALL or spelled(name)
    warnings: list[str] = []
    tasks = tuple(_load(name, settings, warnings.append) for name in names)
    found = {task.name: chosen(task, settings.encodings, everything=budget.everything) for task in tasks}
    rows = {name: fitting for name, (fitting, _) in found.items()}
    left_out = {name: refused for name, (_, refused) in found.items()}
    if any(left_out.values()) and all(names == ["none"] for names in rows.values()):
        name, reasons = next((name, each) for name, each in left_out.items() if each)
        raise BadInput(f"--encodings: none of these fits {name}: {reasons[0][0]}: {reasons[0][1]}")
    trials = tuple(
        Trial(task, encoding, seed, settings.steps or max(1, round(task.steps * budget.effort)), sizes)
        for seed in range(seeds)
        for task in tasks
        for encoding in dict.fromkeys(contestant(name).name for name in rows[task.name])
    )
    return Comparison(settings, tasks, rows, left_out, trials, sizes, tuple(warnings))


def _at_least_one(option: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(f"{option} must be 1 or more, got {value!r}")
    return value


def _check_lengths(lengths: tuple[float, ...] | None) -> None:
    if lengths is not None and (not lengths or not all(0.25 <= length <= 64 for length in lengths)):
        raise BadInput(f"--lengths must be multiples of the trained length from 0.25 to 64, got {list(lengths)}")


def _check_paths(settings: Settings) -> None:
    out, runs = settings.out, settings.runs
    if not out.parent.is_dir():
        raise BadInput(f"--out: the folder {out.parent} does not exist: make it, or choose another")
    if out.is_dir():
        raise BadInput(f"--out must be a file, got the folder {out}: add report.html")
    if out.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"--out must end in .html, as the report is a page, got {out}: for example report.html")
    if not os.access(out.parent, os.W_OK):
        raise BadInput(f"--out: the folder {out.parent} cannot be written to")
    if runs.exists() and not runs.is_dir():
        raise BadInput(f"--runs must be a folder, got the file {runs}")
    if not runs.exists() and not runs.parent.is_dir():
        raise BadInput(f"--runs: the folder {runs.parent} does not exist: make it, or choose another")
    if not os.access(runs if runs.exists() else runs.parent, os.W_OK):
        raise BadInput(f"--runs: {runs} cannot be written to: choose another")
    for name in ("images", "text", "series"):
        source = getattr(settings, name)
        if source is not None and source.resolve() in (out.resolve(), runs.resolve()):
            raise BadInput(
                f"--{name} and what is written must differ, got {source} for both: choose another --out or --runs"
            )


def _task_names(settings: Settings) -> tuple[str, ...]:
    given = tuple(name for name in OWN if getattr(settings, name) is not None)
    if settings.tasks is None:
        return given or SHIPPED
    if not settings.tasks:
        raise BadInput("--tasks names none: leave it out for digits and code")
    for name in settings.tasks:
        if name not in (*SHIPPED, *OWN):
            raise near("task", name, (*SHIPPED, *OWN))
        if name in OWN and name not in given:
            raise BadInput(f"task {name} needs your data: pass --{name} {OWN[name]}")
    unused = [name for name in given if name not in settings.tasks]
    if unused:
        raise BadInput(f"--{unused[0]} is given but --tasks leaves {unused[0]} out: add it, or drop --tasks")
    return tuple(dict.fromkeys(settings.tasks))


def _load(name: str, settings: Settings, warn: Warn) -> Task:
    factors = (
        None
        if settings.lengths is None
        else tuple(sorted({1.0, *(float(f"{length:g}") for length in settings.lengths)}))
    )
    image_factors, text_factors = factors or IMAGE_FACTORS, factors or TEXT_FACTORS
    if name == "digits":
        about = "1,797 handwritten digits of 8 × 8 pixels (scikit-learn); every pixel is a token"
        images = data.digits()
        return ImageTask.of(images, name=name, title="Digits", about=about, factors=image_factors, warn=warn)
    if name == "code":
        about = "source of the Python standard library, character by character; whole files are held out"
        text = data.standard_library()
        return TextTask.of(text, name=name, title="Code", about=about, factors=text_factors, warn=warn)
    if name == "images":
        assert settings.images is not None
        images = data.read_images(settings.images, warn)
        about = (
            f"{len(images.labels):,} images in {len(images.classes)} classes from {settings.images.name}; "
            f"a token is a patch of {images.patch} × {images.patch} pixels"
        )
        return ImageTask.of(images, name=name, title="Your images", about=about, factors=image_factors, warn=warn)
    if name == "text":
        assert settings.text is not None
        text = data.read_text(settings.text, warn, (settings.out, settings.runs))
        about = f"{len(text.train) + len(text.held_out):,} characters from {settings.text.name}"
        return TextTask.of(text, name=name, title="Your text", about=about, factors=text_factors, warn=warn)
    assert settings.series is not None
    series = data.read_series(settings.series, warn)
    lengths = [len(values) for values in series.values]
    about = (
        f"{len(series.values):,} series of {min(lengths)} to {max(lengths)} steps and {series.values[0].shape[1]} "
        f"channels in {len(series.classes)} classes from {settings.series.name}"
    )
    return SeriesTask.of(series, name=name, title="Your series", about=about, factors=image_factors, warn=warn)
