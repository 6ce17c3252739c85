"""The transformer that every encoding is put into: two pre-norm blocks, the same for all but for the encoding.

One encoding is shared by all blocks, and evaluated into a term once a forward pass. Every weight is drawn by a
generator of its own, from the seed and the weight's name, so that two models agree wherever they have the same weights.
"""

import math
import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import posenc
from posenc.compare.encodings import Contestant, Sizes
from posenc.compare.tasks import Place, Task, number

__all__ = ["Model"]

EMBEDDED = 0.3
_DRAWING = threading.Lock()  # constructors of encodings draw from torch's one global generator


class Block(nn.Module):
    """Attention, then a two-layer network, each on a normalised copy."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, sizes.hidden), nn.Linear(sizes.hidden, width)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, `[b, heads, n, head_dim]`."""
        x = self.before_attention(x)
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        return q, k, v

    def forward(self, x: Tensor, *terms: Any, **options: Any) -> Tensor:
        q, k, v = self.project(x)
        attended: Tensor = posenc.attention(q, k, v, *terms, **options)
        x = x + self.output(attended.transpose(1, 2).flatten(-2))
        result: Tensor = x + self.down(F.gelu(self.up(self.before_network(x))))
        return result


class Model(nn.Module):
    """The transformer of one contestant on one task.

    `encoding` may be replaced by a variant of itself. `backend` is passed to `posenc.attention`.
    """

    def __init__(self, task: Task, contestant: Contestant, sizes: Sizes, seed: int) -> None:
        super().__init__()
        self.task, self.contestant, self.backend = task, contestant, "auto"
        embed = nn.Embedding(task.symbols, sizes.width) if task.values is None else nn.Linear(task.values, sizes.width)
        self.embed: nn.Module = embed
        self.blocks: Any = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        self.head = nn.Linear(sizes.width, task.outputs)
        for name, module in self.named_modules():
            _draw(module, name, seed)
        with _DRAWING, torch.random.fork_rng(devices=[]):
            torch.manual_seed(number(seed, "encoding"))
            self.encoding: Any = contestant.build(task, sizes)

    def encode(self, place: Place) -> tuple[Any, tuple[Any, ...]]:
        """Positions as the contestant reads them, and the terms for attention."""
        positions = self.contestant.positions(self.task, place)
        if self.encoding is None or self.contestant.enters != "attention":
            return positions, ()
        return positions, (self.encoding.term(positions),)

    def embedded(self, inputs: Tensor, positions: Any) -> Tensor:
        """What enters the first block."""
        x: Tensor = self.embed(inputs)
        return self.encoding(x, positions) if self.encoding and self.contestant.enters == "embeddings" else x

    def options(self, place: Place) -> dict[str, Any]:
        """What attention is told besides the terms."""
        return {"causal": self.task.causal, "key_mask": place.mask, "backend": self.backend}

    def forward(self, inputs: Tensor, place: Place) -> Tensor:
        """Logits, `[b, n, symbols]` for text and `[b, classes]` elsewhere."""
        positions, terms = self.encode(place)
        x = self.embedded(inputs, positions)
        for index, block in enumerate(self.blocks):
            x = block(x, *terms, **self.options(place))
            if index == 0 and self.encoding is not None and self.contestant.enters == "between":
                x = x if place.mask is None else x * place.mask[..., None]  # neighbours, not padding
                x = self.encoding(x, positions)
        x = self.norm(x)
        if not self.task.causal:
            seen = place.mask[..., None] if place.mask is not None else torch.ones_like(x[..., :1])
            x = (x * seen).sum(1) / seen.sum(1)
        logits: Tensor = self.head(x)
        return logits


def _draw(module: nn.Module, name: str, seed: int) -> None:
    """Matrices: normal with standard deviation 1/sqrt(inputs), each from its own generator; biases: zero.

    Embeddings are drawn at 0.3 of that: between the 0.02 that learned tables are made for and the 1 that sinusoids
    are, so that neither drowns the other.
    """
    for kind, parameter in module.named_parameters(recurse=False):
        if parameter.ndim > 1:
            inputs = 1 if isinstance(module, nn.Embedding) else parameter.shape[-1]
            scale = EMBEDDED if name == "embed" else 1.0
            generator = torch.Generator().manual_seed(number(seed, name, kind))
            with torch.no_grad():
                parameter.normal_(0.0, scale / math.sqrt(inputs), generator=generator)
        elif kind == "bias":
            nn.init.zeros_(parameter)
