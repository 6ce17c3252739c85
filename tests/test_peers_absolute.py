"""Every absolute scheme against code that nobody here wrote; each test imports its peer itself."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import posenc
from peers import EPS, GRIDS, PEERS, against, assert_equal, assert_within, beside, draw, encoded, randomize, set_table

pytestmark = PEERS


@against(
    "Sinusoidal",
    "positional_encodings.torch_encodings.PositionalEncoding1D",
    "positional_encodings.torch_encodings.PositionalEncoding2D",
    "positional_encodings.torch_encodings.PositionalEncoding3D",
)
@pytest.mark.parametrize(("axes", "dim"), [(1, 8), (1, 30), (2, 8), (2, 20), (3, 6), (3, 30)])
def test_sinusoidal_interleaved_equals_positional_encodings(axes: int, dim: int) -> None:
    # Widths that split into even blocks: elsewhere the peer rounds the block up, takes frequencies of that, and cuts.
    from positional_encodings import torch_encodings

    shape = (7, 4, 5)[:axes] if axes > 1 else (61,)
    peer = getattr(torch_encodings, f"PositionalEncoding{axes}D")(dim)
    theirs = peer(torch.zeros(1, *shape, dim)).reshape(-1, dim)
    ours = encoded(posenc.Sinusoidal(dim, axes=axes), dim, posenc.grid(*shape))
    assert_within(ours, theirs, 8 * max(shape))  # their angles are float32


@against("Sinusoidal", "transformers.models.xlm.modeling_xlm.create_sinusoidal_embeddings")
@pytest.mark.parametrize("dim", [1, 2, 5, 9, 16])
def test_sinusoidal_of_any_width_equals_xlm(dim: int) -> None:
    # numpy float64, rounded once to float32; frequencies over the true width, odd ones too
    from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

    theirs = create_sinusoidal_embeddings(300, dim, torch.empty(300, dim))
    assert_within(encoded(posenc.Sinusoidal(dim), dim, posenc.sequence(300)), theirs, 1)


@against("Sinusoidal", "transformers.models.marian.modeling_marian.MarianSinusoidalPositionalEmbedding")
@pytest.mark.parametrize("dim", [1, 2, 5, 9, 16])
def test_sinusoidal_concatenated_of_any_width_equals_marian(dim: int) -> None:
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    theirs = MarianSinusoidalPositionalEmbedding(300, dim).create_weight()
    assert_within(encoded(posenc.Sinusoidal(dim, layout="concatenated"), dim, posenc.sequence(300)), theirs, 1)


@against("Sinusoidal", "transformers.models.gptj.modeling_gptj.create_sinusoidal_positions")
@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
def test_sinusoidal_frequencies_equal_gptj(layout: str) -> None:
    # At position 1 the angle is the frequency. Relative tolerance alone: the smallest is 1.5e-4.
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions

    theirs = create_sinusoidal_positions(2, 22)[1].double()
    ours = encoded(posenc.Sinusoidal(22, layout=layout), 22, posenc.sequence(1, start=1))[0]
    sine, cosine = ours.chunk(2) if layout == "concatenated" else ours.unflatten(0, (11, 2)).unbind(1)
    their_sine, their_cosine = theirs.chunk(2)
    angles, their_angles = torch.atan2(sine, cosine), torch.atan2(their_sine, their_cosine)
    torch.testing.assert_close(angles, their_angles, rtol=8 * EPS, atol=0.0)


@against("Sinusoidal", "transformers.models.vit_mae.modeling_vit_mae.build_2d_sinusoidal_position_embedding")
@pytest.mark.parametrize("base", [10000.0, 37.0])
@pytest.mark.parametrize("shape", GRIDS)
def test_sinusoidal_2d_equals_mae(shape: tuple[int, int], base: float) -> None:
    from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

    height_first = build_2d_sinusoidal_position_embedding(*shape, 20, base, cls_token=True, dtype=torch.float64)
    ours = posenc.Sinusoidal(20, axes=2, base=base, layout="concatenated")
    assert_equal(encoded(ours, 20, posenc.grid(*shape, prefix=1)), height_first)

    # The published MAE encodes the width in the first half of the channels.
    width_first = height_first.roll(10, dims=1)
    ours = posenc.Sinusoidal(20, axes=2, base=base, layout="concatenated", axis_order=(1, 0))
    assert_equal(encoded(ours, 20, posenc.grid(*shape, prefix=1)), width_first)


@against("Sinusoidal", "timm.layers.build_sincos2d_pos_embed")
@pytest.mark.parametrize("shape", GRIDS)
def test_sinusoidal_2d_equals_timm(shape: tuple[int, int]) -> None:
    from timm.layers import build_sincos2d_pos_embed

    theirs = build_sincos2d_pos_embed(list(shape), 28, interleave_sin_cos=True)  # their name for blocks per axis
    ours = encoded(posenc.Sinusoidal(28, axes=2, layout="concatenated"), 28, posenc.grid(*shape))
    assert_within(ours, theirs, 8 * max(shape))


@against("Sinusoidal", "transformers.models.detr.modeling_detr.DetrSinePositionEmbedding")
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("shape", GRIDS)
def test_sinusoidal_2d_equals_detr(shape: tuple[int, int], normalize: bool) -> None:
    from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

    height, width = shape
    peer = DetrSinePositionEmbedding(num_position_features=10, normalize=normalize)
    theirs = peer(torch.Size((1, 3, height, width)), "cpu", torch.float64)[0].flatten(1).T
    span = 2 * math.pi if normalize else None
    positions = posenc.padded(torch.ones(1, *shape, dtype=torch.bool), start=1, span=span)
    assert_equal(encoded(posenc.Sinusoidal(20, axes=2), 20, positions), theirs)


def ragged_images() -> torch.Tensor:
    """Images of four sizes in one batch, top left as DETR pads them, and one with a hole and no top row."""
    mask = torch.zeros(5, 5, 7, dtype=torch.bool)
    for image, (height, width) in enumerate([(5, 4), (2, 7), (3, 3), (5, 7)]):
        mask[image, :height, :width] = True
    mask[4, 1:, :5] = True
    mask[4, 2, 3] = False
    return mask


@against("Sinusoidal", "transformers.models.detr.modeling_detr.DetrSinePositionEmbedding")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("span", [None, 2 * math.pi, 1.0])
def test_sinusoidal_2d_equals_detr_in_a_padded_batch(span: float | None, dtype: torch.dtype) -> None:
    # Every image counts its own pixels, so each row has its own coordinates; equal in the padding too.
    from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

    mask = ragged_images()
    peer = DetrSinePositionEmbedding(num_position_features=6, normalize=span is not None, scale=span)
    theirs = peer(torch.Size((5, 3, 5, 7)), "cpu", dtype, mask).flatten(2).transpose(1, 2)
    ours = posenc.Sinusoidal(12, axes=2)(torch.zeros(5, 35, 12, dtype=dtype), posenc.padded(mask, 1, span))
    if dtype == torch.float64:
        assert_equal(ours, theirs)
    else:  # their angles, of 7 at most, are float32
        assert_within(ours, theirs, 16)


@against(
    "Sinusoidal", "transformers.models.deformable_detr.modeling_deformable_detr.DeformableDetrSinePositionEmbedding"
)
def test_sinusoidal_2d_equals_deformable_detr_in_a_padded_batch() -> None:
    # It counts the middles of pixels; in rows and columns without a token it divides by 1e-6, and we do not.
    from transformers.models.deformable_detr.modeling_deformable_detr import DeformableDetrSinePositionEmbedding

    mask = ragged_images()
    peer = DeformableDetrSinePositionEmbedding(num_position_features=6, normalize=True)
    theirs = peer(torch.Size((5, 3, 5, 7)), "cpu", torch.float64, mask).flatten(2).transpose(1, 2)
    positions = posenc.padded(mask, start=0.5, span=2 * math.pi)
    ours = posenc.Sinusoidal(12, axes=2)(torch.zeros(5, 35, 12, dtype=torch.float64), positions)
    tokens = mask.flatten(1)
    assert_equal(ours[tokens], theirs[tokens])


@against("Learned", "timm.models.vision_transformer.VisionTransformer")
@pytest.mark.parametrize("rows", ["no class token", "class token", "class token without a row", "registers"])
def test_learned_equals_timm_vision_transformer(rows: str) -> None:
    from timm.models.vision_transformer import VisionTransformer

    options = {
        "no class token": {"class_token": False, "global_pool": "avg"},
        "class token": {},
        "class token without a row": {"no_embed_class": True},
        "registers": {"reg_tokens": 2},
    }[rows]
    peer = randomize(VisionTransformer(img_size=(12, 20), patch_size=4, embed_dim=6, depth=0, num_heads=1, **options))
    patches = draw(2, 3, 5, 6).flatten(1, 2)
    theirs = peer._pos_embed(patches)
    before = [token.expand(2, -1, -1) for token in (peer.cls_token, peer.reg_token) if token is not None]
    tokens = torch.cat([*before, patches], dim=1)
    prefix = tokens.shape[1] - 15
    ours = posenc.Learned((3, 5), 6, prefix=0 if "without" in rows else prefix).double()
    ours.load_foreign(peer.state_dict(), "timm")
    assert_equal(ours(tokens, posenc.grid(3, 5, prefix=prefix)), theirs)


@against("Learned", "transformers.models.vit.modeling_vit.ViTEmbeddings")
def test_learned_equals_a_vision_transformers_embeddings() -> None:
    from transformers.models.vit.configuration_vit import ViTConfig
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    peer = randomize(ViTEmbeddings(ViTConfig(image_size=[12, 20], patch_size=4, hidden_size=6)))
    pixels = draw(2, 3, 12, 20)
    ours = posenc.Learned((3, 5), 6, prefix=1).double().load_foreign(peer.state_dict(), "transformers")
    tokens = torch.cat([peer.cls_token.expand(2, -1, -1), peer.patch_embeddings(pixels)], dim=1)
    assert_equal(ours(tokens, posenc.grid(3, 5, prefix=1)), peer(pixels))
    with pytest.raises(ValueError, match=r"table of this Learned has shape \(15, 6\), got \(16, 6\)"):
        posenc.Learned((3, 5), 6).load_foreign(peer.state_dict(), "transformers")


TINY = {"vocab_size": 30, "hidden_size": 6, "num_attention_heads": 1, "max_position_embeddings": 19}


@against("Learned", "transformers.models.bert.modeling_bert.BertEmbeddings")
@pytest.mark.parametrize("cached", [0, 8])
def test_learned_equals_bert_embeddings(cached: int) -> None:
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertEmbeddings

    peer = randomize(BertEmbeddings(BertConfig(**TINY)))
    words, kinds = torch.randint(0, 30, (3, 11)), torch.randint(0, 2, (3, 11))
    theirs = peer(words, kinds, cache_length=cached)
    ours = (
        posenc.Learned(19, 6)
        .double()
        .load_foreign({f"bert.{k}": v for k, v in peer.state_dict().items()}, "bert", "bert.")
    )
    tokens = peer.word_embeddings(words) + peer.token_type_embeddings(kinds)
    assert_equal(peer.LayerNorm(ours(tokens, posenc.sequence(11, start=cached))), theirs)


@against("Learned", "transformers.models.roberta.modeling_roberta.RobertaEmbeddings")
@pytest.mark.parametrize("padding_idx", [0, 1, 3])
@pytest.mark.parametrize("side", ["left", "right"])
def test_learned_equals_roberta_embeddings(side: str, padding_idx: int) -> None:
    from transformers.models.roberta.configuration_roberta import RobertaConfig
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    peer = randomize(RobertaEmbeddings(RobertaConfig(**TINY, pad_token_id=padding_idx, type_vocab_size=1)))
    lengths = torch.tensor([[11], [4], [1], [7]])
    mask = torch.arange(11) < lengths if side == "right" else torch.arange(11) >= 11 - lengths
    words = torch.where(mask, torch.randint(4, 30, (4, 11)), padding_idx)
    theirs = peer(words)
    ours = posenc.Learned(19, 6).double().load_foreign(peer.state_dict(), "roberta")
    positions = posenc.padded(mask, start=padding_idx + 1)
    ids = peer.create_position_ids_from_input_ids(words, padding_idx)
    assert torch.equal(positions.coordinates()[..., 0][mask], ids[mask])
    embedded = peer.LayerNorm(ours(peer.word_embeddings(words) + peer.token_type_embeddings.weight, positions))
    assert_equal(embedded[mask], theirs[mask])
    if side == "left":  # padding that comes first stands at padding_idx in both
        assert_equal(embedded, theirs)


@against("Learned", "transformers.models.bart.modeling_bart.BartEncoder")
def test_learned_equals_barts_encoder_without_layers() -> None:
    from transformers.models.bart.configuration_bart import BartConfig
    from transformers.models.bart.modeling_bart import BartEncoder

    config = BartConfig(
        vocab_size=30, d_model=6, encoder_attention_heads=1, encoder_layers=0, max_position_embeddings=17
    )
    peer = randomize(BartEncoder(config))
    words = torch.randint(4, 30, (3, 17))
    ours = posenc.Learned(17 + 2, 6).double().load_foreign(peer.state_dict(), "bart")  # two rows are for padding
    embedded = peer.layernorm_embedding(ours(peer.embed_tokens(words), posenc.sequence(17, start=2)))
    assert_equal(embedded, peer(words).last_hidden_state)


@against(
    "Learned",
    "transformers.models.bart.modeling_bart.BartLearnedPositionalEmbedding",
    "transformers.models.mbart.modeling_mbart.MBartLearnedPositionalEmbedding",
)
@pytest.mark.parametrize("model", ["bart", "mbart"])
def test_learned_equals_embeddings_offset_by_two(model: str) -> None:
    from transformers.models.bart.modeling_bart import BartLearnedPositionalEmbedding
    from transformers.models.mbart.modeling_mbart import MBartLearnedPositionalEmbedding

    peer = randomize((BartLearnedPositionalEmbedding if model == "bart" else MBartLearnedPositionalEmbedding)(17, 6))
    ours = posenc.Learned(19, 6).double()
    ours.load_foreign({f"embed_positions.{name}": tensor for name, tensor in peer.state_dict().items()}, "bart")
    words = torch.zeros(1, 5, dtype=torch.long)
    for cached in (0, 9, 12):
        assert_equal(encoded(ours, 6, posenc.sequence(5, start=2 + cached)), peer(words, cached)[0])
    with pytest.raises(ValueError, match=r"Learned has 19 positions, got 20"):
        ours(torch.zeros(1, 18, 6, dtype=torch.float64), posenc.sequence(18, start=2))


@against("Learned", "timm.layers.resample_abs_pos_embed")
@pytest.mark.parametrize(
    ("mode", "antialias"), [("bicubic", True), ("bicubic", False), ("linear", True), ("nearest", False)]
)
@pytest.mark.parametrize(("source", "target"), [((3, 5), (6, 4)), ((7, 4), (3, 9)), ((2, 3), (4, 6)), ((1, 4), (3, 2))])
def test_resized_table_equals_timm(source: tuple, target: tuple, mode: str, antialias: bool) -> None:
    from timm.layers import resample_abs_pos_embed

    table = draw(2 + math.prod(source), 6, dtype=torch.float32)
    theirs = resample_abs_pos_embed(
        table[None],
        list(target),
        list(source),
        num_prefix_tokens=2,
        interpolation={"linear": "bilinear", "nearest": "nearest-exact"}.get(mode, mode),
        antialias=antialias,
    )[0]
    ours = posenc.resize_table(table, source, target, prefix=2, mode=mode, antialias=antialias)
    assert torch.equal(ours[:2], table[:2])
    # Two axes of a few weights each, on normal numbers: weights are rounded, and multiply numbers up to about 4.
    assert_within(ours, theirs, 32)


@against("Learned", "PIL.Image.Image.resize")
@pytest.mark.parametrize("mode", ["bicubic", "linear"])
@pytest.mark.parametrize(
    ("source", "target"), [((3, 5), (6, 4)), ((9, 4), (3, 9)), ((6, 7), (2, 3)), ((9, 1), (4, 1)), ((5, 1), (8, 1))]
)
def test_resized_table_equals_pillow(source: tuple, target: tuple, mode: str) -> None:
    # An image library's own antialiased resampling, which shares no code with torch's. torch 2.13 itself is wrong for
    # an image of one column with antialiasing (by more than 1 for normal numbers), and right for one of one row.
    from PIL import Image

    kind = {"bicubic": Image.Resampling.BICUBIC, "linear": Image.Resampling.BILINEAR}[mode]
    table = draw(math.prod(source), 3, dtype=torch.float32)
    planes = table.T.reshape(3, *source).numpy()
    resized = [np.asarray(Image.fromarray(plane).resize(target[::-1], kind)) for plane in planes]
    theirs = torch.from_numpy(np.stack(resized)).flatten(1).T
    assert_within(posenc.resize_table(table, source, target, mode=mode), theirs, 32)


@against("Fourier", "transformers.models.sam.modeling_sam.SamPositionalEmbedding")
@pytest.mark.parametrize("shape", GRIDS)
def test_fourier_equals_sam(shape: tuple[int, int]) -> None:
    from transformers.models.sam.modeling_sam import SamPositionalEmbedding

    peer = SamPositionalEmbedding(SimpleNamespace(scale=1.7, num_pos_feats=9)).double()
    height, width = shape
    rows, columns = (torch.arange(size, dtype=torch.float64) + 0.5 for size in shape)
    centres = torch.cartesian_prod(rows / height, columns / width)
    theirs = peer(centres.flip(-1)[None])[0]  # they want (x, y)
    ours = posenc.Fourier(18, axes=2).double().load_foreign(peer.state_dict(), "sam")
    assert_equal(encoded(ours, 18, posenc.grid(*shape).rescaled(-1, 1)), theirs)


@against("Fourier", "transformers.models.sam.modeling_sam.SamPositionalEmbedding")
def test_fourier_equals_sam_for_points() -> None:
    from transformers.models.sam.modeling_sam import SamPositionalEmbedding

    peer = SamPositionalEmbedding(SimpleNamespace(scale=1.0, num_pos_feats=7)).double()
    points = torch.rand(3, 11, 2, dtype=torch.float64)
    ours = posenc.Fourier(14, axes=2, learnable=True).double()
    set_table(ours.frequencies, peer.positional_embedding)
    vectors = ours(torch.zeros(3, 11, 14, dtype=torch.float64), posenc.coordinates(2 * points - 1))
    assert_equal(vectors, peer(points))


@against("Fourier", "transformers.models.perceiver.modeling_perceiver.generate_fourier_features")
@pytest.mark.parametrize("shape", [(9,), (4, 7), (2, 3, 5)])
def test_fourier_equals_perceiver(shape: tuple[int, ...]) -> None:
    # Perceiver's fixed bands are a Fourier encoding whose matrix has one block an axis.
    from transformers.models.perceiver.modeling_perceiver import build_linear_positions, generate_fourier_features

    bands, axes = 5, len(shape)
    places = build_linear_positions(shape).reshape(-1, axes).double()
    theirs = generate_fourier_features(places[None], bands, shape, concat_pos=False)  # the result has no batch axis
    frequencies = torch.zeros(axes, axes * bands, dtype=torch.float64)
    for axis, size in enumerate(shape):
        frequencies[axis, axis * bands : (axis + 1) * bands] = torch.linspace(1.0, size / 2, bands) / 2
    ours = posenc.Fourier(2 * axes * bands, axes=axes).double()
    set_table(ours.frequencies, frequencies)
    assert_equal(encoded(ours, 2 * axes * bands, posenc.coordinates(places)), theirs)


@against("FourierBands", "transformers.models.perceiver.modeling_perceiver.generate_fourier_features")
@pytest.mark.parametrize("bands", [1, 2, 5])
@pytest.mark.parametrize("shape", [(9,), (4, 7), (2, 3, 5)])
def test_fourier_bands_equal_perceiver(shape: tuple[int, ...], bands: int) -> None:
    from transformers.models.perceiver.modeling_perceiver import build_linear_positions, generate_fourier_features

    places = build_linear_positions(shape).reshape(-1, len(shape)).double()
    theirs = generate_fourier_features(places[None], bands, shape, concat_pos=False)  # the result has no batch axis
    ours = posenc.FourierBands(len(shape), bands, resolution=shape, layout="concatenated")
    encoded_places = encoded(ours, 2 * len(shape) * bands, posenc.coordinates(places))
    if bands < 3:
        assert_equal(encoded_places, theirs)
    else:  # their frequencies between the first and the last are float32
        assert_within(encoded_places, theirs, 8 * max(shape))
    # Their grid has its first and last cell at -1 and 1, ours edges: it begins half a cell earlier.
    edges = [size / (size - 1) for size in shape]
    positions = posenc.grid(*shape).rescaled([-edge for edge in edges], edges)
    assert_within(encoded(ours, ours.dim, positions), theirs, 8 * max(shape))


@against("FourierBands", "timm.layers.build_fourier_pos_embed")
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("shape", [(9,), (4, 7), (2, 3, 5)])
def test_fourier_bands_equal_timm(shape: tuple[int, ...], linear: bool) -> None:
    # Its logarithmic bands up to 2 ** bands are NeRF's octaves, times pi.
    from timm.layers import build_fourier_pos_embed

    bands, axes = 5, len(shape)
    sines, cosines = build_fourier_pos_embed(list(shape), num_bands=bands, max_res=2**bands, linear_bands=linear)
    theirs = torch.stack([sines, cosines], dim=-1).flatten(-3).reshape(math.prod(shape), -1)
    ours = posenc.FourierBands(axes, bands, resolution=2**bands if linear else None)
    ticks = [torch.linspace(-1, 1, size) for size in shape]
    places = torch.stack(torch.meshgrid(*ticks, indexing="ij"), dim=-1).reshape(-1, axes)
    assert_within(encoded(ours, ours.dim, posenc.coordinates(places)), theirs, 8 * 2**bands)


@beside("LearnableFourier", "learnable_fourier")
def test_learnable_fourier_equals_a_second_loop() -> None:
    # No package has it: a loop written apart from the scheme and from its reference.
    from second_loops import learnable_fourier

    ours = randomize(posenc.LearnableFourier(7, axes=2, features=10, hidden=5, scale=0.3))
    numbers = {name.replace(".", "_"): tensor.numpy() for name, tensor in ours.state_dict().items()}
    places = draw(11, 2)
    theirs = learnable_fourier(places.numpy(), **numbers, dim=7, axes=2, features=10, hidden=5, scale=0.3)
    assert_equal(encoded(ours, 7, posenc.coordinates(places)), torch.as_tensor(theirs))
