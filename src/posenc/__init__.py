"""posenc: position encodings for transformers, as published, exact, and comparable on your own data.

A position encoding is a function of position, and it enters a transformer at one of five places: absolute, rotary,
bias, content, conditional. `attention(q, k, v, *encodings, positions=...)` composes those of the middle three.

torch is imported when a name that needs it is first used, so that `posenc.reference` and `posenc list` do without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posenc import catalog, reference, scaling
    from posenc.attend import attention, explain
    from posenc.embedding import Absolute, Conditional
    from posenc.encoding import Encoding
    from posenc.inside import BiasEncoding, ContentEncoding, RotaryEncoding
    from posenc.layer import KeyValueCache, SelfAttention
    from posenc.layout import Positions
    from posenc.positions import coordinates, grid, packed, padded, sequence
    from posenc.relative import Relative, relative_index
    from posenc.resize import resize_table
    from posenc.schemes.absolute import Learned, Sinusoidal
    from posenc.schemes.bias import ALiBi, Kerple, Sandwich, alibi_slopes
    from posenc.schemes.bias_network import ContinuousPositionBias, Fire
    from posenc.schemes.bias_table import RelativePositionBias, T5Bias, t5_bucket
    from posenc.schemes.conditional import ConditionalEncoding
    from posenc.schemes.content import RelativeLogits, Shaw, SinusoidalLogits
    from posenc.schemes.cope import CoPE
    from posenc.schemes.deberta import Deberta, deberta_bucket
    from posenc.schemes.fourier import Fourier, FourierBands, LearnableFourier
    from posenc.schemes.irpe import IRPE, piecewise_index
    from posenc.schemes.mixed import MixedRotary
    from posenc.schemes.multimodal import MultimodalRotary, multimodal
    from posenc.schemes.rotary import Rotary
    from posenc.schemes.transformer_xl import TransformerXL
    from posenc.schemes.xpos import XPos
    from posenc.skewing import relative_to_absolute, skew
    from posenc.term import Bias, Content, Decay, Part, Rotation, Term
    from posenc.windows import neighbourhood

__version__ = "0.1.0"

_HOMES = {
    "attend": ["attention", "explain"],
    "embedding": ["Absolute", "Conditional"],
    "encoding": ["Encoding"],
    "inside": ["BiasEncoding", "ContentEncoding", "RotaryEncoding"],
    "layer": ["KeyValueCache", "SelfAttention"],
    "layout": ["Positions"],
    "positions": ["coordinates", "grid", "packed", "padded", "sequence"],
    "relative": ["Relative", "relative_index"],
    "resize": ["resize_table"],
    "schemes.absolute": ["Learned", "Sinusoidal"],
    "schemes.bias": ["ALiBi", "Kerple", "Sandwich", "alibi_slopes"],
    "schemes.bias_network": ["ContinuousPositionBias", "Fire"],
    "schemes.bias_table": ["RelativePositionBias", "T5Bias", "t5_bucket"],
    "schemes.conditional": ["ConditionalEncoding"],
    "schemes.content": ["RelativeLogits", "Shaw", "SinusoidalLogits"],
    "schemes.cope": ["CoPE"],
    "schemes.deberta": ["Deberta", "deberta_bucket"],
    "schemes.fourier": ["Fourier", "FourierBands", "LearnableFourier"],
    "schemes.irpe": ["IRPE", "piecewise_index"],
    "schemes.mixed": ["MixedRotary"],
    "schemes.multimodal": ["MultimodalRotary", "multimodal"],
    "schemes.rotary": ["Rotary"],
    "schemes.transformer_xl": ["TransformerXL"],
    "schemes.xpos": ["XPos"],
    "skewing": ["relative_to_absolute", "skew"],
    "term": ["Bias", "Content", "Decay", "Part", "Rotation", "Term"],
    "windows": ["neighbourhood"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ALiBi",
    "Absolute",
    "Bias",
    "BiasEncoding",
    "CoPE",
    "Conditional",
    "ConditionalEncoding",
    "Content",
    "ContentEncoding",
    "ContinuousPositionBias",
    "Deberta",
    "Decay",
    "Encoding",
    "Fire",
    "Fourier",
    "FourierBands",
    "IRPE",
    "Kerple",
    "KeyValueCache",
    "LearnableFourier",
    "Learned",
    "MixedRotary",
    "MultimodalRotary",
    "Part",
    "Positions",
    "Relative",
    "RelativeLogits",
    "RelativePositionBias",
    "Rotary",
    "RotaryEncoding",
    "Rotation",
    "Sandwich",
    "SelfAttention",
    "Shaw",
    "Sinusoidal",
    "SinusoidalLogits",
    "T5Bias",
    "Term",
    "TransformerXL",
    "XPos",
    "alibi_slopes",
    "attention",
    "catalog",
    "coordinates",
    "deberta_bucket",
    "explain",
    "grid",
    "multimodal",
    "neighbourhood",
    "packed",
    "padded",
    "piecewise_index",
    "reference",
    "relative_index",
    "relative_to_absolute",
    "resize_table",
    "scaling",
    "sequence",
    "skew",
    "t5_bucket",
]


def __getattr__(name: str) -> Any:
    if name in ("catalog", "reference", "scaling"):
        return import_module(f"posenc.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'posenc' has no attribute {name!r}")
    value = getattr(import_module(f"posenc.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
