"""Peers: code that people use today, computing what our schemes compute, for `posenc bench --peers`.

Each is given the same numbers as our encoding (or ours are given its), so that it computes the same, and its error
against float64 stands beside ours. Every call evaluates what depends on the position, as ours does; what a package
keeps from one call to the next is kept. Packages are imported when a peer is made, and only then.
"""

from posenc.bench.peers import bias, content, embedded, flex, rotary
from posenc.bench.peers.packages import INSTALLED_BY, missing, taken
from posenc.bench.peers.peer import Made, Peer
from posenc.bench.setting import Setting

__all__ = ["INSTALLED_BY", "NAMES", "PEERS", "Made", "Peer", "missing", "of", "taken"]

PEERS: tuple[Peer, ...] = (*embedded.PEERS, *rotary.PEERS, *bias.PEERS, *content.PEERS, *flex.PEERS)

NAMES: dict[str, Peer] = {peer.name: peer for peer in PEERS}


def of(scheme: str, setting: Setting) -> list[Peer]:
    """The peers of a scheme for a layout of tokens, installed or not.

    >>> [peer.name for peer in of("RelativePositionBias", Setting((4, 4), prefix=1))]
    ['timm: RelPosBias(prefix_tokens=1)', 'transformers: BeitRelativePositionBias']
    """
    return [peer for peer in PEERS if peer.scheme == scheme and peer.fits(setting)]
