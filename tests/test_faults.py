"""The faults of the snippets that people copy: each is written out here, and told from ours.

A test shows two things: ours equals the reference, and the faulty version does not (or crashes, or builds what it need
not). So it fails if ours ever has the fault, and it fails if the inputs could not tell the two apart.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import posenc
from posenc import reference

pytestmark = pytest.mark.usefixtures("seed")


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def agree(got, wanted):
    np.testing.assert_allclose(got.detach().numpy(), wanted, rtol=0, atol=1e-12)


def differ(got, wanted):
    assert got.shape == wanted.shape
    assert np.abs(got.detach().numpy() - wanted).max() > 1e-3


def cells(*shape):
    """The coordinates of a grid, for the reference."""
    return np.indices(shape).reshape(len(shape), -1).T.astype(float)


def vectors(encoding, positions):
    """What an absolute encoding adds."""
    return encoding(torch.zeros(1, positions.length, encoding.dim, dtype=torch.float64), positions)[0]


def arrays(*tensors):
    return [tensor.detach().numpy() for tensor in tensors]


class Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that is made inside."""

    def __init__(self):
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                # an expanded view takes no memory along its axes of stride 0
                real = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
                self.entries = max(self.entries, math.prod(real))
        return result


# 1. Sinusoidal: frequencies cast to integers; odd widths crash


def whole_frequencies(length, dim):
    frequency = (10000.0 ** (-torch.arange(0, dim, 2) / dim)).long()
    angles = torch.arange(length)[:, None] * frequency
    table = torch.zeros(length, dim, dtype=torch.float64)
    table[:, 0::2] = angles.double().sin()
    table[:, 1::2] = angles.double().cos()
    return table


@pytest.mark.parametrize(("length", "dim"), [(9, 4), (30, 16), (5, 6)])
def test_1_frequencies_cast_to_integers(length, dim):
    right = reference.sinusoidal(np.arange(length), dim)
    agree(vectors(posenc.Sinusoidal(dim), posenc.sequence(length)), right)
    wrong = whole_frequencies(length, dim)
    differ(wrong, right)
    assert (wrong[:, 2::2] == 0).all()  # all but the first frequency are 0


@pytest.mark.parametrize("dim", [3, 5, 17])
def test_1_odd_widths_crash(dim):
    agree(vectors(posenc.Sinusoidal(dim), posenc.sequence(7)), reference.sinusoidal(np.arange(7), dim))
    with pytest.raises(RuntimeError):
        whole_frequencies(7, dim)


# 3. Swin: the table is made inside the function; the row multiplier is taken from the wrong axis


def bias_with_its_own_table(heads, height, width):
    table = torch.nn.Parameter(torch.randn(heads, (2 * height - 1) * (2 * width - 1), dtype=torch.float64))
    return table[:, posenc.relative_index((height, width))]


def test_3_a_table_made_in_the_forward_pass_never_trains():
    ours = posenc.RelativePositionBias(2, (3, 4)).double()
    target = random(2, 12, 12)
    optimizer = torch.optim.SGD(ours.parameters(), lr=1.0)
    losses = {"ours": [], "faulty": []}
    for _ in range(60):
        loss = (ours(posenc.grid(3, 4)) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses["ours"].append(loss.item())
        losses["faulty"].append((bias_with_its_own_table(2, 3, 4) - target).square().mean().item())
    for version, trains in (("ours", True), ("faulty", False)):
        assert all(after < before for before, after in itertools.pairwise(losses[version])) == trains
    grid = cells(3, 4)
    (table,) = arrays(ours.table)
    agree(ours(posenc.grid(3, 4)), reference.relative_position_bias(grid, grid, 2, (3, 4), table))
    differ(bias_with_its_own_table(2, 3, 4), *arrays(bias_with_its_own_table(2, 3, 4)))  # another one each time


def index_with_rows_of_the_wrong_length(height, width):
    lag = torch.from_numpy(cells(height, width)[:, None] - cells(height, width)).long()
    return (lag[..., 0] + height - 1) * (2 * height - 1) + lag[..., 1] + width - 1


@pytest.mark.parametrize(("height", "width"), [(3, 4), (2, 5), (1, 3)])
def test_3_lags_collide_where_rows_are_measured_on_the_wrong_axis(height, width):
    right = reference.relative_index((height, width))
    ours, wrong = posenc.relative_index((height, width)), index_with_rows_of_the_wrong_length(height, width)
    lags = (2 * height - 1) * (2 * width - 1)
    np.testing.assert_array_equal(ours.numpy(), right)
    assert len(ours.unique()) == lags
    if height > 1:
        assert len(wrong.unique()) < lags
    np.testing.assert_array_equal(index_with_rows_of_the_wrong_length(4, 4), reference.relative_index((4, 4)))

    bias = posenc.RelativePositionBias(3, (height, width)).double()
    (table,) = arrays(bias.table)
    right = reference.relative_position_bias(cells(height, width), cells(height, width), 3, (height, width), table)
    agree(bias(posenc.grid(height, width)), right)
    if height > 1:
        assert (bias.table[:, wrong] - torch.from_numpy(right)).abs().max() > 1e-4


# 4. MAE: the learnable zero table instead of sin-cos; the number of coordinates instead of the coordinates


def mae_with_a_zero_table(height, width, dim):
    return torch.nn.Parameter(torch.zeros(height * width, dim, dtype=torch.float64))


def mae_of_the_number_of_coordinates(height, width, dim):
    columns, rows = np.meshgrid(np.arange(width), np.arange(height))
    halves = [reference.sinusoidal_table(len(axis.ravel()), dim // 2) for axis in (columns, rows)]
    return torch.from_numpy(np.concatenate(halves, axis=1))


@pytest.mark.parametrize(("height", "width", "dim"), [(2, 3, 8), (3, 2, 12), (4, 4, 16)])
def test_4_mae_positions_are_sines_of_the_coordinates(height, width, dim):
    grid = cells(height, width)
    right = reference.sinusoidal(grid, dim, axes=2, axis_order=(1, 0))
    ours = vectors(posenc.Sinusoidal(dim, axes=2, axis_order=(1, 0)), posenc.grid(height, width))
    agree(ours, right)
    differ(mae_with_a_zero_table(height, width, dim), right)
    wrong = mae_of_the_number_of_coordinates(height, width, dim)
    differ(wrong, right)
    assert (wrong[:, : dim // 2] == wrong[:, dim // 2 :]).all()  # both halves are the same
    assert (ours[:, : dim // 2] != ours[:, dim // 2 :]).any()


# 5. Shaw: an L × L × d tensor is built; the device is hard-coded


def shaw_by_gathering_a_vector_a_pair(q, weights, key_table, value_table, max_distance, device="cpu"):
    places = torch.arange(q.shape[-2], device=device)
    row = (places[:, None] - places).clamp(-max_distance, max_distance) + max_distance
    logits = torch.einsum("bhid,ijd->bhij", q, key_table[0].to(device)[row])
    return logits, torch.einsum("bhij,ijd->bhid", weights, value_table[0].to(device)[row])


@pytest.mark.parametrize(("length", "dim"), [(24, 40), (33, 17)])
def test_5_no_vector_is_built_for_each_pair(length, dim):
    shaw = posenc.Shaw(dim, max_distance=4).double()
    q, weights = random(1, 2, length, dim), random(1, 2, length, length)
    with Largest() as ours:
        logits, values = shaw(q), shaw.values(weights)
    with Largest() as faulty:
        wrong = shaw_by_gathering_a_vector_a_pair(q, weights, shaw.key_table, shaw.value_table, 4)
    key_table, value_table = arrays(shaw.key_table, shaw.value_table)
    places, tables = np.arange(length), {"key_table": key_table, "value_table": value_table}
    agree(logits[0], reference.shaw(q[0].numpy(), places, places, dim, 4, **tables))
    agree(values[0], reference.shaw_values(weights[0].numpy(), places, places, dim, 4, **tables))
    agree(wrong[0], logits.detach().numpy())  # the faulty one is right, at a price
    assert faulty.entries >= length * length * dim
    assert ours.entries < length * length * dim / 2


def test_5_attention_and_its_gradients_build_no_vector_for_each_pair():
    length, dim = 48, 64
    encodings = [posenc.Shaw(dim, 6), posenc.RelativeLogits(dim, length), posenc.SinusoidalLogits(dim)]
    for encoding in encodings:
        q, k, v = (torch.randn(1, 2, length, dim, requires_grad=True) for _ in range(3))
        with Largest() as ours:
            posenc.attention(q, k, v, encoding).square().sum().backward()
        assert ours.entries < length * length * dim / 4, type(encoding).__name__


def test_5_the_device_is_that_of_the_input():
    shaw = posenc.Shaw(8, max_distance=2).to("meta")
    q, weights = torch.zeros(1, 2, 5, 8, device="meta"), torch.zeros(1, 2, 5, 5, device="meta")
    assert shaw(q).device.type == shaw.values(weights).device.type == "meta"
    assert posenc.attention(q, q, q, shaw).device.type == "meta"
    with pytest.raises((RuntimeError, NotImplementedError)):
        shaw_by_gathering_a_vector_a_pair(q, weights, shaw.key_table, shaw.value_table, 2)


# 6. Music Transformer: leftovers above the diagonal; the causal skew in an encoder


def skew_by_padding(x):
    padded = torch.nn.functional.pad(x, (1, 0))
    return padded.reshape(*x.shape[:-2], x.shape[-1] + 1, x.shape[-2])[..., 1:, :]


def attend(logits, v):
    return logits.softmax(-1) @ v


@pytest.mark.parametrize(("length", "heads"), [(6, 2), (9, 3)])
def test_6_leftovers_above_the_diagonal_reach_the_softmax(length, heads):
    dim = 8
    encoding = posenc.RelativeLogits(dim, length, num_heads=heads, causal=True).double()
    q, k, v = random(3, 1, heads, length, dim)
    places = np.arange(length)
    q_, k_, v_, table = arrays(q[0], k[0], v[0], encoding.tables[0])
    content = reference.relative_logits(q_, places, places, dim, length, [table], heads, causal=True)
    causal = np.tril(np.ones((1, length, length), dtype=bool))
    right = reference.attention(q_, k_, v_, content=content, allowed=causal)
    agree(posenc.attention(q, k, v, encoding, causal=True)[0], right)
    with pytest.raises(ValueError, match="causal"):
        posenc.attention(q, k, v, encoding)

    # E[L − 1 + j − i] descends with distance, ours ascends
    relative = skew_by_padding(q @ encoding.tables[0].flip(-2).mT)
    wrong = attend((q @ k.mT + relative) / math.sqrt(dim), v)
    differ(wrong[0], right)
    # masked, the same skew is right: the leftovers were the fault
    masked = ((q @ k.mT + relative) / math.sqrt(dim)).masked_fill(~torch.from_numpy(causal), -math.inf)
    agree(attend(masked, v)[0], right)


def test_6_the_causal_skew_in_an_encoder():
    heads, length, dim = 2, 7, 8
    encoding = posenc.RelativeLogits(dim, length).double()
    q, k, v = random(3, 1, heads, length, dim)
    places = np.arange(length)
    q_, k_, v_, table = arrays(q[0], k[0], v[0], encoding.tables[0])
    content = reference.relative_logits(q_, places, places, dim, length, [table])
    right = reference.attention(q_, k_, v_, content=content)
    agree(encoding(q)[0], content)
    agree(posenc.attention(q, k, v, encoding)[0], right)
    backward = encoding.tables[0][:, length - 1 :].flip(-2)  # the rows of keys that are not ahead
    wrong = attend((q @ k.mT + skew_by_padding(q @ backward.mT)) / math.sqrt(dim), v)
    differ(wrong[0], right)
    agree(skew_by_padding(q @ backward.mT).tril()[0], np.tril(content))


# 7. Relative logits: sharing is always on, whatever `heads=` says


@pytest.mark.parametrize(("length", "heads"), [(5, 4), (8, 3), (2, 2)])
def test_7_a_table_of_its_own_for_each_head(length, heads):
    dim = 6
    encoding = posenc.RelativeLogits(dim, length, num_heads=heads).double()
    assert encoding.tables[0].shape == (heads, 2 * length - 1, dim)
    q, places = random(1, heads, length, dim), np.arange(length)
    q_, table = arrays(q[0], encoding.tables[0])
    right = reference.relative_logits(q_, places, places, dim, length, [table], heads)
    agree(encoding(q)[0], right)
    shared = posenc.relative_to_absolute(q @ encoding.tables[0][:1].flip(-2).mT)
    differ(shared[0], right)
    agree(shared[0, :1], right[:1])


# 8. BoTNet: the height table sized by the width; a column-major term on a row-major one; non-square maps crash


def botnet(q, rows, columns, height, width, row_offset, transposed):
    """The logits of a map, with what the snippets get wrong as arguments."""
    lags_y = torch.arange(height)[:, None] - torch.arange(height) + row_offset
    lags_x = torch.arange(width)[:, None] - torch.arange(width) + width - 1
    maps = q.unflatten(-2, (height, width))
    by_row = torch.einsum("bhyxd,ykd->bhyxk", maps, rows[0][lags_y])
    by_column = torch.einsum("bhyxd,xkd->bhyxk", maps, columns[0][lags_x])
    across = by_column[..., None, :].expand(*by_column.shape[:-1], height, width)
    down = by_row[..., :, None].expand(*by_row.shape[:-1], height, width)
    if transposed:
        down = down.permute(0, 1, 3, 2, 5, 4)  # [x, y] rows and columns, on [y, x] ones
    return across.flatten(-2).flatten(-3, -2) + down.flatten(-2).flatten(-3, -2)


def botnet_inputs(height, width):
    encoding = posenc.RelativeLogits(5, (height, width)).double()
    q = random(1, 4, height * width, 5)
    grid = cells(height, width)
    q_, rows, columns = arrays(q[0], *encoding.tables)
    right = reference.relative_logits(q_, grid, grid, 5, (height, width), [rows, columns])
    agree(encoding(q, posenc.grid(height, width))[0], right)
    agree(botnet(q, *encoding.tables, height, width, height - 1, False)[0], right)
    return q, encoding.tables, right


@pytest.mark.parametrize(("height", "width"), [(3, 2), (4, 1), (4, 3)])
def test_8_the_height_table_sized_by_the_width(height, width):
    q, tables, right = botnet_inputs(height, width)
    differ(botnet(q, *tables, height, width, width - 1, False)[0], right)


@pytest.mark.parametrize(("height", "width"), [(2, 3), (1, 4)])
def test_8_the_height_table_sized_by_the_width_crashes_on_wide_maps(height, width):
    q, tables, _ = botnet_inputs(height, width)
    with pytest.raises(IndexError):
        botnet(q, *tables, height, width, width - 1, False)


@pytest.mark.parametrize("size", [2, 3])
def test_8_a_column_major_term_is_wrong_on_square_maps_too(size):
    q, tables, right = botnet_inputs(size, size)
    differ(botnet(q, *tables, size, size, size - 1, True)[0], right)


@pytest.mark.parametrize(("height", "width"), [(2, 3), (3, 2)])
def test_8_a_column_major_term(height, width):
    q, tables, right = botnet_inputs(height, width)
    differ(botnet(q, *tables, height, width, height - 1, True)[0], right)


def botnet_of_square_maps(q, rows, columns):
    size = math.isqrt(q.shape[-2])
    return botnet(q, rows, columns, size, size, size - 1, False)


@pytest.mark.parametrize(("height", "width"), [(2, 3), (3, 2)])
def test_8_maps_that_are_not_square_crash(height, width):
    q, tables, _ = botnet_inputs(height, width)
    with pytest.raises(RuntimeError):
        botnet_of_square_maps(q, *tables)
    q, tables, right = botnet_inputs(3, 3)
    agree(botnet_of_square_maps(q, *tables)[0], right)


# 10. Sinusoidal in NumPy: the text takes `div_term` for a divisor, and it is a frequency


def table_divided_by_frequencies(length, dim):
    div_term = np.exp(np.arange(0, dim, 2) * -math.log(10000) / dim)
    angles = np.arange(length)[:, None] / div_term
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, dim)


@pytest.mark.parametrize(("length", "dim"), [(10, 4), (100, 16)])
def test_10_div_term_multiplies_the_position(length, dim):
    right = reference.sinusoidal_table(length, dim)
    agree(vectors(posenc.Sinusoidal(dim), posenc.sequence(length)), right)
    differ(torch.from_numpy(table_divided_by_frequencies(length, dim)), right)


# 11. Sinusoidal relative positions: no broadcast, no scale, content replaced, softmax without its maximum


def sinusoidal_attention(q, k, v, *, scaled=True, content=True, safe=True):
    """Attention with the sinusoid of the lag, and what the listing gets wrong as options."""
    keys, dim = k.shape[-2:]
    places = np.arange(keys)
    relative = reference.sinusoidal_logits(arrays(q)[0], places[keys - q.shape[-2] :], places, dim)
    relative = torch.from_numpy(relative)
    products = q @ k.mT if content else torch.zeros_like(relative)
    logits = (products + relative) / math.sqrt(dim) if scaled else products / math.sqrt(dim) + relative
    if safe:
        return logits.softmax(-1) @ v
    return (logits.exp() / logits.exp().sum(-1, keepdim=True)) @ v


@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (1, 10), (3, 7)])
@pytest.mark.parametrize("fault", [{"scaled": False}, {"content": False}])
def test_11_relative_logits_are_scaled_and_added_to_the_content(queries, keys, fault):
    dim = 8
    # of size one: a softmax of large logits gives one key all the weight, and the same one with the fault and without
    tokens, weights = random(keys, 5), random(3, 5, dim) / math.sqrt(5)
    x = tokens[keys - queries :]
    right = reference.sinusoidal_self_attention(*arrays(x, *weights), context=tokens.numpy())
    q, k, v = x @ weights[0], tokens @ weights[1], tokens @ weights[2]
    agree(posenc.attention(q[None, None], k[None, None], v[None, None], posenc.SinusoidalLogits(dim))[0, 0], right)
    agree(sinusoidal_attention(q[None], k[None], v[None])[0], right)
    differ(sinusoidal_attention(q[None], k[None], v[None], **fault)[0], right)


def logits_of_one_table_row_a_position(q, keys):
    """The listing's: one row a position, multiplied as if it were one row a pair."""
    table = torch.from_numpy(reference.sinusoidal_table(q.shape[-2], q.shape[-1]))
    return (q @ table.T).expand(q.shape[-2], keys)


def test_11_the_table_broadcasts():
    dim = 8
    q, k, v = random(1, dim), random(10, dim), random(10, dim)
    right = reference.sinusoidal_logits(q[None].numpy(), np.array([9]), np.arange(10), dim)
    logits = posenc.SinusoidalLogits(dim)(q[None, None], posenc.sequence(1, start=9), posenc.sequence(10))
    agree(logits[0], right)
    wrong = logits_of_one_table_row_a_position(q, 10)  # one query: broadcast, and the same for each key
    assert (wrong == wrong[:, :1]).all()
    differ(wrong[None], right)
    with pytest.raises(RuntimeError):  # several: does not broadcast
        logits_of_one_table_row_a_position(random(3, dim), 10)
    content = reference.attention(*arrays(q[None], k[None], v[None]), content=right)
    agree(posenc.attention(*(x[None, None] for x in (q, k, v)), posenc.SinusoidalLogits(dim))[0], content)


def test_11_softmax_subtracts_its_maximum():
    q, k, v = 100 * random(2, 5, 8), 100 * random(2, 5, 8), random(2, 5, 8)
    places = np.arange(5)
    relative = reference.sinusoidal_logits(q.numpy(), places, places, 8)
    right = reference.attention(*arrays(q, k, v), content=relative)
    agree(posenc.attention(q[None], k[None], v[None], posenc.SinusoidalLogits(8))[0], right)
    assert sinusoidal_attention(q, k, v, safe=False).isnan().any()
    small = q / 1e4, k / 1e4, v
    agree(
        sinusoidal_attention(*small, safe=False), sinusoidal_attention(*small).numpy()
    )  # right where logits are small


# 12. Several axes: channels are dropped where the width does not divide


def channels_dropped(grid, dim):
    axes = grid.shape[1]
    width = dim // (2 * axes) * 2
    return torch.from_numpy(np.concatenate([reference.sinusoidal(axis, width) for axis in grid.T], axis=1))


@pytest.mark.parametrize(("shape", "dim"), [((2, 3), 10), ((3, 2), 7), ((2, 3, 2), 16), ((2, 2, 3), 11)])
def test_12_no_channel_is_dropped(shape, dim):
    grid = cells(*shape)
    ours = vectors(posenc.Sinusoidal(dim, axes=len(shape)), posenc.grid(*shape))
    agree(ours, reference.sinusoidal(grid, dim, axes=len(shape)))
    assert ours.shape == (len(grid), dim)
    assert (ours.std(dim=0) > 0).all()
    assert channels_dropped(grid, dim).shape[1] < dim


@pytest.mark.parametrize(("head_dim", "axes"), [(10, 2), (16, 3), (14, 4)])
def test_12_no_pair_of_a_head_is_left_unrotated(head_dim, axes):
    positions = posenc.grid(*([2] * axes))
    x = random(1, 1, 2**axes, head_dim)
    ours, _ = posenc.Rotary(head_dim, axes=axes)(x, x, positions)
    right = reference.rotary(x[0].numpy(), cells(*([2] * axes)), head_dim, axes=axes)
    agree(ours[0], right)
    assert (ours[0, 0, -1] != x[0, 0, -1]).all()  # the last token moved along every axis: all channels turn
    width = head_dim // (2 * axes) * 2
    dropped = x.clone()
    for axis in range(axes):
        block = slice(axis * width, (axis + 1) * width)
        turned = reference.rotary(x[0, ..., block].numpy(), cells(*([2] * axes))[:, axis], width)
        dropped[0, ..., block] = torch.from_numpy(turned)
    assert (dropped[0, 0, -1, width * axes :] == x[0, 0, -1, width * axes :]).all()
    differ(dropped[0], right)


# 13. Convolution: needs the grid, and breaks on a CLS token


def convolution_on_a_guessed_square(x, encoding):
    size = math.isqrt(x.shape[1])
    maps = x.mT.unflatten(-1, (size, size))
    convolution = encoding.convolution
    around = torch.nn.functional.conv2d(maps, convolution.weight, convolution.bias, padding=1, groups=x.shape[-1])
    return x + around.flatten(2).mT


def test_13_a_grid_is_not_guessed_and_a_class_token_is_not_a_pixel():
    encoding = posenc.ConditionalEncoding(6).double()
    x = random(2, 16, 6)
    weight, bias = arrays(encoding.convolution.weight, encoding.convolution.bias)

    right = reference.conditional_encoding(x.numpy(), (4, 4), weight, bias, 6)
    agree(encoding(x, posenc.grid(4, 4)), right)
    agree(convolution_on_a_guessed_square(x, encoding), right)  # right where the guess is

    right = reference.conditional_encoding(x.numpy(), (2, 8), weight, bias, 6)
    agree(encoding(x, posenc.grid(2, 8)), right)
    differ(convolution_on_a_guessed_square(x, encoding), right)

    right = reference.conditional_encoding(x.numpy(), (3, 5), weight, bias, 6, prefix=1)
    ours = encoding(x, posenc.grid(3, 5, prefix=1))
    agree(ours, right)
    assert torch.equal(ours[:, 0], x[:, 0])
    differ(convolution_on_a_guessed_square(x, encoding), right)

    with pytest.raises(RuntimeError):
        convolution_on_a_guessed_square(x[:, :10], encoding)
    assert encoding(x[:, :10], posenc.grid(3, 3, prefix=1)).shape == (2, 10, 6)


@pytest.mark.parametrize(
    "positions", [None, posenc.packed([2, 2]), posenc.coordinates([[0, 0], [0, 1], [1, 0], [1, 1]])]
)
def test_13_tokens_that_fill_no_grid_are_an_error(positions):
    with pytest.raises(ValueError, match=r"grid|axes"):
        posenc.ConditionalEncoding(6)(torch.zeros(1, 4, 6), positions)


# 14. Combinations: each of the three places inside attention, in one call


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("first", ["rotary", "bias", "content"])
def test_14_encodings_compose_in_any_order_and_content_meets_queries_before_rotation(first, scaled):
    heads, dim, shape = 3, 8, (2, 3)
    rotary = posenc.Rotary(dim, axes=2, base=20.0)
    bias = posenc.RelativePositionBias(heads, shape, prefix_bias=True).double()
    content = posenc.RelativeLogits(dim, shape, num_heads=heads, scaled=scaled).double()
    encodings = {"rotary": rotary, "bias": bias, "content": content}
    encodings = {first: encodings.pop(first)} | encodings
    q, k, v = random(3, 1, heads, 7, dim)
    ours = posenc.attention(q, k, v, *encodings.values(), positions=posenc.grid(*shape, prefix=1))

    grid = np.concatenate([np.full((1, 2), np.nan), cells(*shape)])
    q_, k_, v_, table, prefix_table = arrays(q[0], k[0], v[0], bias.table, bias.prefix_table)
    turned_q, turned_k = (reference.rotary(x, grid, dim, axes=2, base=20.0) for x in (q_, k_))
    numbers = reference.relative_position_bias(
        grid, grid, heads, shape, table, prefix_bias=True, prefix_table=prefix_table
    )

    def attend_with(asking):
        logits = reference.relative_logits(asking, grid, grid, dim, shape, arrays(*content.tables), heads)
        if scaled:
            return reference.attention(turned_q, turned_k, v_, content=logits, bias=numbers)
        return reference.attention(turned_q, turned_k, v_, bias=numbers + logits)

    agree(ours[0], attend_with(q_))
    differ(torch.from_numpy(attend_with(turned_q)), attend_with(q_))
