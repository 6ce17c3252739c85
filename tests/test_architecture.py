"""The house stands as it was drawn: floors, public names, and what may be imported where."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import posenc
from posenc import catalog

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "posenc"

FLOORS: list[set[str]] = [
    {"buckets", "checks", "foreign", "kernels", "reference", "scaling", "skewing"},
    {"catalog", "tokens"},
    {"layout", "resize"},
    {"positions", "sinusoid", "windows"},
    {"relative", "mask"},
    {"term"},
    {"encoding", "plan"},
    {"embedding", "inside", "validate"},
    {"schemes", "backends"},
    {"attend"},
    {"layer"},
    {"plots", "steps", "bench", "compare"},
    {"cli"},
    {"__main__"},
]
FLOOR = {module: number for number, modules in enumerate(FLOORS) for module in modules}
PACKAGES = {
    "bench",
    "catalog",
    "cli",
    "compare",
    "inside",
    "kernels",
    "plots",
    "reference",
    "scaling",
    "term",
}  # whose modules may import each other
PUBLIC_ONLY = {"plots", "steps", "bench", "compare"}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def home(path: Path) -> str:
    """The module or package directly below posenc."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def within(path: Path, name: str) -> bool:
    """Whether an import stays in the file's own package, or in its own backend."""
    parts, names = path.relative_to(SOURCE).parts, name.split(".")
    depth = 2 if parts[0] == "backends" else 1
    return len(parts) > depth and names[1 : 1 + depth] == list(parts[:depth]) and parts[0] in (*PACKAGES, "backends")


def imported(path: Path) -> list[str]:
    """Dotted names below posenc that a file imports: `posenc` alone for `import posenc` and its public names."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.split(".")[0] == "posenc"]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "posenc":
            submodules = {file.stem for file in SOURCE.glob("*.py")} | {"schemes", "backends", "compare", "kernels"}
            below = node.module == "posenc"
            names += [
                f"posenc.{alias.name}" if below and alias.name in submodules else node.module for alias in node.names
            ]
    return names


def test_every_module_has_a_floor() -> None:
    assert {home(path) for path in FILES} == set(FLOOR)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_from_lower_floors_alone(path: Path) -> None:
    here = home(path)
    for name in imported(path):
        if name == "posenc":  # the public interface, for those above it
            assert FLOOR[here] >= FLOOR["plots"], f"{here} imports the package that it is part of"
            continue
        there = name.split(".")[1]
        if within(path, name):
            continue
        assert FLOOR[there] < FLOOR[here], f"{here} (floor {FLOOR[here]}) imports {there} (floor {FLOOR[there]})"
        if here in PUBLIC_ONLY:
            assert there in posenc.__all__, f"{here} imports {name}: it may use public names only"


@pytest.mark.parametrize("path", [path for path in FILES if home(path) in PUBLIC_ONLY], ids=lambda path: path.name)
def test_programs_use_public_names_alone(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "posenc":
            assert node.attr in [*posenc.__all__, "__version__"], f"{path.name} uses posenc.{node.attr}"


def test_schemes_and_backends_do_not_meet() -> None:
    for path in FILES:
        if home(path) in ("schemes", "backends"):
            others = [name for name in imported(path) if not within(path, name)]
            assert not [name for name in others if name.split(".")[1:2] in (["schemes"], ["backends"])]


def test_public_names_are_sorted_there_and_documented() -> None:
    assert posenc.__all__ == sorted(posenc.__all__)
    for name in posenc.__all__:
        assert getattr(posenc, name).__doc__, f"posenc.{name} has no docstring"
    assert set(posenc.__all__) <= set(dir(posenc))


def test_names_for_type_checkers_are_the_lazy_ones() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    homes = {alias.name: node.module for node in block.body for alias in node.names}  # type: ignore[attr-defined]
    assert sorted(homes) == posenc.__all__
    for name, module in homes.items():
        if name not in ("catalog", "reference", "scaling"):
            assert posenc._HOME[name] == module.removeprefix("posenc.")


def test_cards_are_the_public_schemes() -> None:
    places = (posenc.Absolute, posenc.RotaryEncoding, posenc.BiasEncoding, posenc.ContentEncoding, posenc.Conditional)
    schemes = {
        name
        for name in posenc.__all__
        if isinstance(getattr(posenc, name), type)
        and issubclass(getattr(posenc, name), places)
        and getattr(posenc, name) not in places
    }
    assert schemes == {card.name for card in catalog.CARDS}
    for card in catalog.CARDS:
        assert getattr(posenc, card.name).place == card.place


def test_the_readme_lists_every_card() -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `")]
    listed = {row.split("`")[1].split("(")[0]: row for row in rows}
    assert set(listed) == {card.name for card in catalog.CARDS}
    for card in catalog.CARDS:
        assert card.place in listed[card.name]
        assert str(card.year) in listed[card.name]


def test_the_readme_holds_the_lines_of_the_interface() -> None:
    example = (ROOT / "examples" / "first_steps.py").read_text()
    lines = [
        line for line in (ROOT / "README.md").read_text().split("```python")[1].split("```")[0].splitlines() if line
    ]
    assert len(lines) >= 10
    for line in lines:
        assert line in example, f"the examples do not run this line of the README: {line}"


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import posenc", "torch numpy"),
        ("from posenc import catalog; catalog.CARDS", "torch numpy"),
        ("import posenc.reference", "torch"),
        ("import posenc; posenc.attention", "matplotlib typer rich sklearn joblib jinja2 PIL"),
    ],
)
def test_optional_imports_stay_optional(program: str, absent: str) -> None:
    check = f"{program}\nimport sys\nprint([name for name in {absent.split()!r} if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"
