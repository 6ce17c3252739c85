"""Numbers that others trained, where they do not fit: refused by value, with nothing written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import posenc

pytestmark = pytest.mark.usefixtures("seed")

SWIN = "relative_position_bias_table"
SIZES = "make the encoding with the sizes that it was trained with"
Make = Callable[[], posenc.Encoding]


def refused(encoding: posenc.Encoding, state: Any, source: Any, message: str, prefix: Any = "") -> None:
    """Loading raises exactly this, and writes nothing."""
    before = {name: tensor.clone() for name, tensor in encoding.state_dict().items()}
    with pytest.raises((ValueError, TypeError), match=f"^{re.escape(message)}$"):
        encoding.load_foreign(state, source, prefix)
    for name, tensor in encoding.state_dict().items():
        assert tensor.is_meta or torch.equal(tensor, before[name])


# Tables of another window or kind


@pytest.mark.parametrize(
    ("make", "state", "source", "message"),
    [
        (
            lambda: posenc.RelativePositionBias(4, (5, 2)),
            {SWIN: (4, 3, 9)},
            "maxvit",
            f"'{SWIN}' must have shape (4, 9, 3) here, got (4, 3, 9) from 'maxvit': {SIZES}",
        ),
        (
            lambda: posenc.RelativePositionBias(4, (5, 2), windowed=True),
            {"rpb": (4, 3, 9)},
            "natten",
            f"'rpb' must have shape (4, 9, 3) here, got (4, 3, 9) from 'natten': {SIZES}",
        ),
        (
            lambda: posenc.RelativePositionBias(4, (5, 2)),
            {SWIN: (4, 27)},
            "maxvit",
            f"'{SWIN}' must have shape (4, 9, 3) here, got (4, 27) from 'maxvit': {SIZES}",
        ),
        (
            lambda: posenc.RelativePositionBias(4, 3),
            {"rpb": (4, 5)},
            "natten",
            "'natten' trains with windowed=True, got a RelativePositionBias with windowed=False: "
            "make it with windowed=True",
        ),
        (
            lambda: posenc.RelativePositionBias(4, 3),
            {"attention_biases": (4, 5)},
            "levit",
            "'levit' trains with symmetric=True, got a RelativePositionBias with symmetric=False: "
            "make it with symmetric=True",
        ),
        *(
            (
                lambda: posenc.RelativePositionBias(4, (3, 3), symmetric=True),
                {SWIN: (9, 4)},
                source,
                f"'{source}' trains with symmetric=False, got a RelativePositionBias with symmetric=True: "
                "make it with symmetric=False",
            )
            for source in ("swin", "timm", "beit")
        ),
        (
            lambda: posenc.RelativeLogits(8, 5, causal=True),
            {"rel_pos_emb": (5, 8)},
            "self_attention_cv",
            "'self_attention_cv' trains with causal=False, got a RelativeLogits with causal=True: "
            "make it with causal=False",
        ),
        *(
            (
                lambda: posenc.RelativeLogits(8, (3, 2)),
                {"rel_pos_h": (5, 8), "rel_pos_w": (3, 8)},
                source,
                f"'{source}' trains with scaled=False, got a RelativeLogits with scaled=True: make it with scaled=False",
            )
            for source in ("sam", "vitdet", "mvitv2")
        ),
        (
            lambda: posenc.Deberta(2, 4, buckets=4, max_distance=9, terms="c2p"),
            {"rel_embeddings.weight": (8, 8), "pos_proj.weight": (8, 8)},
            "deberta_v1",
            "'deberta_v1' trains with buckets=None, got a Deberta with buckets=4: make it with buckets=None",
        ),
        (
            lambda: posenc.Deberta(2, 4, published=True),
            {},
            "deberta",
            "'deberta' trains with published=False, got a Deberta with published=True: make it with published=False",
        ),
        (
            lambda: posenc.CoPE(6, 5),
            {"pos_emb": (5, 6), "talking_heads.weight": (3, 3, 1, 1)},
            "x_transformers",
            "'x_transformers' must be without heads that mix before they count to be this scheme, got "
            "'talking_heads.weight': take over a model that was trained without",
        ),
        (
            lambda: posenc.CoPE(6, 5),
            {"pos_emb": (5, 6), "positions": (5,)},
            "x_transformers",
            "'x_transformers' must be without a soft choice of rows to be this scheme, got 'positions': "
            "take over a model that was trained without",
        ),
        (
            lambda: posenc.ContinuousPositionBias(3, (3, 5), hidden=4),
            {"mlp.fc1.weight": (4, 2), "mlp.fc1.bias": (4,), "mlp.fc2.weight": (3, 4), "mlp.fc2.bias": (3,)},
            "timm",
            "'timm' must be without a bias of the output (timm's mode 'cr') to be this scheme, got 'mlp.fc2.bias': "
            "take over a model that was trained without",
        ),
    ],
)
def test_tables_of_another_kind(make: Make, state: Mapping[str, tuple[int, ...]], source: str, message: str) -> None:
    refused(make(), {name: torch.randn(shape) for name, shape in state.items()}, source, message)


# What are no numbers for this module


@pytest.mark.parametrize(
    ("table", "message"),
    [
        *(
            (
                torch.zeros(5, 4).to(dtype),
                f"must be a dense tensor of real numbers, got {dtype}: dequantise or convert it",
            )
            for dtype in (torch.complex64, torch.bool, torch.int8, torch.int64, torch.float8_e4m3fn)
        ),
        (
            torch.zeros(5, 4).to_sparse(),
            "must be a dense tensor of real numbers, got torch.sparse_coo: dequantise or convert it",
        ),
        (torch.full((5, 4), torch.nan), "must be finite, got NaN or infinity: load the numbers as they were saved"),
        (torch.full((5, 4), -torch.inf), "must be finite, got NaN or infinity: load the numbers as they were saved"),
        (torch.zeros(5, 4, device="meta"), "must have numbers, got a tensor on meta: load the state on the CPU"),
        (torch.zeros(5, 4).numpy(), "must be a tensor, got ndarray: convert it with torch.as_tensor"),
    ],
)
def test_what_are_no_numbers(table: object, message: str) -> None:
    refused(posenc.RelativePositionBias(4, 3), {f"b.{SWIN}": table}, "swin", f"'b.{SWIN}' {message}", prefix="b.")


@pytest.mark.parametrize(("dtype", "largest"), [(torch.float16, 1e5), (torch.bfloat16, 3.4e38), (torch.float32, 1e39)])
def test_numbers_too_large_for_the_module(dtype: torch.dtype, largest: float) -> None:
    table = torch.full((5, 4), -largest, dtype=torch.float64)
    message = (
        f"table of this RelativePositionBias is {dtype}, got numbers up to {largest:.3g} from 'swin', "
        "which are infinite there: load into a wider dtype, float32 or float64"
    )
    refused(posenc.RelativePositionBias(4, 3).to(dtype), {SWIN: table}, "swin", message)
    assert torch.equal(posenc.RelativePositionBias(4, 3).double().load_foreign({SWIN: table}, "swin").table, table.T)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_widths_are_cast(dtype: torch.dtype) -> None:
    table = torch.randn(5, 4, requires_grad=True)
    ours = posenc.RelativePositionBias(4, 3).to(dtype).load_foreign({SWIN: table}, "swin")
    assert torch.equal(ours.table, table.T.to(dtype))
    assert ours.table.is_leaf


def test_a_module_on_meta() -> None:
    with torch.device("meta"):
        bias = posenc.RelativePositionBias(4, 3)
    message = "RelativePositionBias is on meta and has no numbers to fill: materialise it with to_empty first"
    refused(bias, {SWIN: torch.zeros(5, 4)}, "swin", message)
    table = torch.randn(5, 4)
    assert torch.equal(bias.to_empty(device="cpu").load_foreign({SWIN: table}, "swin").table, table.T)


@pytest.mark.parametrize(
    "wrong", [torch.zeros(2, 3), torch.full((2, 4), torch.nan), torch.full((2, 4), 1e39, dtype=torch.float64)]
)
def test_nothing_is_written_where_the_last_tensor_is_refused(wrong: Tensor) -> None:
    ours = posenc.TransformerXL(2, 4)
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    state = {"r": torch.randn(8, 2, 4), "r_w_bias": torch.randn(2, 4)}
    with pytest.raises(ValueError, match=r"r_r_bias|position_bias"):
        ours.load_foreign({**state, "r_r_bias": wrong}, "xlnet")
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())
    ours.load_foreign({**state, "r_r_bias": torch.ones(2, 4)}, "xlnet")
    assert not any(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())


# Hints


def hint(encoding: posenc.Encoding, state: Mapping[Any, object], source: str, prefix: str = "") -> str:
    with pytest.raises(ValueError, match="must have a tensor") as caught:
        encoding.load_foreign(state, source, prefix)
    return str(caught.value).rpartition(", got none: ")[2]


def test_the_prefix_that_is_missing_is_said() -> None:
    conditional, zeros = posenc.ConditionalEncoding(8), torch.zeros(1)
    state = {"blocks.0.attn.qkv.weight": zeros, "pos_block.0.proj.0.weight": zeros, 3: zeros}
    assert hint(conditional, state, "cpvt") == "pass prefix='pos_block.0.'"
    assert hint(conditional, {"proj.0.weight": zeros}, "cpvt", "x.") == "pass prefix=''"
    blocks = [f"{block}.proj.0.weight" for block in (10, 2, 1, 0)]
    assert hint(conditional, dict.fromkeys(blocks[:2], zeros), "cpvt") == "pass prefix='10.' or '2.'"
    several = "pass prefix='10.' or '2.' or '1.'"
    assert hint(conditional, dict.fromkeys(blocks[:3], zeros), "cpvt") == several
    assert hint(conditional, dict.fromkeys(blocks, zeros), "cpvt") == several + " or another"


def test_without_a_prefix_that_fits_the_nearest_names_are_said() -> None:
    bias, zeros = posenc.RelativePositionBias(4, 3), torch.zeros(1)
    start = "pass the state of the module that has it, this one "
    assert hint(bias, {}, "swin") == start + "is empty"
    assert hint(bias, {"qkv.weight": zeros}, "swin") == start + "has names such as 'qkv.weight'"
    names = [f"unlike.{x}" for x in "abcdef"] + ["x_relative_position_bias_table"]
    near = hint(bias, dict.fromkeys(names, zeros), "swin")
    assert near.startswith(start + "has names such as 'x_relative_position_bias_table', 'unlike.")
    assert near.count(", ") == 1 + 4  # five names


@pytest.mark.parametrize("source", ["llama", ["llama"], None])
def test_where_there_is_nothing_to_load(source: Any) -> None:
    why = "has no trained numbers and nothing to load"
    do = "give it the arguments that the model was made with"
    refused(posenc.Rotary(8), {}, source, f"Rotary {why}, got {source!r}: {do}")
    refused(posenc.ALiBi(8), {}, source, f"ALiBi {why}, got {source!r}: {do}")
    why = "knows no other library's numbers"

    class Own(posenc.T5Bias):
        foreign = {}  # noqa: RUF012

    refused(Own(8), {}, source, f"Own {why}, got {source!r}: use load_state_dict for its own")


@pytest.mark.parametrize(
    ("state", "source", "prefix", "message"),
    [
        (None, "swin", "", "state must be a dictionary of tensors, got NoneType: pass its state_dict()"),
        ([1], "swin", "", "state must be a dictionary of tensors, got list: pass its state_dict()"),
        (nn.Linear(1, 1), "swin", "", "state must be a dictionary of tensors, got Linear: pass its state_dict()"),
        ({}, "swin", None, "prefix must be a string, got None: pass what stands before the names, or ''"),
        (
            {},
            ["swin"],
            "",
            "source of a RelativePositionBias must be one of beit, levit, maxvit, natten, swin, timm, got ['swin']: "
            "pass one of them",
        ),
        (
            {0: 1},
            "swin",
            "",
            f"'swin' must have a tensor '{SWIN}', got none: "
            "pass the state of the module that has it, this one is empty",
        ),
    ],
)
def test_what_is_no_state(state: Any, source: Any, prefix: Any, message: str) -> None:
    refused(posenc.RelativePositionBias(2, 3), state, source, message, prefix)


def test_a_converter_sees_the_names_after_the_prefix() -> None:
    class Everything(posenc.T5Bias):
        foreign = {"all": lambda self, state: dict(state) if len(state) == 1 else {}}  # noqa: RUF012

    table = torch.randn(2, 32)
    state: dict[Any, Any] = {"a.table": table, "b.table": table, 5: table}
    assert torch.equal(Everything(2).load_foreign(state, "all", "a.").table, table)


# Ranks and widths, of every converter

STATES: dict[str, tuple[Make, str, dict[str, tuple[int, ...]]]] = {
    "timm": (lambda: posenc.Learned((2, 3), 8), "timm", {"pos_embed": (1, 6, 8)}),
    "transformers": (lambda: posenc.Learned((2, 3), 8), "transformers", {"position_embeddings": (1, 6, 8)}),
    "bert": (lambda: posenc.Learned(6, 8), "bert", {"position_embeddings.weight": (6, 8)}),
    "roberta": (lambda: posenc.Learned(6, 8), "roberta", {"position_embeddings.weight": (6, 8)}),
    "bart": (lambda: posenc.Learned(6, 8), "bart", {"embed_positions.weight": (6, 8)}),
    "sam, Fourier": (lambda: posenc.Fourier(8, axes=2), "sam", {"positional_embedding": (2, 4)}),
    "timm, mixed": (lambda: posenc.MixedRotary(4, 8), "timm", {"freqs": (2, 1, 4, 4)}),
    "rope-vit": (lambda: posenc.MixedRotary(4, 8), "rope-vit", {"freqs": (2, 16)}),
    "t5": (lambda: posenc.T5Bias(4), "t5", {"relative_attention_bias.weight": (32, 4)}),
    "swin": (lambda: posenc.RelativePositionBias(4, (2, 3)), "swin", {SWIN: (15, 4)}),
    "timm, window": (lambda: posenc.RelativePositionBias(4, (2, 3)), "timm", {SWIN: (15, 4)}),
    "beit": (lambda: posenc.RelativePositionBias(4, (2, 3), prefix_bias=True), "beit", {SWIN: (18, 4)}),
    "levit": (lambda: posenc.RelativePositionBias(4, (2, 3), symmetric=True), "levit", {"attention_biases": (4, 6)}),
    "maxvit": (lambda: posenc.RelativePositionBias(4, (2, 3)), "maxvit", {SWIN: (4, 3, 5)}),
    "natten": (lambda: posenc.RelativePositionBias(4, (2, 3), windowed=True), "natten", {"rpb": (4, 3, 5)}),
    "swinv2": (
        lambda: posenc.ContinuousPositionBias(4, (2, 3), hidden=5),
        "swinv2",
        {"cpb_mlp.0.weight": (5, 2), "cpb_mlp.0.bias": (5,), "cpb_mlp.2.weight": (4, 5)},
    ),
    "timm, network": (
        lambda: posenc.ContinuousPositionBias(4, (2, 3), hidden=5),
        "timm",
        {"mlp.fc1.weight": (5, 2), "mlp.fc1.bias": (5,), "mlp.fc2.weight": (4, 5)},
    ),
    "shaw": (lambda: posenc.Shaw(8, 3, values=False), "shaw", {"distance_embedding.weight": (6, 8)}),
    "wav2vec2_bert": (lambda: posenc.Shaw(8, 3, values=False), "wav2vec2_bert", {"distance_embedding.weight": (7, 8)}),
    "vits": (lambda: posenc.Shaw(8, 3), "vits", {"emb_rel_k": (1, 7, 8), "emb_rel_v": (1, 7, 8)}),
    **{
        source: (
            lambda: posenc.RelativeLogits(8, (2, 3), scaled=False),
            source,
            {"rel_pos_h": (3, 8), "rel_pos_w": (5, 8)},
        )
        for source in ("sam", "vitdet", "mvitv2")
    },
    "botnet": (lambda: posenc.RelativeLogits(8, (2, 3)), "botnet", {"height_rel": (3, 8), "width_rel": (5, 8)}),
    "self_attention_cv": (lambda: posenc.RelativeLogits(8, 3), "self_attention_cv", {"rel_pos_emb": (5, 8)}),
    "xlnet": (
        lambda: posenc.TransformerXL(2, 4, dim=6),
        "xlnet",
        {"r": (6, 2, 4), "r_w_bias": (2, 4), "r_r_bias": (2, 4)},
    ),
    "parakeet": (
        lambda: posenc.TransformerXL(2, 4, dim=6),
        "parakeet",
        {"relative_k_proj.weight": (8, 6), "bias_u": (2, 4), "bias_v": (2, 4)},
    ),
    "conformer": (
        lambda: posenc.TransformerXL(2, 4, dim=6),
        "conformer",
        {"linear_pos.weight": (8, 6), "pos_bias_u": (2, 4), "pos_bias_v": (2, 4)},
    ),
    "deberta": (
        lambda: posenc.Deberta(2, 4, buckets=6, max_distance=9),
        "deberta",
        {
            "rel_embeddings.weight": (12, 8),
            "LayerNorm.weight": (8,),
            "LayerNorm.bias": (8,),
            "key_proj.weight": (8, 8),
            "key_proj.bias": (8,),
            "query_proj.weight": (8, 8),
            "query_proj.bias": (8,),
        },
    ),
    "deberta_v1": (
        lambda: posenc.Deberta(2, 4, buckets=None, max_distance=6),
        "deberta_v1",
        {
            "rel_embeddings.weight": (12, 8),
            "pos_proj.weight": (8, 8),
            "pos_q_proj.weight": (8, 8),
            "pos_q_proj.bias": (8,),
        },
    ),
    "irpe": (lambda: posenc.IRPE(8), "irpe", {"lookup_table_weight": (1, 8, 49)}),
    "irpe, cross": (
        lambda: posenc.IRPE(8, "cross"),
        "irpe",
        {"rp_rows.lookup_table_weight": (1, 8, 7), "rp_cols.lookup_table_weight": (1, 8, 7)},
    ),
    "kerple": (lambda: posenc.Kerple(4), "kerple", {"bias_p": (4, 1, 1), "bias_a": (4, 1, 1)}),
    "x_transformers, slopes": (
        lambda: posenc.ALiBi(4, learned=True),
        "x_transformers",
        {"learned_logslopes": (4, 1, 1)},
    ),
    "fire": (
        lambda: posenc.Fire(4, hidden=5),
        "fire",
        {
            "mlp.0.weight": (5, 1),
            "mlp.0.bias": (5,),
            "mlp.2.weight": (4, 5),
            "mlp.2.bias": (4,),
            "c": (),
            "L_multiplier": (),
            "init_L": (),
        },
    ),
    "learnable_fourier": (
        lambda: posenc.LearnableFourier(8, axes=2, features=6, hidden=5),
        "learnable_fourier",
        {
            "Wr.weight": (3, 2),
            "mlp.0.weight": (5, 6),
            "mlp.0.bias": (5,),
            "mlp.2.weight": (8, 5),
            "mlp.2.bias": (8,),
        },
    ),
    "x_transformers": (lambda: posenc.CoPE(8, 5), "x_transformers", {"pos_emb": (5, 8)}),
    "cope": (lambda: posenc.CoPE(8, 5), "cope", {"pos_emb": (1, 8, 5)}),
    **{
        source: (lambda: posenc.ConditionalEncoding(8), source, {f"{name}.weight": (8, 1, 3, 3), f"{name}.bias": (8,)})
        for source, name in {"cpvt": "proj.0", "twins": "proj.0", "coat": "proj", "davit": "proj"}.items()
    },
}


@pytest.mark.parametrize("case", STATES)
def test_any_other_rank_or_width_is_a_clear_error(case: str) -> None:
    make, source, shapes = STATES[case]
    state = {name: torch.randn(shape) for name, shape in shapes.items()}
    make().load_foreign(state, source)
    for name, tensor in state.items():
        wrong = [tensor[None, None], torch.zeros(0)]
        if not tensor.ndim:
            wrong += [tensor[None], torch.stack([tensor] * 2)]
        else:
            wrong += [tensor[..., 0], tensor.sum(), torch.cat([tensor] * 2), torch.cat([tensor] * 2, -1)]
            wrong += [tensor[..., :-1], tensor[:0]]
        for other in wrong:
            encoding = make()
            before = {key: own.clone() for key, own in encoding.state_dict().items()}
            with pytest.raises(ValueError, match=r", got .*: \w") as caught:
                encoding.load_foreign({**state, name: other}, source)
            assert "size mismatch" not in str(caught.value)
            assert all(torch.equal(own, before[key]) for key, own in encoding.state_dict().items())


def test_kernels_of_kerple_are_the_authors_own() -> None:
    p, a = torch.empty(2, 3, 1, 1, dtype=torch.float64).uniform_(-0.5, 1.9)
    state, distance = {"bias_p": p, "bias_a": a}, torch.arange(7.0).double()
    p, a = p.clamp(min=0.01), a.clamp(min=0.01)
    released = {
        "logarithmic": -p * torch.log(1 + a * (distance[:, None] - distance).abs()),
        "power": -a * (distance[:, None] - distance).abs() ** p,
    }
    for kind, wanted in released.items():
        kerple = posenc.Kerple(3, kind).double().load_foreign(state, "kerple")
        torch.testing.assert_close(kerple(posenc.sequence(7)), wanted, rtol=0, atol=1e-12)
    state["bias_p"] = p + 2
    message = f"bias_p of the power kernel must be below 2, got {float(p.max() + 2):g}: pass another layer"
    refused(posenc.Kerple(3, "power"), state, "kerple", message)


def test_slopes_networks_and_waves_of_listings_are_taken_over() -> None:
    slopes = torch.randn(4, 1, 1)
    alibi = posenc.ALiBi(4, learned=True).load_foreign({"learned_logslopes": slopes}, "x_transformers")
    assert torch.equal(alibi.slopes, slopes.flatten().exp())

    mlp = nn.Sequential(nn.Linear(1, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    c, multiplier, length = torch.tensor([-0.3, 1.7, 6.0], dtype=torch.float64)
    state = {f"mlp.{name}": x for name, x in mlp.state_dict().items()}
    state |= {"c": c, "L_multiplier": multiplier, "init_L": length}
    where = torch.arange(20.0, dtype=torch.float64)
    reach = torch.maximum(where, (multiplier * length).abs())[:, None, None]
    distance = (where[:, None] - where).abs()[..., None]
    wanted = mlp(torch.log((c * distance).abs() + 1) / torch.log((c * reach).abs() + 1)).movedim(-1, 0)
    fire = posenc.Fire(2, hidden=5).double().load_foreign(state, "fire")
    torch.testing.assert_close(fire(posenc.sequence(20)), wanted)

    waves, mlp = (
        nn.Linear(2, 3, bias=False).double(),
        nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 8)).double(),
    )
    x = torch.randn(9, 2, dtype=torch.float64)
    angles = waves(x)
    wanted = mlp(torch.cat([angles.cos(), angles.sin()], -1) / 6**0.5)
    state = {"Wr.weight": waves.weight, **{f"mlp.{name}": x for name, x in mlp.state_dict().items()}}
    fourier = posenc.LearnableFourier(8, axes=2, features=6, hidden=5).double()
    vectors = fourier.load_foreign(state, "learnable_fourier").vectors(x)
    torch.testing.assert_close(vectors, wanted)


def test_every_source_is_tried() -> None:
    tried = {(type(make()).__name__, source) for make, source, _ in STATES.values()}
    assert tried == {
        (card.name, source) for card in posenc.catalog.CARDS for source in getattr(posenc, card.name).foreign
    }


def test_tensors_that_do_not_go_together_are_named_with_their_shapes() -> None:
    state = {"r": torch.zeros(8, 8), "r_w_bias": torch.zeros(2, 4), "r_r_bias": torch.zeros(2, 4)}
    message = (
        "'xlnet' must have tensors that fit together for this TransformerXL, got {'a.r': (8, 8)}: "
        "pass them in the shapes that the model saves, and make the encoding with its sizes"
    )
    refused(posenc.TransformerXL(2, 4), {f"a.{name}": x for name, x in state.items()}, "xlnet", message, "a.")
    state = {
        "rel_embeddings.weight": torch.zeros(12, 6),
        "LayerNorm.weight": torch.zeros(8),
        "LayerNorm.bias": torch.zeros(8),
    }
    message = (
        "'deberta' must have tensors that fit together for this Deberta, got {'rel_embeddings.weight': (12, 6), "
        "'LayerNorm.weight': (8,), 'LayerNorm.bias': (8,)}: pass them in the shapes that the model saves, "
        "and make the encoding with its sizes"
    )
    refused(posenc.Deberta(2, 4, buckets=6, max_distance=9), state, "deberta", message)
