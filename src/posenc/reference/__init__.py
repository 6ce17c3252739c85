"""Every scheme, and the attention around it, in float64 NumPy: written from the formula, index by index.

This package is what the fast code is compared with, so it shares nothing with it. It is slow on purpose: a scheme is a
loop over tokens, pairs of tokens and channels, and the equation stands beside the line that computes it.

The letters are those of the whole project: `h` heads, `g` heads of keys and values, `i` queries, `j` keys, `d` channels
of a head, `n` tokens. *Relative position* is query position − key position, whatever a paper wrote.

Positions are arrays `[tokens, axes]`, or `[tokens]` where there is one axis. A row of NaN is a prefix token (a CLS
token, a register), which stands nowhere: it has no vector, is not rotated, and adds nothing to a logit.

>>> import numpy as np
>>> from posenc import reference
>>> q, k, v = np.random.default_rng(0).normal(size=(3, 8, 5, 16))  # 8 heads, 5 tokens, 16 channels
>>> bias = reference.alibi(np.arange(5), np.arange(5), num_heads=8)
>>> reference.attention(q, k, v, bias=bias).shape
(8, 5, 16)
"""

from posenc.reference.absolute import learned, sinusoidal, sinusoidal_table
from posenc.reference.attention import attention, sinusoidal_self_attention
from posenc.reference.bias import alibi, alibi_slopes, relative_index, relative_position_bias, t5_bias, t5_bucket
from posenc.reference.conditional import conditional_encoding
from posenc.reference.content import irpe, irpe_index, relative_logits, shaw, shaw_values, sinusoidal_logits
from posenc.reference.curves import continuous_position_bias, fire, kerple, sandwich
from posenc.reference.features import fourier, fourier_bands, learnable_fourier
from posenc.reference.keyed import cope, deberta, deberta_bucket, transformer_xl
from posenc.reference.neighbours import neighbourhood
from posenc.reference.places import multimodal_positions, padded_positions
from posenc.reference.rotary import mixed_rotary, multimodal_rotary, rotary, xpos
from posenc.reference.scaling import (
    dynamic_ntk_frequencies,
    linear_frequencies,
    llama3_frequencies,
    longrope_factor,
    longrope_frequencies,
    ntk_frequencies,
    period_frequencies,
    proportional_frequencies,
    rotary_frequencies,
    yarn_factor,
    yarn_frequencies,
)
from posenc.reference.skewing import relative_to_absolute, skew

__all__ = [
    "alibi",
    "alibi_slopes",
    "attention",
    "conditional_encoding",
    "continuous_position_bias",
    "cope",
    "deberta",
    "deberta_bucket",
    "dynamic_ntk_frequencies",
    "fire",
    "fourier",
    "fourier_bands",
    "irpe",
    "irpe_index",
    "kerple",
    "learnable_fourier",
    "learned",
    "linear_frequencies",
    "llama3_frequencies",
    "longrope_factor",
    "longrope_frequencies",
    "mixed_rotary",
    "multimodal_positions",
    "multimodal_rotary",
    "neighbourhood",
    "ntk_frequencies",
    "padded_positions",
    "period_frequencies",
    "proportional_frequencies",
    "relative_index",
    "relative_logits",
    "relative_position_bias",
    "relative_to_absolute",
    "rotary",
    "rotary_frequencies",
    "sandwich",
    "shaw",
    "shaw_values",
    "sinusoidal",
    "sinusoidal_logits",
    "sinusoidal_self_attention",
    "sinusoidal_table",
    "skew",
    "t5_bias",
    "t5_bucket",
    "transformer_xl",
    "xpos",
    "yarn_factor",
    "yarn_frequencies",
]
