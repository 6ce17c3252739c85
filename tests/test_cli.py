"""The command line: what it prints, what it writes, how it ends."""

import json
import os
import subprocess
import sys

import pytest

from posenc import catalog, cli
from posenc.cli.listing import page, table
from posenc.cli.show import SHAPES

STARTS = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml"}


@pytest.fixture
def posenc(monkeypatch, capsys, tmp_path):
    """Run a command in an empty folder: `posenc("list", "--json")` → exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["posenc", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        written = capsys.readouterr()
        if isinstance(code, str):  # sys.exit(message): Python prints it on stderr and ends with 1
            return 1, written.out, written.err + code
        return code or 0, written.out, written.err

    return run


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ | environment
    )


def test_version(posenc):
    from posenc import __version__

    assert posenc("--version") == (0, f"posenc {__version__}\n", "")


def test_a_scheme_is_drawn_where_it_can_stand(posenc, tmp_path):
    assert posenc("show", "IRPE", "--dim", "8")[0] == 0  # on a grid, for want of a size
    code, _, err = posenc("show", "IRPE", "--length", "8")
    assert (code, err) == (2, "posenc: IRPE has 2 axes, got shape (8,): give it 2 sizes\n")


@pytest.mark.parametrize("command", ["list", "show", "bench", "compare"])
def test_every_command_has_help_with_an_example(posenc, command):
    code, out, err = posenc(command, "--help")
    assert (code, err) == (0, "")
    assert f"Example: posenc {command}" in out


def test_no_arguments_and_unknown_commands_are_usage_errors(posenc):
    assert posenc()[0] == 2
    code, out, err = posenc("lsit")
    assert (code, out) == (2, "")
    assert "lsit" in err


# --- list ------------------------------------------------------------------------------------------------------------


HEADINGS = ["scheme", "place", "year", "axes", "trained", "relative", "peers", "laws", "paper", "parameters", "title"]


def words(value: bool) -> str:
    return "yes" if value else "no"


def columns(out: str) -> list[dict[str, str]]:
    """The cells of a printed table by their headings, read at the places where the headings stand."""
    heading, *lines = out.splitlines()
    starts = [heading.index(name) for name in HEADINGS]
    ends = [*starts[1:], None]
    return [
        {name: line[start:end].strip() for name, start, end in zip(HEADINGS, starts, ends, strict=True)}
        for line in lines
    ]


def test_the_columns_of_list_are_those_of_the_cards(posenc):
    code, out, err = posenc("list")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == HEADINGS
    shown = columns(out)
    assert len(shown) == len(catalog.CARDS)
    for row, card in zip(shown, catalog.CARDS, strict=True):
        assert row == {
            "scheme": card.name,
            "place": card.place,
            "year": str(card.year),
            "axes": card.axes,
            "trained": words(card.trained),
            "relative": words(card.relative),
            "peers": str(len(card.peers)) if card.peers else "loop",
            "laws": f"all−{len(card.exempt)}" if card.exempt else "all",
            "paper": card.paper.partition("arXiv:")[2][:10],
            "parameters": card.parameters,
            "title": card.title,
        }
    assert {row["peers"] for row in shown} > {"loop"}


@pytest.mark.parametrize("name", [card.name for card in catalog.CARDS])
def test_the_page_of_a_scheme_says_what_its_card_says(posenc, name):
    code, out, err = posenc("list", name)
    assert (code, err) == (0, "")
    card = catalog.card(name)
    heading, *lines = out.splitlines()
    assert heading == f"{card.name}: {card.title}"
    said = {}
    for line in lines:
        label = line[:14].strip() or label
        said.setdefault(label, []).append(line[14:])
    assert said == {
        "place": [card.place],
        "paper": [f"{card.paper} ({card.year})"],
        "equation": [card.equation],
        "axes": [card.axes],
        "trained": [words(card.trained)],
        "parameters": [card.parameters],
        "relative": ["yes, on relative position alone" if card.relative else "no, on more than relative position"],
        **({"attention": ["must be causal"]} if card.causal else {}),
        "laws": [f"all but {law}: {why}" for law, why in card.exempt.items()] or ["all"],
        "peers": list(card.peers) or [f"none is packaged; a second loop: {card.second}"],
        "reference": [f"posenc.reference.{card.reference}"],
    }


def test_list_of_several_names_in_any_spelling(posenc):
    code, out, _ = posenc("list", "t5-bias", "ALIBI")
    assert code == 0
    pages = out.split("\n\n")
    assert [page.partition(":")[0] for page in pages] == ["T5Bias", "ALiBi"]
    for arguments, message in (
        (["T6Bias"], "unknown scheme 'T6Bias': did you mean T5Bias"),
        (["ALiBi", "--place", "bias"], "--place chooses"),
    ):
        code, out, err = posenc("list", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(f"posenc: {message}")


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_list_fits_a_terminal(width):
    lines = table(list(catalog.CARDS), width)
    assert max(map(len, lines)) <= width
    assert len(lines) == len(catalog.CARDS) + 1
    shown = lines[0].split()
    assert shown == HEADINGS[: len(shown)]
    assert len(shown) >= {40: 2, 80: 8, 120: 10, 200: 10}[width]
    wrapped = page(catalog.card("Deberta"), width)
    assert max(map(len, (line for line in wrapped.splitlines()[1:] if "transformers.models" not in line))) <= width


def test_list_as_json_says_what_the_cards_say(posenc):
    code, out, _ = posenc("list", "--json")
    assert code == 0
    read = json.loads(out)
    said = set(catalog.Card._fields) - {"numbers"}  # a function
    for found, card in zip(read, catalog.CARDS, strict=True):
        assert set(found) == said
        given = card._asdict() | {"exempt": dict(card.exempt)}
        assert found == json.loads(json.dumps({name: given[name] for name in said}, default=repr))
    (rotary,) = json.loads(posenc("list", "multimodal-rotary", "--json")[1])
    assert rotary["examples"][2]["scaling"].startswith("yarn(factor=4")


def test_list_of_one_place(posenc):
    _, out, _ = posenc("list", "--place", "content")
    names = [card.name for card in catalog.CARDS if card.place == "content"]
    assert [line.split()[0] for line in out.splitlines()[1:]] == names
    code, out, err = posenc("list", "--place", "nowhere")
    assert (code, out) == (2, "")
    assert err == "posenc: --place must be one of absolute, rotary, bias, content, conditional, got 'nowhere'\n"


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["show", "--help"]])
def test_light_commands_leave_heavy_packages_alone(arguments):
    program = (
        f"import sys; sys.argv = ['posenc', *{arguments}]\n"
        "from posenc.cli import main\n"
        "try: main()\n"
        "finally: print(sorted({'torch', 'numpy', 'matplotlib', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    answer = python(program)
    assert answer.returncode == 0
    assert answer.stderr.strip() == "[]"


# --- show ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [card.name for card in catalog.CARDS])
def test_show_draws_every_scheme(posenc, tmp_path, name):
    card = catalog.card(name)
    size = ("--length", "7") if len(SHAPES[card.axes]) == 1 else ("--grid", "x".join("3" * len(SHAPES[card.axes])))
    code, out, err = posenc("show", name, *size, "--dim", "16", "--heads", "3")
    assert (code, err) == (0, "")
    assert out.splitlines() == [card.title, card.equation, card.paper, f"wrote {name.lower()}.png"]
    assert (tmp_path / f"{name.lower()}.png").read_bytes().startswith(STARTS[".png"])


@pytest.mark.parametrize("name", [card.name for card in catalog.CARDS if card.axes == "any"])
@pytest.mark.parametrize("grid", ["2x3", "2x3x2"])
def test_show_draws_grids(posenc, tmp_path, name, grid):
    code, _, err = posenc("show", name, "--grid", grid, "--dim", "48", "--out", "picture.png")
    assert (code, err) == (0, "")
    assert (tmp_path / "picture.png").read_bytes().startswith(STARTS[".png"])


@pytest.mark.parametrize("ending", [".png", ".svg", ".SVG"])
@pytest.mark.parametrize("name", ["relative_to_absolute", "skew", "ALiBi"])
def test_the_ending_decides_the_format(posenc, tmp_path, name, ending):
    path = tmp_path / f"picture{ending}"
    code, out, err = posenc("show", name, "--length", "3", "--out", str(path))
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"wrote {path}"
    assert path.read_bytes().startswith(STARTS[ending.lower()])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Rotery"], "unknown scheme 'Rotery': did you mean Rotary? `posenc list` shows them all"),
        (["relative_to_absolut"], "unknown scheme 'relative_to_absolut': did you mean relative_to_absolute"),
        (["qqq"], "unknown scheme 'qqq': `posenc list` shows them all"),
        (["Rotary", "--out", "a.pdf"], "--out must end in .png or .svg, got 'a.pdf'"),
        (["Rotary", "--out", "rotary"], "--out must end in .png or .svg, got 'rotary'"),
        (["Rotary", "--out", "no/a.png"], "--out: the folder 'no' does not exist: create it first"),
        (["Rotary", "--grid", "14"], "--grid must be sizes joined by x, got '14': for example --grid 14x14"),
        (["Rotary", "--grid", "3x0"], "--grid must be sizes joined by x, got '3x0': for example --grid 14x14"),
        (["Rotary", "--grid", "axb"], "--grid must be sizes joined by x, got 'axb': for example --grid 14x14"),
        (["Rotary", "--grid", "3x3", "--length", "9"], "--length and --grid exclude each other: give one"),
        (["ALiBi", "--grid", "3x3"], "ALiBi has one axis, got shape (3, 3): give it one length"),
        (["Rotary", "--dim", "7"], "head_dim must be even for rotary, got 7: give --dim 6\n"),
        (["XPos", "--dim", "7"], "head_dim must be even for rotary, got 7: give --dim 6\n"),
        (["relative_to_absolute", "--length", "9"], "--length must be 2 to 6 for relative_to_absolute, got 9"),
        (["skew", "--grid", "2x2"], "skew works along one axis: give --length instead of --grid"),
    ],
)
def test_bad_input_to_show_is_one_message_and_nothing_written(posenc, tmp_path, arguments, message):
    code, out, err = posenc("show", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"posenc: {message}")
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file_to_write(posenc, tmp_path):
    (tmp_path / "folder.png").mkdir()
    assert posenc("show", "ALiBi", "--out", "folder.png") == (
        2,
        "",
        "posenc: --out: 'folder.png' is a folder: give a file name\n",
    )


def test_values_that_are_no_numbers_are_usage_errors(posenc, tmp_path):
    for arguments in (["--length", "abc"], ["--length", "0"], ["--heads", "-1"]):
        code, out, err = posenc("show", "Rotary", *arguments)
        assert (code, out) == (2, "")
        assert arguments[0] in err
    assert list(tmp_path.iterdir()) == []


# --- bench -----------------------------------------------------------------------------------------------------------

SMALL = ("--heads", "2", "--head-dim", "8", "--repeats", "1")


def test_bench_as_json(posenc):
    code, out, _ = posenc("bench", "--schemes", "rotary,ALiBi", "--grids", "2x3", *SMALL, "--json", "--train")
    assert code == 0
    read = json.loads(out)
    assert {"cpu", "cores", "torch", "threads", "posenc_level", "repeats", "rows", "left_out"} <= set(read)
    assert read["left_out"] == []
    assert [(row["name"], row["setting"]["shape"]) for row in read["rows"]] == [
        ("Rotary", [6]),
        ("Rotary", [2, 3]),
        ("ALiBi", [6]),
    ]
    assert all(row["training"]["ratio"] > 0 for row in read["rows"])


def test_bench_as_a_table(posenc):
    code, out, _ = posenc("bench", "--schemes", "Rotary", "--lengths", "5,7", "--grids", "2x3,3x3", *SMALL)
    assert code == 0
    title, heading, *lines = out.splitlines()
    assert title.startswith("batch 1, 2 heads of 8, float32, cpu, threads: ")
    assert heading.split()[:4] == ["name", "tokens", "backend", "inference"]
    assert "training" not in heading
    assert [line.split()[:2] for line in lines[:4]] == [["Rotary", size] for size in ("5", "7", "2×3", "3×3")]
    assert lines[4] == ""


def test_bench_trains_when_asked_and_takes_the_backend_that_is_asked_for(posenc):
    code, out, _ = posenc("bench", "--schemes", "ALiBi", "--lengths", "5", "--backend", "dense", "--train", *SMALL)
    assert code == 0
    assert "training" in out.splitlines()[1]
    assert out.splitlines()[2].split()[:3] == ["ALiBi", "5", "dense"]


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_bench_of_what_no_backend_can_says_why(posenc, as_json):
    options = ["--lengths", "5", "--backend", "sdpa", *SMALL, *as_json]
    code, out, err = posenc("bench", "--schemes", "ALiBi,Shaw", *options)
    assert (code, out) == (2, "")
    title, *reasons = err.splitlines()
    assert title == "posenc: nothing can be measured with these options:"
    cannot = "is left out: backend 'sdpa' cannot compute this: a term is left in the logits"
    assert [line.startswith(f"{name} {cannot}") for line, name in zip(reasons, ("ALiBi", "Shaw"), strict=True)]
    code, out, _ = posenc("bench", "--schemes", "ALiBi,Rotary", *options)
    assert code == 0
    assert f"ALiBi {cannot}" in out


def test_bench_warns_of_a_busy_machine_and_of_it_alone(posenc, monkeypatch):
    from posenc.bench import text

    options = ["--schemes", "ALiBi,alibi", "--lengths", "5,5", "--json", *SMALL]  # one turn is its own median
    code, out, err = posenc("bench", *options)
    assert (code, err) == (0, "")
    assert len(json.loads(out)["rows"]) == 1
    monkeypatch.setattr(text, "STEADY", -1.0)
    code, out, err = posenc("bench", *options)
    assert code == 0
    assert len(json.loads(out)["rows"]) == 1
    assert err.startswith("warning: in 1 of 1 rows a turn is more than ")


def test_bench_of_all_says_what_cannot_have_these_sizes(posenc, monkeypatch):
    monkeypatch.setattr(catalog, "CARDS", tuple(catalog.card(name) for name in ("Rotary", "ALiBi", "IRPE")))
    code, out, _ = posenc("bench", "--grids", "2x2x2", *SMALL)
    assert code == 0
    assert out.splitlines()[-1] == "IRPE is left out: IRPE has 2 axes, got shape (2, 2, 2): give it 2 sizes"


def test_bench_names_the_packages_of_peers_that_are_not_installed(posenc, monkeypatch):
    from posenc import bench

    monkeypatch.setattr(bench.peers, "missing", lambda package: f"{package} is not here")
    code, out, _ = posenc("bench", "--schemes", "ALiBi", "--lengths", "5", "--peers", *SMALL)
    assert code == 0
    assert "timm is not here" in out.splitlines()
    assert [line.split()[0] for line in out.splitlines()[2:4] if line] == ["ALiBi"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schemes", "Rotery"], "unknown scheme 'Rotery': did you mean Rotary?"),
        (["--dtype", "int8"], "dtype must be one of float32, bfloat16, float16, float64, got 'int8': for example "),
        (["--dtype", "bf16"], "dtype must be one of float32, bfloat16, float16, float64, got 'bf16': did you mean b"),
        (["--schemes", "Rotary", "--head-dim", "7"], "head_dim must be even"),
        (["--device", "nowhere"], "device must be one that torch can use here, got 'nowhere'"),
        (["--device", "meta"], "device must be one that computes, got 'meta'"),
        (["--backend", "slow"], "backend must be one of auto, "),
        (["--lengths", "9999999999"], "9999999999 tokens need 76294 GiB for q, k, v and the"),
        (["--schemes", "IRPE", "--lengths", "7"], "IRPE has 2 axes, got lengths alone: give grids"),
        (["--lengths", "8,0"], "--lengths must be numbers of tokens joined by commas, got '8,0': for example "),
        (["--lengths", "8 9"], "--lengths must be numbers of tokens joined by commas, got '8 9': for example "),
        (["--grids", "4"], "--grids must be sizes joined by x, and grids by commas, got '4': for example "),
        (["--grids", "4x4,3x0"], "--grids must be sizes joined by x, and grids by commas, got '4x4,3x0': for example"),
        (["--grids", "axb"], "--grids must be sizes joined by x, and grids by commas, got 'axb': for example "),
    ],
)
def test_bad_input_to_bench(posenc, arguments, message):
    code, out, err = posenc("bench", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"posenc: {message}")
    assert len(err.splitlines()) == 1


# --- packages that are not installed ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("typer", ["list"], "cli"),
        ("matplotlib", ["show", "ALiBi"], "plots"),
        ("rich", ["bench"], "cli"),
    ],
)
def test_a_missing_package_gives_the_command_that_installs_it(tmp_path, package, arguments, extra):
    program = (
        f"import sys; sys.argv = ['posenc', *{arguments}]; sys.modules[{package!r}] = None\n"
        "from posenc.cli import main\n"
        "main()"
    )
    answer = python(program)
    assert answer.returncode == 1
    assert answer.stdout == ""
    expected = f'posenc: this command needs {package}, which is not installed: pip install "posenc[{extra}]"\n'
    assert answer.stderr == expected
