"""Trials: what determines them, what is equal in all of them, and what is measured."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import posenc
from posenc.compare.characters import TextTask
from posenc.compare.data import Images, Series, Text
from posenc.compare.encodings import CONTESTANTS, Sizes, chosen, contestant, title
from posenc.compare.encodings.absolute import RESIZED
from posenc.compare.encodings.rotary import SCALED
from posenc.compare.model import Model
from posenc.compare.portrait import attention_weights, by_relative
from posenc.compare.signals import ImageTask, SeriesTask
from posenc.compare.tasks import Batch, Place
from posenc.compare.trial import Trial, evaluate, evaluate_all, run_trial, train

SIZES = Sizes(width=24, heads=2, layers=2, hidden=32)
NAMES = [row.name for row in CONTESTANTS]


def silent(message):
    raise AssertionError(message)


@pytest.fixture(scope="module")
def images():
    generator = np.random.default_rng(7)
    labels = np.arange(30) % 3
    pixels = generator.random((30, 4, 6, 1)) * 0.3
    for index, label in enumerate(labels):
        pixels[index, label, 1 + index % 4] += 0.7
    data = Images(pixels.astype(np.float32), labels, ("a", "b", "c"), patch=1, shape=(4, 6))
    return ImageTask.of(data, name="tiny", title="Tiny", about="a", factors=(1.0, 1.5, 2.0), warn=silent)


@pytest.fixture(scope="module")
def text():
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "wizards", "brew"]
    generator = np.random.default_rng(3)
    body = " ".join(generator.choice(words, 2400))
    return TextTask.of(
        Text(body[:9000], body[9000:]), name="words", title="Words", about="a", factors=(1.0, 2.0), warn=silent
    )


@pytest.fixture(scope="module")
def series():
    generator = np.random.default_rng(5)
    values = [np.cumsum(generator.normal(size=(5 + index % 7, 2)), 0).astype(np.float32) for index in range(24)]
    data = Series(values, np.arange(24) % 2, ("up", "down"))
    return SeriesTask.of(data, name="walks", title="Walks", about="a", factors=(1.0, 2.0), warn=silent)


def condition(task, name):
    return next(found for found in task.conditions() if found.name == name)


# --- what determines a trial -----------------------------------------------------------------------------------------


def test_the_key_is_the_same_for_the_same_and_another_for_anything_else(images, text):
    trial = Trial(images, "rotary", 0, 10, SIZES)
    assert trial.key == Trial(images, "rotary", 0, 10, SIZES).key
    changed = [
        dataclasses.replace(trial, task=text),
        dataclasses.replace(trial, task=dataclasses.replace(images, fingerprint="other data")),
        dataclasses.replace(trial, task=dataclasses.replace(images, factors=(1.0, 3.0))),
        dataclasses.replace(trial, task=dataclasses.replace(images, batch_size=7)),
        dataclasses.replace(trial, encoding="sinusoidal"),
        dataclasses.replace(trial, seed=1),
        dataclasses.replace(trial, steps=11),
        dataclasses.replace(trial, sizes=dataclasses.replace(SIZES, hidden=48)),
    ]
    keys = {found.key for found in changed} | {trial.key}
    assert len(keys) == len(changed) + 1


def test_the_key_follows_the_arguments_of_the_encoding_and_the_versions(images, monkeypatch):
    before = Trial(images, "rotary", 0, 10, SIZES).key
    monkeypatch.setattr(torch, "__version__", "0.0.1")
    assert Trial(images, "rotary", 0, 10, SIZES).key != before
    monkeypatch.undo()
    row = contestant("rotary")
    other = dataclasses.replace(row, arguments=lambda task, sizes: row.arguments(task, sizes) | {"base": 17.0})
    monkeypatch.setattr("posenc.compare.trial.contestant", lambda name: other)
    assert Trial(images, "rotary", 0, 10, SIZES).key != before


def test_the_fingerprint_follows_the_data(images):
    pixels = images.images.pixels.copy()
    pixels[3, 2, 1, 0] += 0.01
    again = [
        ImageTask.of(images.images._replace(pixels=found), name="t", title="", about="", factors=(1.0,), warn=silent)
        for found in (images.images.pixels.copy(), pixels)
    ]
    assert again[0].fingerprint == images.fingerprint != again[1].fingerprint


# --- what is equal in all trials -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if name != "none"])
def test_weights_agree_wherever_shapes_agree(images, name):
    torch.manual_seed(hash(name) % 1000)  # nothing may depend on the global generator
    plain = dict(Model(images, contestant("none"), SIZES, 3).named_parameters())
    torch.manual_seed(1)
    other = dict(Model(images, contestant(name), SIZES, 3).named_parameters())
    shared = {key for key in other if not key.startswith("encoding.")}
    assert shared == set(plain)
    assert all(torch.equal(plain[key], other[key]) for key in shared)


def test_weights_depend_on_the_seed_and_on_their_own_name(images):
    first, second = (dict(Model(images, contestant("none"), SIZES, seed).named_parameters()) for seed in (0, 1))
    for key, weight in first.items():
        if weight.ndim > 1:
            assert not torch.equal(weight, second[key])
    assert not torch.equal(first["blocks.0.query.weight"], first["blocks.0.key.weight"])
    assert not torch.equal(first["blocks.0.query.weight"], first["blocks.1.query.weight"])


def test_encodings_start_alike_for_a_seed(images):
    tables = [Model(images, contestant("learned"), SIZES, seed).encoding.table for seed in (0, 0, 1)]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


@pytest.mark.parametrize("kind", ["images", "text", "series"])
def test_the_order_of_the_data_depends_on_the_seed_alone(kind, request):
    task = request.getfixturevalue(kind)
    torch.manual_seed(0)
    first = list(task.training(5, 0))
    torch.manual_seed(1)
    again, other = list(task.training(5, 0)), list(task.training(5, 1))
    assert all(
        torch.equal(a.inputs, b.inputs) and torch.equal(a.targets, b.targets) for a, b in zip(first, again, strict=True)
    )
    assert not all(torch.equal(a.targets, b.targets) for a, b in zip(first, other, strict=True))


def test_every_example_is_seen_once_an_epoch(images):
    small = dataclasses.replace(images, batch_size=8)
    epoch = torch.cat([batch.inputs for batch in small.training(3, 0)])
    assert len(torch.unique(epoch, dim=0)) == len(epoch) == 24


def test_a_trial_gives_the_same_numbers_again(text):
    trial = Trial(text, "t5", 2, 4, SIZES)
    first, again = run_trial(trial), run_trial(trial)
    assert {key: first[key] for key in ("key", "settings", "curve", "rows", "portrait")} == {
        key: again[key] for key in ("key", "settings", "curve", "rows", "portrait")
    }


# --- what is measured ------------------------------------------------------------------------------------------------


KINDS = {
    "images": SimpleNamespace(axes=2, causal=False),
    "text": SimpleNamespace(axes=1, causal=True),
    "series": SimpleNamespace(axes=1, causal=False),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, row.name) for kind, task in KINDS.items() for row in CONTESTANTS if not row.refuses(task)],
)
def test_every_encoding_trains_and_learns(kind, name, request):
    task = request.getfixturevalue(kind)
    result = run_trial(Trial(task, name, 0, 4, SIZES))
    found = result["rows"][name]["1x"]
    assert math.isfinite(found["loss"])
    assert len(result["curve"]) == 4
    assert set(result["rows"][name]) == {found.name for found in task.conditions()}


def test_training_lowers_the_loss(images):
    model = Model(images, contestant("sinusoidal"), SIZES, 0)
    before = evaluate(model, images, images.conditions()[0])["loss"]
    train(model, images, 40, 0)
    assert evaluate(model, images, images.conditions()[0])["loss"] < 0.7 * before


def test_a_learned_table_cannot_run_past_its_end_and_says_so(images, text):
    found = evaluate_all(Model(text, contestant("learned"), SIZES, 0), text)
    assert "score" in found["1x"]
    assert {name for name, value in found.items() if "cannot" in value} == {"2x", "shift-32", "shift-512"}
    assert "128" in found["2x"]["cannot"]
    assert "255" in found["2x"]["cannot"]
    found = evaluate_all(Model(images, contestant("relative-position-bias"), SIZES, 0), images)
    assert {name for name, value in found.items() if "cannot" in value} == {
        "1.5x",
        "1.5x-squeezed",
        "2x",
        "2x-squeezed",
    }


def test_the_resized_table_runs_beyond_and_is_the_trained_one_at_home(images, text):
    for task, beyond in ((images, "2x-squeezed"), (text, "2x")):
        model = Model(task, contestant("learned"), SIZES, 0)
        trained = model.encoding
        resized = evaluate_all(model, task, RESIZED)
        assert model.encoding is trained
        assert resized["1x"] == evaluate_all(model, task)["1x"]
        assert "score" in resized[beyond]
        assert all("cannot" in found for name, found in resized.items() if name.startswith("shift"))
    assert "cannot" in evaluate_all(Model(images, contestant("learned"), SIZES, 0), images, RESIZED)["2x"]


def test_a_smooth_table_stays_smooth_when_resized(images):
    ramp = posenc.Learned((4, 6), 2)
    with torch.no_grad():
        ramp.table.copy_(posenc.grid(4, 6).coordinates().float())
    stretched, place = RESIZED.adapt(ramp, Place((8, 12), squeezed=(2.0, 2.0)), images)
    assert place == Place((8, 12))
    rows = stretched.table.reshape(8, 12, 2)
    inside = rows[2:-2, 2:-2]  # interpolation is exact for a ramp away from the border
    wanted = (posenc.grid(8, 12).rescaled(-0.5, [3.5, 5.5]).coordinates().float()).reshape(8, 12, 2)[2:-2, 2:-2]
    assert torch.allclose(inside, wanted, atol=0.05)


RELATIVE = [
    row.name
    for row in CONTESTANTS
    if row.scheme is None or (posenc.catalog.card(row.scheme).relative and row.scheme != "MultimodalRotary")
]


@pytest.mark.parametrize("name", [name for name in RELATIVE if name != "irpe"])
def test_shifting_all_positions_changes_nothing_for_relative_encodings(text, name):
    found = evaluate_all(Model(text, contestant(name), SIZES, 0), text)
    for shift in ("shift-32", "shift-512"):
        assert found[shift]["score"] == pytest.approx(found["1x"]["score"], abs=2e-5)


def test_shifting_changes_absolute_encodings_and_the_grid_is_all_that_a_convolution_reads(images):
    found = evaluate_all(Model(images, contestant("sinusoidal"), SIZES, 0), images)
    assert found["shift-64"]["loss"] != pytest.approx(found["1x"]["loss"], abs=1e-4)
    found = evaluate_all(Model(images, contestant("conditional"), SIZES, 0), images)
    assert found["shift-64"] == found["1x"]
    assert found["2x"] == found["2x-squeezed"]


def test_the_same_characters_are_scored_at_every_length(text):
    scored = {
        name: torch.cat([batch.targets.flatten() for batch in text.held_out(condition(text, name))])
        for name in ("1x", "2x", "shift-32")
    }
    assert torch.equal(scored["1x"], scored["2x"])
    assert torch.equal(scored["1x"], scored["shift-32"])
    batch = next(text.held_out(condition(text, "2x")))
    assert batch.inputs.shape[1] == 256
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])


def test_bits_are_those_of_a_uniform_guess_where_the_model_knows_nothing(text):
    model = Model(text, contestant("none"), SIZES, 0)
    with torch.no_grad():
        model.head.weight.zero_()
    found = evaluate(model, text, condition(text, "2x"))
    assert found["score"] == pytest.approx(math.log2(text.symbols))
    assert found["runs"] == pytest.approx([math.log2(text.symbols)] * 4)


def test_positions_are_continued_squeezed_and_shifted(images):
    rotary, alibi = contestant("rotary"), contestant("alibi")

    def ends(name, row=rotary):
        place = next(images.held_out(condition(images, name))).place
        values = row.positions(images, place).coordinates().double()
        return values.amin(0).tolist(), values.amax(0).tolist()

    assert ends("1x") == ([0, 0], [3, 5])
    assert ends("2x") == ([0, 0], [7, 11])
    assert ends("2x-squeezed") == ([-0.25, -0.25], [3.25, 5.25])
    assert ends("shift-2") == ([2, 2], [5, 7])
    assert ends("2x", alibi) == ([0], [95])  # raster order
    with pytest.raises(ValueError, match="raster order"):
        ends("2x-squeezed", alibi)


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "t5", "conditional"])
def test_padding_is_not_seen(series, name):
    model = Model(series, contestant(name), SIZES, 0).eval()
    inputs, mask = series.tokens(series.test[:4], 1.0)
    together = model(inputs, Place(inputs.shape[1:2], mask=mask))
    assert not mask.all()
    for index in range(4):
        length = int(mask[index].sum())
        alone = model(inputs[index : index + 1, :length], Place((length,)))
        assert torch.allclose(together[index], alone[0], atol=1e-5)


def test_series_are_stretched_and_squeezed_back(series):
    _, mask = series.tokens(series.test[:3], 2.0)
    assert mask.sum(1).tolist() == [2 * len(series.series[index]) for index in series.test[:3]]
    place = Place((20,), squeezed=(2.0,), mask=torch.ones(1, 20, dtype=torch.bool))
    found = contestant("rotary").positions(series, place).coordinates().flatten()
    assert found[:3].tolist() == [-0.25, 0.25, 0.75]


def test_encodings_for_a_task(images, text):
    assert chosen(images, ("rotary",)) == (["none", "rotary"], [])
    assert chosen(text, ("shaw", "none", "ALiBi")) == (["none", "alibi", "shaw"], [])
    assert chosen(text, ("all",)) == chosen(text, None, everything=True)


def test_every_scheme_of_the_catalog_is_a_contestant():
    assert {row.scheme for row in CONTESTANTS} - {None} == {card.name for card in posenc.catalog.CARDS}


@pytest.mark.parametrize("kind", ["images", "text", "series"])
def test_all_encodings_run_or_say_why_not(kind, request):
    task = request.getfixturevalue(kind)
    shown, left_out = chosen(task, ("all",))
    titles = [title(name) for row in CONTESTANTS for name in row.names]
    assert sorted([*(title(name) for name in shown), *(who for who, _ in left_out)]) == sorted(titles)
    assert {who for who, _ in left_out} == {
        "images": {"xPos", "CoPE", *(variant.title for variant in SCALED)},
        "text": {"Multimodal rotary", "iRPE"},
        "series": {"xPos", "CoPE", "Multimodal rotary", "iRPE", *(variant.title for variant in SCALED)},
    }[kind]
    assert all(len(why) > 20 for _, why in left_out)


def test_a_scaled_rotary_is_the_trained_one_at_home_and_another_beyond(text):
    model = Model(text, contestant("rotary"), SIZES, 0)
    plain = evaluate_all(model, text)
    for variant in SCALED:
        found = evaluate_all(model, text, variant)
        assert found["1x"] == plain["1x"]
        assert found["2x"]["loss"] != plain["2x"]["loss"]
    scaled, place = SCALED[0].adapt(model.encoding, Place((256,)), text)
    assert place == Place((256,))
    assert torch.equal(scaled.frequencies(), model.encoding.frequencies() / 2)


def test_an_image_is_one_frame_of_a_film(images):
    row = contestant("multimodal-rotary")
    places = [next(images.held_out(condition(images, name))).place for name in ("1x", "2x-squeezed", "shift-2")]
    found = [row.positions(images, place).coordinates().double() for place in places]
    assert [part[-1].tolist() for part in found] == [[0, 3, 5], [0, 3.25, 5.25], [2, 5, 7]]


# --- pictures --------------------------------------------------------------------------------------------------------


def test_attention_weights_are_read_out_of_attention():
    q, k, v = torch.randn(3, 2, 2, 9, 4).unbind(0)
    weights = attention_weights(q, k, v, (), {})
    assert torch.allclose(weights, (q @ k.mT / 2).softmax(-1), atol=1e-6)
    shaw = posenc.Shaw(4, 3, num_heads=2)
    with torch.no_grad():
        shaw.key_table.normal_()
        shaw.value_table.normal_()
    weights = attention_weights(q, k, v, (shaw.term(posenc.sequence(9)),), {})
    assert torch.allclose(weights.sum(-1), torch.ones(2, 2, 9), atol=1e-5)
    assert torch.allclose(weights, ((q @ k.mT + shaw(q)) / 2).softmax(-1), atol=1e-5)


def test_means_by_relative_position_on_a_grid_that_is_not_square():
    index = posenc.relative_index((2, 3))
    found = by_relative(index.float()[None], (2, 3))
    assert torch.equal(found, torch.arange(15.0).reshape(1, 3, 5))


def test_a_batch_is_plain():
    batch = Batch(torch.zeros(1), torch.zeros(1), Place((1,)))
    assert batch.place.squeezed is None
