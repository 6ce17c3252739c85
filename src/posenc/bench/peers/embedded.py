"""Peers that are added to embeddings."""

from typing import Any

from torch import Tensor

from posenc.bench.peers.peer import Made, Peer, placed
from posenc.bench.setting import Setting

__all__ = ["PEERS"]


def _sinusoidal(code: Any, encoding: Any, setting: Setting) -> Made:
    axes = len(setting.shape)
    kind = getattr(code, f"PositionalEncoding{axes}D")
    peer = kind(setting.heads * setting.head_dim).to(setting.device)

    def call(x: Tensor) -> Any:
        grid = x.unflatten(1, setting.shape)
        return (grid + peer(grid)).flatten(1, axes)

    return Made(call, [])


def _convolution(code: Any, encoding: Any, setting: Setting) -> Made:
    dim = setting.heads * setting.head_dim
    peer = placed(code.PosConv(dim, dim), setting)
    encoding.load_foreign(
        {f"pos_block.0.{name}": each for name, each in peer.state_dict().items()}, "twins", "pos_block.0."
    )
    return Made(lambda x: peer(x, setting.shape), list(peer.parameters()))


CODE = "positional_encodings.torch_encodings"

PEERS = (
    *(
        Peer(
            "Sinusoidal",
            "positional-encodings",
            f"PositionalEncoding{axes}D",
            CODE,
            _sinusoidal,
            (axes,),
            multiple=2 * axes,
        )
        for axes in (1, 2, 3)
    ),
    Peer("ConditionalEncoding", "timm", "twins.PosConv", "timm.models.twins", _convolution, axes=(2,)),
)
