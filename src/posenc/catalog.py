"""One card a scheme: what it is, who published it, and arguments to try it with.

Standard library only, so that `posenc list` and the documentation can read the cards without torch. The laws of the
test-suite run over every example of every card: a new scheme is tested by being listed here.

Equations use the letters of the papers, and one convention throughout: relative position = query position − key
position, written i − j (one axis) or Δ = i − j (an axis of a grid).

>>> from posenc import catalog
>>> catalog.card("ALiBi").equation
'b_h(i − j) = −m_h |i − j|, m_h = 2^(−8h/H) for h = 1 … H'
"""

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

PLACES = ("absolute", "rotary", "bias", "content", "conditional")


class Card(NamedTuple):
    """What is known of one scheme.

    `examples` are constructor arguments, small and of every kind the scheme offers. The number of axes of an example is
    the length of its `shape` if it has one, else its `axes`, else one; positions must stay inside the shape.
    """

    name: str  # the public class: posenc.<name>
    place: str  # where it enters a transformer, one of PLACES
    title: str
    year: int
    paper: str  # title and arXiv number
    equation: str
    axes: str  # "1" or "any"
    trained: bool  # whether the defaults have trained parameters
    parameters: str  # how many, as a formula
    relative: bool  # whether its effect depends on relative position alone
    reference: str  # the function of posenc.reference that computes it
    sizes: tuple[str, ...]  # the constructor arguments that follow from a model's sizes, for arguments()
    examples: tuple[dict[str, Any], ...]
    peers: tuple[str, ...] = ()  # import paths of implementations nobody here wrote
    exempt: Mapping[str, str] = MappingProxyType({})  # law → why it does not apply


CARDS: tuple[Card, ...] = (
    Card(
        name="Sinusoidal",
        place="absolute",
        title="Sinusoidal position encoding",
        year=2017,
        paper="Attention Is All You Need, arXiv:1706.03762",
        equation="PE[pos, 2i] = sin(pos / 10000^(2i/d)), PE[pos, 2i+1] = cos(pos / 10000^(2i/d))",
        axes="any",
        trained=False,
        parameters="0",
        relative=False,
        reference="sinusoidal",
        sizes=("dim", "axes"),
        examples=(
            {"dim": 24},
            {"dim": 23},
            {"dim": 24, "base": 100.0, "layout": "concatenated"},
            {"dim": 23, "layout": "concatenated"},
            {"dim": 24, "axes": 2},
            {"dim": 25, "axes": 2, "layout": "concatenated", "axis_order": (1, 0)},
            {"dim": 26, "axes": 3, "axis_order": (2, 0, 1)},
        ),
        peers=(
            "positional_encodings.torch_encodings.PositionalEncoding1D",
            "positional_encodings.torch_encodings.PositionalEncoding2D",
            "positional_encodings.torch_encodings.PositionalEncoding3D",
            "transformers.models.vit_mae.modeling_vit_mae.build_2d_sinusoidal_position_embedding",
        ),
    ),
    Card(
        name="Learned",
        place="absolute",
        title="Learned position embedding",
        year=2020,
        paper="An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale (ViT), arXiv:2010.11929",
        equation="x_pos + E[pos]",
        axes="any",
        trained=True,
        parameters="(prefix + Π shape) · dim",
        relative=False,
        reference="learned",
        sizes=("shape", "dim"),
        examples=(
            {"shape": (11,), "dim": 24},
            {"shape": (3, 4), "dim": 24, "std": 1.0},
            {"shape": (4, 3), "dim": 23, "prefix": 1},
            {"shape": (2, 3, 2), "dim": 24, "prefix": 2},
        ),
        peers=("timm.layers.resample_abs_pos_embed",),
    ),
    Card(
        name="Fourier",
        place="absolute",
        title="Random or learned Fourier features",
        year=2020,
        paper="Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains, "
        "arXiv:2006.10739",
        equation="γ(c) = [sin(2π c B), cos(2π c B)], B drawn from N(0, σ²)",
        axes="any",
        trained=False,
        parameters="axes · dim / 2 if learnable, else 0",
        relative=False,
        reference="fourier",
        sizes=("dim", "axes"),
        examples=(
            {"dim": 24},
            {"dim": 24, "axes": 2, "scale": 0.1},
            {"dim": 24, "axes": 2, "scale": 0.1, "learnable": True},
            {"dim": 22, "axes": 3, "scale": 0.3},
        ),
        peers=("transformers.models.perceiver.modeling_perceiver.generate_fourier_features",),
    ),
    Card(
        name="Rotary",
        place="rotary",
        title="Rotary position embedding (RoPE)",
        year=2021,
        paper="RoFormer: Enhanced Transformer with Rotary Position Embedding, arXiv:2104.09864",
        equation="R(i) q_i · R(j) k_j = R(i − j) q_i · k_j, pair t turned by position · 10000^(−2t/d)",
        axes="any",
        trained=False,
        parameters="0",
        relative=True,
        reference="rotary",
        sizes=("head_dim", "axes"),
        examples=(
            {"head_dim": 16},
            {"head_dim": 16, "layout": "interleaved"},
            {"head_dim": 16, "rotary_dim": 10, "base": 100.0},
            {"head_dim": 15, "rotary_dim": 6, "layout": "interleaved"},
            {"head_dim": 16, "axes": 2, "base": 100.0},
            {"head_dim": 18, "axes": 2, "base": 100.0, "layout": "interleaved"},
            {"head_dim": 16, "axes": 3, "base": 50.0},
        ),
        peers=(
            "transformers.models.llama.modeling_llama.apply_rotary_pos_emb",
            "transformers.models.gptj.modeling_gptj.apply_rotary_pos_emb",
            "rotary_embedding_torch.RotaryEmbedding",
            "timm.layers.RotaryEmbeddingCat",
        ),
    ),
    Card(
        name="ALiBi",
        place="bias",
        title="Attention with linear biases",
        year=2021,
        paper="Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation, "
        "arXiv:2108.12409",
        equation="b_h(i − j) = −m_h |i − j|, m_h = 2^(−8h/H) for h = 1 … H",
        axes="1",
        trained=False,
        parameters="0",
        relative=True,
        reference="alibi",
        sizes=("num_heads",),
        examples=({"num_heads": 4}, {"num_heads": 6}, {"num_heads": 1}),
        peers=(
            "transformers.models.bloom.modeling_bloom.build_alibi_tensor",
            "x_transformers.x_transformers.AlibiPositionalBias",
        ),
    ),
    Card(
        name="T5Bias",
        place="bias",
        title="T5's bucketed relative bias",
        year=2019,
        paper="Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (T5), "
        "arXiv:1910.10683",
        equation="b_h(i − j) = table[h, bucket(i − j)], buckets exact nearby and logarithmic beyond",
        axes="1",
        trained=True,
        parameters="heads · num_buckets",
        relative=True,
        reference="t5_bias",
        sizes=("num_heads",),
        examples=(
            {"num_heads": 4},
            {"num_heads": 4, "bidirectional": False},
            {"num_heads": 4, "num_buckets": 8, "max_distance": 12},
            {"num_heads": 3, "num_buckets": 9, "max_distance": 20, "bidirectional": False},
        ),
        peers=("transformers.models.t5.modeling_t5.T5Attention._relative_position_bucket",),
    ),
    Card(
        name="RelativePositionBias",
        place="bias",
        title="Relative position bias table (Swin; with a CLS token, BEiT)",
        year=2021,
        paper="Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, arXiv:2103.14030",
        equation="b_h(i − j) = table[h, Δ_1, …, Δ_n], one number for each relative position on the grid",
        axes="any",
        trained=True,
        parameters="heads · Π(2 · size − 1), and 3 · heads with prefix_bias",
        relative=True,
        reference="relative_position_bias",
        sizes=("num_heads", "shape"),
        examples=(
            {"num_heads": 4, "shape": (11,)},
            {"num_heads": 4, "shape": (3, 4)},
            {"num_heads": 4, "shape": (4, 3), "prefix_bias": True},
            {"num_heads": 3, "shape": (3, 5), "symmetric": True},
            {"num_heads": 4, "shape": (7,), "prefix_bias": True, "symmetric": True},
            {"num_heads": 2, "shape": (2, 3, 4)},
        ),
        peers=("timm.layers.RelPosBias", "timm.layers.pos_embed_rel.gen_relative_position_index"),
    ),
    Card(
        name="Shaw",
        place="content",
        title="Clipped relative position vectors",
        year=2018,
        paper="Self-Attention with Relative Position Representations, arXiv:1803.02155",
        equation="e_ij = q_i · (k_j + rK[clip(i − j)]) / √d, z_i = Σ_j α_ij (v_j + rV[clip(i − j)])",
        axes="1",
        trained=True,
        parameters="2 · (2 · max_distance + 1) · head_dim, half without values, times heads if per head",
        relative=True,
        reference="shaw",
        sizes=("head_dim", "max_distance"),
        examples=(
            {"head_dim": 16, "max_distance": 4},
            {"head_dim": 16, "max_distance": 3, "num_heads": 4},
            {"head_dim": 16, "max_distance": 5, "values": False},
            {"head_dim": 15, "max_distance": 1, "num_heads": 4, "values": False},
        ),
        peers=("transformers.models.wav2vec2_bert.modeling_wav2vec2_bert._apply_relative_key_position_encoding",),
    ),
    Card(
        name="RelativeLogits",
        place="content",
        title="Relative logits, an axis at a time (BoTNet, SAM; causal: Music Transformer)",
        year=2021,
        paper="Bottleneck Transformers for Visual Recognition, arXiv:2101.11605; Music Transformer, arXiv:1809.04281",
        equation="e_ij = (q_i · k_j + q_i · rH[Δ_h] + q_i · rW[Δ_w]) / √d",
        axes="any",
        trained=True,
        parameters="Σ(2 · size − 1) · head_dim, or length · head_dim if causal, times heads if per head",
        relative=True,
        reference="relative_logits",
        sizes=("head_dim", "shape"),
        examples=(
            {"head_dim": 16, "shape": (11,)},
            {"head_dim": 16, "shape": (11,), "num_heads": 4},
            {"head_dim": 16, "shape": (11,), "causal": True},
            {"head_dim": 15, "shape": (9,), "num_heads": 4, "causal": True},
            {"head_dim": 16, "shape": (3, 4)},
            {"head_dim": 16, "shape": (4, 3), "num_heads": 4, "scaled": False},
            {"head_dim": 16, "shape": (2, 3, 4), "scaled": False},
        ),
        peers=(
            "timm.layers.bottleneck_attn.PosEmbedRel",
            "timm.models.vision_transformer_sam.get_decomposed_rel_pos_bias",
            "transformers.models.vitdet.modeling_vitdet.add_decomposed_relative_positions",
            "self_attention_cv.pos_embeddings.relative_embeddings_1D.relative_to_absolute",
        ),
    ),
    Card(
        name="SinusoidalLogits",
        place="content",
        title="Sinusoidal relative logits",
        year=2019,
        paper="Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context, arXiv:1901.02860 "
        "(its sinusoidal term, without the projection and the two trained vectors)",
        equation="e_ij = (q_i · k_j + q_i · r(i − j)) / √d, r the sinusoid of the relative position",
        axes="1",
        trained=False,
        parameters="0",
        relative=True,
        reference="sinusoidal_logits",
        sizes=("head_dim",),
        examples=({"head_dim": 16}, {"head_dim": 15}, {"head_dim": 16, "base": 100.0}),
        peers=("transformers.models.xlnet.modeling_xlnet.XLNetRelativeAttention",),
    ),
    Card(
        name="ConditionalEncoding",
        place="conditional",
        title="Conditional position encoding (PEG)",
        year=2021,
        paper="Conditional Positional Encodings for Vision Transformers (CPVT), arXiv:2102.10882",
        equation="x_i + c + Σ_m w_m ⊙ x_(i+m), a depth-wise convolution over the grid, zero outside it",
        axes="any",
        trained=True,
        parameters="dim · (kernel_size^axes + 1)",
        relative=False,
        reference="conditional_encoding",
        sizes=("dim", "axes"),
        examples=(
            {"dim": 24, "axes": 2},
            {"dim": 23, "kernel_size": 5, "axes": 2},
            {"dim": 24, "axes": 1},
            {"dim": 24, "axes": 1, "causal": True},
            {"dim": 24, "axes": 3},
        ),
        peers=("timm.models.twins.PosConv",),
    ),
)


def plain(name: str) -> str:
    """A name without case, hyphens, underscores and spaces: `relative-position-bias` finds RelativePositionBias."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def near(name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The known names that `name` may have meant, best first.

    Close in spelling; or one contains the other; or a scheme that a paper or model of this name is known for.
    """
    spelled = {plain(each): each for each in known}
    wanted = plain(name)
    found = difflib.get_close_matches(wanted, spelled, n=3, cutoff=0.6)
    if len(wanted) >= 2:
        found += [each for each in spelled if wanted in each or each in wanted]
        found += [plain(each.name) for each in CARDS if wanted in plain(each.title + each.paper)]
    return tuple(dict.fromkeys(spelled[each] for each in found if each in spelled))[:3]


def unknown(name: str, known: tuple[str, ...]) -> str:
    """The message for a name that is not among the known ones."""
    names = near(name, known)
    hint = f"did you mean {' or '.join(names)}? " if names else ""
    return f"unknown scheme {name!r}: {hint}`posenc list` shows them all"


def card(name: str) -> Card:
    """The card of one scheme. Case, hyphens and underscores do not matter.

    Raises ValueError, with the near names, if there is no such scheme.

    >>> card("rotary").name
    'Rotary'
    >>> card("Rotery")
    Traceback (most recent call last):
    ...
    ValueError: unknown scheme 'Rotery': did you mean Rotary? `posenc list` shows them all
    """
    for each in CARDS:
        if plain(each.name) == plain(name):
            return each
    raise ValueError(unknown(name, tuple(each.name for each in CARDS)))


def arguments(
    scheme: str,
    *,
    shape: tuple[int, ...],
    dim: int = 512,
    num_heads: int = 8,
    head_dim: int = 64,
    max_distance: int = 16,
) -> dict[str, Any]:
    """Constructor arguments of a scheme for a model of these sizes and tokens of this shape, all else at its default.

    Raises ValueError if the scheme is unknown or has fewer axes than the shape.

    >>> arguments("RelativePositionBias", shape=(14, 14), num_heads=8)
    {'num_heads': 8, 'shape': (14, 14)}
    >>> arguments("Rotary", shape=(14, 14), head_dim=64)
    {'head_dim': 64, 'axes': 2}
    """
    known = card(scheme)
    if known.axes == "1" and len(shape) != 1:
        raise ValueError(f"{known.name} has one axis, got shape {shape}: give it one length")
    sizes = {
        "shape": shape,
        "axes": len(shape),
        "dim": dim,
        "num_heads": num_heads,
        "head_dim": head_dim,
        "max_distance": max_distance,
    }
    return {name: sizes[name] for name in known.sizes}
