"""What must be reached beside what was, and the files and pages of the scripts in `benchmarks/`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from posenc.bench import goals, peers, report
from posenc.bench.goals import Goal, Required, Result
from posenc.bench.rows import Row
from posenc.bench.setting import Setting, Subject
from posenc.bench.timing import Ratio

SCRIPTS = Path(__file__).parent.parent / "benchmarks"
SETTING = Setting((6,), heads=2, head_dim=8)
PEER = next(peer for peer in peers.PEERS if peer.scheme == "ALiBi" and not peer.compiled)


def measured(subject: Subject, inference: float, training: float | None = None, extra: float = 0.0) -> Row:
    times = [each and Ratio(each, each, each, 1.0, 3) for each in (inference, training)]
    return Row(
        subject, SETTING, inference=times[0], training=times[1], inference_memory=extra, inference_memory_plain=0.0
    )


@pytest.mark.parametrize(
    ("row", "missed"),
    [
        (measured(Subject("ALiBi"), 0.9, 1.0, 20.0), []),
        (measured(Subject("ALiBi"), 0.97, 1.2, 20.0), ["inference", "training"]),
        (measured(Subject("ALiBi"), 0.9, None, 25.0), ["inference_extra"]),
        (Row(Subject("ALiBi"), SETTING, refused="no room"), ["inference", "training", "inference_extra"]),
    ],
)
def test_what_is_missed_is_named(row: Row, missed: list[str]) -> None:
    assert goals._missed(row, Required(0.95, 1.1, 24.0), {}) == missed


def test_it_is_missed_to_be_behind_a_peer() -> None:
    rivals = [measured(Subject("ALiBi", way=PEER.name), 0.8), measured(Subject("ALiBi", way=PEER.name), 2.0, 1.5)]
    fastest = {name: goals._fastest(rivals, name) for name in ("inference", "training")}
    assert fastest == {
        "inference": {"name": PEER.name, "ratio": 0.8},
        "training": {"name": PEER.name, "ratio": 1.5},
    }
    own = measured(Subject("ALiBi"), 0.9, 1.0)
    assert goals._missed(own, Required(0.95, 1.1), fastest) == [f"inference: behind {PEER.name}"]


@pytest.mark.parametrize(
    ("subject", "setting", "names"),
    [
        (Subject("Rotary"), Setting((4,)), {"llama.apply_rotary_pos_emb", "rotate_queries_or_keys"}),
        (Subject("RelativeLogits"), Setting((4, 4)), {"PosEmbedRel (BoTNet)"}),
        (Subject("RelativeLogits", (("scaled", False),)), Setting((4, 4)), {"get_decomposed_rel_pos_bias (SAM)"}),
        (Subject("Shaw", (("max_distance", 9), ("values", False))), Setting((4,)), {"wav2vec2_bert's relative keys"}),
        (Subject("Shaw"), Setting((4,)), set()),
        (Subject("T5Bias", frozen=True), Setting((4,)), set()),
        (Subject("ALiBi", way="ready"), Setting((4,)), set()),
        (Subject("ALiBi", (("learned", True),)), Setting((4,)), set()),
    ],
)
def test_rivals_compute_the_same(subject: Subject, setting: Setting, names: set[str]) -> None:
    rivals = goals._rivals(subject, setting)
    codes = {peers.NAMES[rival.way].code for rival in rivals}
    assert names <= codes
    assert bool(names) == bool(codes)
    for rival in rivals:
        assert dict(subject.options).items() <= dict(rival.options).items()
    if names == {"PosEmbedRel (BoTNet)"}:
        assert not any("SAM" in code or "vitdet" in code for code in codes)


@pytest.mark.filterwarnings("default")  # what peers deprecate is no failure of ours
def test_a_goal_is_pursued_in_its_dtype_with_its_peers() -> None:
    goal = Goal("a goal", SETTING, (Subject("ALiBi"),), {"bfloat16": Required(1e9, 1e9, 1e9, 1e9)}, train=False)
    options = {"repeats": 1, "memory": None, "error": False, "say": lambda text: None}
    own, *others = goals.pursue(goal, "bfloat16", with_peers=True, **options)
    assert (own.row.name, own.row.setting.dtype) == ("ALiBi", "bfloat16")
    assert own.required == Required(1e9, None, 1e9, None)  # nothing of training, where there is none
    assert {result.row.subject.way for result in others} == {
        peer.name for peer in peers.of("ALiBi", SETTING) if not dict(peer.options).get("learned")
    }
    assert all(result.required == Required() and not result.missed for result in others)
    (alone,) = goals.pursue(goal, "float32", with_peers=False, **options)
    assert (alone.required, alone.missed, alone.fastest_peer) == (Required(), [], {})


def test_a_report_is_written_after_each_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks/attention.py", "--only", "a b"])
    monkeypatch.setenv("POSENC_CPU_LEVEL", "baseline")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    path = tmp_path / "found.json"
    written = report.Report("A title", path, train=True)
    command = "POSENC_CPU_LEVEL=baseline python benchmarks/attention.py --only 'a b'"
    assert f"command: {command}\n" in capsys.readouterr().out
    required = Required(0.95, 1.0)
    written.add(Result("a goal", measured(Subject("ALiBi"), 0.97, 0.9), required, ["inference"], {}))
    text = capsys.readouterr().out
    assert "a goal, float32: inference at most 0.95, training at most 1\nALiBi " in text
    assert text.endswith("  MISSED: inference\n")
    assert len(json.loads(path.read_text())["results"]) == 1
    written.add(Result("a goal", measured(Subject("ALiBi", way=PEER.name), 2.0), Required(), [], {}))
    written.add(Result("another", Row(Subject("IRPE"), SETTING, refused="IRPE is left out: why"), Required(), [], {}))
    found = json.loads(path.read_text())
    assert (found["title"], found["command"]) == ("A title", command)
    assert found["results"][0]["missed"] == ["inference"]
    assert found["results"][0]["row"]["inference"]["ratio"] == 0.97
    assert "cpu" in found["about"]
    page = path.with_suffix(".md").read_text()
    assert page.startswith(f"# A title\n\n    {command}\n")
    assert "## a goal, float32\n\nRequired: inference at most 0.95, training at most 1.\n" in page
    assert "| **0.97 (0.97–0.97)** |" in page
    assert f"| &emsp;{PEER.name} |" in page
    assert "| 0.0 |" in page
    assert "IRPE is left out: why" in page


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("attention.py", ["--only", "no encoding", "--tokens", "16", "--dtypes", "bfloat16"], "no encoding (causal)"),
        ("attention.py", ["--only", "evaluated in the call", "--tokens", "16", "--no-peers"], "1 of 16"),
        ("growth.py", ["--lengths", "4,8", "--sides", "2", "--schemes", "ALiBi,RelativePositionBias"], "2×2"),
        ("sizes.py", ["clipped"], "SinusoidalLogits"),
    ],
)
def test_the_scripts_run(tmp_path: Path, script: str, arguments: list[str], expected: str) -> None:
    path = tmp_path / "another" / "found.json"
    command = [sys.executable, str(SCRIPTS / script), *arguments, "--repeats", "1", "--json", str(path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert expected in finished.stdout
    assert "… " in finished.stderr
    assert json.loads(path.read_text())["results"]
    assert expected in path.with_suffix(".md").read_text()


def test_a_script_refuses_what_it_does_not_know() -> None:
    for script, arguments, message in [
        ("attention.py", ["--only", "nothing of it"], "--only must be in a name, got 'nothing of it': give part of "),
        ("sizes.py", ["huge"], "unknown size huge: give some of image, "),
    ]:
        finished = subprocess.run(
            [sys.executable, str(SCRIPTS / script), *arguments], capture_output=True, text=True, check=False
        )
        assert finished.returncode == 2
        assert message in finished.stderr
