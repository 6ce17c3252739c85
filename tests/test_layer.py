"""`SelfAttention` and its cache: the same numbers whole, token by token, grouped, and padded."""

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import posenc

ENCODINGS: dict[str, Any] = {
    "none": list,
    "rotary": lambda: [posenc.Rotary(8)],
    "several": lambda: [posenc.Rotary(8, rotary_dim=4), posenc.T5Bias(6, bidirectional=False), posenc.Shaw(8, 3)],
    "music": lambda: [posenc.RelativeLogits(8, 11, causal=True)],
}


@pytest.mark.parametrize("groups", [6, 2, 1])
@pytest.mark.parametrize("encodings", ENCODINGS)
def test_cached_decoding_equals_the_full_pass(encodings: str, groups: int, seed: int) -> None:
    layer = posenc.SelfAttention(48, 6, *ENCODINGS[encodings](), num_key_value_heads=groups).double()
    x = torch.randn(2, 11, 48, dtype=torch.float64)
    whole = layer(x, causal=True)
    cache = posenc.KeyValueCache()
    parts = x.split([6, 1, 3, 1], 1)  # a prompt, then single tokens and a draft of three
    steps = [layer(part, causal=True, cache=cache) for part in parts]
    assert len(cache) == 11
    assert cache.keys is not None
    assert cache.keys.shape == (2, groups, 11, 8)
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-11, atol=1e-11)


def test_cached_decoding_of_a_left_padded_batch(seed: int) -> None:
    layer = posenc.SelfAttention(16, 2, posenc.Rotary(8), posenc.ALiBi(2)).double()
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[0, :3] = False
    cache = posenc.KeyValueCache()
    layer(x[:, :5], positions=posenc.padded(mask[:, :5]), causal=True, cache=cache)
    steps = [layer(x[:, [i]], positions=posenc.padded(mask[:, : i + 1]), causal=True, cache=cache) for i in (5, 6)]
    alone = layer(x[:1, 3:], causal=True)
    torch.testing.assert_close(torch.cat(steps, 1)[:1], alone[:, 2:], rtol=1e-11, atol=1e-11)


def test_terms_on_top_of_its_own_encodings(seed: int) -> None:
    own, shared = posenc.Rotary(8), posenc.ALiBi(2)
    layer = posenc.SelfAttention(16, 2, own)
    both = posenc.SelfAttention(16, 2, own, shared)
    both.load_state_dict(layer.state_dict())
    x = torch.randn(2, 5, 16)
    term = shared.term(posenc.sequence(5))
    torch.testing.assert_close(layer(x, term), both(x), rtol=0, atol=0)


def test_it_is_multi_head_attention(seed: int) -> None:
    """Against torch's own layer, with its weights."""
    theirs = torch.nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(theirs.in_proj_bias)
    ours = posenc.SelfAttention(24, 4).double()
    with torch.no_grad():
        parts = zip(
            ("query", "key", "value"), theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True
        )
        for name, weight, bias in parts:
            getattr(ours, name).weight.copy_(weight)
            getattr(ours, name).bias.copy_(bias)
        ours.output.load_state_dict(theirs.out_proj.state_dict())
    x = torch.randn(3, 7, 24, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0], rtol=1e-11, atol=1e-11)


def test_without_biases() -> None:
    layer = posenc.SelfAttention(16, 2, bias=False)
    assert sorted(layer.state_dict()) == ["key.weight", "output.weight", "query.weight", "value.weight"]


def test_a_cache_of_another_batch() -> None:
    layer, cache = posenc.SelfAttention(16, 2), posenc.KeyValueCache()
    layer(torch.randn(2, 3, 16), cache=cache)
    with pytest.raises(ValueError, match=r"the cache holds 2 rows, 2 heads of 8 channels in torch\.float32, got"):
        layer(torch.randn(3, 1, 16), cache=cache)
    with pytest.raises(ValueError, match=r"x must be \[batch, tokens, 16\], got shape \(1, 8\)"):
        layer(torch.randn(1, 8))


def test_one_graph_for_many_decode_steps(seed: int) -> None:
    """Tensor positions: the offset is data, not part of the graph."""
    encodings = [posenc.Rotary(8), posenc.T5Bias(4), posenc.Shaw(8, 3)]
    keys = torch.randn(2, 4, 30, 8)
    graphs = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph

    def step(q: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        here = posenc.sequence(1, start=start)
        return posenc.attention(
            q, keys, keys, *encodings, positions=here, key_positions=posenc.sequence(30), causal=True
        )  # fmt: skip

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=count)
    with torch.no_grad():
        for start in range(25):
            q, seen = torch.randn(2, 4, 1, 8), slice(start + 1)
            alone = posenc.attention(q, keys[:, :, seen], keys[:, :, seen], *encodings, causal=True)
            torch.testing.assert_close(compiled(q, torch.tensor(start)), alone, rtol=1e-5, atol=1e-5)
    assert len(graphs) == 1


def test_a_refused_step_leaves_the_cache_as_it_was(seed: int) -> None:
    layer = posenc.SelfAttention(32, 4, posenc.Rotary(8)).double()
    x, cache = torch.randn(2, 8, 32, dtype=torch.float64), posenc.KeyValueCache()
    layer(x[:, :7], causal=True, cache=cache)
    with pytest.raises(
        ValueError, match="positions must cover all 8 tokens, the 7 in the cache first, got 1: "
    ) as caught:
        layer(x[:, 7:], causal=True, cache=cache, positions=posenc.sequence(1, 7))
    assert "key_positions" not in str(caught.value)  # which a layer does not take
    assert len(cache) == 7
    step = layer(x[:, 7:], causal=True, cache=cache)
    torch.testing.assert_close(step, layer(x, causal=True)[:, 7:], rtol=1e-11, atol=1e-11)


def test_a_cache_serves_one_layer(seed: int) -> None:
    first, second = (posenc.SelfAttention(16, 2, posenc.Rotary(8)) for _ in range(2))
    x, cache = torch.randn(2, 4, 16), posenc.KeyValueCache()
    step = first(x[:, :3], causal=True, cache=cache)
    with pytest.raises(
        ValueError, match="a cache must serve one layer, got one with 3 tokens of another SelfAttention"
    ):
        second(x[:, :3], causal=True, cache=cache)
    assert len(cache) == 3
    step = first(x[:, 3:], causal=True, cache=cache)
    torch.testing.assert_close(step, first(x, causal=True)[:, 3:])


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))],
    ids=["copy", "deep", "pickle"],
)
def test_a_copied_cache_goes_on_in_a_copied_layer(copied: Callable[[Any], Any], seed: int) -> None:
    layer, x, cache = posenc.SelfAttention(16, 2, posenc.Rotary(8)), torch.randn(2, 4, 16), posenc.KeyValueCache()
    with torch.no_grad():
        layer(x[:, :3], causal=True, cache=cache)
        for another in (copy.deepcopy(layer), layer):
            step = another(x[:, 3:], causal=True, cache=copied(cache))
            torch.testing.assert_close(step, layer(x, causal=True)[:, 3:])
        layer(x[:, 3:], causal=True, cache=cache)
    assert len(cache) == 4


def test_a_cache_outlives_its_layer(seed: int) -> None:
    x, cache = torch.randn(1, 4, 16), posenc.KeyValueCache()
    layer = posenc.SelfAttention(16, 2)
    weights = layer.state_dict()
    layer(x[:, :3], causal=True, cache=cache)
    del layer
    gc.collect()
    again = posenc.SelfAttention(16, 2)
    again.load_state_dict(weights)
    torch.testing.assert_close(again(x[:, 3:], causal=True, cache=cache), again(x, causal=True)[:, 3:])


def test_a_layer_of_ones_own_keeps_a_cache_to_itself() -> None:
    class Own(torch.nn.Module):
        pass

    ours, others, cache = Own(), Own(), posenc.KeyValueCache()
    k, v = torch.randn(2, 1, 2, 3, 8)
    cache.keep(*cache.joined(k, v, ours), ours)
    assert cache.joined(k, v, ours)[0].shape == cache.joined(k, v)[0].shape == (1, 2, 6, 8)
    with pytest.raises(ValueError, match=r"got one with 3 tokens of another Own: make one posenc\.KeyValueCache"):
        cache.joined(k, v, others)


def test_one_graph_serves_the_layers_of_a_model_and_their_caches(seed: int) -> None:
    """Whose a cache is stays out of the graph, which would be made again for each layer."""
    graphs = []

    def count(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    layers = [posenc.SelfAttention(16, 2, posenc.Rotary(8)) for _ in range(4)]
    caches = [posenc.KeyValueCache() for _ in layers]
    made = []
    with torch.no_grad():
        x = torch.randn(1, 12, 16)
        wanted = [layer(x, causal=True)[:, -1:] for layer in layers]
        for layer in layers:
            layer.compile(backend=count, dynamic=True, fullgraph=True)
        for part in x.split([9, 1, 1, 1], 1):
            steps = [layer(part, causal=True, cache=cache) for layer, cache in zip(layers, caches, strict=True)]
            made.append(len(graphs))
    torch.testing.assert_close(steps, wanted)
    assert made[-1] == made[-2]
    assert made[0] == 1


def test_it_takes_the_options_of_attention(seed: int) -> None:
    layer = posenc.SelfAttention(16, 2, posenc.ALiBi(2))
    x = torch.randn(2, 5, 16)
    assert not torch.allclose(layer(x, scale=0.1), layer(x))
    torch.testing.assert_close(layer(x, backend="dense"), layer(x))
    with pytest.raises(ValueError, match="backend 'sdpa' cannot compute this"):
        layer(x, backend="sdpa")
