"""The report: complete in itself, readable by everyone, and no sentence that the numbers do not bear."""

import dataclasses
import html.parser
import json
import re
import sys
from unittest import mock

import numpy as np
import pytest
from rich.console import Console

from posenc import cli
from posenc.compare import Settings, compare, cost
from posenc.compare.answers import answers, beyond, headline
from posenc.compare.encodings import CONTESTANTS, Sizes, contestant, title
from posenc.compare.figures import style
from posenc.compare.findings import consistency, findings
from posenc.compare.settings import prepare
from posenc.compare.summary import Row, TaskSummary
from posenc.compare.tasks import Task

TINY = Sizes(width=16, heads=2, layers=2, hidden=16)
VOID = {"meta", "link", "img", "br", "hr", "input", "use", "path", "image"}


class Page(html.parser.HTMLParser):
    """Collects what a page is made of, and that its elements nest."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.attributes, self.svgs, self.identifiers = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        self.attributes.append((tag, found))
        if tag == "svg":
            self.svgs.append(found)
        if "id" in found:
            self.identifiers.append(found["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A comparison of everything at once, as small as it gets: the page and the summaries."""
    folder = tmp_path_factory.mktemp("report")
    words = np.random.default_rng(0).choice(["one", "two", "three", "four", "<script>five</script>"], 2500)
    (folder / "words.txt").write_text(" ".join(words))
    settings = Settings(
        tasks=("digits", "text"),
        text=folder / "words.txt",
        encodings=("rotary", "learned-resized", "learned", "relative-position-bias", "conditional", "irpe"),
        lengths=(1.0, 2.0),
        seeds=2,
        steps=2,
        jobs=1,
        out=folder / "report.html",
        runs=folder / "runs",
    )
    with (folder / "log.txt").open("w") as log, mock.patch.object(cost.measure_cost, "__defaults__", (1,)):
        summaries = compare(settings, Console(file=log), TINY)
    return (folder / "report.html").read_text(encoding="utf-8"), summaries, folder


def test_the_page_needs_nothing_else(report):
    text, _, _ = report
    page = Page(text)
    assert page.open == []
    assert "script" not in page.tags
    assert not {"link", "iframe", "object", "embed"} & set(page.tags)
    for _, attributes in page.attributes:
        for name in ("src", "href", "xlink:href", "srcset", "action"):
            value = attributes.get(name, "#")
            assert value.startswith(("#", "data:image/png;base64,")), value
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", text)
    assert len(text.encode()) < 1_000_000


def test_every_picture_has_alternative_text(report):
    page = Page(report[0])
    assert len(page.svgs) == 5 + 6 + 6 + 5  # charts of digits and of text, and a picture a trained row
    for attributes in page.svgs:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 40
    assert report[0].count("<title>") == len(page.svgs) + 1
    assert len(set(page.identifiers)) == len(page.identifiers)


def test_references_inside_pictures_point_to_something(report):
    page = Page(report[0])
    references = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', report[0])
    wanted = {first or second for first, second in references}
    assert wanted
    assert wanted <= set(page.identifiers)


def test_a_phone_and_a_dark_room(report):
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in report[0]
    assert "prefers-color-scheme: dark" in report[0]
    assert "#010203" not in report[0]
    assert report[0].count('<div class="scroll" tabindex="0" role="region" aria-label=') == 4
    assert not re.search(r"<svg[^>]* width=", report[0])


def test_what_cannot_run_is_shown_with_its_reason(report):
    text, summaries, _ = report
    assert text.count(">cannot<") >= 6
    assert summaries[1].row("learned").cannot["2x"].split(":")[0] in text
    row = summaries[1].row("learned")
    assert row.cannot.keys() == {"2x", "shift-32", "shift-512"}
    assert summaries[1].row("learned-resized").scores["2x"].keys() == {0, 1}


def test_what_does_not_fit_is_left_out_with_its_reason(report):
    text, summaries, folder = report
    why = "it is made for 2 axes, and these tokens stand along 1"
    assert [summary.left_out for summary in summaries] == [[], [("iRPE", why)]]
    assert f"<b>Left out:</b> iRPE: {why}." in text
    assert f"text: left out: iRPE: {why}" in (folder / "log.txt").read_text()
    assert summaries[1].as_dict()["left_out"] == {"iRPE": why}


def test_two_steps_of_training_have_learned_nothing_and_conclude_nothing(report):
    text, summaries, folder = report
    assert "No clear winner" not in text
    assert "tell encodings apart on this data" not in text
    assert "gave the same score" not in text
    assert "Cheapest within error" not in text
    assert "Named above is what served" not in text
    for summary in summaries:
        assert summary.unlearned.endswith("2 steps are too few here: more are needed (--steps).")
        assert text.count(summary.unlearned) == 2  # in the answer, and under the scale
        assert f"warning: {summary.task.name}: {summary.unlearned}" in (folder / "log.txt").read_text()
        assert summary.as_dict()["learned"] is False


def test_models_are_counted_the_same_in_the_page_and_the_terminal(report):
    text, summaries, folder = report
    assert [len(summary.rows) for summary in summaries] == [7, 6]
    trained = "5 encodings and the model without"  # six models read the digits, five the text (no iRPE), two seeds
    assert f"was trained 22 times, the same but for its position encoding: {trained},\n2 seeds, 2 tasks." in text
    assert f"22 trials: {trained}, 2 seeds, on digits, text. " in (folder / "log.txt").read_text()
    assert "1 more row shows one of them changed" in text


def test_the_page_says_how_to_make_it_again(report):
    text, _, folder = report
    assert "posenc compare --tasks digits,text --encodings rotary,learned-resized,learned," in text
    assert "--seeds 2 --steps 2 --lengths 1,2" in text
    for word in ("torch 2", "python 3", "numpy", "0, 1"):
        assert word in text
    assert str(folder) in text


def test_names_from_data_are_escaped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "<b>&.txt"
    path.write_text("some text to learn " * 300)
    settings = Settings(text=path, encodings=("alibi",), lengths=(1.0,), seeds=1, steps=1, jobs=1)
    compare(settings, Console(quiet=True), TINY)
    text = (tmp_path / "report.html").read_text()
    assert "<b>&.txt" not in text
    assert "&lt;b&gt;&amp;.txt" in text
    assert Page(text).open == []
    assert "no better than chance" in text


def test_scores_as_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("some text to learn " * 300)
    options = ["--text", "words.txt", "--encodings", "learned", "--lengths", "1,2", "--seeds", "1", "--steps", "1"]
    monkeypatch.setattr(sys, "argv", ["posenc", "compare", *options, "--jobs", "1", "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code in (0, None)
    (found,) = json.loads(capsys.readouterr().out)
    assert found["rows"]["learned"]["scores"]["1x"].keys() == {"0"}
    assert "127" in found["rows"]["learned"]["cannot"]["2x"] or "128" in found["rows"]["learned"]["cannot"]["2x"]
    assert found["rows"]["learned"]["cost"]["parameters"] == 128 * 64


# --- looks -----------------------------------------------------------------------------------------------------------


def test_every_encoding_has_a_look_of_its_own():
    looks = [tuple(map(str, sorted(style(name).items()))) for row in CONTESTANTS for name in row.names]
    assert len(set(looks)) == len(looks)
    for kind in ("marker", "linestyle"):  # where there are no lines, and where there are no markers
        looks = [(style(row.name)["color"], str(style(row.name)[kind])) for row in CONTESTANTS]
        assert len(set(looks)) == len(looks)
    assert style("learned-resized")["color"] == style("learned")["color"]
    assert title("learned-resized") == "Learned, resized"


# --- what is said ----------------------------------------------------------------------------------------------------


class Untrained(Task):
    """A task of which nothing but its description is used."""

    def training(self, steps, seed):
        return iter(())

    def held_out(self, condition):
        return iter(())

    @property
    def chance(self):
        return 4.0 if self.causal else 0.109


def text_summary(**rows):
    """A summary of a text task with given bits at 1, 2 and 8 times the length: `alibi=[(3.0, 3.1), ...]` by seed."""
    task = Untrained(
        name="code",
        title="Code",
        about="",
        shape=(128,),
        outputs=9,
        factors=(1.0, 2.0, 8.0),
        batch_size=16,
        steps=1,
        symbols=9,
        causal=True,
        shifts=(32,),
    )
    found = []
    for name, seeds in rows.items():
        name = name.replace("_", "-")
        row = Row(name, title(name), contestant(name).name, False)
        for seed, scores in enumerate(seeds):
            for condition, score in zip(("1x", "2x", "8x", "shift-32"), scores, strict=False):
                row.scores.setdefault(condition, {})[seed] = score
        found.append(row)
    return TaskSummary(task, task.conditions(), found, max(map(len, rows.values())), 10)


def verdicts(summary):
    return {finding.claim.split(" ")[0]: finding.verdict for finding in findings(summary)}


def test_claims_are_judged_by_what_was_measured():
    kept = [(3.0, 3.0, 2.99), (3.01, 3.0, 3.0), (2.99, 2.99, 2.985)]
    lost = [(3.0, 3.4, 3.9), (3.01, 3.5, 4.0), (2.99, 3.3, 3.95)]
    unsure = [(3.0, 3.0, 2.5), (3.0, 3.0, 3.9), (3.0, 3.0, 3.0)]
    assert verdicts(text_summary(none=kept, alibi=kept, sinusoidal=lost))["ALiBi"] == "agrees"
    assert verdicts(text_summary(none=kept, alibi=kept, sinusoidal=lost))["Sinusoidal"] == "agrees"
    assert verdicts(text_summary(none=kept, alibi=lost, sinusoidal=kept)) == {
        "ALiBi": "differs",
        "Sinusoidal": "differs",
    } | {
        key: value
        for key, value in verdicts(text_summary(none=kept, alibi=lost, sinusoidal=kept)).items()
        if key == "A"
    }
    assert verdicts(text_summary(none=kept, alibi=unsure))["ALiBi"] == "cannot tell"


def test_one_seed_shows_nothing():
    found = findings(text_summary(none=[(3.0, 3.0, 3.0)], alibi=[(2.0, 2.0, 4.0)], sinusoidal=[(2.5, 3.0, 4.0)]))
    assert {finding.verdict for finding in found} == {"cannot tell"}


def test_what_cannot_run_beyond_agrees_with_a_table_that_ends():
    summary = text_summary(none=[(3.0, 3.0, 3.0)] * 2, learned=[(2.9,), (2.8,)])
    summary.row("learned").cannot = {"2x": "it ends", "8x": "it ends"}
    (finding,) = [finding for finding in findings(summary) if finding.claim.startswith("A learned")]
    assert finding.verdict == "agrees"
    assert "it ends" in finding.measured


def test_answers_name_a_winner_only_where_there_is_one():
    clear = text_summary(
        none=[(3.5, 3.5, 3.5), (3.51, 3.5, 3.5), (3.49, 3.5, 3.5)],
        rotary=[(2.5, 3.0, 4.0), (2.51, 3.0, 4.1), (2.49, 3.0, 4.2)],
        alibi=[(2.8, 2.8, 2.8), (2.81, 2.8, 2.8), (2.79, 2.8, 2.81)],
    )
    trained, longest = answers(clear)
    assert (trained.short, trained.clear) == ("Rotary", True)
    assert longest.question == "Best at 8 times (1024 characters)"
    assert (longest.short, longest.clear) == ("ALiBi", True)
    assert headline([clear]) == "Code: Rotary; at 8 times the length, ALiBi."
    for row, training in zip(clear.rows, (1.0, 1.2, 1.5), strict=True):
        row.cost = {"training": training, "inference": 1.1}
    assert answers(clear)[-1].short == "Rotary"
    tied = text_summary(rotary=[(2.5, 3, 4), (2.7, 3, 4)], alibi=[(2.6, 3, 4), (2.55, 3, 4)])
    assert answers(tied)[0].short == "No clear winner"
    assert headline([tied]) == "Code: ALiBi or Rotary."


def test_one_seed_names_no_cheapest():
    one, two = (text_summary(none=[(3.5,)] * n, alibi=[(2.8,)] * n) for n in (1, 2))
    for summary in (one, two):
        for row in summary.rows:
            row.cost = {"training": 1.0, "inference": 1.1}
    assert answers(one)[0].detail == "One seed gives no interval; ALiBi has 2.800 bits."
    assert not [answer for answer in answers(one) if answer.question.startswith("Cheapest")]
    assert answers(two)[-1].question == "Cheapest within error of the best"


def test_at_chance_nothing_is_concluded():
    guess, better = (4.3, 4.3, 4.3, 4.3), (3.97, 3.97, 3.97, 3.97)
    half = text_summary(none=[guess] * 2, rotary=[guess] * 2, alibi=[better] * 2)
    assert half.unlearned == (
        "2 of 3 models, the one without encoding among them, are no better than chance (4.000 bits, the entropy of "
        "single characters): nothing was learned yet that tells encodings apart. 10 steps are too few here: more are "
        "needed (--steps)."
    )
    (answer,) = answers(half)
    assert (answer.short, answer.detail, answer.clear) == ("Nothing learned yet", half.unlearned, False)
    assert headline([half]) == "Code: too few steps to tell."
    assert (findings(half), consistency(half)) == ([], None)
    fewer = text_summary(none=[guess] * 2, rotary=[guess] * 2, alibi=[better] * 2, xpos=[better] * 2)
    assert fewer.unlearned is None
    assert text_summary(none=[better], rotary=[guess], alibi=[guess]).unlearned is None
    alone = text_summary(none=[guess]).unlearned
    assert alone.startswith("The model without encoding is no better than chance (4.000 bits")


def test_chance_is_read_off_the_held_out_data(digits, tmp_path):
    labels = digits.images.labels[digits.test]
    assert digits.chance == max((labels == label).mean() for label in range(10))
    (tmp_path / "ab.txt").write_text("ab" * 8000)
    (text,) = prepare(Settings(text=tmp_path / "ab.txt", lengths=(1.0,))).tasks
    assert text.chance == pytest.approx(1.0, abs=1e-6)  # two characters, each half of the time
    (tmp_path / "aaab.txt").write_text("aaab" * 4000)
    (text,) = prepare(Settings(text=tmp_path / "aaab.txt", lengths=(1.0,))).tasks
    assert text.chance == pytest.approx(0.8112781, abs=1e-3)
    x = np.random.default_rng(0).normal(size=(40, 12, 1))
    np.savez(tmp_path / "s.npz", x=x, y=np.array([0] * 30 + [1] * 10))
    (series,) = prepare(Settings(series=tmp_path / "s.npz")).tasks
    assert series.chance == 0.75


def test_beyond_takes_the_better_of_continued_and_squeezed(report):
    digits = report[1][0]
    names = {found.name for found in digits.conditions if found.factor == 2.0}
    chosen = beyond(digits, 2.0)
    assert names == {"2x", "2x-squeezed"}
    best = {name: digits.row(digits.standing(name).best).estimate(name).mean for name in names}
    assert best[chosen.name] == max(best.values())


def test_consistency_separates_absolute_from_relative():
    said = consistency(
        text_summary(rotary=[(2.5, 3, 4, 2.5)] * 2, sinusoidal=[(2.5, 3, 4, 2.9)] * 2, none=[(3, 3, 3, 3)] * 2)
    )
    assert "Rotary gave the same score" in said
    assert "Sinusoidal by 0.400 bits" in said


# --- cost ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    return dataclasses.replace(prepare(Settings(tasks=("digits",))).tasks[0], batch_size=4)


def test_costs_by_value(digits):
    none, learned, bias = (
        cost.measure_cost(digits, name, TINY, repeats=1) for name in ("none", "learned", "relative-position-bias")
    )
    assert (none["parameters"], none["flops"], none["elements"]) == (0, 0, 0)
    assert learned["parameters"] == 64 * 16
    assert learned["flops"] == 0
    assert learned["elements"] >= 16  # the sum of token and position
    assert bias["parameters"] == 2 * 15 * 15
    assert bias["training_memory_extra"] > 0
    assert all(value > 0 for value in (none["training"], learned["inference"], bias["training_memory"]))


def test_peak_memory_is_the_highest_not_the_sum():
    def call():
        for _ in range(3):
            held = np_sized(1000)
            del held

    def np_sized(count):
        import torch

        return torch.zeros(count)

    assert cost.peak_memory(call) == pytest.approx(4000, abs=128)


def test_alternating_takes_medians_in_turn():
    seen = []
    times = cost.alternating([lambda: seen.append("a"), lambda: seen.append("b")], 3)
    assert seen == ["a", "b"] * 5
    assert len(times) == 2
