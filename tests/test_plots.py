"""Figures show the numbers that the encoding gives: read back from the figure and compared."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import posenc
from posenc import plots, reference, steps


def image(panel) -> np.ndarray:
    return np.asarray(panel.images[0].get_array().filled(np.nan))


def numbers(panel, shape: tuple[int, ...]) -> np.ndarray:
    """What is written in the cells of a panel; −1 for padding."""
    texts = [text for text in panel.texts if text.get_text()]
    return np.array([-1 if text.get_text() == "•" else int(text.get_text()) for text in texts]).reshape(shape)


def hatched(panel, shape: tuple[int, ...]) -> np.ndarray:
    cells = np.zeros(shape, dtype=bool)
    for patch in panel.patches:
        if patch.get_hatch():
            cells[int(patch.get_y() + 0.5), int(patch.get_x() + 0.5)] = True
    return cells


# --- absolute --------------------------------------------------------------------------------------------------------


def test_absolute_shows_the_vectors_and_their_similarity():
    figure = plots.picture(posenc.Sinusoidal(13), posenc.sequence(9, start=4))
    vectors, similarity = figure.axes[:2]
    expected = reference.sinusoidal(np.arange(4.0, 13.0), 13)
    np.testing.assert_allclose(image(vectors), expected, atol=1e-6)
    norms = np.linalg.norm(expected, axis=1)
    np.testing.assert_allclose(image(similarity), expected @ expected.T / np.outer(norms, norms), atol=1e-6)
    assert (vectors.get_xlabel(), vectors.get_ylabel()) == ("channel", "position")


def test_absolute_on_a_grid_shows_a_tile_for_each_cell():
    encoding = posenc.Learned((3, 5), 8, prefix=1, std=1.0)
    figure = plots.picture(encoding, posenc.grid(3, 5, prefix=1))
    vectors, tiles = figure.axes[:2]
    table = encoding.table.detach().double().numpy()
    np.testing.assert_allclose(image(vectors), table, atol=1e-6)
    cells = table[1:] / np.linalg.norm(table[1:], axis=1, keepdims=True)
    drawn = image(tiles)
    assert drawn.shape == (3 * 4 - 1, 5 * 6 - 1)
    own, other = (2, 3), (1, 4)  # the tile of one cell, and another cell within it
    expected = cells[own[0] * 5 + own[1]] @ cells[other[0] * 5 + other[1]]
    np.testing.assert_allclose(drawn[own[0] * 4 + other[0], own[1] * 6 + other[1]], expected, atol=1e-6)
    assert np.isnan(drawn[3]).all()
    assert np.isnan(drawn[:, 5]).all()


def test_a_zero_table_is_drawn_without_dividing_by_zero():
    encoding = posenc.Learned((4,), 6)
    torch.nn.init.zeros_(encoding.table)
    figure = plots.picture(encoding, posenc.sequence(4))
    assert (image(figure.axes[1]) == 0).all()


# --- rotary ----------------------------------------------------------------------------------------------------------


def test_rotary_shows_angles_and_the_logit_of_equal_vectors():
    figure = plots.picture(posenc.Rotary(12, base=50.0), posenc.sequence(7))
    angles, curve = figure.axes[:2]
    frequencies = 50.0 ** (-np.arange(6) / 6)
    np.testing.assert_allclose(image(angles), np.cos(np.arange(7)[:, None] * frequencies), atol=1e-6)
    relative, logits = curve.lines[0].get_data()
    np.testing.assert_array_equal(relative, np.arange(-6, 7))
    np.testing.assert_allclose(logits, np.cos(relative[:, None] * frequencies).mean(1), atol=1e-6)


def test_rotary_on_a_grid_shows_a_map():
    rotary = posenc.Rotary(8, axes=2, base=20.0)
    figure = plots.picture(rotary, posenc.grid(3, 4))
    panel = next(axes for axes in figure.axes if axes.get_xlabel() == "relative width (query − key)")
    drawn = image(panel)
    assert drawn.shape == (5, 7)
    q = torch.full((1, 1, 12, 8), 8**-0.5)
    turned, _ = rotary(q, q, posenc.grid(3, 4))
    expected = turned[0, 0, 2 * 4 + 0] @ turned[0, 0, 0 * 4 + 3]  # Δ = (2, −3)
    np.testing.assert_allclose(drawn[2 + 2, 3 - 3], expected, atol=1e-6)


def test_heads_that_turn_differently_have_a_curve_or_a_map_each():
    rotary = posenc.MixedRotary(3, 8, axes=1)
    torch.nn.init.normal_(rotary.table)
    figure = plots.picture(rotary, posenc.sequence(6))
    frequencies = rotary.frequencies().detach().numpy()[:, 0]
    assert figure.axes[0].get_title() == "Cosine of the angle, head 1"
    np.testing.assert_allclose(image(figure.axes[0]), np.cos(np.arange(6)[:, None] * frequencies[0]), atol=1e-6)
    for line, own in zip(figure.axes[1].lines, frequencies, strict=True):
        relative, logits = line.get_data()
        np.testing.assert_allclose(logits, np.cos(relative[:, None] * own).mean(1), atol=1e-6)
    figure = plots.picture(posenc.MixedRotary(3, 8), posenc.grid(3, 4))
    panels = [axes for axes in figure.axes if axes.get_title().startswith("Logit of equal vectors, head")]
    assert [image(panel).shape for panel in panels] == [(5, 7)] * 3


def test_a_decay_is_drawn_for_the_keys_that_are_seen():
    xpos = posenc.XPos(8, scale_base=16.0)
    figure = plots.picture(xpos, posenc.sequence(6))
    relative, logits = figure.axes[1].lines[0].get_data()
    assert np.isnan(logits[relative < 0]).all()
    q = torch.full((1, 1, 6, 8), 8**-0.5)
    turned, keys = xpos(q, q, posenc.sequence(6))
    for lag in range(6):
        np.testing.assert_allclose(logits[relative == lag], float(turned[0, 0, 5] @ keys[0, 0, 5 - lag]), atol=1e-5)


def test_three_axes_have_a_panel_each_and_one_for_the_pairs():
    rotary = posenc.MultimodalRotary(16, (2, 3, 3))
    figure = plots.picture(rotary, posenc.grid(2, 3, 4))
    assert figure.get_suptitle() == "Multimodal rotary, grid 2 (time) × 3 (height) × 4 (width)"
    turns, *panels = figure.axes
    frequencies = rotary.frequencies().numpy()
    for axis, (own, pairs) in enumerate(zip(frequencies, ([0, 1], [2, 3, 4], [5, 6, 7]), strict=True)):
        at, angle = turns.lines[axis].get_data()
        assert at.tolist() == pairs
        np.testing.assert_allclose(angle, own[pairs], rtol=1e-6)
        assert panels[axis].get_title() == f"Logit of two equal vectors, {('time', 'height', 'width')[axis]}"
        relative, logits = panels[axis].lines[0].get_data()
        assert relative.tolist() == list(range(-1 - axis, 2 + axis))
        np.testing.assert_allclose(logits, np.cos(relative[:, None] * own).mean(1), atol=1e-6)


def test_three_axes_where_heads_turn_differently_are_a_map_of_the_last_two():
    figure = plots.picture(posenc.MixedRotary(2, 8, axes=3), posenc.grid(2, 3, 4))
    panel = next(axes for axes in figure.axes if axes.get_xlabel() == "relative width (query − key)")
    assert image(panel).shape == (5, 7)


# --- bias ------------------------------------------------------------------------------------------------------------


def test_bias_along_a_sequence_shows_a_curve_for_each_head():
    figure = plots.picture(posenc.ALiBi(3), posenc.sequence(6))
    curves, matrix = figure.axes[:2]
    slopes = reference.alibi_slopes(3)
    for line, slope in zip(curves.lines, slopes, strict=True):
        relative, values = line.get_data()
        np.testing.assert_array_equal(relative, np.arange(-5, 6))
        np.testing.assert_allclose(values, -slope * np.abs(relative), atol=1e-6)
    index = np.arange(6)
    np.testing.assert_allclose(image(matrix), -slopes[0] * np.abs(index[:, None] - index), atol=1e-6)


@pytest.mark.parametrize("prefix", [0, 2])
def test_bias_on_a_grid_shows_the_table_centred_on_zero(prefix):
    encoding = posenc.RelativePositionBias(3, (2, 4), prefix_bias=prefix > 0)
    torch.nn.init.normal_(encoding.table)
    figure = plots.picture(encoding, posenc.grid(2, 4, prefix=prefix))
    table = encoding.table.detach().numpy().reshape(3, 3, 7)
    panels = [axes for axes in figure.axes if axes.get_title().startswith("Bias of head")]
    assert len(panels) == 3
    for panel, head in zip(panels, table, strict=True):
        np.testing.assert_allclose(image(panel), head, atol=1e-6)
        low, high = panel.images[0].get_clim()
        assert low == -high
        np.testing.assert_allclose(high, np.abs(table).max(), rtol=1e-6)
        assert panel.images[0].get_extent() == [-3.5, 3.5, 1.5, -1.5]


def test_at_most_eight_heads_are_drawn_on_a_grid():
    figure = plots.picture(posenc.RelativePositionBias(11, (2, 2)), posenc.grid(2, 2))
    assert sum(axes.get_title().startswith("Bias of head") for axes in figure.axes) == plots.MOST_HEADS


def test_a_bias_that_reads_the_query_is_that_of_the_last_one():
    encoding = posenc.Fire(3, threshold=2.0)
    figure = plots.picture(encoding, posenc.sequence(6))
    curves, matrix = figure.axes[:2]
    assert curves.get_title() == "Bias of the last query"
    values = encoding(posenc.sequence(6)).detach().numpy()
    for line, head in zip(curves.lines, values, strict=True):
        relative, drawn = line.get_data()
        np.testing.assert_array_equal(relative, np.arange(6))
        np.testing.assert_allclose(drawn, [head[5, 5 - lag] for lag in range(6)], atol=1e-6)
    np.testing.assert_allclose(image(matrix), values[0], atol=1e-6)


def test_numbers_that_leave_zero_out_are_drawn_on_their_own_range():
    encoding = posenc.ContinuousPositionBias(2, (2, 3))  # between 0 and 16, 8 at the start
    figure = plots.picture(encoding, posenc.grid(2, 3))
    values = encoding(posenc.grid(2, 3)).detach().numpy()
    panels = [axes for axes in figure.axes if axes.get_title().startswith("Bias of head")]
    for panel in panels:
        np.testing.assert_allclose(panel.images[0].get_clim(), (values.min(), values.max()), rtol=1e-6)


# --- content ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [None, 3])
def test_shaw_shows_the_rows_of_both_tables(heads):
    encoding = posenc.Shaw(6, max_distance=2, num_heads=heads)
    figure = plots.picture(encoding, posenc.sequence(5))
    rows = np.clip(np.arange(-4, 5), -2, 2) + 2
    np.testing.assert_allclose(image(figure.axes[0]), encoding.key_table.detach().numpy()[0][rows], atol=1e-6)
    np.testing.assert_allclose(image(figure.axes[1]), encoding.value_table.detach().numpy()[0][rows], atol=1e-6)
    assert figure.axes[0].images[0].get_extent() == [-0.5, 5.5, 4.5, -4.5]


def test_relative_logits_show_a_panel_for_each_axis_with_the_others_level():
    encoding = posenc.RelativeLogits(6, (2, 4), num_heads=2)
    figure = plots.picture(encoding, posenc.grid(2, 4))
    height, width = (table.detach().numpy()[0] for table in encoding.tables)
    panels = [axes for axes in figure.axes if axes.get_title().startswith("Vector met by the query")]
    assert [panel.get_title().rpartition(" ")[2] for panel in panels] == ["height", "width"]
    np.testing.assert_allclose(image(panels[0]), height + width[3], atol=1e-6)
    np.testing.assert_allclose(image(panels[1]), width + height[1], atol=1e-6)


def test_causal_logits_show_nothing_for_keys_ahead():
    encoding = posenc.RelativeLogits(6, (4,), causal=True)
    drawn = image(plots.picture(encoding, posenc.sequence(4)).axes[0])
    assert np.isnan(drawn[:3]).all()
    np.testing.assert_allclose(drawn[3:], encoding.tables[0].detach().numpy()[0], atol=1e-6)


def test_vectors_for_keys_have_a_panel_of_their_own():
    encoding = posenc.Deberta(2, 6, buckets=4, max_distance=6)
    figure = plots.picture(encoding, posenc.sequence(5))
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [panel.get_title() for panel in panels] == ["Vector met by the query", "Vector met by the key"]
    rows = posenc.deberta_bucket(torch.arange(-4, 5), 4, 6).numpy() + 4
    np.testing.assert_allclose(image(panels[0]), encoding.key_table.detach().numpy()[0][rows], atol=1e-6)
    np.testing.assert_allclose(image(panels[1]), encoding.query_table.detach().numpy()[0][rows], atol=1e-6)


def test_transformer_xl_shows_its_vectors_and_what_is_added_whatever_the_query():
    encoding = posenc.TransformerXL(2, 6, dim=8)
    figure = plots.picture(encoding, posenc.sequence(5))
    query, key, constant = [axes for axes in figure.axes if axes.get_title()]
    lags = np.arange(-4.0, 5.0)
    angles = lags[:, None] * 10000.0 ** (-np.arange(4) / 4)
    waves = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    projected = waves @ encoding.projection.detach().double().numpy()[0].T
    np.testing.assert_allclose(image(query), projected, atol=1e-5)
    np.testing.assert_allclose(image(key), np.tile(encoding.content_bias.detach().numpy()[0], (9, 1)), atol=1e-6)
    drawn, added = constant.lines[0].get_data()
    np.testing.assert_array_equal(drawn, lags)
    np.testing.assert_allclose(added, projected @ encoding.position_bias.detach().double().numpy()[0], atol=1e-5)


def test_cope_shows_where_queries_put_keys():
    encoding = posenc.CoPE(8, max_position=4)
    figure = plots.picture(encoding, posenc.sequence(9))
    counts, table = (image(axes) for axes in figure.axes[:2])
    np.testing.assert_allclose(table, encoding.table.detach().numpy()[0], atol=1e-6)
    assert np.isnan(counts[np.triu_indices(9, 1)]).all()
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, 9, 8, generator=generator) for _ in range(2))
    q[..., 0] = 1.0
    gates = (q @ k.mT / 8**0.5).sigmoid()[0, 0].double().numpy()
    for i, j in zip(*np.tril_indices(9), strict=True):
        np.testing.assert_allclose(counts[i, j], min(gates[i, j : i + 1].sum(), 3), atol=1e-5)


# --- conditional -----------------------------------------------------------------------------------------------------


def test_conditional_shows_kernels_and_where_the_border_is_felt():
    encoding = posenc.ConditionalEncoding(9)
    figure = plots.picture(encoding, posenc.grid(4, 5, prefix=1))
    kernels, border = (image(panel) for panel in figure.axes[:2])
    weight = encoding.convolution.weight.detach().numpy()[:, 0]
    assert kernels.shape == (3 * 4 - 1, 3 * 4 - 1)
    np.testing.assert_allclose(kernels[4:7, 8:11], weight[3 * 1 + 2], atol=1e-6)
    added = weight.sum((1, 2)) + encoding.convolution.bias.detach().numpy()
    np.testing.assert_allclose(border[1:-1, 1:-1], np.linalg.norm(added), rtol=1e-5)
    assert np.abs(border[0] - border[1, 1]).min() > 1e-4


# --- step by step ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_relative_to_absolute_ends_with_the_right_entries(length):
    figure = steps.relative_to_absolute(length)
    table, padded, flat, middle, result = figure.axes[:5]
    wide = 2 * length - 1
    x = np.arange(length * wide).reshape(length, wide)
    np.testing.assert_array_equal(numbers(table, x.shape), x)
    np.testing.assert_array_equal(numbers(padded, (length, wide + 1))[:, -1], -np.ones(length))
    np.testing.assert_array_equal(numbers(flat, (-1,)), numbers(padded, (-1,)))
    kept = ~hatched(flat, (1, length * (wide + 1)))[0]
    np.testing.assert_array_equal(numbers(flat, (-1,))[kept], numbers(middle, (-1,)))
    expected = np.array([[x[i, length - 1 + j - i] for j in range(length)] for i in range(length)])
    np.testing.assert_array_equal(numbers(result, (length, length)), expected)
    gone = hatched(middle, (length, wide))
    np.testing.assert_array_equal(numbers(middle, (length, wide))[~gone].reshape(length, length), expected)
    index = np.arange(length)
    np.testing.assert_array_equal(image(result), index[:, None] - index)  # coloured by query − key


@pytest.mark.parametrize("length", [1, 2, 4])
def test_skew_ends_with_the_right_entries(length):
    figure = steps.skew(length)
    table, _, _, tall, result = figure.axes[:5]
    x = np.arange(1, length * length + 1).reshape(length, length)
    np.testing.assert_array_equal(numbers(table, x.shape), x)
    drawn = numbers(result, x.shape)
    np.testing.assert_array_equal(numbers(tall, (length + 1, length))[1:], drawn)
    below = np.tril(np.ones_like(x, dtype=bool))
    for i, j in np.argwhere(below):
        assert drawn[i, j] == x[i, length - 1 + j - i]
        assert image(result)[i, j] == i - j
    np.testing.assert_array_equal(hatched(result, x.shape), ~below)


# --- the rest --------------------------------------------------------------------------------------------------------


def test_untrained_is_reproducible_and_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    first, second = (plots.untrained("Learned", {"shape": (5,), "dim": 6}, (5,)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(image(first.axes[0]), image(second.axes[0]))
    assert first.get_suptitle() == "Learned position embedding, untrained: random numbers"
    assert plots.untrained("ALiBi", {"num_heads": 2}, (5,)).get_suptitle() == "Attention with linear biases"


def test_by_relative_refuses_real_coordinates():
    with pytest.raises(ValueError, match="whole coordinates"):
        plots.picture(posenc.ALiBi(2), posenc.coordinates(torch.rand(3, 1).double()))


@pytest.mark.parametrize("encoding", [posenc.Shaw(6, 2), posenc.ConditionalEncoding(4, axes=1)])
def test_pictures_that_need_a_layout_say_so(encoding):
    with pytest.raises(ValueError, match="needs a sequence or a grid, got coordinates"):
        plots.picture(encoding, posenc.coordinates(torch.arange(4)[:, None]))


def test_no_window_and_no_global_state():
    program = (
        "import sys, posenc; from posenc import plots; plots.picture(posenc.ALiBi(2), posenc.sequence(4));"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
