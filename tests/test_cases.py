"""What goes wrong in practice: failures reported of libraries that do this work, each by value.

The number in a test's name is that of the case. Each has more inputs than the one that was reported: what is tested is
the kind.
"""

import io
import itertools
import math
import re

import numpy as np
import pytest
import torch

import posenc
from posenc import reference

pytestmark = pytest.mark.usefixtures("seed")

HEADS, HEAD_DIM, DIM = 4, 6, 24


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def close(got, wanted, atol=1e-12):
    got, wanted = (x.detach().numpy() if isinstance(x, torch.Tensor) else x for x in (got, wanted))
    assert np.shape(got) == np.shape(wanted)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)


def same(got, wanted):
    """Equal bit for bit, and of one dtype."""
    assert got.dtype == wanted.dtype
    assert torch.equal(got, wanted)


def cells(*shape):
    """The coordinates of a grid, for the reference."""
    return np.indices(shape).reshape(len(shape), -1).T.astype(float)


def array(tensor):
    return tensor.detach().double().numpy()


ABSOLUTE = {
    "sinusoidal": lambda: posenc.Sinusoidal(DIM),
    "sinusoidal concatenated": lambda: posenc.Sinusoidal(DIM, layout="concatenated"),
    "learned": lambda: posenc.Learned(40, DIM),
    "fourier": lambda: posenc.Fourier(DIM, scale=0.1),
    "fourier learnable": lambda: posenc.Fourier(DIM, scale=0.1, learnable=True),
    "convolution": lambda: posenc.ConditionalEncoding(DIM, axes=1),
}
RELATIVE = {
    "rotary": lambda: posenc.Rotary(HEAD_DIM),
    "rotary interleaved, partial": lambda: posenc.Rotary(HEAD_DIM, layout="interleaved", rotary_dim=4),
    "alibi": lambda: posenc.ALiBi(HEADS),
    "t5": lambda: posenc.T5Bias(HEADS, num_buckets=8, max_distance=9),
    "t5 causal": lambda: posenc.T5Bias(HEADS, num_buckets=7, max_distance=9, bidirectional=False),
    "relative position bias": lambda: posenc.RelativePositionBias(HEADS, 40),
    "relative position bias, symmetric": lambda: posenc.RelativePositionBias(HEADS, 40, symmetric=True),
    "shaw": lambda: posenc.Shaw(HEAD_DIM, 3),
    "shaw per head": lambda: posenc.Shaw(HEAD_DIM, 2, num_heads=HEADS),
    "relative logits": lambda: posenc.RelativeLogits(HEAD_DIM, 40),
    "relative logits per head, unscaled": lambda: posenc.RelativeLogits(HEAD_DIM, 40, num_heads=HEADS, scaled=False),
    "sinusoidal logits": lambda: posenc.SinusoidalLogits(HEAD_DIM),
}
DECODING = RELATIVE | {"relative logits, causal": lambda: posenc.RelativeLogits(HEAD_DIM, 40, causal=True)}
OF_ANY_LENGTH = [make for make in (ABSOLUTE | RELATIVE).values() if not hasattr(make(), "shape")]

absolute = pytest.mark.parametrize("make", ABSOLUTE.values(), ids=ABSOLUTE)
decoding = pytest.mark.parametrize("make", DECODING.values(), ids=DECODING)
both_ways = pytest.mark.parametrize(  # the Music Transformer has no vectors for an encoder
    ("make", "causal"),
    [
        pytest.param(make, causal, id=f"{name}, {causal}")
        for causal in (False, True)
        for name, make in DECODING.items()
        if causal or name in RELATIVE
    ],
)


# 1. Odd or mismatched widths


@pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
@pytest.mark.parametrize("dim", [1, 3, 5, 9])
def test_1_the_extra_channel_of_an_odd_width_is_a_sine(dim, layout):
    got = posenc.Sinusoidal(dim, layout=layout)(torch.zeros(1, 11, dim, dtype=torch.float64))[0]
    assert got.shape == (11, dim)
    close(got, reference.sinusoidal(np.arange(11), dim, layout=layout))
    slowest = np.sin(np.arange(11) * 10000.0 ** (-(dim - 1) / dim))
    close(got[:, dim - 1 if layout == "interleaved" else dim // 2], slowest)


@pytest.mark.parametrize(("dim", "axes"), [(5, 2), (7, 3), (10, 3), (11, 4)])
def test_1_no_channel_is_lost_over_several_axes(dim, axes):
    shape = (2, 3, 2, 2)[:axes]
    got = posenc.Sinusoidal(dim, axes=axes)(
        torch.zeros(1, math.prod(shape), dim, dtype=torch.float64), posenc.grid(*shape)
    )[0]
    assert got.shape == (math.prod(shape), dim)
    close(got, reference.sinusoidal(cells(*shape), dim, axes=axes))


@pytest.mark.parametrize(
    "make",
    [
        lambda dim: posenc.Sinusoidal(dim),
        lambda dim: posenc.Learned(11, dim),
        lambda dim: posenc.Fourier(dim + dim % 2),
        lambda dim: posenc.ConditionalEncoding(dim, axes=1),
    ],
)
@pytest.mark.parametrize(("dim", "width"), [(5, 10), (10, 5), (8, 9), (4, 1)])
def test_1_a_mismatched_width_is_an_error(make, dim, width):
    encoding = make(dim)
    with pytest.raises(ValueError, match=rf"{encoding.dim}.*{width}"):
        encoding(torch.zeros(1, 11, width))


# 2. Batch and tokens mixed up where they are equally many


@absolute
@pytest.mark.parametrize(("batch", "tokens"), [(3, 3), (7, 7), (1, 1), (2, 5)])
def test_2_rows_of_a_batch_are_alike_and_tokens_are_not(make, batch, tokens):
    encoding = make()
    row = torch.randn(tokens, DIM) if encoding.place == "conditional" else torch.zeros(tokens, DIM)
    out = encoding(row.expand(batch, -1, -1))
    for other in out:
        same(other, out[0])
    for i, j in itertools.combinations(range(tokens), 2):
        assert not torch.equal(out[:, i], out[:, j])


def test_2_as_reported():
    out = posenc.Sinusoidal(4)(torch.zeros(3, 3, 4))
    same(out[0], out[1])
    assert not torch.equal(out[:, 0], out[:, 1])


# 3. Derived tables in checkpoints


def save_and_load(source, target):
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    target.load_state_dict(torch.load(file, weights_only=True), strict=True)


@pytest.mark.parametrize("make", OF_ANY_LENGTH)
def test_3_saved_at_one_length_and_loaded_at_another(make):
    def run(encoding, length):
        if encoding.place in ("absolute", "conditional"):
            return encoding(torch.ones(1, length, DIM, dtype=torch.float64))
        x = torch.linspace(-1, 1, HEADS * length * HEAD_DIM, dtype=torch.float64).reshape(1, HEADS, length, HEAD_DIM)
        return posenc.attention(x, x, x, encoding)

    short, long = make().double(), make().double()
    run(short, 100)
    run(long, 200)
    drawn = {"frequencies"} if isinstance(short, posenc.Fourier) else set()
    assert set(short.state_dict()) == {name for name, _ in short.named_parameters()} | drawn
    save_and_load(short, long)
    same(run(long, 200), run(short, 200))
    same(run(long, 100), run(short, 100))


def test_3_fixed_encodings_save_nothing():
    for encoding in (posenc.Sinusoidal(8), posenc.Rotary(8), posenc.ALiBi(4), posenc.SinusoidalLogits(8)):
        assert encoding.state_dict() == {}


@pytest.mark.parametrize("make", [lambda n: posenc.Learned(n, 8), lambda n: posenc.RelativePositionBias(2, n)])
def test_3_a_trained_table_of_another_length_is_refused(make):
    with pytest.raises(RuntimeError, match="size mismatch"):
        save_and_load(make(100), make(200))


# 4. Height and width swapped


@pytest.mark.parametrize(
    ("shape", "token", "place"),
    [((8, 32), 40, (1, 8)), ((32, 8), 40, (5, 0)), ((3, 5), 14, (2, 4)), ((2, 3, 4), 17, (1, 1, 1))],
)
def test_4_tokens_are_row_major(shape, token, place):
    axes = len(shape)
    positions = posenc.grid(*shape)
    assert tuple(positions.coordinates()[token].tolist()) == place
    there = np.array([place], dtype=float)

    zeros = torch.zeros(1, math.prod(shape), 12, dtype=torch.float64)
    got = posenc.Sinusoidal(12, axes=axes)(zeros, positions)[0, token]
    close(got, reference.sinusoidal(there, 12, axes=axes)[0])
    learned = posenc.Learned(shape, 12).double()
    same(learned(zeros, positions)[0, token], learned.table.detach().reshape(*shape, 12)[place])

    x = random(1, 1, math.prod(shape), 12)
    turned, _ = posenc.Rotary(12, axes=axes)(x, x, positions)
    close(turned[0, :, token], reference.rotary(x[0, :, token : token + 1].numpy(), there, 12, axes=axes)[:, 0])
    bias = posenc.RelativePositionBias(3, shape).double()
    box = bias.table.detach().reshape(3, *(2 * size - 1 for size in shape))
    entry = tuple(at + size - 1 for at, size in zip(place, shape, strict=True))
    same(bias(positions)[:, token, 0], box[(slice(None), *entry)])


@pytest.mark.parametrize(("height", "width"), [(8, 32), (5, 3)])
def test_4_a_transposed_map_has_transposed_positions(height, width):
    """Swapping the axes of the grid and of the encoding at once changes nothing but the order of tokens."""
    zeros = torch.zeros(1, height * width, 8, dtype=torch.float64)
    plain = posenc.Sinusoidal(8, axes=2)(zeros, posenc.grid(height, width))[0]
    swapped = posenc.Sinusoidal(8, axes=2, axis_order=(1, 0))(zeros, posenc.grid(width, height))[0]
    transposed = swapped.reshape(width, height, 8).transpose(0, 1).reshape(height * width, 8)
    same(transposed, plain)
    assert not torch.equal(swapped, plain)


# 5. Compiled differs from eager when a dtype is requested


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, fullgraph=True, dynamic=True)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_5_compiled_equals_eager_in_dtype_and_value(compiled):
    """One graph for all, since building it takes most of the time."""
    length, wanted = 37, torch.bfloat16
    sinusoidal, rotary = posenc.Sinusoidal(30, axes=2), posenc.Rotary(32, base=100.0).to(wanted)
    biases = [posenc.ALiBi(6), posenc.T5Bias(6), posenc.RelativePositionBias(6, length)]

    def run(x, q, k):
        positions = posenc.sequence(length, start=4000)
        cos_sin = rotary.cos_sin(positions, dtype=wanted)
        terms = [bias.term(posenc.sequence(7, start=30), posenc.sequence(length), dtype=wanted) for bias in biases]
        dense = [term.dense() for term in terms]
        return [sinusoidal(x, posenc.grid(3, length)), *rotary(q, k, positions), *cos_sin, *dense]

    x, (q, k) = random(2, 3 * length, 30, dtype=wanted), random(2, 1, 2, length, 32, dtype=wanted)
    eager = run(x, q, k)
    assert len(eager) == 8
    for got, plain in zip(compiled(run)(x, q, k), eager, strict=True):
        assert plain.dtype == wanted
        same(got, plain)


# 6. Longer than the table


@pytest.mark.parametrize(
    ("size", "positions", "numbers"),
    [
        (1024, posenc.sequence(1025), ["1024", "1025"]),
        (1024, posenc.sequence(5, start=1020), ["1024", "1025"]),
        (1024, posenc.sequence(1, start=torch.tensor(1024)), ["1024", "1025"]),
        (16, posenc.padded(torch.ones(2, 17, dtype=torch.bool)), ["16", "17"]),
        (16, posenc.packed([3, 20]), ["16", "(19|20)"]),
        (16, posenc.coordinates([[0], [99]]), ["16", "(99|100)"]),
        (16, posenc.coordinates([[0], [-1]]), ["16", "-1"]),
        ((4, 6), posenc.grid(9, 4), ["4", "(8|9)"]),
        ((4, 6), posenc.grid(4, 17), ["6", "(16|17)"]),
    ],
)
def test_6_positions_beyond_the_table_are_an_error_on_the_host(size, positions, numbers):
    learned = posenc.Learned(size, 4)
    batch = 2 if positions.coordinates().ndim == 3 else 1
    with pytest.raises(ValueError, match="Learned") as error:
        learned(torch.zeros(batch, positions.length, 4), positions)
    for number in numbers:
        assert re.search(rf"(?<!\d){number}(?!\d)", str(error.value)), str(error.value)


def test_6_without_positions_too():
    with pytest.raises(ValueError, match=r"1024.*1025|1025.*1024"):
        posenc.Learned(1024, 4)(torch.zeros(1, 1025, 4))


@pytest.mark.parametrize("size", [1024, 7])
def test_6_the_last_row_can_be_reached(size):
    learned = posenc.Learned(size, 4)
    same(learned(torch.zeros(1, 5, 4), posenc.sequence(5, start=size - 5))[0], learned.table.detach()[-5:])


@pytest.mark.parametrize(
    "encoding",
    [posenc.RelativePositionBias(HEADS, 8), posenc.RelativeLogits(HEAD_DIM, 8)],
)
@pytest.mark.parametrize(
    "layouts",
    [
        (posenc.sequence(9), posenc.sequence(9)),
        (posenc.sequence(1, start=8), posenc.sequence(3)),
        (posenc.sequence(1), posenc.sequence(1, start=8)),
    ],
)
def test_6_relative_positions_beyond_the_table_are_an_error_on_the_host(encoding, layouts):
    q = torch.zeros(1, HEADS, layouts[0].length, HEAD_DIM)
    k = torch.zeros(1, HEADS, layouts[1].length, HEAD_DIM)
    name = type(encoding).__name__
    with pytest.raises(ValueError, match=rf"{name}.* 7.* 8\b"):
        posenc.attention(q, k, k, encoding, positions=layouts[0], key_positions=layouts[1])


# 7. Parameters without a gradient


@pytest.mark.parametrize("length", [1, 2, 9])
@decoding
def test_7_every_parameter_has_a_gradient(make, length):
    layer = posenc.SelfAttention(HEADS * HEAD_DIM, HEADS, make())
    layer(torch.randn(2, length, HEADS * HEAD_DIM), causal=True).square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("length", [1, 2, 9])
@absolute
def test_7_every_parameter_of_an_embedding_has_a_gradient(make, length):
    encoding = make()
    encoding(torch.randn(2, length, DIM, requires_grad=True)).square().sum().backward()
    for name, parameter in encoding.named_parameters():
        assert parameter.grad is not None, name
        turned = not isinstance(encoding, posenc.Fourier) or length > 1  # at position 0, no frequency matters
        assert (parameter.grad != 0).any() == turned, name


@pytest.mark.parametrize("prefix", [0, 2])
def test_7_tables_for_prefix_tokens_have_a_gradient(prefix):
    bias = posenc.RelativePositionBias(HEADS, (3, 2), prefix_bias=True)
    q, k, v = torch.randn(3, 1, HEADS, prefix + 6, HEAD_DIM)
    positions = posenc.grid(3, 2, prefix=prefix)
    posenc.attention(q, k, v, bias, positions=positions).square().sum().backward()
    for name, parameter in bias.named_parameters():
        assert parameter.grad is not None, name
    assert (bias.prefix_table.grad != 0).any() == (prefix > 0)

    learned = posenc.Learned((3, 2), DIM, prefix=prefix)
    learned(torch.randn(1, prefix + 6, DIM), positions).square().sum().backward()
    assert (learned.table.grad != 0).any(dim=1).all()


def test_7_gradients_reach_exactly_the_rows_that_are_used():
    learned = posenc.Learned(10, DIM)
    learned(torch.randn(2, 3, DIM), posenc.sequence(3, start=4)).square().sum().backward()
    assert (learned.table.grad != 0).any(dim=1).tolist() == [4 <= row < 7 for row in range(10)]


# 8. Prefix tokens lost or rotated


@pytest.mark.parametrize(("prefix", "shape"), [(5, (2, 2)), (1, (3, 5)), (3, (2, 3, 2)), (2, (7,))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_8_prefix_tokens_stay_as_they_are(prefix, shape, dtype):
    tokens = prefix + math.prod(shape)
    positions = posenc.grid(*shape, prefix=prefix)
    assert positions.length == tokens
    q, k = random(2, 1, 3, tokens, 12, dtype=dtype)
    for x, turned in zip((q, k), posenc.Rotary(12, axes=len(shape))(q, k, positions), strict=True):
        assert turned.shape == x.shape
        same(turned[:, :, :prefix], x[:, :, :prefix])
        assert (turned[:, :, prefix + 1 :] != x[:, :, prefix + 1 :]).any(-1).all()

    x = random(2, tokens, 12, dtype=dtype)
    for encoding in (
        posenc.Sinusoidal(12, axes=len(shape)),
        posenc.Fourier(12, axes=len(shape)),
        posenc.ConditionalEncoding(12, axes=len(shape)),
    ):
        out = encoding(x, positions)
        assert out.shape == x.shape
        same(out[:, :prefix], x[:, :prefix])
        assert (out[:, prefix:] != x[:, prefix:]).any(-1).all()


def test_8_as_reported():
    q = torch.randn(1, 2, 9, 8)
    turned, _ = posenc.Rotary(8, axes=2)(q, q, posenc.grid(2, 2, prefix=5))  # a CLS token and 4 registers
    assert turned.shape == (1, 2, 9, 8)
    same(turned[:, :, :5], q[:, :, :5])
    assert (turned[:, :, 6:] != q[:, :, 6:]).any(-1).all()


# 17. BoTNet on maps that are not square, and √dim for √head_dim


@pytest.mark.parametrize(("height", "width"), [(2, 3), (3, 2), (1, 5)])
@pytest.mark.parametrize("scaled", [True, False])
def test_17_six_nested_loops_for_each_head(height, width, scaled):
    heads, dim, length = 4, 5, height * width
    encoding = posenc.RelativeLogits(dim, (height, width), num_heads=heads, scaled=scaled).double()
    q, k, v = random(3, 1, heads, length, dim)
    rows, columns = (array(table) for table in encoding.tables)
    maps = q[0].reshape(heads, height, width, dim).numpy()
    logits = np.zeros((heads, height, width, height, width))
    for head in range(heads):
        for y, x in itertools.product(range(height), range(width)):
            for other_y, other_x in itertools.product(range(height), range(width)):
                for channel in range(dim):
                    logits[head, y, x, other_y, other_x] += maps[head, y, x, channel] * (
                        rows[head, y - other_y + height - 1, channel] + columns[head, x - other_x + width - 1, channel]
                    )
    logits = logits.reshape(heads, length, length)
    close(encoding(q, posenc.grid(height, width))[0], logits)

    products = (q @ k.mT)[0].numpy()
    root = math.sqrt(dim)  # of a head, not of all heads
    total = (products + logits) / root if scaled else products / root + logits
    weights = np.exp(total) / np.exp(total).sum(-1, keepdims=True)
    close(posenc.attention(q, k, v, encoding, positions=posenc.grid(height, width))[0], weights @ v[0].numpy())


# 18. Garbage of the causal skew above the diagonal


@pytest.mark.parametrize("length", [3, 8])
@decoding
def test_18_the_future_changes_nothing(make, length):
    encoding = make().double()
    q, k, v = random(3, 1, HEADS, length, HEAD_DIM)
    out = posenc.attention(q, k, v, encoding, causal=True)
    for i in range(length - 1):
        other_k, other_v = k.clone(), v.clone()
        other_k[:, :, i + 1 :] = 100 * random(1, HEADS, length - i - 1, HEAD_DIM)
        other_v[:, :, i + 1 :] = 100 * random(1, HEADS, length - i - 1, HEAD_DIM)
        changed = posenc.attention(q, other_k, other_v, encoding, causal=True)
        close(changed[:, :, : i + 1], out[:, :, : i + 1])
        assert not torch.equal(changed[:, :, i + 1 :], out[:, :, i + 1 :])


@pytest.mark.parametrize("length", [1, 3, 7])
@pytest.mark.parametrize("num_heads", [None, HEADS])
def test_18_the_music_transformer_is_the_masked_skew(length, num_heads):
    encoding = posenc.RelativeLogits(HEAD_DIM, length, num_heads=num_heads, causal=True).double()
    q, k, v = random(3, 1, HEADS, length, HEAD_DIM)
    skewed = posenc.skew(q @ encoding.tables[0].flip(-2).mT)  # E[L − 1 + j − i]: farthest first
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    wanted = []
    for garbage in (0.0, 1e6):
        logits = skewed + garbage * random(1, HEADS, length, length) * ~causal
        logits = ((q @ k.mT + logits) / math.sqrt(HEAD_DIM)).masked_fill(~causal, -math.inf)
        wanted.append(logits.softmax(-1) @ v)
    same(wanted[0], wanted[1])
    close(posenc.attention(q, k, v, encoding, causal=True), wanted[0])
    plain = encoding(q)
    close(plain[..., causal], skewed[..., causal])
    assert (plain[..., ~causal] == -math.inf).all()


def test_18_no_gradient_flows_from_the_future():
    encoding = posenc.RelativeLogits(HEAD_DIM, 6, causal=True).double()
    q, k, v = (random(1, HEADS, 6, HEAD_DIM).requires_grad_() for _ in range(3))
    posenc.attention(q, k, v, encoding, causal=True)[:, :, 2].sum().backward()
    for x in (k, v):
        assert (x.grad[:, :, 3:] == 0).all()
        assert (x.grad[:, :, :3] != 0).any()
    assert (encoding.tables[0].grad != 0).any(-1)[0].tolist() == [True] * 3 + [False] * 3


def test_18_a_table_without_rows_for_the_future_needs_causal_attention():
    q = torch.randn(1, HEADS, 6, HEAD_DIM)
    with pytest.raises(ValueError, match="causal=True"):
        posenc.attention(q, q, q, posenc.RelativeLogits(HEAD_DIM, 6, causal=True))


# 19. The end of a clipped table, and distance zero


@pytest.mark.parametrize(("max_distance", "length"), [(4, 10), (1, 5), (9, 10), (12, 10)])
def test_19_farther_tokens_share_the_border_rows(max_distance, length):
    shaw = posenc.Shaw(HEAD_DIM, max_distance).double()
    assert shaw.key_table.shape == shaw.value_table.shape == (1, 2 * max_distance + 1, HEAD_DIM)
    q, weights = random(1, 1, length, HEAD_DIM), torch.eye(length, dtype=torch.float64)
    logits = shaw(q)[0, 0]
    for i, j in itertools.product(range(length), repeat=2):
        row = max(-max_distance, min(i - j, max_distance)) + max_distance
        close(logits[i, j], array(q[0, 0, i] @ shaw.key_table[0, row]))
        attends_to_j = weights[j].expand(1, 1, length, length)
        close(shaw.values(attends_to_j)[0, 0, i], array(shaw.value_table[0, row]))
    shaw(q).sum().backward()
    reach = min(max_distance, length - 1)
    assert (shaw.key_table.grad != 0).any(-1).sum() == 2 * reach + 1


@pytest.mark.parametrize("max_distance", [0, -1])
def test_19_a_distance_of_zero_is_an_error(max_distance):
    with pytest.raises(ValueError, match=rf"max_distance must be 1 or more, got {max_distance}"):
        posenc.Shaw(8, max_distance)


# 21, 22. T5


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_21_t5_buckets(dtype):
    key_minus_query = torch.tensor([-1000, -16, -8, 0, 1, 8, 128, 100000], dtype=dtype)
    assert posenc.t5_bucket(-key_minus_query).tolist() == [15, 10, 8, 0, 17, 24, 31, 31]
    ahead = torch.tensor([-1000, 1, 8, 100000], dtype=dtype)
    assert posenc.t5_bucket(-ahead, bidirectional=False).tolist() == [31, 0, 0, 0]


@pytest.mark.parametrize(
    ("buckets", "distance", "bidirectional"),
    [
        *itertools.product((32, 8, 6, 4), (20, 128, 1000, 100000), (True, False)),
        (4, 2, True),
        (20, 6, True),
        (20, 11, False),
        (3, 2, False),
        (33, 128, False),
    ],
)
def test_21_buckets_equal_the_exact_ones(buckets, distance, bidirectional):
    lags = torch.cat([torch.arange(-300, 301), torch.randint(-200000, 200000, (200,))])
    got = posenc.t5_bucket(lags, buckets, distance, bidirectional)
    assert got.dtype == torch.int64
    np.testing.assert_array_equal(got.numpy(), reference.t5_bucket(lags.numpy(), buckets, distance, bidirectional))
    assert got.min() >= 0
    assert got.max() < buckets


@pytest.mark.parametrize("arguments", [(32, 8), (2, 128), (9, 128), (32, 1)])
def test_21_buckets_that_cannot_be_formed_are_an_error(arguments):
    with pytest.raises(ValueError, match="num_buckets="):
        posenc.t5_bucket(torch.arange(3), *arguments)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("cached", "length"), [(4, 5), (0, 3), (30, 33)])
def test_22_a_decode_step_is_the_last_rows_of_the_whole(cached, length, bidirectional):
    bias = posenc.T5Bias(HEADS, bidirectional=bidirectional).double()
    whole = bias(posenc.sequence(length))
    assert whole.shape == (HEADS, length, length)
    step = bias(posenc.sequence(length - cached, start=cached), posenc.sequence(length))
    same(step, whole[:, cached:])
    places = np.arange(length)
    close(whole, reference.t5_bias(places, places, HEADS, array(bias.table), bidirectional=bidirectional))

    k, v = random(2, 1, HEADS, length, HEAD_DIM)
    q = random(1, HEADS, length - cached, HEAD_DIM)
    wanted = reference.attention(*map(array, (q[0], k[0], v[0])), bias=array(step))
    close(posenc.attention(q, k, v, bias)[0], wanted)


@pytest.mark.parametrize(("queries", "keys"), [(1, 7), (7, 3), (4, 4)])
def test_22_cross_attention_has_no_bias(queries, keys):
    q, (k, v) = random(2, HEADS, queries, HEAD_DIM), random(2, 2, HEADS, keys, HEAD_DIM)
    layouts = {"positions": posenc.sequence(queries), "key_positions": posenc.sequence(keys)}
    out = posenc.attention(q, k, v, **layouts)
    close(out, torch.nn.functional.scaled_dot_product_attention(q, k, v))
    order = torch.randperm(keys)
    close(posenc.attention(q, k[:, :, order], v[:, :, order], **layouts), out)  # it is blind to where keys stand


# 23 to 26. ALiBi


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (8, [2.0**-power for power in range(1, 9)]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (1, [2.0**-8]),
        (2, [2.0**-4, 2.0**-8]),
        (3, [2.0**-4, 2.0**-8, 2.0**-2]),
        (12, [2.0**-power for power in range(1, 9)] + [2.0**-power for power in (0.5, 1.5, 2.5, 3.5)]),
    ],
)
def test_23_slopes(heads, slopes):
    got = posenc.alibi_slopes(heads)
    assert got.dtype == torch.float64
    np.testing.assert_allclose(got.numpy(), slopes, rtol=1e-15)
    np.testing.assert_allclose(reference.alibi_slopes(heads), slopes, rtol=1e-15)
    np.testing.assert_allclose(-array(posenc.ALiBi(heads)(posenc.sequence(2)))[:, 0, 1], slopes, rtol=1e-7)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", ["auto", "dense", "sdpa"])
@pytest.mark.parametrize(("heads", "length"), [(4, 5), (6, 9), (3, 1)])
def test_24_every_backend_has_the_bias_once_after_the_scale_and_keeps_causality(heads, length, backend, causal):
    alibi = posenc.ALiBi(heads)
    q, k, v = random(3, 1, heads, length, 16)
    places = np.arange(length)
    allowed = np.tril(np.ones((1, length, length), dtype=bool)) if causal else None
    arrays = [array(x[0]) for x in (q, k, v)]
    wanted = reference.attention(*arrays, bias=reference.alibi(places, places, heads), allowed=allowed)
    if backend == "sdpa":  # not exact without an L × L mask: it says so, and does not drop the bias
        with pytest.raises(ValueError, match="a term is left in the logits"):
            posenc.attention(q, k, v, alibi, causal=causal, backend=backend)
        return
    got = posenc.attention(q, k, v, alibi, causal=causal, backend=backend)
    close(got[0], wanted)
    torch.testing.assert_close(got, posenc.attention(q, k, v, alibi, causal=causal, backend="dense"))
    if length > 1:
        assert np.abs(wanted - reference.attention(*arrays, allowed=allowed)).max() > 1e-4


@pytest.mark.parametrize("scale", [None, 0.07, 1.0])
def test_24_the_scale_is_not_applied_to_the_bias(scale):
    q, k, v = random(3, 1, HEADS, 5, HEAD_DIM)
    places = np.arange(5)
    bias = reference.alibi(places, places, HEADS)
    wanted = reference.attention(*(array(x[0]) for x in (q, k, v)), bias=bias, scale=scale)
    close(posenc.attention(q, k, v, posenc.ALiBi(HEADS), scale=scale)[0], wanted)


@pytest.mark.parametrize("heads", [8, 6, 1])
def test_25_alibi_keeps_all_distances_apart_in_bfloat16(heads):
    alibi = posenc.ALiBi(heads).to(torch.bfloat16)
    bias = alibi(posenc.sequence(1, start=4095), posenc.sequence(4096))
    for head in bias[:, 0]:
        assert len(head.unique()) == 4096
    term = alibi.term(posenc.sequence(1, start=4095), posenc.sequence(4096))
    same(term.dense()[0], bias)
    wanted = reference.alibi(np.array([4095]), np.arange(4096), heads)
    np.testing.assert_allclose(array(bias), wanted, rtol=2e-7)
    if heads == 8:
        assert bias[0, 0].tolist() == [-0.5 * distance for distance in range(4095, -1, -1)]


def test_25_neighbours_far_away_are_told_apart_by_attention_in_bfloat16():
    """With equal content, the ratio of two neighbours' weights is exp(slope), at whatever distance."""
    length, slope = 4096, 2.0**-8
    q = torch.zeros(1, 1, 1, 2, dtype=torch.bfloat16)
    k = torch.zeros(1, 1, length, 2, dtype=torch.bfloat16)
    far = torch.arange(length) < 1200
    allowed = (torch.arange(length) >= 1000) & far  # distances around 3000, where bfloat16 has steps of 16
    v = torch.stack([torch.arange(length) >= 1100, torch.arange(length) < 1100], -1).to(torch.bfloat16)[None, None]
    out = posenc.attention(q, k, v, posenc.ALiBi(1), key_mask=allowed[None])[0, 0, 0].double()
    ratio = math.exp(slope * 100)
    np.testing.assert_allclose(array(out), [ratio / (1 + ratio), 1 / (1 + ratio)], rtol=2**-8)


@pytest.mark.parametrize(("queries", "keys"), [(2, 5), (1, 5), (5, 5), (3, 40)])
def test_26_fewer_queries_than_keys_are_the_last(queries, keys):
    alibi, offset = posenc.ALiBi(HEADS), keys - queries
    i, j = np.arange(queries)[:, None], np.arange(keys)
    bias = -np.array([0.25, 0.0625, 0.015625, 0.00390625])[:, None, None] * np.abs(i + offset - j)
    q, (k, v) = random(1, HEADS, queries, HEAD_DIM), random(2, 1, HEADS, keys, HEAD_DIM)
    arrays = [array(x[0]) for x in (q, k, v)]
    for causal in (False, True):
        allowed = (i + offset >= j)[None] if causal else None
        wanted = reference.attention(*arrays, bias=bias, allowed=allowed)
        close(posenc.attention(q, k, v, alibi, causal=causal)[0], wanted)
        close(posenc.attention(q, k, v, alibi, causal=causal, positions=posenc.sequence(keys))[0], wanted)
        layouts = {"positions": posenc.sequence(queries, start=offset), "key_positions": posenc.sequence(keys)}
        close(posenc.attention(q, k, v, alibi, causal=causal, **layouts)[0], wanted)
    close(alibi(posenc.sequence(queries, start=offset), posenc.sequence(keys)), bias)


@pytest.mark.parametrize("layouts", [{}, {"positions": posenc.sequence(3)}])
def test_26_more_queries_than_keys_need_positions_of_their_own(layouts):
    q, k = torch.zeros(1, HEADS, 5, HEAD_DIM), torch.zeros(1, HEADS, 3, HEAD_DIM)
    with pytest.raises(ValueError, match=r"5.*3"):
        posenc.attention(q, k, k, posenc.ALiBi(HEADS), **layouts)


# 31. Cache keys


CALLS = [
    {"length": 5, "start": 0},
    {"length": 5, "start": 7},
    {"length": 10, "start": 0},
    {"length": 5, "start": 0},
    {"length": 5, "start": 0, "dtype": torch.bfloat16},
    {"length": 5, "start": 0, "device": "meta"},
    {"length": 10, "start": 0},
    {"length": 5, "start": 7, "dtype": torch.float32},
    {"length": 5, "start": 7},
    {"length": 5, "start": torch.tensor(0)},
    {"length": 5, "start": torch.tensor([0, 3])},
]


def call(encoding, length, start, dtype=torch.float64, device="cpu"):
    positions = posenc.sequence(length, start=start)
    if encoding.place == "absolute":
        return encoding(torch.ones(2, length, DIM, dtype=dtype, device=device), positions)
    x = torch.linspace(-1, 1, 2 * HEADS * length * HEAD_DIM).reshape(2, HEADS, length, HEAD_DIM)
    x = x.to(dtype=dtype, device=device)
    return posenc.attention(x, x, x, encoding, positions=positions, key_positions=posenc.sequence(length))


@pytest.mark.parametrize(
    "make",
    [
        lambda base: posenc.Sinusoidal(DIM, base=base),
        lambda base: posenc.Rotary(HEAD_DIM, base=base),
        lambda base: posenc.SinusoidalLogits(HEAD_DIM, base=base),
        lambda base: posenc.ALiBi(HEADS),
    ],
    ids=["sinusoidal", "rotary", "sinusoidal logits", "alibi"],
)
def test_31_a_call_depends_on_its_own_arguments_alone(make):
    used = {base: make(base) for base in (10000.0, 100.0)}
    for arguments in CALLS:
        for base, encoding in used.items():
            got, fresh = call(encoding, **arguments), call(make(base), **arguments)
            assert (got.dtype, got.device, got.shape) == (fresh.dtype, fresh.device, fresh.shape)
            if got.device.type == "cpu":
                same(got, fresh)
    results = [call(used[10000.0], **arguments) for arguments in CALLS if "device" not in arguments]
    first, shifted, *_ = results
    assert not torch.equal(first, shifted)  # the offset counts
    if not isinstance(used[100.0], posenc.ALiBi):
        assert not torch.equal(first, call(used[100.0], 5, 0))  # and so does the base
    same(results[-2], first)  # a start in a tensor is a start
    same(results[-1][0], first[0])
    assert not torch.equal(results[-1][1], first[1])


@pytest.mark.parametrize("starts", [(0, 7), (7, 0, 7), (3, 100, 3)])
def test_31_offsets_by_value(starts):
    rotary, sinusoidal = posenc.Rotary(HEAD_DIM), posenc.Sinusoidal(DIM)
    x, zeros = random(1, HEADS, 5, HEAD_DIM), torch.zeros(1, 5, DIM, dtype=torch.float64)
    for start in starts:
        positions, places = posenc.sequence(5, start=start), np.arange(5) + start
        close(rotary(x, x, positions)[0][0], reference.rotary(x[0].numpy(), places, HEAD_DIM))
        close(sinusoidal(zeros, positions)[0], reference.sinusoidal(places, DIM))


# 32. The offset of cached keys


@pytest.mark.parametrize("chunks", [(6, 1, 1, 1), (1,) * 9, (4, 3, 2)])
@decoding
def test_32_decoding_equals_the_full_pass(make, chunks):
    layer = posenc.SelfAttention(HEADS * HEAD_DIM, HEADS, make(), num_key_value_heads=2).double()
    x = random(2, sum(chunks), HEADS * HEAD_DIM)
    whole = layer(x, causal=True)
    cache = posenc.KeyValueCache()
    parts = [layer(part, causal=True, cache=cache) for part in x.split(chunks, dim=1)]
    assert len(cache) == sum(chunks)
    close(torch.cat(parts, dim=1), whole)


@decoding
def test_32_decoding_by_slices_equals_the_full_pass(make):
    encoding = make().double()
    q, k, v = random(3, 1, HEADS, 9, HEAD_DIM)
    whole = posenc.attention(q, k, v, encoding, causal=True)
    for begin, end in ((0, 6), (6, 7), (7, 8), (8, 9)):
        step = posenc.attention(q[:, :, begin:end], k[:, :, :end], v[:, :, :end], encoding, causal=True)
        close(step, whole[:, :, begin:end])


@pytest.mark.parametrize("make", [lambda: posenc.Sinusoidal(DIM), lambda: posenc.Learned(40, DIM)])
def test_32_embeddings_of_a_step_equal_those_of_the_full_pass(make):
    encoding, x = make().double(), random(2, 9, DIM)
    whole = encoding(x)
    for place in range(9):
        same(encoding(x[:, place : place + 1], posenc.sequence(1, start=place)), whole[:, place : place + 1])


# 33. Padding


MASKS = [[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]]


@both_ways
def test_33_padded_equals_alone(make, causal):
    encoding = make().double()
    mask = torch.tensor(MASKS, dtype=torch.bool)
    q, k, v = random(3, len(MASKS), HEADS, 5, HEAD_DIM)
    out = posenc.attention(q, k, v, encoding, positions=posenc.padded(mask), causal=causal)
    assert out.isfinite().all()
    for row, real in enumerate(mask):
        tokens = [x[row : row + 1, :, real] for x in (q, k, v)]
        close(out[row : row + 1, :, real], posenc.attention(*tokens, encoding, causal=causal))
    assert (out[2] == 0).all()  # nothing but padding


@pytest.mark.parametrize("make", [make for make in ABSOLUTE.values() if make().place == "absolute"])
def test_33_embeddings_of_padded_rows_equal_those_alone(make):
    encoding = make().double()
    mask = torch.tensor(MASKS, dtype=torch.bool)
    x = random(len(MASKS), 5, DIM)
    out = encoding(x, posenc.padded(mask))
    assert out.isfinite().all()
    for row, real in enumerate(mask):
        same(out[row, real], encoding(x[row : row + 1, real])[0])


@pytest.mark.parametrize("layout", ["sequence", "padded"])
def test_33_gradients_are_finite_where_nothing_is_seen(layout):
    mask = torch.tensor(MASKS, dtype=torch.bool)
    shaw, alibi = posenc.Shaw(HEAD_DIM, 2), posenc.ALiBi(HEADS)
    q, k, v = (torch.randn(len(MASKS), HEADS, 5, HEAD_DIM, requires_grad=True) for _ in range(3))
    options = {"positions": posenc.padded(mask)} if layout == "padded" else {"key_mask": mask}
    out = posenc.attention(q, k, v, shaw, alibi, causal=True, **options)
    assert (out[2] == 0).all()
    out.square().sum().backward()
    for x in (q, k, v, *shaw.parameters()):
        assert x.grad.isfinite().all()
    assert (v.grad[~mask[:, None, :, None].expand_as(v)] == 0).all()  # padding takes no part


# 34. Packed documents


def test_34_positions_restart():
    assert posenc.packed([2, 1, 3]).coordinates().flatten().tolist() == [0, 1, 0, 0, 1, 2]
    cumulative = torch.tensor([0, 2, 3, 6])
    for layout in (posenc.packed(cu_seqlens=cumulative), posenc.packed(torch.tensor([2, 1, 3]))):
        assert layout.coordinates().flatten().tolist() == [0, 1, 0, 0, 1, 2]
    assert posenc.packed([2, 0, 1]).coordinates().flatten().tolist() == [0, 1, 0]


@pytest.mark.parametrize("lengths", [[2, 1, 3], [4], [1, 1, 1], [5, 0, 2]])
@both_ways
def test_34_packed_equals_separate(make, lengths, causal):
    encoding = make().double()
    q, k, v = random(3, 1, HEADS, sum(lengths), HEAD_DIM)
    out = posenc.attention(q, k, v, encoding, positions=posenc.packed(lengths), causal=causal)
    parts = [x.split(lengths, dim=2) for x in (q, k, v)]
    separate = [posenc.attention(*document, encoding, causal=causal) for document in zip(*parts, strict=True)]
    close(out, torch.cat(separate, dim=2))


# 35. Interleaved or half


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(4, None), (16, None), (10, 6)])
@pytest.mark.parametrize("start", [0, 21, 5000])
def test_35_one_permutation_maps_one_layout_to_the_other(head_dim, rotary_dim, start):
    width = rotary_dim or head_dim
    order = [*range(0, width, 2), *range(1, width, 2), *range(width, head_dim)]
    if head_dim == 4:
        assert order == [0, 2, 1, 3]
    x, positions = random(1, 2, 30, head_dim), posenc.sequence(30, start=start)
    half = posenc.Rotary(head_dim, layout="half", rotary_dim=rotary_dim)
    interleaved = posenc.Rotary(head_dim, layout="interleaved", rotary_dim=rotary_dim)
    turned = interleaved(x, x, positions)[0]
    same(half(x[..., order], x[..., order], positions)[0], turned[..., order])
    assert (half(x, x, positions)[0] - turned).abs().max() > 1e-2  # they are not the same
    places = np.arange(30) + start
    for rotary in (half, interleaved):
        wanted = reference.rotary(x[0].numpy(), places, head_dim, layout=rotary.layout, rotary_dim=rotary_dim)
        close(rotary(x, x, positions)[0][0], wanted)


# 36. Partial and odd rotary


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(8, 4), (7, 2), (64, 16), (9, 8)])
def test_36_partial_rotary(head_dim, rotary_dim, layout):
    rotary = posenc.Rotary(head_dim, layout=layout, rotary_dim=rotary_dim)
    x = random(1, 2, 12, head_dim)
    turned, _ = rotary(x, x)
    same(turned[..., rotary_dim:], x[..., rotary_dim:])
    assert (turned[:, :, 1:, :rotary_dim] != x[:, :, 1:, :rotary_dim]).all()
    alone = posenc.Rotary(rotary_dim, layout=layout)  # frequencies are over the rotated channels
    same(turned[..., :rotary_dim], alone(x[..., :rotary_dim], x[..., :rotary_dim])[0])
    cos, sin = rotary.cos_sin(posenc.sequence(2), dtype=torch.float64)
    assert cos.shape[-1] == sin.shape[-1] == rotary_dim // 2
    frequencies = 10000.0 ** (-2 * np.arange(rotary_dim // 2) / rotary_dim)
    np.testing.assert_allclose(np.arctan2(array(sin), array(cos))[0, 0, 1], frequencies, rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 63}, "head_dim must be even for rotary, got 63: pass rotary_dim=62 to rotate part of it"),
        ({"head_dim": 8, "rotary_dim": 3}, "rotary_dim must be even .* got 3"),
        ({"head_dim": 8, "rotary_dim": 10}, "rotary_dim must be .* head_dim = 8, got 10"),
        ({"head_dim": 8, "rotary_dim": 0}, "rotary_dim must be .* got 0"),
        ({"head_dim": 4, "axes": 3}, "got 4 channels for 3 axes"),
    ],
)
def test_36_widths_that_cannot_be_rotated_are_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        posenc.Rotary(**arguments)


# 41. A bias of another dtype than the queries


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@both_ways
def test_41_tables_of_another_dtype(make, causal, dtype):
    encoding = make()  # in float32
    q, k, v = random(3, 2, HEADS, 9, HEAD_DIM, dtype=dtype)
    got = posenc.attention(q, k, v, encoding, causal=causal)
    assert got.dtype == dtype
    # the same numbers, computed in float64 throughout
    wanted = posenc.attention(q.double(), k.double(), v.double(), encoding.double(), causal=causal)
    if dtype is torch.float64:
        close(got, wanted)
    else:  # float32 inside, and rounded once: half a unit in the last place, twice that allowed
        limit = torch.finfo(dtype).eps * wanted.abs().max()
        assert (got.double() - wanted).abs().max() <= limit


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("length", [5, 64])
def test_41_half_queries_with_a_float32_bias_equal_the_reference(dtype, length):
    bias = posenc.RelativePositionBias(HEADS, length)
    with torch.no_grad():
        bias.table.normal_(std=3)
    q, k, v = random(3, 1, HEADS, length, 16, dtype=dtype)
    places = np.arange(length)
    dense = reference.relative_position_bias(places, places, HEADS, length, array(bias.table))
    wanted = reference.attention(*(array(x[0]) for x in (q, k, v)), bias=dense)
    got = array(posenc.attention(q, k, v, bias)[0])
    assert np.abs(got - wanted).max() <= torch.finfo(dtype).eps * np.abs(wanted).max()
