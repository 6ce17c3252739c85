"""Every conditional scheme against code that nobody here wrote; each test imports its peer itself."""

from __future__ import annotations

import math

import pytest
import torch

import posenc
from peers import GRIDS, PEERS, against, assert_equal, draw, randomize

pytestmark = PEERS


@against("ConditionalEncoding", "timm.models.twins.PosConv")
@pytest.mark.parametrize("source", ["cpvt", "twins"])
@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("shape", GRIDS)
def test_conditional_encoding_equals_peg(shape: tuple[int, int], prefix: int, source: str) -> None:
    from timm.models.twins import PosConv

    peer = randomize(PosConv(6, 6))
    state = {f"pos_block.0.{name}": tensor for name, tensor in peer.state_dict().items()}
    ours = posenc.ConditionalEncoding(6).double().load_foreign(state, source, prefix="pos_block.0.")
    x = draw(2, prefix + math.prod(shape), 6)
    theirs = torch.cat([x[:, :prefix], peer(x[:, prefix:], shape)], dim=1)
    assert_equal(ours(x, posenc.grid(*shape, prefix=prefix)), theirs)


@against("ConditionalEncoding", "timm.models.coat.ConvPosEnc")
@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("shape", GRIDS)
def test_conditional_encoding_equals_coat_with_its_class_token(shape: tuple[int, int], size: int) -> None:
    from timm.models.coat import ConvPosEnc

    peer = randomize(ConvPosEnc(6, size))
    ours = posenc.ConditionalEncoding(6, size).double().load_foreign(peer.state_dict(), "coat")
    x = draw(2, 1 + math.prod(shape), 6)
    assert_equal(ours(x, posenc.grid(*shape, prefix=1)), peer(x, shape))


@against("ConditionalEncoding", "timm.models.davit.ConvPosEnc")
@pytest.mark.parametrize("shape", GRIDS)
def test_conditional_encoding_equals_davit(shape: tuple[int, int]) -> None:
    from timm.models.davit import ConvPosEnc

    peer = randomize(ConvPosEnc(6))
    ours = posenc.ConditionalEncoding(6).double().load_foreign(peer.state_dict(), "davit")
    x = draw(2, 6, *shape)
    assert_equal(ours(x.flatten(2).mT, posenc.grid(*shape)), peer(x).flatten(2).mT)
