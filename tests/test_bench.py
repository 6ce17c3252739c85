"""The benchmark measures what it says. No test here asserts on time."""

import io
import json
import math
import pickle
from types import SimpleNamespace

import pytest
import torch

import posenc
from posenc import bench
from posenc.bench import calls, error, machine, memory, rows, timing
from posenc.bench.setting import PLAIN, Setting, Subject

SMALL = {"grids": [(2, 3)], "heads": 2, "head_dim": 16, "repeats": 2}
SHAPES = {"1": [(6,)], "any": [(6,), (2, 3)], "2": [(2, 3)], "3": [(1, 2, 3)]}


# --- which schemes at which sizes ---


def test_every_scheme_is_measured_along_a_sequence_and_where_it_can_on_a_grid():
    found = list(bench.measure(**SMALL, train=True, memory=False))
    measured = [(row.subject.scheme, row.setting.shape) for row in found]
    for card in posenc.catalog.CARDS:
        assert [shape for name, shape in measured if name == card.name] == SHAPES[card.axes]
    for row in found:
        assert row.refused == ""
        assert row.setting.tokens == 6
        assert row.setting.causal == posenc.catalog.card(row.subject.scheme).causal
        for time in (row.inference, row.training):
            assert time.plain_ms > 0
            assert 0 < time.low <= time.ratio <= time.high
        assert (row.inference_memory, row.training_memory_plain, row.inference_extra) == (None, None, None)
        assert row.errors.queries == 6
        assert row.errors.output.own < 1e-5
        assert row.errors.gradients.own < 1e-4


def test_without_training_there_is_inference_alone():
    (row,) = bench.measure(["ALiBi"], lengths=[5], heads=2, head_dim=8, repeats=1)
    assert row.training is None
    assert row.training_memory is None
    assert row.errors.gradients is None
    assert row.inference_memory is not None


def test_lengths_and_grids_make_a_row_each():
    options = {"heads": 1, "head_dim": 8, "repeats": 1, "memory": False, "error": False}
    found = list(bench.measure(["Rotary", "ALiBi"], lengths=[3, 5], grids=[(2, 2), (2, 3)], **options))
    assert [row.setting.shape for row in found] == [(3,), (5,), (2, 2), (2, 3), (3,), (5,)]
    found = list(bench.measure(["Rotary"], grids=[(2, 2), (4, 1)], **options))
    assert [row.setting.shape for row in found] == [(4,), (2, 2), (4, 1)]  # one line of four cells
    found = list(bench.measure(["Rotary"], lengths=[3], **options))
    assert [row.setting.shape for row in found] == [(3,)]


def test_what_cannot_have_these_sizes_is_left_out_of_all_and_says_why():
    options = {"heads": 1, "head_dim": 10, "repeats": 1, "memory": False, "error": False}
    found = list(bench.measure(grids=[(2, 3)], **options))
    refused = {(row.subject.scheme, row.setting.shape): row.refused for row in found if row.refused}
    ((scheme, shape), why), *_ = refused.items()
    assert (scheme, shape, len(refused)) == ("FourierBands", (2, 3), 1)
    assert why.startswith("FourierBands is left out: dim must hold a sine and a cosine of ")
    with pytest.raises(ValueError, match="dim must hold a sine and a cosine of"):
        bench.measure(["FourierBands"], grids=[(2, 3)], **options)
    refused = {row.subject.scheme: row.refused for row in bench.measure(lengths=[2], **options) if row.refused}
    assert set(refused) == {card.name for card in posenc.catalog.CARDS if card.axes in ("2", "3")}
    assert refused["IRPE"] == "IRPE is left out: IRPE has 2 axes, got lengths alone: give grids"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schemes": ["Rotery"]}, "unknown scheme 'Rotery'"),
        ({"dtype": "int8"}, "dtype must be one of float32, bfloat16, float16, float64, got 'int8'"),
        ({"device": "nowhere"}, "device must be one that torch can use here, got 'nowhere'"),
        ({"backend": "slow"}, "backend must be one of auto, "),
        ({"schemes": ["Rotary"], "head_dim": 7}, "head_dim must be even"),
        ({"device": "meta"}, "device must be one that computes, got 'meta', which has no numbers: for example cpu"),
        ({"schemes": ["IRPE"], "lengths": [7], "grids": []}, "IRPE has 2 axes, got lengths alone: give grids"),
        ({"schemes": ["Rotary"], "lengths": [10**12]}, r"1000000000000 tokens need 476837 GiB for q, k, v and the"),
        ({"lengths": [4, 0]}, "each of lengths must be 1 or more, got 0"),
        ({"grids": [(4,)]}, r"each of grids must have two sizes or more, got \(4,\): for lines give lengths"),
        ({"grids": [(4, 0)]}, "each size of grids must be 1 or more, got 0"),
        ({"repeats": 0}, "repeats must be 1 or more, got 0"),
        ({"heads": 0}, "heads must be 1 or more, got 0"),
    ],
)
def test_bad_sizes_are_refused_before_anything_is_measured(options, message):
    with pytest.raises(ValueError, match=message):
        bench.measure(**(SMALL | options))


def test_a_backend_that_cannot_is_a_row_that_says_why():
    (row,) = bench.measure(["ALiBi"], lengths=[4], heads=2, head_dim=8, backend="sdpa", repeats=1)
    assert row.refused.startswith("ALiBi is left out: backend 'sdpa' cannot compute this: a term is left in the logits")
    assert (row.inference, row.inference_memory, row.errors) == (None, None, None)


# --- what is timed ---


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("scheme", ["", "Sinusoidal", "Rotary", "T5Bias", "Shaw", "ConditionalEncoding"])
def test_what_is_timed_is_the_whole_computation(scheme, train):
    setting = Setting((2, 3) if scheme == "ConditionalEncoding" else (6,), batch=2, heads=2, head_dim=8)
    given = calls.prepare(Subject(scheme), setting, train)()
    if not train:
        assert given[0].shape == (2, 2, 6, 8)
        assert all(not tensor.requires_grad for tensor in given)
        return
    wanted = [(2, 2, 6, 8)] * 3  # q, k, v
    if scheme in ("Sinusoidal", "ConditionalEncoding"):
        wanted.append((2, 6, 16))  # the embeddings
    if scheme:
        encoding = calls.build(Subject(scheme), setting)
        wanted += [tuple(parameter.shape) for parameter in encoding.parameters()]
    assert [tuple(gradient.shape) for gradient in given] == wanted
    assert all(gradient.abs().sum() > 0 for gradient in given)


def test_all_that_are_compared_have_the_same_numbers_and_nobody_elses_change():
    setting = Setting((6,), heads=2, head_dim=8, causal=True)
    state = torch.random.get_rng_state()
    plain, ours = (calls.called(subject, setting, False) for subject in (PLAIN, Subject("T5Bias")))
    assert all(torch.equal(one, other) for one, other in zip(plain.given, ours.given, strict=True))
    again = calls.called(Subject("T5Bias"), setting, False)
    assert torch.equal(ours.encoding.table, again.encoding.table)
    assert torch.equal(state, torch.random.get_rng_state())
    q, k, v = plain.given
    assert torch.allclose(plain.forward()[0], posenc.attention(q, k, v, causal=True), atol=1e-6)


def test_what_is_frozen_is_trained_no_further():
    setting = Setting((6,), heads=2, head_dim=8)
    assert len(calls.prepare(Subject("T5Bias", frozen=True), setting, True)()) == 3
    (row,) = rows.compare([Subject("T5Bias", frozen=True)], setting, repeats=1, train=True, error=False)
    assert (row.parameters, row.name) == (0, "T5Bias, frozen")


def test_a_term_that_is_ready_serves_a_last_query():
    setting = Setting((9,), heads=2, head_dim=8, queries=1)
    subject = Subject("T5Bias", (("num_buckets", 8),))
    found = [calls.called(subject._replace(way=way), setting, False).forward()[0] for way in ("attention", "ready")]
    assert found[0].shape == (1, 2, 1, 8)
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)
    assert setting.size == "1 of 9"


def test_rotary_alone_is_beside_two_copies():
    setting = Setting((6,), heads=2, head_dim=8)
    q, k = calls.called(Subject(way="clone"), setting, False).forward()
    call = calls.called(Subject("Rotary", way="rotate"), setting, False)
    assert torch.equal(q, call.given[0])
    for ours, wanted in zip(call.forward(), posenc.Rotary(8)(q, k), strict=True):
        assert torch.equal(ours, wanted)
    found = error.errors(Subject("Rotary", way="rotate"), setting, False)
    assert found.output.own < 1e-6


def test_dtype_reaches_the_tensors():
    setting = Setting((4,), heads=2, head_dim=8, dtype="bfloat16")
    call = calls.called(Subject("Shaw"), setting, False)
    assert call.forward()[0].dtype == torch.bfloat16
    assert call.parameters[0].dtype == torch.bfloat16


def test_all_take_turns_at_being_first(monkeypatch):
    monkeypatch.setattr(timing, "LEAST_SECONDS", 0.0)
    told = []
    timing.in_turn([lambda letter=letter: told.append(letter) for letter in "psx"], 3, "cpu")
    assert "".join(told) == "psx" + "psx" + "xsp" + "psx"  # once to be warm


def test_the_ratio_is_of_medians_and_its_spread_of_turns(monkeypatch):
    seconds = iter([9.0, 9.0, 1.0, 2.0, 30.0, 10.0, 2.0, 4.0])  # warm-up; then p s, s p, p s
    monkeypatch.setattr(timing, "_seconds", lambda call, count, device: next(seconds))
    (ratio,) = timing.in_turn([lambda: None] * 2, 3, "cpu")
    assert ratio == (4.0 / 2.0, 2.0, 3.0, 2000.0, 3)


def test_what_takes_long_takes_few_turns(monkeypatch):
    lasts = {"p": 1.0, "s": 2.0, "x": 20.0}
    monkeypatch.setattr(timing, "_seconds", lambda call, count, device: lasts[call()])
    quick, slow = timing.in_turn([lambda letter=letter: letter for letter in "psx"], 8, "cpu")
    assert (quick.turns, slow.turns) == (8, 3)
    assert (quick.ratio, slow.ratio) == (2.0, 20.0)


# --- errors ---


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scheme", ["", "Rotary", "ALiBi", "T5Bias", "Shaw", "Fire", "RelativeLogits", "TransformerXL"])
def test_the_error_of_some_rows_is_that_of_all_rows(monkeypatch, scheme, causal):
    setting, subject = Setting((37,), heads=2, head_dim=8, causal=causal), Subject(scheme, backend="dense")
    every = error.errors(subject, setting, True)
    monkeypatch.setattr(error, "MOST_BYTES", 8 * 2 * 37 * 9)
    some = error.errors(subject, setting, True)
    assert (every.queries, some.queries) == (37, 9)
    for found in (every, some):
        assert found.output.own == pytest.approx(found.output.dense, rel=3, abs=3e-7)
        assert found.gradients.own < 3e-5
        assert found.gradients.dense < 3e-5


def test_rows_are_spread_over_a_grid_and_hold_its_prefix(monkeypatch):
    monkeypatch.setattr(error, "MOST_BYTES", 8 * 26 * 5)
    setting = Setting((5, 5), heads=1, head_dim=8, prefix=1)
    assert error._rows(setting).tolist() == [0, 1, 7, 13, 19, 25]
    found = error.errors(Subject("RelativePositionBias", (("prefix_bias", True),)), setting, True)
    assert found.queries == 6
    assert found.output.own < 1e-6
    assert found.gradients.own < 1e-5


@pytest.mark.parametrize("scheme", ["T5Bias", "Sinusoidal", "Rotary"])
def test_an_error_is_noticed(monkeypatch, scheme):
    subject, setting = Subject(scheme, way="attention"), Setting((16,), heads=2, head_dim=8)
    original = calls.called

    def off(*arguments):
        call = original(*arguments)
        return call._replace(forward=lambda: [output * (1 + 2**-10) for output in call.forward()])

    monkeypatch.setattr(error, "called", off)
    found = error.errors(subject, setting, True)
    assert 0.9 * 2**-10 < found.output.own < 1.1 * 2**-10
    assert found.gradients.own > 0.4 * 2**-10
    assert found.output.dense is None or found.output.dense < 1e-6


def test_a_gradient_that_is_rounding_alone_is_no_error():
    # a number that all logits of a row share: its gradient is 0, and what is found are roundings of larger ones
    found = error.errors(Subject("Fire", backend="dense"), Setting((16,), heads=2, head_dim=8), True)
    assert found.gradients.own < 1e-5
    exact = [torch.tensor([4.0]), torch.tensor([1e-17])]
    assert error._largest([torch.tensor([4.0]), torch.tensor([1e-7])], exact) == pytest.approx(2.5e-8, rel=1e-3)
    assert math.isnan(error._largest([torch.tensor([math.nan]), torch.tensor([1.0])], exact))


# --- memory ---


def test_memory_is_measured_beside_plain_in_other_processes():
    with bench.Memory() as measured:
        setting = Setting((2048,), heads=4, head_dim=32)
        plain, rotary = (
            measured.peak(Subject(name, way=way), setting, False) for name, way in (("", "plain"), ("Rotary", "rotate"))
        )
        trained = measured.peak(PLAIN, setting, True)
    assert 4 < plain + 0.5 < 100  # q, k, v and the output are 1 MiB each
    assert rotary > 4  # q, k, v, and q and k rotated
    assert trained > plain


def test_memory_sees_a_tensor_of_every_query_and_key():
    setting = Setting((2048,), heads=1, head_dim=8)
    least = 2048 * 2048 * 4 / 2**20  # 16; q, k, v and their gradients have a part in 40 of that
    options = {"repeats": 1, "train": True, "error": False}
    with bench.Memory() as measured:
        (row,) = rows.compare([Subject("Shaw", backend="dense")], setting, memory=measured, **options)
    assert row.training_memory > least > row.training_memory_plain
    assert row.training_extra == row.training_memory - row.training_memory_plain
    assert row.inference_extra > least


def test_what_does_not_fit_in_memory_says_so():
    asked = pickle.dumps((1, (Subject("Shaw", backend="dense"), Setting((2**23,), heads=1, head_dim=2), False)))
    given, answers = io.BytesIO(asked + asked), io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory.sys, "stdin", SimpleNamespace(buffer=given))
        patch.setattr(memory.sys, "stdout", SimpleNamespace(buffer=answers))
        memory.serve()
    answers.seek(0)
    for _ in range(2):
        assert "memory" in pickle.load(answers)


def test_the_process_that_measures_may_end():
    with bench.Memory() as measured:
        setting = Setting((4,), heads=1, head_dim=8)
        assert measured.peak(PLAIN, setting, False) is not None
        measured._server.kill()
        measured._server.wait()
        with pytest.raises(ValueError, match="cannot be measured at 4 tokens: the process that measures memory ended"):
            measured.peak(PLAIN, setting, True)
        assert measured.peak(Subject("Rotary"), setting, False) is not None  # another one


def test_what_would_not_fit_is_refused_by_what_fewer_tokens_take(monkeypatch):
    asked = []

    def took(self, subject, setting, train):
        asked.append(setting.shape)
        return (setting.tokens / 256) ** 2

    monkeypatch.setattr(memory, "memory_limit", lambda: 2**30)
    monkeypatch.setattr(memory.Memory, "peak", took)
    measured, dense = memory.Memory(), Subject("ALiBi", backend="dense")
    measured.require_room(dense, Setting((1024,), heads=1), False)
    measured.require_room(dense, Setting((4096,), heads=1), False)  # it takes 256 MiB
    assert asked == [(256,), (1024,)][-len(asked) :]
    asked.clear()
    message = (
        "it would take up to 64 GiB at 65536 tokens, judged by 256 MiB at 4096, got a machine of 1 GiB: measure fewer"
    )
    with pytest.raises(ValueError, match=message):
        measured.require_room(dense, Setting((65536,), heads=1), False)
    assert max(asked) == (4096,)  # and no more was tried
    with pytest.raises(ValueError, match="at 128×128 tokens, judged by 256 MiB at 64×64"):
        measured.require_room(Subject("IRPE"), Setting((128, 128), heads=1), False)


def test_a_case_without_room_is_a_row_that_says_so(monkeypatch):
    monkeypatch.setattr(memory, "memory_limit", lambda: 2**20)
    (row,) = bench.measure(["ALiBi"], lengths=[4096], heads=1, head_dim=8, backend="dense", repeats=1)
    assert row.refused.startswith("ALiBi is left out: it would take up to ")
    assert row.inference is None


# --- what is written ---


def test_a_row_as_json_has_everything_by_name():
    (row,) = bench.measure(["Shaw"], lengths=[5], heads=2, head_dim=8, repeats=1, train=True)
    found = json.loads(json.dumps(row.as_dict()))
    assert found["name"] == found["subject"]["scheme"] == "Shaw"
    assert (found["setting"]["tokens"], found["setting"]["dtype"]) == (5, "float32")
    assert set(found["inference"]) == {"ratio", "low", "high", "plain_ms", "turns"}
    assert set(found["errors"]["gradients"]) == {"own", "dense"}
    assert found["training_extra"] == row.training_extra
    assert found["backend"] == row.backend


def test_about_names_the_machine():
    found = bench.about()
    assert found["torch"] == torch.__version__
    assert found["cpu"]
    assert found["cores"] >= 1
    assert machine.memory_limit() > 2**28
    json.dumps(found)


def test_the_columns_of_a_line_stand_below_their_headings():
    (row,) = bench.measure(["RelativePositionBias"], lengths=[4], heads=2, head_dim=8, repeats=1, train=True)
    for train in (False, True):
        heading = bench.line(bench.headings(train), train)
        text = bench.line(bench.cells(row, train), train)
        for name, cell in zip(bench.headings(train), bench.cells(row, train), strict=True):
            if name in ("name", "tokens", "backend"):
                assert text[heading.index(name) :].startswith(cell)
            else:
                end = heading.index(name) + len(name)
                assert text[:end].endswith(cell)


def test_a_way_that_a_scheme_has_not_is_a_row_that_says_so():
    (row,) = rows.compare(
        [Subject("ALiBi", way="ready rotate_")], Setting((4,)), beside=Subject(way="clone"), repeats=1
    )
    assert row.refused.startswith("ALiBi, ready rotate_ is left out: ALiBi turns no queries")
