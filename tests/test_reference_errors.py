"""What the references refuse, and what they do without."""

import subprocess
import sys

import numpy as np
import pytest

from posenc import reference

LINE = np.arange(5.0)
Q = np.zeros((2, 5, 4))
PLANE = np.zeros((5, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reference.sinusoidal(LINE, 8, axes=2), r"positions must have shape \[tokens, 2\], got \[5\]"),
        (lambda: reference.sinusoidal(np.zeros((5, 3)), 8, axes=2), r"\[tokens, 2\], got \[5, 3\]"),
        (lambda: reference.sinusoidal(np.array([[0, np.nan]]), 8, axes=2), "on every axis or on none"),
        (lambda: reference.sinusoidal(np.zeros((5, 3)), 2, axes=3), "each of 3 axes needs channels, got 2"),
        (lambda: reference.sinusoidal(LINE, 0), "needs channels, got 0"),
        (lambda: reference.sinusoidal(LINE, 8, layout="half"), "interleaved or concatenated, got 'half'"),
        (lambda: reference.sinusoidal(np.zeros((5, 2)), 8, axes=2, axis_order=(1, 1)), "each of 2 axes once"),
        (lambda: reference.sinusoidal_table(-1, 4), "length must not be negative, got -1"),
        (lambda: reference.sinusoidal_table(3, 0), "dim must be at least 1, got 0"),
        (lambda: reference.learned(LINE, np.zeros((4, 3)), 4, 3), r"position \[4\] is outside a table of shape \[4\]"),
        (lambda: reference.learned(LINE - 1, np.zeros((9, 3)), 9, 3), r"position \[-1\] is outside"),
        (lambda: reference.learned(LINE + 0.5, np.zeros((9, 3)), 9, 3), "needs whole positions, got"),
        (lambda: reference.learned(LINE, np.zeros((9, 3)), 9, 4), r"table must have shape \[9, 4\], got \[9, 3\]"),
        (lambda: reference.learned(np.array([np.nan]), np.zeros((9, 3)), 9, 3), "rows for 0 prefix tokens, got 1"),
        (lambda: reference.fourier(LINE, np.zeros((1, 2)), 5), "dim must be even for Fourier features, got 5"),
        (lambda: reference.fourier(LINE, np.zeros((2, 2)), 4), r"frequencies must have shape \[1, 2\], got \[2, 2\]"),
        (lambda: reference.rotary(np.zeros((5, 63)), LINE, 63), "got 63: pass rotary_dim=62 to rotate part of it"),
        (
            lambda: reference.rotary(np.zeros((5, 8)), LINE, 8, rotary_dim=3),
            "rotary_dim must be even for rotary, got 3",
        ),
        (lambda: reference.rotary(np.zeros((5, 8)), LINE, 8, rotary_dim=10), "from 2 to head_dim 8, got 10"),
        (lambda: reference.rotary(np.zeros((5, 8)), LINE, 8, rotary_dim=0), "from 2 to head_dim 8, got 0"),
        (lambda: reference.rotary(np.zeros((5, 8)), LINE, 8, layout="paper"), "half or interleaved, got 'paper'"),
        (lambda: reference.rotary(np.zeros((5, 6)), LINE, 8), r"x must have shape \[5, 8\], got \[5, 6\]"),
        (lambda: reference.rotary(np.zeros((4, 8)), LINE, 8), r"x must have shape \[5, 8\], got \[4, 8\]"),
        (
            lambda: reference.rotary(np.zeros((5, 4)), np.zeros((5, 3)), 4, axes=3),
            "3 axes needs pairs of channels, got 2",
        ),
        (lambda: reference.alibi_slopes(0), "num_heads must be at least 1, got 0"),
        (lambda: reference.alibi(np.zeros((5, 2)), np.zeros((5, 2)), 4), r"\[tokens, 1\], got \[5, 2\]"),
        (lambda: reference.t5_bucket(LINE, num_buckets=2), "num_buckets must be at least 4, got 2"),
        (lambda: reference.t5_bucket(LINE, num_buckets=9), "num_buckets must be even if bidirectional, got 9"),
        (lambda: reference.t5_bucket(LINE, max_distance=8), "max_distance must be above the 8 exact buckets, got 8"),
        (lambda: reference.t5_bucket(LINE / 2), "needs whole positions"),
        (
            lambda: reference.t5_bias(LINE, LINE, 4, np.zeros((8, 32))),
            r"table must have shape \[4, 32\], got \[8, 32\]",
        ),
        (lambda: reference.relative_index(()), r"sizes of at least 1, got \(\)"),
        (lambda: reference.relative_index((3, 0)), r"sizes of at least 1, got \(3, 0\)"),
        (
            lambda: reference.relative_position_bias(LINE, LINE, 1, 4, np.zeros((1, 7))),
            r"relative position \[-4\] is outside a table of shape \[4\]",
        ),
        (
            lambda: reference.relative_position_bias(LINE, LINE, 1, 5, np.zeros((1, 9)), prefix_bias=True),
            r"prefix_bias needs a prefix_table of shape \[heads, 3\], got none",
        ),
        (lambda: reference.shaw(Q, LINE, LINE, 4, 0, np.zeros((1, 1, 4))), "max_distance must be at least 1, got 0"),
        (lambda: reference.shaw(Q, LINE, LINE, 4, 2, np.zeros((1, 4, 4))), r"\[1, 5, 4\], got \[1, 4, 4\]"),
        (lambda: reference.shaw(Q, LINE, LINE, 4, 2, np.zeros((3, 5, 4)), 3), "num_heads is 3, but there are 2 heads"),
        (lambda: reference.shaw(Q[:, :4], LINE, LINE, 4, 2, np.zeros((1, 5, 4))), r"q must have shape \[2, 5, 4\]"),
        (
            lambda: reference.shaw_values(np.zeros((2, 5, 5)), LINE, LINE, 4, 2),
            "values=True needs a value_table, got none",
        ),
        (lambda: reference.relative_logits(Q, LINE, LINE, 4, 4, [np.zeros((1, 7, 4))]), "-4 is outside tables for 4"),
        (lambda: reference.relative_logits(Q, LINE, LINE, 4, 4, [np.zeros((1, 4, 4))], causal=True), "4 is outside"),
        (
            lambda: reference.relative_logits(Q, LINE, LINE, 4, 5, [np.zeros((1, 8, 4))]),
            r"\[1, 9, 4\], got \[1, 8, 4\]",
        ),
        (lambda: reference.relative_logits(Q, LINE, LINE, 4, 5, []), "tables must be one an axis, got 0 for 1 axes"),
        (lambda: reference.relative_logits(Q, LINE, LINE, 4, (5, 1), [Q, Q], causal=True), "one axis, got 2"),
        (lambda: reference.sinusoidal_logits(Q, LINE, LINE, 6), r"q must have shape \[2, 5, 6\], got \[2, 5, 4\]"),
        (lambda: reference.relative_to_absolute(np.zeros((3, 6))), "3 queries need 5 columns, got 6"),
        (lambda: reference.skew(np.zeros((3, 5))), "as many columns as queries, got 5 for 3"),
        (
            lambda: reference.conditional_encoding(np.zeros((5, 2)), 5, np.zeros((2, 1, 4)), np.zeros(2), 2, 4, axes=1),
            "kernel_size must be odd, got 4",
        ),
        (
            lambda: reference.conditional_encoding(np.zeros((5, 2)), 5, np.zeros((2, 1, 3)), np.zeros(2), 2),
            r"grid_shape must have 2 axes, got \(5,\)",
        ),
        (
            lambda: reference.conditional_encoding(np.zeros((5, 2)), (2, 2), np.zeros((2, 1, 3, 3)), np.zeros(2), 2),
            r"x must have shape \[4, 2\], got \[5, 2\]",
        ),
        (
            lambda: reference.conditional_encoding(np.zeros((4, 2)), (2, 2), Q, np.zeros(2), 2, causal=True),
            "a causal convolution has one axis, got 2",
        ),
        (lambda: reference.attention(np.zeros((3, 5, 4)), Q, Q), "3 query heads cannot share 2 key heads evenly"),
        (lambda: reference.attention(Q, Q[:0], Q[:0]), "2 query heads cannot share 0 key heads"),
        (lambda: reference.attention(Q, Q[..., :3], Q), r"k must have shape \[2, 5, 4\], got \[2, 5, 3\]"),
        (lambda: reference.attention(Q, Q, Q[:, :4]), r"v must have shape \[2, 5, 4\], got \[2, 4, 4\]"),
        (lambda: reference.attention(Q, Q, Q, bias=np.zeros((3, 5, 5))), "broadcast"),
        (
            lambda: reference.sinusoidal_self_attention(Q[0], *Q[:1, :4].repeat(3, 0), context=Q[0, :3]),
            "got 5 queries and 3 keys",
        ),
        (lambda: reference.rotary(np.zeros((5, 8)), LINE, 8, precision="half"), "exact or float32, got 'half'"),
        (lambda: reference.rotary(np.zeros((5, 8)), LINE, 8, axis_order=(1,)), "each of 1 axes once, got"),
        (lambda: reference.mixed_rotary(Q, LINE, 2, 4, np.zeros((2, 1, 3)), axes=1), r"\[2, 1, 2\], got \[2, 1, 3\]"),
        (lambda: reference.mixed_rotary(Q, LINE, 3, 4, np.zeros((3, 1, 2)), axes=1), "x must have 3 heads, got 2"),
        (lambda: reference.mixed_rotary(Q, LINE, 2, 5, np.zeros((2, 1, 2)), axes=1), "even for rotary, got 5"),
        (
            lambda: reference.multimodal_rotary(Q, np.zeros((5, 3)), 4, (1, 2, 1)),
            r"sum to the 2 pairs .* got \(1, 2, 1\)",
        ),
        (
            lambda: reference.multimodal_rotary(np.zeros((5, 16)), np.zeros((5, 3)), 16, (2, 3, 3), interleaved=True),
            r"take turns have \[3, 3, 2\] pairs, got sections \[2, 3, 3\]",
        ),
        (lambda: reference.xpos(Q, Q[:, :4], LINE, LINE, 4), r"k must have shape \[2, 5, 4\], got \[2, 4, 4\]"),
        (lambda: reference.xpos(Q, Q, LINE, LINE, 4, layout="paper"), "half or interleaved, got 'paper'"),
        (lambda: reference.alibi(LINE, LINE, 4, slopes=np.ones(3)), r"slopes must have shape \[4\], got \[3\]"),
        (
            lambda: reference.kerple(LINE, LINE, 2, np.ones(2), np.ones(2), kind="log"),
            "logarithmic or power, got 'log'",
        ),
        (lambda: reference.kerple(LINE, LINE, 2, np.ones(3), np.ones(2)), r"raw_r1 must have shape \[2\], got \[3\]"),
        (lambda: reference.sandwich(LINE, LINE, 2, dim=7), "dim must be even and at least 2 for Sandwich, got 7"),
        (
            lambda: reference.continuous_position_bias(
                LINE, LINE, 1, 5, np.zeros((2, 1)), np.zeros(2), np.zeros((1, 2)), pretrained_shape=(3, 3), hidden=2
            ),
            r"pretrained_shape must have 1 axes, got \(3, 3\)",
        ),
        (
            lambda: reference.fire(
                LINE, LINE, 1, np.zeros((2, 1)), np.zeros(2), np.zeros((1, 2)), np.zeros(1), Q, Q, 2
            ),
            r"c must have shape \[1\], got \[2, 5, 4\]",
        ),
        (
            lambda: reference.transformer_xl(Q, LINE, LINE, 2, 4, np.zeros((2, 4, 6)), Q[:, 0], Q[:, 0], k=Q),
            r"projection must have shape \[2, 4, 8\], got \[2, 4, 6\]",
        ),
        (lambda: reference.deberta_bucket(LINE, 3), "buckets must be at least 4, got 3"),
        (lambda: reference.deberta_bucket(LINE, 256, 129), "max_distance must be above 129 for 256 buckets, got 129"),
        (lambda: reference.deberta_bucket(LINE / 2), "needs whole positions"),
        (lambda: reference.deberta(Q, LINE, LINE, 2, 4, terms=("p2p",)), r"c2p, p2c or both, got \['p2p'\]"),
        (lambda: reference.deberta(Q, LINE, LINE, 2, 4), "c2p needs a key_table, got none"),
        (
            lambda: reference.deberta(Q, LINE, LINE, 2, 4, terms=("p2c",), query_table=np.zeros((2, 512, 4))),
            "p2c needs a query_table and the keys, got none",
        ),
        (lambda: reference.cope(Q, LINE, LINE, 4, 3, np.zeros((1, 2, 4)), Q), r"\[1, 3, 4\], got \[1, 2, 4\]"),
        (lambda: reference.irpe(Q, PLANE, PLANE, 4, method="bias"), "product or cross, got 'bias'"),
        (
            lambda: reference.irpe(Q, PLANE, PLANE, 4, alpha=4.0),
            "0 < alpha <= beta and alpha < gamma, got 4.0, 3.8, 15.2",
        ),
        (lambda: reference.irpe(Q, PLANE, PLANE, 4), "the product method needs a table, got none"),
        (lambda: reference.irpe(Q, PLANE, PLANE, 4, method="cross", tables=[Q]), "needs two tables, got 1"),
        (lambda: reference.fourier_bands(LINE, layout="half"), "interleaved or concatenated, got 'half'"),
        (lambda: reference.fourier_bands(LINE, bands=4, dim=7), "dim must be at least 8 for 4 waves, got 7"),
        (lambda: reference.fourier_bands(LINE, resolution=(4, 4)), "one an axis of 1, got"),
        (
            lambda: reference.learnable_fourier(LINE, Q, Q, Q, Q, Q, dim=4, features=3),
            "features must be even, a cosine and a sine each, got 3",
        ),
        (lambda: reference.padded_positions(np.array(True)), "mask must have an axis at least, got none"),
        (lambda: reference.multimodal_positions([-1]), "a text must have 0 tokens or more, got -1"),
        (lambda: reference.multimodal_positions([(2, 3)]), r"3 sizes of 1 or more, got \(2, 3\)"),
        (lambda: reference.multimodal_positions([(2, 0, 1)]), r"3 sizes of 1 or more, got \(2, 0, 1\)"),
        (lambda: reference.multimodal_positions([2], follow="time"), "largest or space, got 'time'"),
        (lambda: reference.multimodal_rotary(Q, PLANE, 4, (1, 1), precision="half"), "exact or float32, got 'half'"),
        (lambda: reference.multimodal_rotary(Q, PLANE, 4, (2, 1), rotary_dim=6), "even, at most 4, got 6"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_reference_needs_no_torch():
    script = (
        "import sys\n"
        "sys.modules['torch'] = None  # import torch would fail\n"
        "from posenc import reference\n"
        "print(reference.alibi_slopes(2).tolist())"
    )
    result = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[0.0625, 0.00390625]"
