"""A ready self-attention layer with position encodings and a key/value cache."""

import weakref
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from posenc.attend import attention
from posenc.checks import whole
from posenc.encoding import Encoding
from posenc.layout import Positions
from posenc.term import Term

__all__ = ["KeyValueCache", "SelfAttention"]


class KeyValueCache:
    """Keys and values of the tokens that one layer has seen, before rotation; one cache a layer.

    Keys are kept unrotated, so that every decode step is the same attention as the full pass. In a layer of your own,
    `joined(keys, values, self)` gives those of all tokens, and `keep(keys, values, self)` holds them once the step has
    worked. What one layer keeps no other may join, which is checked outside compiled graphs; a copy, by `copy` or
    `pickle`, is of whichever layer keeps in it first.

    >>> cache = posenc.KeyValueCache()
    >>> layer = posenc.SelfAttention(32, 4, posenc.Rotary(8))
    >>> y = layer(torch.randn(1, 6, 32), causal=True, cache=cache)
    >>> y = layer(torch.randn(1, 1, 32), causal=True, cache=cache)
    >>> len(cache)
    7
    """

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self._layer: weakref.ref[nn.Module] | None = None

    def joined(
        self, keys: Float[Tensor, "b g j d"], values: Float[Tensor, "b g j d"], layer: nn.Module | None = None
    ) -> tuple[Float[Tensor, "b g all d"], Float[Tensor, "b g all d"]]:
        """The keys and values of all tokens, new ones at the end; nothing is kept until `keep`.

        Raises ValueError where the new ones do not continue the old, or where those were kept by another layer.
        """
        if self.keys is None or self.values is None:
            return keys, values
        if layer is not None and not torch.compiler.is_compiling():  # a graph serves all layers that are alike
            owner = None if self._layer is None else self._layer()
            if owner is not None and owner is not layer:
                raise ValueError(
                    f"a cache must serve one layer, got one with {len(self)} tokens of another {type(owner).__name__}: "
                    "make one posenc.KeyValueCache() a layer"
                )
        b, g, _, d = self.keys.shape
        if keys.shape[0] != b or keys.shape[1] != g or keys.shape[3] != d or keys.dtype != self.keys.dtype:
            raise ValueError(
                f"the cache holds {b} rows, {g} heads of {d} channels in {self.keys.dtype}, got {tuple(keys.shape)} in "
                f"{keys.dtype}: use one cache for each layer and batch"
            )
        return torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)

    def keep(
        self, keys: Float[Tensor, "b g all d"], values: Float[Tensor, "b g all d"], layer: nn.Module | None = None
    ) -> None:
        """Hold the keys and values of all tokens, for this layer."""
        self.keys, self.values = keys, values
        if not torch.compiler.is_compiling():
            self._layer = None if layer is None else weakref.ref(layer)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_layer": None}

    def __len__(self) -> int:
        return 0 if self.keys is None else self.keys.shape[2]

    def __repr__(self) -> str:
        return f"KeyValueCache(tokens={len(self)})"


class SelfAttention(nn.Module):
    """Multi-head self-attention with any number of rotary, bias and content encodings.

    Args:
        dim: channels of the embeddings, a multiple of `num_heads`.
        num_heads: number of query heads.
        encodings: encodings of the layer's own, or shared with other layers; `forward` also takes ready terms.
        num_key_value_heads: fewer heads for keys and values (grouped-query), a divisor of `num_heads`.
        bias: whether the four projections have one.

    Raises ValueError for sizes that do not divide, TypeError for an encoding that acts on embeddings.

    >>> posenc.SelfAttention(64, 4, posenc.Rotary(16), posenc.ALiBi(4))(torch.randn(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self, dim: int, num_heads: int, *encodings: Encoding, num_key_value_heads: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        dim, num_heads = whole("dim", dim, 1), whole("num_heads", num_heads, 1)
        groups = num_heads if num_key_value_heads is None else whole("num_key_value_heads", num_key_value_heads, 1)
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads, got dim={dim} and num_heads={num_heads}")
        head_dim = dim // num_heads
        if num_heads % groups:
            raise ValueError(f"num_key_value_heads must divide num_heads = {num_heads}, got {groups}: pass a divisor")
        for encoding in encodings:
            name = type(encoding).__name__
            if not isinstance(encoding, Encoding):
                raise TypeError(f"encodings must be posenc encodings, got {name}: pass ready terms to forward")
            if encoding.place in ("absolute", "conditional"):
                raise TypeError(
                    f"{name} acts on embeddings, got it in an attention layer: apply it before, x = encoding(x)"
                )
            if encoding.num_heads is not None and encoding.num_heads != num_heads:
                raise ValueError(f"{name} was made for {encoding.num_heads} heads, got a layer of {num_heads}")
            width = getattr(encoding, "head_dim", head_dim)
            if width != head_dim:
                raise ValueError(f"{name} was made for head_dim {width}, got a layer of {head_dim}")
        self.dim, self.num_heads, self.num_key_value_heads = dim, num_heads, groups
        self.query = nn.Linear(dim, dim, bias=bias)
        self.key = nn.Linear(dim, groups * head_dim, bias=bias)
        self.value = nn.Linear(dim, groups * head_dim, bias=bias)
        self.output = nn.Linear(dim, dim, bias=bias)
        self.encodings = nn.ModuleList(encodings)

    def forward(
        self,
        x: Float[Tensor, "b l dim"],
        *terms: Term,
        positions: Positions | None = None,
        causal: bool = False,
        window: int | None = None,
        mask: Bool[Tensor, "#b #h #i #j"] | None = None,
        key_mask: Bool[Tensor, "b j"] | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
        backend: str = "auto",
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "b l dim"]:
        """Attention of x to itself, and to the tokens before it in `cache`, which x is added to.

        `terms` come on top of the layer's own encodings. With a cache, `positions` are those of all tokens so far.
        """
        if x.ndim != 3 or x.shape[-1] != self.dim:
            raise ValueError(f"x must be [batch, tokens, {self.dim}], got shape {tuple(x.shape)}: batch first")
        q = self._heads(self.query(x), self.num_heads)
        k = self._heads(self.key(x), self.num_key_value_heads)
        v = self._heads(self.value(x), self.num_key_value_heads)
        if cache is not None:
            if not isinstance(cache, KeyValueCache):
                raise TypeError(f"cache must be a posenc.KeyValueCache, got {type(cache).__name__}: make one a layer")
            k, v = cache.joined(k, v, self)
            if isinstance(positions, Positions) and positions.length != k.shape[2]:
                raise ValueError(
                    f"positions must cover all {k.shape[2]} tokens, the {len(cache)} in the cache first, got "
                    f"{positions.length}: pass those of all, or leave them out for a sequence"
                )
        encodings = [cast(Encoding, encoding) for encoding in self.encodings]
        out = attention(
            q,
            k,
            v,
            *encodings,
            *terms,
            positions=positions,
            causal=causal,
            window=window,
            mask=mask,
            key_mask=key_mask,
            scale=scale,
            dropout=dropout,
            backend=backend,
        )
        if cache is not None:
            cache.keep(k, v, self)  # a step that was refused leaves the cache as it was
        return cast(Tensor, self.output(out.transpose(1, 2).flatten(2)))

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(*x.shape[:2], heads, x.shape[-1] // heads).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"{self.dim}, {self.num_heads}, num_key_value_heads={self.num_key_value_heads}"
