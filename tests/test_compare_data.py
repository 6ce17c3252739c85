"""One's own images, text and series: what is read, what is skipped by name, what is refused with nothing written."""

import io
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from posenc import cli
from posenc.compare import data, sweep
from posenc.compare.encodings import spelled
from posenc.compare.errors import BadInput, near
from posenc.compare.settings import Settings, prepare
from posenc.compare.trial import Sizes, run_trial


def save(path, shape, mode="L", seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (*shape, *channels), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def photographs(tmp_path):
    """Two classes, five images each, of several sizes, wider than high."""
    folder = tmp_path / "photographs"
    for name in ("cat", "dog"):
        for index in range(5):
            save(folder / name / f"{index}.png", (20 + index, 40 + index), seed=index)
    return folder


def silent(message):
    raise AssertionError(message)


# --- images ----------------------------------------------------------------------------------------------------------


def test_images_keep_their_aspect_and_have_at_most_a_hundred_tokens(photographs):
    images = data.read_images(photographs, silent)
    height, width = images.shape
    assert images.classes == ("cat", "dog")
    assert images.pixels.shape == (10, 2 * height * images.patch, 2 * width * images.patch, 1)
    assert images.labels.tolist() == [0] * 5 + [1] * 5
    assert height < width
    assert height * width <= 100
    assert 0 <= images.pixels.min() < images.pixels.max() <= 1


@pytest.mark.parametrize("size", [(3, 3), (8, 8), (28, 28), (32, 32), (200, 300), (1000, 20), (1, 5)])
def test_tokens_of_any_size(size):
    shape, patch = data._tokens(*size)
    assert min(shape) >= 2
    assert 4 <= shape[0] * shape[1] <= 256
    assert 1 <= patch <= 4


def test_one_colour_image_makes_all_of_them_colour(photographs):
    save(photographs / "dog" / "colour.jpg", (30, 30), "RGB")
    save(photographs / "dog" / "clear.png", (30, 30), "RGBA")
    assert data.read_images(photographs, silent).pixels.shape[-1] == 3


def test_an_unreadable_image_is_named_and_the_rest_is_used(photographs):
    (photographs / "cat" / "broken.png").write_bytes(b"\x89PNG not really")
    whole = (photographs / "dog" / "0.png").read_bytes()
    (photographs / "dog" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (photographs / "cat" / "notes.txt").write_text("no image, and not meant as one")
    warnings = []
    images = data.read_images(photographs, warnings.append)
    assert len(images.labels) == 10
    assert len(warnings) == 2
    assert "broken.png" in warnings[0]
    assert "cut.png" in warnings[1]


def test_own_images_are_compared(photographs):
    comparison = prepare(Settings(images=photographs, encodings=("rotary", "conditional"), seeds=1, steps=2), TINY)
    assert [task.name for task in comparison.tasks] == ["images"]
    for trial in comparison.trials:
        found = run_trial(trial)["rows"][trial.encoding]
        assert set(found) == {"1x", "1.5x", "1.5x-squeezed", "2x", "2x-squeezed", "shift-2", "shift-64"}
        assert all("score" in value for value in found.values())


def test_a_fifth_of_each_class_is_held_out_and_nothing_of_it_is_trained_on():
    labels = np.repeat([0, 1, 2], [10, 25, 2])
    train, test = data.split(labels, silent)
    assert sorted([*train, *test]) == list(range(37))
    assert np.bincount(labels[test]).tolist() == [2, 5, 1]
    warnings = []
    train, test = data.split(np.array([0, 0, 1]), warnings.append)
    assert 2 in train
    assert "class 1 has one example" in warnings[0]


# --- text ------------------------------------------------------------------------------------------------------------


def test_a_folder_holds_out_whole_files(tmp_path):
    for index in range(20):
        (tmp_path / f"{index:02}.txt").write_text(chr(97 + index) * 100)
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00bad")
    (tmp_path / ".hidden").write_text("z" * 1000)
    warnings = []
    text = data.read_text(tmp_path, warnings.append)
    assert not set(text.train) & set(text.held_out)
    assert (len(text.train), len(text.held_out)) == (1800, 200)
    assert len(warnings) == 1
    assert "bad.txt" in warnings[0]


def test_a_file_holds_out_its_end(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("a" * 900 + "b" * 100, encoding="utf-8")
    assert data.read_text(path, silent) == data.Text("a" * 900, "b" * 100)


def test_lengths_that_the_held_out_text_cannot_fill_are_left_out_and_named(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("häuser und bäume. " * 200, encoding="utf-8")
    comparison = prepare(Settings(text=path, encodings=("alibi",), seeds=1))
    assert comparison.tasks[0].factors == (1.0, 2.0)
    assert "too few" in comparison.warnings[0]


def test_rare_characters_share_a_symbol(tmp_path):
    path = tmp_path / "many.txt"
    path.write_text("".join(chr(0x4E00 + index % 3000) for index in range(9000)), encoding="utf-8")
    task = prepare(Settings(text=path, encodings=("alibi",), seeds=1, lengths=(1.0,))).tasks[0]
    assert task.symbols == 1024
    assert 0 < (task.train == 0).sum() < len(task.train)


# --- series ----------------------------------------------------------------------------------------------------------


def ragged(count=12):
    rows = [np.random.default_rng(index).normal(size=(6 + index % 5, 3)) for index in range(count)]
    x = np.empty(count, dtype=object)
    x[:] = rows
    return x, np.array(["up", "down"] * (count // 2))


def test_ragged_series_and_series_padded_with_nan_are_the_same(tmp_path):
    x, y = ragged()
    np.savez(tmp_path / "ragged.npz", x=x, y=y)
    padded = np.full((12, 10, 3), np.nan)
    for row, values in zip(padded, x, strict=True):
        row[: len(values)] = values
    np.savez_compressed(tmp_path / "padded.npz", x=padded, y=y)
    first, second = (data.read_series(tmp_path / f"{name}.npz", silent) for name in ("ragged", "padded"))
    assert [len(values) for values in first.values] == [6 + index % 5 for index in range(12)]
    assert all(np.array_equal(a, b) for a, b in zip(first.values, second.values, strict=True))
    assert first.classes == ("down", "up")
    assert first.labels.tolist() == [1, 0] * 6


def test_own_series_are_compared(tmp_path):
    x, y = ragged(24)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    comparison = prepare(Settings(series=tmp_path / "data.npz", encodings=("learned-resized",), seeds=1, steps=2), TINY)
    rows = run_trial(comparison.trials[1])["rows"]
    assert "cannot" in rows["learned"]["2x"]
    assert "score" in rows["learned-resized"]["2x-squeezed"]


def test_long_series_have_several_steps_a_token(tmp_path):
    np.savez(tmp_path / "long.npz", x=np.random.default_rng(0).normal(size=(8, 1000, 2)), y=np.arange(8) % 2)
    task = prepare(Settings(series=tmp_path / "long.npz", encodings=("rotary",), seeds=1)).tasks[0]
    assert (task.shape, task.values) == ((125,), 16)


def test_object_arrays_cannot_run_code(tmp_path):
    class Attack:
        def __reduce__(self):
            return (eval, (f"open({str(tmp_path / 'run')!r}, 'w').close()",))

    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    with zipfile.ZipFile(tmp_path / "attack.npz", "w") as archive:
        for name in ("x.npy", "y.npy"):
            archive.writestr(name, header.getvalue() + pickle.dumps(Attack()))
    with pytest.raises(BadInput, match=r"builtins.eval is not an array"):
        data.read_series(tmp_path / "attack.npz", silent)
    assert not (tmp_path / "run").exists()


# --- what is refused -------------------------------------------------------------------------------------------------

TINY = Sizes(width=16, heads=2, layers=2, hidden=16)


@pytest.fixture
def refused(monkeypatch, capsys, tmp_path):
    """Run `posenc compare` in a folder; it must end with code 2 and leave the folder as it was."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        before = sorted(tmp_path.rglob("*"))
        monkeypatch.setattr(sys, "argv", ["posenc", "compare", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 2
        assert sorted(tmp_path.rglob("*")) == before
        written = capsys.readouterr()
        assert written.out == ""
        return written.err

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--encodings", "rotory"], 'unknown encoding "rotory": did you mean rotary'),
        (["--encodings", "alibi,xyzzy"], 'unknown encoding "xyzzy". Known: alibi, all,'),
        (["--encodings", "cope", "--tasks", "digits"], "--encodings: none of these fits digits: CoPE: attention must"),
        (["--encodings", ","], "--encodings is empty"),
        (["--tasks", "digit"], 'unknown task "digit": did you mean digits? Known: code, digits, images, series, text'),
        (["--tasks", "images"], "task images needs your data: pass --images DIR"),
        (["--tasks", ","], "--tasks names none"),
        (["--budget", "through"], 'unknown budget "through": did you mean thorough?'),
        (["--budget", "fast"], 'unknown budget "fast". Known: default, quick, thorough'),
        (
            ["--text", "/dev/null"],
            "--text needs a file or a folder, got /dev/null, which is neither a file nor a folder",
        ),
        (["--series", "."], "--series needs an .npz file, got ., which is a folder"),
        (["--steps", "0"], "--steps must be 1 or more, got 0"),
        (["--steps", "-3"], "--steps must be 1 or more, got -3"),
        (["--seeds", "0"], "--seeds must be 1 or more, got 0"),
        (["--jobs", "0"], "--jobs must be 1 or more, got 0"),
        (["--lengths", "1,two"], "--lengths must be numbers joined by commas, got '1,two'"),
        (["--lengths", "0"], "--lengths must be multiples of the trained length"),
        (["--lengths", "nan"], "--lengths must be multiples of the trained length"),
        (["--out", "nowhere/report.html"], "--out: the folder nowhere does not exist"),
        (["--out", "."], "--out must be a file, got the folder ."),
        (["--runs", "nowhere/deeper"], "--runs: the folder nowhere does not exist"),
        (["--images", "nowhere"], "--images needs a folder with one folder a class, got nowhere"),
        (["--text", "nowhere"], "--text needs a file or a folder, got nowhere, which does not exist"),
        (["--series", "nowhere.npz"], "--series needs an .npz file, got nowhere.npz"),
        (["--dask", "tcp://127.0.0.1:9"], "no Dask scheduler answers at tcp://127.0.0.1:9"),
    ],
)
def test_bad_options(refused, arguments, message, monkeypatch):
    monkeypatch.setattr(sweep.connect, "__defaults__", (0.5,))
    assert message in refused(*arguments)


def test_an_empty_folder_one_class_and_no_readable_image(refused, tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    assert "no images in the class folders of pictures" in refused("--images", "pictures")
    save(folder / "only" / "a.png", (9, 9))
    save(folder / "only" / "b.png", (9, 9))
    assert "at least two classes, got one (only)" in refused("--images", "pictures")
    (folder / "other").mkdir()
    (folder / "other" / "c.png").write_bytes(b"nothing")
    assert "at least two classes, got one (only)" in refused("--images", "pictures")
    save(folder / "other" / "c.png", (9, 9))
    (folder / "only" / "b.png").unlink()
    assert "every class has a single example" in refused("--images", "pictures")


def test_text_that_is_too_short_or_no_text(refused, tmp_path):
    (tmp_path / "short.txt").write_text("x" * 700)
    error = refused("--text", "short.txt")
    assert "text: text shorter than a window, got 630 characters to train on and 70 held out" in error
    (tmp_path / "empty.txt").write_text("")
    assert "shorter than a window" in refused("--text", "empty.txt")
    (tmp_path / "latin.txt").write_bytes("né".encode("latin-1") * 100)
    assert "--text needs UTF-8, got latin.txt with a bad byte at 1" in refused("--text", "latin.txt")
    (tmp_path / "none").mkdir()
    assert "no text in none" in refused("--text", "none")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((4, 5, 2))}, "--series needs arrays x and y, got ['x']"),
        ({"y": np.arange(4)}, "--series needs arrays x and y, got ['y']"),
        ({"x": np.zeros((4, 5, 2, 1)), "y": np.arange(4)}, "x must be [N, T, C]"),
        ({"x": np.zeros((4, 5, 2)), "y": np.arange(3)}, "y must have one label a series, got (3,) labels for 4"),
        ({"x": np.zeros((4, 5, 2)), "y": np.ones(4)}, "at least two classes, got one (1.0)"),
        (
            {"x": np.zeros((2, 5, 2)), "y": np.array([1, np.nan])},
            "y must have a label for each series, got np.float64(nan) at 1",
        ),
        ({"x": np.zeros((2, 5, 2)), "y": np.array([None, "a"])}, "y must have a label for each series, got None at 0"),
        ({"x": np.full((4, 5, 2), np.inf), "y": np.arange(4) % 2}, "series 0 in data.npz is empty or has numbers"),
        ({"x": np.full((4, 5, 2), np.nan), "y": np.arange(4) % 2}, "series 0 in data.npz is empty or has numbers"),
        ({"x": np.array([["a"] * 5] * 4), "y": np.arange(4) % 2}, "series 0 in data.npz holds no numbers"),
        ({"x": np.zeros((2, 5, 2)), "y": np.arange(2)}, "every class has a single example"),
    ],
)
def test_series_that_cannot_be_used(refused, tmp_path, arrays, message):
    np.savez(tmp_path / "data.npz", **arrays)
    assert message in refused("--series", "data.npz")


def test_a_file_that_is_no_archive(refused, tmp_path):
    (tmp_path / "data.npz").write_bytes(b"no zip")
    assert "data.npz is no readable .npz file" in refused("--series", "data.npz")


def test_options_that_contradict_each_other(refused, tmp_path):
    (tmp_path / "a.txt").write_text("text " * 1000)
    assert "--text is given but --tasks leaves text out" in refused("--text", "a.txt", "--tasks", "digits")
    (tmp_path / "kept").write_text("")
    assert "--runs must be a folder, got the file kept" in refused("--text", "a.txt", "--runs", "kept")


def test_dask_without_its_package_names_the_extra(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert 'pip install "posenc[cluster]"' in refused("--dask", "tcp://127.0.0.1:8786")


def test_near_names():
    assert "did you mean alibi" in str(near("encoding", "ALiBI", ["alibi", "rotary"]))


def test_the_command_reproduces_its_options():
    settings = Settings(tasks=("code",), lengths=(1.0, 2.5), seeds=4, budget="quick")
    assert settings.command() == "posenc compare --tasks code --seeds 4 --lengths 1,2.5 --budget quick"


def test_help_has_an_example():
    program = [sys.executable, "-m", "posenc", "compare", "--help"]
    found = subprocess.run(program, capture_output=True, text=True, check=True)
    assert "Example: posenc compare --text notes.txt" in found.stdout


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("RelativePositionBias", "relative-position-bias"),
        ("T5Bias", "t5"),
        ("ROTARY", "rotary"),
        ("learned_resized", "learned-resized"),
    ],
)
def test_encodings_by_the_names_of_the_catalogue(typed, meant):
    assert spelled(typed) == meant


def test_sixteen_bits_keep_their_contrast(tmp_path):
    ramp = np.linspace(0, 65535, 64).reshape(8, 8)
    for name, scale in (("dark", 0.25), ("light", 1.0)):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.fromarray((ramp * scale).astype(np.uint16)).save(tmp_path / name / f"{number}.png")
    pixels = data.read_images(tmp_path, pytest.fail).pixels
    assert pixels[:4].max() == pytest.approx(0.25, abs=0.03)
    assert 0.4 < pixels[4:].mean() < 0.6


def test_a_class_without_an_image_is_named(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        if name != "c":
            for number in range(3):
                Image.new("L", (8, 8), 40 * number).save(tmp_path / name / f"{number}.png")
    warnings = []
    assert data.read_images(tmp_path, warnings.append).classes == ("a", "b")
    assert warnings == [f"{tmp_path / 'c'} has no image that can be read: it is no class"]


def test_series_on_a_large_offset_keep_their_content(tmp_path):
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(12, 9, 1)), np.arange(12) % 2
    for offset in (0.0, 1.7e9):
        np.savez(tmp_path / "s.npz", x=x + offset, y=y)
        series = data.read_series(tmp_path / "s.npz", pytest.fail)
        assert np.concatenate(series.values).std() == pytest.approx(x.std(), rel=1e-3)


def test_complex_series_are_refused(tmp_path):
    np.savez(tmp_path / "s.npz", x=np.zeros((4, 5, 1), complex), y=np.arange(4) % 2)
    with pytest.raises(BadInput, match="holds no numbers but complex128: x must be real"):
        data.read_series(tmp_path / "s.npz", pytest.fail)


def test_what_it_writes_is_no_text(tmp_path):
    (tmp_path / "notes.txt").write_text("words " * 1000)
    plain = data.read_text(tmp_path, pytest.fail)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "k.json").write_text("{}" * 1000)
    (tmp_path / "report.html").write_text("<p>" * 1000)
    own = (tmp_path / "report.html", tmp_path / "runs")
    assert data.read_text(tmp_path, pytest.fail, own) == plain


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"out": Path("thesis.tex")}, "--out must end in .html"),
        ({"text": Path("notes.html"), "out": Path("notes.html")}, "--text and what is written must differ"),
    ],
)
def test_nothing_of_yours_is_overwritten(tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    Path("notes.html").write_text("words " * 1000)
    with pytest.raises(BadInput, match=message):
        prepare(Settings(**given))


def test_lengths_that_read_alike_are_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    comparison = prepare(
        Settings(tasks=("digits",), encodings=("rotary",), seeds=1, lengths=(1.0000001, 1.5, 1.50000001))
    )
    assert comparison.tasks[0].factors == (1.0, 1.5)
