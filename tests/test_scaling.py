"""Rotary scalings: the values themselves, and Hugging Face configs against the frequencies of transformers."""

from __future__ import annotations

import copy
import math
import pickle
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import posenc
from peers import PEERS
from posenc import scaling
from posenc.sinusoid import geometric, require_base

pytestmark = PEERS

VALUES = [
    scaling.linear(4.0),
    scaling.ntk(8.0),
    scaling.dynamic_ntk(2.0, 32),
    scaling.yarn(4.0, 4096),
    scaling.yarn(40.0, 4096, 16, 2, False, 0.707, 0.9),
    scaling.yarn(4.0, 64, attention_factor=1.5),
    scaling.longrope([1.0] * 4 + [1.5] * 4, [2.0 + p for p in range(8)], 64, factor=32.0),
    scaling.longrope([1.0] * 8, [2.0] * 8, 64),
    scaling.llama3(32.0, 8192),
    scaling.llama3(8.0, 512, low=2.0, high=3.0),
    scaling.proportional(0.25),
    scaling.proportional(0.7, factor=2.0),
]


# --- the values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_scaling_is_a_small_value(value: scaling.Scaling) -> None:
    assert copy.deepcopy(value) == value == pickle.loads(pickle.dumps(value))
    assert hash(value) == hash(copy.copy(value))
    assert eval(repr(value), vars(scaling)) == value
    with pytest.raises(AttributeError):
        value.factor = 3.0
    assert sum(value == other for other in VALUES) == 1
    assert all(isinstance(f, float) for f in value.frequencies(10000.0, 8))


def test_scalings_need_the_standard_library_alone() -> None:
    check = "import posenc.scaling.config, sys; print([x for x in ('torch', 'numpy', 'jaxtyping') if x in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


@pytest.mark.parametrize("pairs", [1, 2, 5, 32])
@pytest.mark.parametrize("factor", [1.0, 1.5, 32.0])
def test_ntk_is_another_base(factor: float, pairs: int) -> None:
    ours = scaling.ntk(factor).frequencies(10000.0, pairs)
    base = 10000.0 * factor ** (2 * pairs / (2 * pairs - 2)) if pairs > 1 else 1.0
    assert ours == pytest.approx([base ** (-p / pairs) for p in range(pairs)], rel=1e-13)


def test_llama3_by_value() -> None:
    # 64 channels, base 5e5, factor 32, 1 and 4 turns in 8192 tokens: 15 pairs stay, 3 are blended, 14 are divided
    plain = scaling.linear(1.0).frequencies(5e5, 32)
    ours = scaling.llama3(32.0, 8192, 1.0, 4.0).frequencies(5e5, 32)
    assert ours[:15] == plain[:15]
    assert ours[15] == pytest.approx(0.00129055, rel=1e-5)
    assert all(f / 32 < own < f for f, own in zip(plain[15:18], ours[15:18], strict=True))
    assert ours[18:] == [f / 32 for f in plain[18:]]


def test_longrope_by_value() -> None:
    value = scaling.longrope([1.0, 1.1], [5.0, 64.0], original=4096, factor=32.0)
    assert round(value.attention_factor, 5) == 1.19024 == round(math.sqrt(1 + 5 / 12), 5)
    assert scaling.longrope([1.0], [2.0], 4096, 32.0, attention_factor=1.25).attention_factor == 1.25
    assert scaling.longrope([1.0], [2.0], 4096).attention_factor == 1.0
    rotary = posenc.Rotary(4, scaling=value)
    lengths = torch.tensor([[1], [4096], [4097], [131072]])
    plain = torch.tensor([1.0, 0.01], dtype=torch.float64)
    for row, (length, factors) in enumerate([(1, "short"), (4096, "short"), (4097, "long"), (131072, "long")]):
        wanted = plain / torch.tensor(getattr(value, factors), dtype=torch.float64)
        torch.testing.assert_close(rotary.frequencies(lengths)[row, 0, 0], wanted, rtol=1e-14, atol=0, msg=str(length))


def test_yarn_attention_factor() -> None:
    assert scaling.yarn(4.0, 4096).attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    assert scaling.yarn(1.0, 4096).attention_factor == 1.0
    both = scaling.yarn(40.0, 4096, mscale=1.0, mscale_all_dim=0.5).attention_factor
    assert both == pytest.approx((0.1 * math.log(40) + 1) / (0.05 * math.log(40) + 1))
    for mscale, mscale_all_dim in [(0.707, None), (None, 0.707), (0.707, 0.0), (0.0, 0.707)]:  # as released
        alone = scaling.yarn(40.0, 4096, mscale=mscale, mscale_all_dim=mscale_all_dim).attention_factor
        assert alone == pytest.approx(0.1 * math.log(40) + 1)
    assert scaling.yarn(40.0, 4096, mscale=1.0, mscale_all_dim=0.5, attention_factor=1.3).attention_factor == 1.3


def test_numbers_of_numpy_are_taken_over() -> None:
    ours = [
        scaling.linear(np.float32(4)),
        scaling.dynamic_ntk(np.int64(2), np.int32(32)),
        scaling.yarn(np.float64(4), np.int64(64), truncate=np.bool_(False), attention_factor=np.float32(1.5)),
        scaling.longrope(np.ones(2), (np.float32(2.0), 3), np.int64(64)),
    ]
    plain = [
        scaling.linear(4.0),
        scaling.dynamic_ntk(2.0, 32),
        scaling.yarn(4.0, 64, truncate=False, attention_factor=1.5),
        scaling.longrope([1.0, 1.0], [2.0, 3.0], 64),
    ]
    assert ours == plain
    assert repr(ours) == repr(plain)  # Python's own numbers
    for base in (np.int64(10000), np.float32(10000)):
        for made in (posenc.Rotary(64, base=base), posenc.XPos(64, base=base, scale_base=np.float32(512))):
            assert torch.equal(made.frequencies(), posenc.Rotary(64).frequencies())
    order = posenc.Rotary(np.int64(8), axes=np.int64(2), axis_order=np.array([1, 0])).axis_order
    assert (order, type(order[0])) == ((1, 0), int)
    assert torch.equal(geometric(np.float32(10000), 32, 32), geometric(10000.0, 32, 32))
    assert require_base(np.float32(2)) == 2.0


def test_periods_do_not_know_the_base() -> None:
    for base in (100.0, 10000.0):
        ours = scaling.periods(0.5, 90.0).frequencies(base, 4)
        assert ours == pytest.approx([2 * math.pi / (0.5 * 180 ** (p / 3)) for p in range(4)], rel=1e-13)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: scaling.linear(0.25), "factor must be 1 or more, got 0.25: pass 4"),
        (lambda: scaling.ntk(0), "factor must be 1 or more, got 0: pass 4 for four times the trained length"),
        (lambda: scaling.linear("4"), "factor must be a number, got '4': pass an int or a float"),
        (lambda: scaling.linear(True), "factor must be a number, got True: pass an int or a float"),
        (lambda: scaling.linear(math.inf), "factor must be finite, got inf: pass a finite number"),
        (lambda: scaling.dynamic_ntk(2.0, 0), "original must be 2 or more, got 0: pass the trained length in tokens"),
        (lambda: scaling.yarn(2.0, 4096.0), "original must be a whole number, got 4096.0: pass the trained length in tokens"),
        (lambda: scaling.yarn(4, 4096, 1, 32), "beta_fast must not be below beta_slow, got 1 and 32: the paper has 32 and 1"),
        (lambda: scaling.yarn(4, 4096, beta_slow=0), "beta_slow must be more than 0, got 0: pass a positive number"),
        (lambda: scaling.yarn(4, 4096, truncate="no"), "truncate must be True or False, got 'no': pass one of them"),
        (lambda: scaling.yarn(4, 4096, attention_factor=-1), "attention_factor must be more than 0, got -1: leave it out for the published one"),
        (lambda: scaling.yarn(4, 4096, attention_factor=0), "attention_factor must be more than 0, got 0: leave it out for the published one"),
        (lambda: scaling.yarn(4, 4096, mscale=-20, mscale_all_dim=1), "mscale must leave an attention factor of more than 0, got -20 with factor 4: DeepSeek has 0.707 and 1"),
        (lambda: scaling.yarn(math.e, 4096, mscale=1.0, mscale_all_dim=-10.0), "mscale_all_dim must leave an attention factor of more than 0, got -10 with factor 2.71828: DeepSeek has 0.707 and 1"),
        (lambda: scaling.linear(10**400), "factor must be finite, got inf: pass a finite number"),
        (lambda: scaling.linear(torch.tensor(2.0)), "factor must be a number, got tensor(2.): pass an int or a float"),
        (lambda: scaling.dynamic_ntk(2.0, 2**63), "original must fit in 62 bits, got 9223372036854775808: pass the trained length in tokens"),
        (lambda: scaling.periods(1e-320, 1.0), "shortest must be from 1e-100 to 1e100, got 9.99989e-321: pass a number that floats can invert"),
        (lambda: scaling.longrope({1.0}, [2.0], 4096), "short must be a list of numbers, got {1.0}: pass one factor a pair of channels"),
        (lambda: scaling.longrope([1.0], {2.0: 3}, 4096), "long must be a list of numbers, got {2.0: 3}: pass one factor a pair of channels"),
        (lambda: scaling.longrope(torch.ones(2), [2.0] * 2, 4096), "short must be a list of numbers, got tensor([1., 1.]): pass one factor a pair of channels"),
        (lambda: scaling.longrope(np.ones((1, 1)), [2.0], 4096), "short must be a list of numbers, got array([[1.]]): pass one factor a pair of channels"),
        (lambda: scaling.longrope("1", [2.0], 4096), "short must be a list of numbers, got '1': pass one factor a pair of channels"),
        (lambda: posenc.Rotary(8, base=1e-320), "base must be from 1e-30 to 1e30, got 1e-320: the papers use 10000"),
        (lambda: posenc.Rotary(8, base=10**400), "base must be finite, got inf: the papers use 10000"),
        (lambda: posenc.Rotary(8, base="10000"), "base must be a number, got '10000': the papers use 10000"),
        (lambda: posenc.Rotary(8, axes=2, axis_order=1), "axis_order must be a list of numbers, got 1: (1, 0)"),
        (lambda: posenc.Rotary(8, base=1.0, scaling=scaling.yarn(4, 4096)), "yarn needs a base of more than 1, got 1: the papers use 10000"),
        (lambda: scaling.longrope([1.0], [2.0, 3.0], 4096), "short and long must each have one factor a pair of channels, got 1 and 2: give as many of both"),
        (lambda: scaling.longrope(1.0, [2.0], 4096), "short must be a list of numbers, got 1.0: pass one factor a pair of channels"),
        (lambda: scaling.longrope([0.0], [2.0], 4096), "each factor of short must be more than 0, got 0: pass a positive number"),
        (lambda: posenc.Rotary(8, scaling=scaling.longrope([1.0], [2.0], 4096)), "longrope must have one factor a pair of channels, got 1 for 4 pairs: pass 4 factors, or rotate 2 channels"),
        (lambda: scaling.llama3(8, 8192, low=4, high=4), "high must be more than low, got low=4 and high=4: Llama 3.1 has 1 and 4"),
        (lambda: scaling.proportional(25), "partial must be from 0 to 1, got 25: pass the part of the pairs that turns"),
        (lambda: scaling.periods(90, 0.5), "longest must not be below shortest, got 0.5 and 90: swap them"),
        (lambda: posenc.Rotary(8, scaling="yarn"), "scaling must be made by posenc.scaling, got 'yarn': pass scaling.linear(4)"),
        (lambda: posenc.Rotary(8, precision="half"), "precision must be 'exact' or 'float32', got 'half': pass one of them"),
        (lambda: posenc.Rotary(8, axes=2, axis_order=(0, 0)), "axis_order must name each of the 2 axes once, got (0, 0): for width first (1, 0)"),
        (lambda: scaling.linear(2.0).at(torch.ones(1), 100.0, 2), "linear does not depend on the length of the sequence: use multipliers"),
    ],
)  # fmt: skip
def test_messages(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        make()
    assert str(raised.value) == message


# --- Hugging Face configs ---------------------------------------------------------------------------------------------


def draw_parameters(kind: str, pairs: int) -> dict[str, Any]:
    """Random settings of one type, some of the optional keys left out or None."""
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": 10.0 ** random.uniform(2, 7)}
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        rope["factor"] = random.choice([1.0, 2.0, random.uniform(1, 64)])
    if kind in ("yarn", "longrope", "llama3") and random.random() < 0.7:
        rope["original_max_position_embeddings"] = random.choice([2048, 4096, random.randint(64, 32768)])
    if kind == "proportional":
        rope["partial_rotary_factor"] = random.choice([0.25, 0.5, 1.0, random.uniform(0.05, 1)])
        if random.random() < 0.5:
            rope["factor"] = random.uniform(1, 16)
    if kind == "llama3":
        low = random.uniform(0.5, 2)
        rope |= {"low_freq_factor": low, "high_freq_factor": low + random.uniform(0.5, 8)}
    if kind == "longrope":
        rope["short_factor"] = [random.uniform(1, 2) for _ in range(pairs)]
        rope["long_factor"] = [random.uniform(1, 64) for _ in range(pairs)]
        optional = {"factor": random.uniform(1, 64), "attention_factor": random.uniform(0.5, 2)}
        rope |= {key: value for key, value in optional.items() if random.random() < 0.4}
    if kind == "yarn":
        slow = random.uniform(0.5, 4)
        optional = {
            "beta_slow": slow,
            "beta_fast": slow + random.uniform(0, 60),
            "truncate": random.random() < 0.5,
            "attention_factor": random.choice([None, random.uniform(0.5, 2)]),
            "mscale": random.choice([None, 0.0, random.uniform(0.1, 2)]),
            "mscale_all_dim": random.choice([None, 0.0, random.uniform(0.1, 2)]),
        }
        rope |= {key: value for key, value in optional.items() if random.random() < 0.6}
        rope["beta_fast"] = max(rope.get("beta_fast", 32.0), rope.get("beta_slow", 1.0))
    return rope


def make_config(**entries: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(**{"hidden_size": 256, "num_attention_heads": 4, **entries})


class TorchInDoubles:
    """torch, where what is asked for in float32 is given in float64."""

    float = float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def theirs(config: Any, kind: str, length: int | None = None, layer_type: str | None = None) -> tuple[Any, float]:
    """Frequencies by the code of transformers, in float64; and the attention factor.

    As released it computes in float32, and there is no small bound for that: yarn and llama3 divide a difference of two
    numbers by another one, which may be small, and what comes of it is up to `factor` times as large beside a divided
    frequency. What it does in float32 is tested where we do the same, in `test_float32_precision_...`.
    """
    from transformers import modeling_rope_utils

    config = copy.deepcopy(config)
    if kind == "default":
        config.rope_parameters |= {"rope_type": "linear", "factor": 1.0}
        kind = "linear"
    compute = modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_rope_utils, "torch", TorchInDoubles())
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        frequencies, attention_factor = compute(config, seq_len=length, layer_type=layer_type)
    assert frequencies.dtype == torch.float64
    return frequencies, attention_factor


def assert_same(rotary: posenc.Rotary, wanted: tuple[Any, float], length: int | None = None) -> None:
    """Equal up to float64 roundings, relative to each frequency: an absolute tolerance passes a wrong slow one.

    The worst is a ramp of yarn, whose ends are of size 64 (pairs), a few roundings off, and its width 0.001 where they
    are the same; beside a frequency that is divided by 64 (factor) that is 64 · 64 / 0.001 · 2⁻⁵² = 9e-10.
    """
    lengths = None if length is None or not rotary.by_length else torch.tensor([[length]])
    ours = rotary.frequencies(lengths).flatten()
    torch.testing.assert_close(ours, wanted[0], rtol=1e-9, atol=0)
    assert rotary.attention_factor == pytest.approx(wanted[1], rel=1e-12)


KINDS = ["default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"]


@pytest.mark.parametrize("kind", KINDS)
def test_configs_give_the_frequencies_of_transformers(kind: str) -> None:
    for _ in range(25):
        head_dim, part = random.choice([16, 64, 80, 128]), random.choice([None, 0.25, 0.5, 1.0])
        width = head_dim if part is None else int(head_dim * part)
        trained = random.choice([64, 4096, random.randint(100, 10000)])
        rope = draw_parameters(kind, width // 2)
        if part is not None:
            rope.setdefault("partial_rotary_factor", part)
        grown = max(rope.get("original_max_position_embeddings", trained), trained) * random.choice([1, 4])
        config = make_config(head_dim=head_dim, max_position_embeddings=grown, rope_parameters=dict(rope))
        lengths = [None]
        if kind in ("dynamic", "longrope"):
            edge = config.rope_parameters.get("original_max_position_embeddings", grown)
            lengths += [1, edge, edge + 1, edge + random.randint(1, 1000), 7 * edge]
        for length in lengths:
            assert_same(posenc.Rotary.from_config(config), theirs(config, kind, length), length)

        # the same from a dictionary, and from the old form
        entries = {"head_dim": head_dim, "max_position_embeddings": grown}
        wanted = posenc.Rotary.from_config(config)
        inside = {key: value for key, value in rope.items() if key not in ("rope_theta", "partial_rotary_factor")}
        inside[random.choice(["type", "rope_type"])] = inside.pop("rope_type")
        beside = {key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope}
        for given in (entries | {"rope_parameters": rope}, entries | beside | {"rope_scaling": inside}):
            untouched = copy.deepcopy(given)
            assert repr(posenc.Rotary.from_config(given)) == repr(wanted)
            assert given == untouched


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "default"])
def test_a_layer_type_has_its_own(kind: str) -> None:
    from transformers import Gemma3TextConfig

    for _ in range(10):
        rope = {
            "full_attention": draw_parameters(kind, 32),
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
        config = Gemma3TextConfig(head_dim=64, max_position_embeddings=4096, rope_parameters=copy.deepcopy(rope))
        assert_same(
            posenc.Rotary.from_config(config, layer_type="full_attention"),
            theirs(config, kind, layer_type="full_attention"),
        )
        local = posenc.Rotary.from_config(config, layer_type="sliding_attention")
        assert (local.base, local.scaling) == (1e4, None)
    with pytest.raises(ValueError, match="layer_type must be given, the config has full_attention, sliding_attention"):
        posenc.Rotary.from_config(config)
    with pytest.raises(ValueError, match="got 'slidng_attention': pass one of them"):
        posenc.Rotary.from_config(config, layer_type="slidng_attention")
    with pytest.raises(ValueError, match="one rotary for all layers, got layer_type='full_attention': leave it out"):
        posenc.Rotary.from_config(make_config(), layer_type="full_attention")


def test_a_config_whose_layer_types_have_sizes_of_their_own() -> None:
    from transformers import Gemma4TextConfig

    config = Gemma4TextConfig()
    rotary = posenc.Rotary.from_config(config, layer_type="full_attention")
    assert rotary.head_dim == config.per_layer_config["full_attention"].head_dim
    assert_same(rotary, theirs(config, "proportional", layer_type="full_attention"))


@pytest.mark.parametrize("form", ["new", "old"])
def test_a_config_that_we_write_is_read_alike(form: str) -> None:
    rotaries = [
        posenc.Rotary(16, base=random.choice([1e4, 5e5]), scaling=value, rotary_dim=width)
        for value in [None, *VALUES]
        for width in ([None, 8, 10] if not isinstance(getattr(value, "short", None), tuple) else [None])
        if value is None or width is None or value.name != "proportional"
    ]
    rotaries += [posenc.Rotary(head, rotary_dim=width) for head in (15, 80, 96) for width in range(2, head, 2)]
    for rotary in rotaries:
        written = rotary.to_config(form)
        again = posenc.Rotary.from_config(written)
        assert again.to_config(form) == written
        lengths = torch.tensor([[3], [100]]) if rotary.by_length else None
        torch.testing.assert_close(again.frequencies(lengths), rotary.frequencies(lengths), rtol=1e-14, atol=0)
        if rotary.scaling is None or rotary.scaling.name != "ntk":
            assert repr(again) == repr(rotary)
            assert again.scaling == rotary.scaling
        if rotary.head_dim % 2 == 0 and rotary.rotary_dim > 2:
            their = make_config(**written)
            kind = their.rope_parameters["rope_type"]
            if again.scaling is not None and (kind != "longrope" or rotary.scaling.factor):
                assert_same(rotary, theirs(their, kind))


def test_what_a_config_has_no_words_for() -> None:
    with pytest.raises(ValueError, match="a config has words for one axis, got 2"):
        posenc.Rotary(16, axes=2).to_config()
    with pytest.raises(ValueError, match="no words for the scaling 'periods', got periods"):
        posenc.Rotary(16, scaling=scaling.periods(1, 2)).to_config()
    with pytest.raises(
        ValueError, match=r"form must be 'new' \(rope_parameters\) or 'old' \(rope_scaling\), got 'newer'"
    ):
        posenc.Rotary(16).to_config("newer")
    with pytest.raises(ValueError, match="proportional is of the whole head, got rotary_dim=8: leave rotary_dim out"):
        posenc.Rotary(16, rotary_dim=8, scaling=scaling.proportional(0.5)).to_config()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"rope_scaling": {"type": "yran", "factor": 2.0}}, "rope_type must be one of default, linear, dynamic, yarn, longrope, llama3, proportional, got 'yran': did you mean 'yarn'? "),
        ({"rope_scaling": {"type": "linear", "facter": 2.0}}, "rope_type 'linear' has no key 'facter' that changes rotary as this library knows it: did you mean 'factor'?"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fats": 32}}, "did you mean 'beta_fast'?"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "finetuned": True}}, "has no key 'finetuned'"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_thetta": 5e5}}, "did you mean 'rope_theta'?"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "original_max_position_embeddings": 64}}, "has no key 'original_max_position_embeddings'"),
        ({"rope_scaling": {"type": "default", "mrope_section": [2, 3, 3]}}, "Rotary has one position a token, got a config of M-RoPE: use MultimodalRotary.from_config"),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}, "use MultimodalRotary.from_config"),
        ({"rope_scaling": {"type": "linear"}}, "rope_type 'linear' needs 'factor', got type: add it to the config"),
        ({"rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}}, "needs 'high_freq_factor'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 8.0}}, "the config must have 'max_position_embeddings', got none: add it"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "factor must be 1 or more, got 0.5: pass 2"),
        ({"rope_scaling": "linear"}, "rope_scaling must be a dictionary, got str: pass one, or None"),
        ({"rope_teta": 5e5}, "the config has no key 'rope_teta' that changes rotary as this library knows it: did you mean 'rope_theta'?"),
        ({"rope_scalling": {}}, "did you mean 'rope_scaling'?"),
        ({"rope_local_base_freq": 1e4}, "layer_type must be given, the config has full_attention, sliding_attention"),
        ({"partial_rotary_factor": 0.2}, "rotary_dim must be even and from 2 to head_dim = 16, got 3: pass rotary_dim=2"),
        ({"rope_theta": "500000"}, "rope_theta must be a number, got '500000': pass an int or a float"),
        ({"rope_theta": [1e6]}, "rope_theta must be a number, got [1000000.0]"),
        ({"rope_theta": torch.tensor(1e6)}, "rope_theta must be a number, got tensor(1000000.)"),
        ({"rope_theta": True}, "rope_theta must be a number, got True"),
        ({"rope_theta": math.nan}, "rope_theta must be finite, got nan"),
        ({"rope_theta": None}, "rope_theta must be a number, got None: give the base, 10000 in the papers, or leave it out"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": "1e6"}}, "rope_theta among the parameters must be a number, got '1e6'"),
        ({"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, "the config contradicts itself, got rope_theta among the parameters 1e+06 and rope_theta 10000: leave one"),
        ({"rope_theta": 1e4, "rotary_emb_base": 2e4}, "the config contradicts itself, got rope_theta 10000 and rotary_emb_base 20000: leave one"),
        ({"partial_rotary_factor": 0.5, "rotary_pct": 0.25}, "the config contradicts itself, got partial_rotary_factor 0.5 and rotary_pct 0.25: leave one"),
        ({"rope_theta": 1e6, "local_rope_theta": 1e4}, "one base must serve all layers, got 'local_rope_theta' = 10000.0: make each rotary yourself"),
        ({"rope_theta": 1e6, "layer_rope_theta": [1e6, 1e4]}, "one base must serve all layers, got 'layer_rope_theta' = [1000000.0, 10000.0]"),
        ({"rope_parameters": {"full": {"rope_type": "default"}, "rope_theta": 1e6}}, "rope_parameters has layer types (full), got 'rope_theta' beside them, where transformers ignores it: put it into each"),
        ({"rope_parameters": {"full": {"rope_type": "default"}, "rope_tehta": 1e6}}, "got 'rope_tehta' beside them"),
        ({"ROPE_THETA": 1e6}, "the config has no key 'ROPE_THETA' that changes rotary as this library knows it: did you mean 'rope_theta'?"),
        ({"theta": 1e6}, "the config has no key 'theta' that changes rotary as this library knows it: did you mean 'rope_theta'?"),
        ({"orignal_max_position_embeddings": 64}, "the config has no key 'orignal_max_position_embeddings' that changes rotary as this library knows it: did you mean 'original_max_position_embeddings'?"),
        ({"max_positions_embeddings": 64}, "did you mean 'max_position_embeddings'?"),
        ({"head_dim": None, "headdim": 64}, "the config has no key 'headdim' that changes rotary as this library knows it: did you mean 'head_dim'?"),
        ({"rope_interleave": "no"}, "rope_interleave must be True or False, got 'no': pass one of them"),
        ({"rope_interleave": 0}, "rope_interleave must be True or False, got 0"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}, "rope_scaling and rope_parameters must say the same, got {'type': 'linear', 'factor': 2.0} and {'rope_type': 'linear', 'factor': 4.0}: drop one of them"),
        ({"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2.0}}, "rope_type and type must be the same, got 'dynamic' and 'linear': drop type"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_type is missing beside factor: add it, one of default, linear, dynamic, yarn, longrope, llama3, proportional"),
        ({"rope_scaling": {"rope_type": None, "factor": 2.0}}, "rope_type is missing beside factor: add it"),
        ({"rope_scaling": {"rope_tpye": "linear", "factor": 2.0}}, "the config has no key 'rope_tpye' that changes rotary as this library knows it: did you mean 'rope_type'?"),
        ({"rope_scaling": {"rope_type": ["linear"], "factor": 2.0}}, "rope_type must be a string, got ['linear']: pass one of default, linear"),
        ({"rope_scaling": []}, "rope_scaling must be a dictionary, got list: pass one, or None"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 0}}, "original_max_position_embeddings must be 2 or more, got 0: pass the trained length"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}, "max_position_embeddings": "64"}, "max_position_embeddings must be a whole number, got '64': pass the trained length"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fast": 0}, "max_position_embeddings": 64}, "beta_fast must be more than 0, got 0: pass a positive number"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor must be a number, got '2': pass an int or a float"),
        ({"head_dim": "64"}, "head_dim must be a whole number, got '64': pass the channels of a head"),
        ({"head_dim": None, "hidden_size": "64", "num_attention_heads": 4}, "hidden_size must be a whole number, got '64': pass head_dim="),
        ({"head_dim": None, "hidden_size": 100, "num_attention_heads": 8}, "hidden_size must be a multiple of num_attention_heads, got 100 and 8: pass head_dim="),
        ({"partial_rotary_factor": "0.5"}, "partial_rotary_factor must be a number, got '0.5': pass an int or a float"),
        ({"partial_rotary_factor": math.nan}, "partial_rotary_factor must be finite, got nan: pass a finite number"),
        ({"partial_rotary_factor": 2}, "partial_rotary_factor must be more than 0 and at most 1, got 2: 1 turns all channels"),
        ({"text_config": "text"}, "text_config must be a Hugging Face config or a dictionary, got str: pass one"),
        ({"head_dim": None}, "the config must have head_dim, or hidden_size and num_attention_heads, got neither: pass head_dim="),
    ],
)  # fmt: skip
def test_what_a_config_says_wrong(entries: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        posenc.Rotary.from_config({"head_dim": 16, **entries})
    assert message in str(raised.value)


def test_what_a_config_of_many_layers_says_once() -> None:
    rope = {"full": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e6}, "none": None, "truncate": False}
    rotary = posenc.Rotary.from_config({"head_dim": 16, "max_position_embeddings": 64, "rope_parameters": rope}, layer_type="full")  # fmt: skip
    assert rotary.scaling == scaling.yarn(2.0, 64, truncate=False)  # as transformers has it, beside the layer types
    beside = {"head_dim": 16, "rope_theta": 1e6, "rope_parameters": {"full": {}, "near": {"rope_theta": 1e4}}}
    assert [posenc.Rotary.from_config(beside, layer_type=name).base for name in ("full", "near")] == [1e6, 1e4]


def test_what_is_said_twice_alike_is_read() -> None:
    both = {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 1e6}}  # fmt: skip
    rotary = posenc.Rotary.from_config({"head_dim": np.int64(16), "rope_theta": np.float32(1e6), **both})
    assert (rotary.base, rotary.scaling, type(rotary.base)) == (1e6, scaling.linear(2.0), float)
    assert posenc.Rotary.from_config({"head_dim": 16, "layer_rope_theta": [1e4, 0]}).base == 1e4
    sections = {"rope_type": "default", "mrope_section": (2, 3, 3)}
    for entries, message in [
        ({"mrope_section": 8}, "mrope_section must be a list of numbers, got 8: pass \\[16, 24, 24\\]"),
        ({"mrope_section": [2, 3, "3"]}, "each of sections must be an integer, got '3'"),
        ({"mrope_interleaved": "no"}, "mrope_interleaved must be True or False, got 'no'"),
        ({"mrope_interleaved": 1}, "mrope_interleaved must be True or False, got 1"),
    ]:
        with pytest.raises(TypeError, match=message):
            posenc.MultimodalRotary.from_config({"head_dim": 16, "rope_parameters": sections | entries})


def test_where_a_config_has_its_sizes() -> None:
    from transformers import DeepseekV3Config, GPTNeoXConfig, Qwen2VLConfig

    with pytest.raises(TypeError, match="config must be a Hugging Face config or a dictionary, got int"):
        posenc.Rotary.from_config(64)
    assert posenc.Rotary.from_config({"hidden_size": 96, "num_attention_heads": 4}).head_dim == 24
    latent = {"hidden_size": 96, "num_attention_heads": 4, "qk_rope_head_dim": 8, "rope_interleave": False}
    assert (
        posenc.Rotary.from_config(latent).head_dim == posenc.Rotary.from_config({**latent, "head_dim": 0}).head_dim == 8
    )
    assert posenc.Rotary.from_config({"hidden_size": 96, "num_attention_heads": 4}, head_dim=32).head_dim == 32
    neox = {"hidden_size": 96, "num_attention_heads": 3, "rotary_pct": 0.25, "rotary_emb_base": 2e4}
    rotary = posenc.Rotary.from_config(neox)
    assert (rotary.rotary_dim, rotary.base) == (8, 2e4)
    rotary = posenc.Rotary.from_config(GPTNeoXConfig())
    assert (rotary.rotary_dim, rotary.base) == (24, 1e4)
    deepseek = posenc.Rotary.from_config(DeepseekV3Config(), precision="float32")
    assert (deepseek.head_dim, deepseek.layout, deepseek.precision) == (64, "interleaved", "float32")
    assert posenc.Rotary.from_config(DeepseekV3Config(), layout="half").layout == "half"
    text = posenc.Rotary.from_config(Qwen2VLConfig())
    assert (text.head_dim, text.base) == (128, 1e6)


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["default", "linear", "llama3"])
def test_float32_precision_has_the_very_bits_of_transformers(kind: str) -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = draw_parameters(kind, 32) | {"rope_theta": 500000.0}
    rope |= {"factor": 8.0} if kind == "linear" else {}
    if kind == "llama3":  # so long that the first pairs turn more than 10 times in it, and are not blended
        rope["original_max_position_embeddings"] = 4096
    config = make_config(head_dim=64, max_position_embeddings=8192, rope_parameters=rope)
    where = torch.tensor([[0, 1, 4095, 100_003, 1_000_000]])
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), where)
    positions = posenc.coordinates(where[0, :, None])
    ours = posenc.Rotary.from_config(config, precision="float32").cos_sin(positions)
    exact = posenc.Rotary.from_config(config).cos_sin(positions)
    for own, right, their in zip(ours, exact, (cos, sin), strict=True):
        pairs = 32 if kind != "llama3" else 8  # blended ones are a rounding apart
        assert torch.equal(own[0, 0, :, :pairs], their[0, :, :pairs])
        assert (right[0, 0] - their[0, :, :32]).abs().max() > 1e-3  # which the exact ones are not


def test_the_first_name_of_longrope_is_read() -> None:
    rope = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "type": "su"}
    config = {"head_dim": 8, "max_position_embeddings": 64, "original_max_position_embeddings": 16}
    old = posenc.Rotary.from_config({**config, "rope_scaling": rope})
    assert old.scaling == posenc.Rotary.from_config({**config, "rope_scaling": {**rope, "type": "longrope"}}).scaling


def test_the_local_layers_of_the_old_form_of_gemma_3_have_a_base_of_their_own() -> None:
    config = {
        "head_dim": 8,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    read = posenc.Rotary.from_config
    full, local = read(config, layer_type="full_attention"), read(config, layer_type="sliding_attention")
    assert (full.base, full.scaling) == (1e6, posenc.scaling.linear(8.0))
    assert (local.base, local.scaling) == (1e4, None)
    plain = read({**config, "rope_scaling": None}, layer_type="full_attention")
    assert (plain.base, plain.scaling) == (1e6, None)
    with pytest.raises(ValueError, match="layer_type must be given, the config has full_attention, sliding_attention"):
        read(config)


def test_the_width_that_turns_may_be_said_in_channels() -> None:
    config = {"head_dim": 32, "rotary_dim": 8}
    assert posenc.Rotary.from_config(config).rotary_dim == 8
    assert posenc.Rotary.from_config({**config, "partial_rotary_factor": 0.25}).rotary_dim == 8
    with pytest.raises(ValueError, match=r"contradicts itself, got rotary_dim 8 and partial_rotary_factor 0\.5 of 32"):
        posenc.Rotary.from_config({**config, "partial_rotary_factor": 0.5})
    from transformers import GPTJConfig

    rotary = posenc.Rotary.from_config(GPTJConfig(n_embd=64, n_head=4, rotary_dim=6), layout="interleaved")
    assert (rotary.head_dim, rotary.rotary_dim, rotary.layout) == (16, 6, "interleaved")


def test_latent_attention_must_say_how_channels_are_paired() -> None:
    config = {"qk_rope_head_dim": 64, "hidden_size": 7168, "num_attention_heads": 128}
    with pytest.raises(ValueError, match="layout must be given where a config has qk_rope_head_dim"):
        posenc.Rotary.from_config(config)
    assert posenc.Rotary.from_config(config, layout="half").layout == "half"
    for says, layout in ((True, "interleaved"), (False, "half")):
        assert posenc.Rotary.from_config({**config, "rope_interleave": says}).layout == layout


def test_a_trained_length_beside_the_parameters_comes_first() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    config = {"head_dim": 8, "max_position_embeddings": 4096, "rope_scaling": rope}
    assert posenc.Rotary.from_config(config).scaling.original == 512
    assert posenc.Rotary.from_config({**config, "original_max_position_embeddings": 256}).scaling.original == 256
