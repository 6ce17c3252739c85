"""Memory of the fused kernel grows as the sequence does: no L x L tensor, in training neither. CASES 42."""

import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from posenc import kernels

pytestmark = [
    pytest.mark.skipif(not kernels.BUILT, reason=kernels.MISSING),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork, and each peak is that of a process"),
    pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer takes memory of its own"),
]


class Call(NamedTuple):
    """An attention without gradients, or with a backward pass."""

    scheme: str
    train: bool
    batch: int = 1
    heads: int = 8
    width: int = 64
    queries: int = 256
    keys: int = 4096


SCHEMES = ["none", "ALiBi", "T5", "Swin", "SAM", "Shaw", "BoTNet", "Transformer-XL", "DeBERTa", "IRPE", "rotary and T5"]
FEW = {train: [Call(scheme, train) for scheme in ("plain", *SCHEMES)] for train in (False, True)}
MANY = {train: [Call(scheme, train, 8, 2, 16, 2048, 2048) for scheme in ("plain", "T5")] for train in (False, True)}
GROWING = [Call(scheme, True, queries=128, keys=keys) for scheme in ("T5", "Shaw", "BoTNet") for keys in (1024, 8192)]
CALLS = [*FEW[False], *FEW[True], *MANY[False], *MANY[True], *GROWING]

PROGRAM = """
import os, pickle, resource, sys
import torch
import torch.nn.functional as F
import posenc

ENCODINGS = {
    "none": lambda heads, width, tokens: [],
    "ALiBi": lambda heads, width, tokens: [posenc.ALiBi(heads, learned=True)],
    "T5": lambda heads, width, tokens: [posenc.T5Bias(heads)],
    "Swin": lambda heads, width, tokens: [posenc.RelativePositionBias(heads, sides(tokens))],
    "SAM": lambda heads, width, tokens: [posenc.RelativeLogits(width, sides(tokens), scaled=False)],
    "Shaw": lambda heads, width, tokens: [posenc.Shaw(width, 64)],
    "BoTNet": lambda heads, width, tokens: [posenc.RelativeLogits(width, tokens)],
    "Transformer-XL": lambda heads, width, tokens: [posenc.TransformerXL(heads, width)],
    "DeBERTa": lambda heads, width, tokens: [posenc.Deberta(heads, width)],
    "IRPE": lambda heads, width, tokens: [posenc.IRPE(width, num_heads=heads)],
    "rotary and T5": lambda heads, width, tokens: [posenc.Rotary(width), posenc.T5Bias(heads)],
}

def sides(tokens):
    return int(tokens**0.5), tokens // int(tokens**0.5)

def attend(scheme, train, batch, heads, width, queries, keys):
    q, k, v = (torch.rand(batch, heads, tokens, width, requires_grad=train) for tokens in (queries, keys, keys))
    with torch.set_grad_enabled(train):
        if scheme == "plain":
            output = F.scaled_dot_product_attention(q, k, v)
        else:
            encodings = ENCODINGS[scheme](heads, width, keys)
            flat = not encodings or encodings[-1].axes == 1
            positions = posenc.sequence(keys) if flat else posenc.grid(*sides(keys))
            output = posenc.attention(q, k, v, *encodings, positions=positions, backend="cpu")
    if train:
        output.backward(torch.ones_like(output))

def peak(scheme, train, *sizes):
    # by how many MiB the peak of a fork grows, from a call at a tiny size to this one
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(2)
        attend(scheme, train, 1, *sizes[1:3], 16, 16)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        attend(scheme, train, *sizes)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        os.write(write, pickle.dumps(grown / (2**20 if sys.platform == "darwin" else 2**10)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        grown = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(grown)

torch.set_num_threads(1)
attend("T5", True, 1, 8, 64, 16, 16)  # what torch imports then is there before the forks
"""


@pytest.fixture(scope="module")
def peaks() -> dict[Call, float]:
    """The peak of every call in MiB, inputs and all, each in a fork of its own."""
    program = f"{PROGRAM}\nprint(*[peak(*call) for call in {[tuple(call) for call in CALLS]!r}])"
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(zip(CALLS, map(float, done.stdout.split()), strict=True))


@pytest.mark.parametrize(("train", "allowed"), [(False, 24), (True, 48)])
def test_a_term_takes_a_few_mebibytes_at_4096_keys(train: bool, allowed: float, peaks: dict[Call, float]) -> None:
    """Beyond torch's attention without one. The logits of these 256 queries alone would take 32 MiB."""
    plain, *calls = FEW[train]
    extra = {call.scheme: round(peaks[call] - peaks[plain], 1) for call in calls}
    # its waves, 8,191 x 512, and the vectors that are made of them are 16 MiB each, whatever the kernel
    allowances = {"Transformer-XL": 48.0}
    assert {scheme: taken for scheme, taken in extra.items() if taken > allowances.get(scheme, allowed)} == {}


@pytest.mark.parametrize("train", [False, True])
def test_a_batch_of_eight_does_not_multiply_the_bias(train: bool, peaks: dict[Call, float]) -> None:
    """Two heads of 2,048 x 2,048 numbers are 32 MiB for each row of the batch: not even one head of one row is made."""
    plain, biased = MANY[train]
    assert peaks[biased] - peaks[plain] < 8


def test_memory_grows_as_the_sequence(peaks: dict[Call, float]) -> None:
    """Eight times the keys take no more than eight times the memory, inputs and all, and a little to begin with."""
    for less, more in zip(GROWING[::2], GROWING[1::2], strict=True):
        assert peaks[more] < 8 * peaks[less] + 8, more
