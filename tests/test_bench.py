"""The benchmark measures what it says. No test here asserts on time."""

import io
import json

import pytest
import torch

import posenc
from posenc import bench
from posenc.bench import cases, memory, timing

SMALL = {"grid": (2, 3), "heads": 2, "head_dim": 16, "repeats": 2}
SHAPES = {"1": [(6,)], "any": [(6,), (2, 3)], "2": [(2, 3)], "3": [(1, 2, 3)]}


def test_every_scheme_is_measured_along_a_sequence_and_where_it_can_on_a_grid():
    rows = list(bench.measure(**SMALL, memory=False))
    measured = [(row.scheme, row.setting.shape) for row in rows]
    for card in posenc.catalog.CARDS:
        shapes = [shape for name, shape in measured if name == card.name]
        assert shapes == SHAPES[card.axes]
    for row in rows:
        assert row.setting.tokens == 6
        assert row.setting.causal == posenc.catalog.card(row.scheme).causal
        for time in (row.inference, row.training):
            assert time.plain_ms > 0
            assert 0 < time.low <= time.ratio <= time.high
        assert (row.inference_memory, row.training_memory_plain) == (None, None)


def test_memory_is_measured_beside_plain_in_other_processes():
    (row,) = (
        row
        for row in bench.measure(["Rotary"], length=2048, grid=(2, 2), heads=4, head_dim=32, repeats=1)
        if row.setting.shape == (2048,)
    )
    plain, rotary = row.inference_memory_plain, row.inference_memory
    assert plain is not None
    assert rotary is not None
    assert 4 < plain + 0.5 < 100  # q, k, v and the output are 1 MiB each
    assert rotary > plain + 1  # and q and k rotated
    assert row.training_memory_plain > plain


def test_memory_sees_a_tensor_of_every_query_and_key():
    setting = bench.Setting((1024,), heads=1, head_dim=8)
    least = 1024 * 1024 * 4 / 2**20
    growth = memory.peaks([("Shaw", setting)])
    assert growth["Shaw", setting, True] > least > growth[bench.PLAIN, setting, False]


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("scheme", ["plain", "Sinusoidal", "Rotary", "T5Bias", "Shaw", "ConditionalEncoding"])
def test_what_is_timed_is_the_whole_computation(scheme, train):
    setting = bench.Setting((2, 3) if scheme == "ConditionalEncoding" else (6,), batch=2, heads=2, head_dim=8)
    given = cases.prepare(scheme, setting, train)()
    if not train:
        assert given[0].shape == (2, 2, 6, 8)
        assert all(not tensor.requires_grad for tensor in given)
        return
    wanted = [(2, 2, 6, 8)] * 3  # q, k, v
    if scheme != "plain":
        encoding = cases.build(scheme, setting)
        wanted += [tuple(parameter.shape) for parameter in encoding.parameters()]
    if scheme in ("Sinusoidal", "ConditionalEncoding"):
        wanted.append((2, 6, 16))  # the embeddings
    assert [tuple(gradient.shape) for gradient in given] == wanted
    assert all(gradient.abs().sum() > 0 for gradient in given)


def test_a_scheme_that_needs_causal_attention_is_beside_plain_causal_attention():
    setting = bench.Setting((6,), heads=1, head_dim=8, causal=True)
    torch.manual_seed(0)
    (plain,) = cases.prepare("plain", setting, False)()
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 6, 8) for _ in range(3))
    assert torch.allclose(plain, posenc.attention(q, k, v, causal=True), atol=1e-6)
    assert cases.prepare("CoPE", setting, True)()[0].shape == q.shape


def test_what_cannot_have_these_sizes_is_left_out_of_all_and_says_why():
    sizes = {"grid": (2, 3), "heads": 1, "head_dim": 10}
    refused = bench.refusals(**sizes)
    assert {case.scheme for case in refused} == {"FourierBands"}
    assert all(case.refused.startswith("dim must hold a sine and a cosine of ") for case in refused)
    with pytest.raises(ValueError, match="dim must hold a sine and a cosine of"):
        bench.measure(["FourierBands"], **sizes)


def test_plain_and_scheme_take_turns_at_being_first(monkeypatch):
    monkeypatch.setattr(timing, "LEAST_SECONDS", 0.0)
    calls = []
    timing.beside(lambda: calls.append("p"), lambda: calls.append("s"), 3, "cpu")
    assert "".join(calls) == "ppss" + "ps" + "sp" + "ps"


def test_the_ratio_is_of_medians_and_its_spread_of_pairs(monkeypatch):
    seconds = iter([1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 30.0, 10.0, 2.0, 4.0])  # warm-up; then p s, s p, p s
    monkeypatch.setattr(timing, "_seconds", lambda call, count, device: next(seconds))
    ratio = timing.beside(lambda: None, lambda: None, 3, "cpu")
    assert ratio == (4.0 / 2.0, 2.0, 3.0, 2000.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schemes": ["Rotery"]}, "unknown scheme 'Rotery'"),
        ({"dtype": "int8"}, "dtype must be one of float32, bfloat16, float16, float64, got 'int8'"),
        ({"device": "nowhere"}, "device must be one that torch can use here, got 'nowhere'"),
        ({"schemes": ["Rotary"], "head_dim": 7}, "head_dim must be even"),
        ({"device": "meta"}, "device must be one that computes, got 'meta', which has no numbers: for example cpu"),
        ({"schemes": ["IRPE"], "length": 7}, r"length is for schemes of one axis, got 7 \(IRPE has 2\): give the grid"),
        ({"schemes": ["Rotary"], "length": 10**12}, r"1000000000000 tokens need 476837 GiB for q, k, v and the output"),
        ({"length": 0}, "length must be 1 or more, got 0"),
        ({"repeats": 0}, "repeats must be 1 or more, got 0"),
        ({"heads": 0}, "heads must be 1 or more, got 0"),
    ],
)
def test_bad_sizes_are_refused_before_anything_is_measured(options, message):
    with pytest.raises(ValueError, match=message):
        bench.measure(**(SMALL | options))


def test_what_does_not_fit_in_memory_says_so(monkeypatch):
    monkeypatch.setattr(memory.json, "loads", lambda text: ["DefaultCPUAllocator: not enough memory", 1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"Shaw cannot be measured at \(8,\) tokens: DefaultCPUAllocator: not enough"):
        memory.peaks([("Shaw", bench.Setting((8,), heads=1, head_dim=8))])


def test_a_process_that_cannot_measure_answers_with_the_reason(monkeypatch, capfd):
    asked = {"threads": 1, "cases": [("Shaw", bench.Setting((2**24,), heads=1, head_dim=8), False)]}
    monkeypatch.setattr(memory.sys, "stdin", io.StringIO(json.dumps(asked)))
    memory.serve()
    assert "memory" in json.loads(capfd.readouterr().out)[0]


def test_dtype_reaches_the_tensors():
    setting = bench.Setting((4,), heads=2, head_dim=8, dtype="bfloat16")
    assert cases.prepare("Shaw", setting, False)()[0].dtype == torch.bfloat16
    assert next(cases.build("Shaw", setting).parameters()).dtype == torch.bfloat16
