"""Who sees whom: causal by order, windows, documents, padding, and masks of the caller's own.

Everything combines by "and". What can be said without an L x L mask is said by `kind`, from the structure of the
positions alone, so that a fused kernel needs no mask where none is needed.
"""

from typing import Literal

from jaxtyping import Bool, Int
from torch import Tensor

from posenc.checks import whole
from posenc.layout import Device, Positions

__all__ = ["Visibility"]


class Visibility:
    """Which keys each query may attend to."""

    def __init__(
        self,
        queries: Positions,
        keys: Positions,
        *,
        causal: bool = False,
        window: int | None = None,
        mask: Bool[Tensor, "#b #h #i #j"] | None = None,
        key_mask: Bool[Tensor, "b j"] | None = None,
        newest: bool = False,
    ) -> None:
        """`newest` says that the queries are the last tokens of the keys."""
        self.queries, self.keys = queries, keys
        self.window = None if window is None else whole("window", window)
        self.mask, self.key_mask = mask, key_mask
        in_order = newest and keys.ordered
        self.causal = causal and not (in_order and queries.length == 1)  # the newest token sees everything
        self._by_index = in_order and queries is keys

    @property
    def by_real_order(self) -> bool:
        """Whether it goes by an order of real numbers."""
        if not self.causal and self.window is None:
            return False
        return self.queries.by_real_order or self.keys.by_real_order

    @property
    def kind(self) -> Literal["all", "causal", "mask"]:
        """Every key, the lower triangle, or what `allowed` says."""
        layouts = self.queries.document(), self.keys.document(), self.keys.present()
        if any(said is not None for said in (*layouts, self.window, self.mask, self.key_mask)):
            return "mask"
        if not self.causal:
            return "all"
        return "causal" if self._by_index else "mask"

    def hidden_by(self) -> list[str]:
        """What keeps queries from keys, in words."""
        causes = {
            "the order (causal)": self.causal,
            f"a window of {self.window}": self.window is not None,
            "documents": any(side.document() is not None for side in (self.queries, self.keys)),
            "padding": self.keys.present() is not None,
            "key_mask": self.key_mask is not None,
            "mask": self.mask is not None,
        }
        return [cause for cause, holds in causes.items() if holds]

    def allowed(self, device: Device = None) -> Bool[Tensor, "#b #h #i #j"] | None:
        """True where query i may attend to key j, or None where every query sees every key."""
        documents = self.documents(device)
        parts = [self._order(device), None if documents is None else _pairwise(*documents) == 0, self.mask]
        present = self.keys.present(device)
        parts += [None if tokens is None else tokens[:, None, None, :] for tokens in (present, self.key_mask)]
        combined: Tensor | None = None
        for part in parts:
            if part is not None:
                combined = part if combined is None else combined & part
        return combined

    def _order(self, device: Device) -> Tensor | None:
        if not self.causal and self.window is None:
            return None
        after = _pairwise(*self.orders(device))
        allowed = after >= 0 if self.causal else None
        if self.window is not None:
            near = after.abs() <= self.window
            allowed = near if allowed is None else allowed & near
        return allowed

    def documents(self, device: Device = None) -> tuple[Int[Tensor, "#b i"], Int[Tensor, "#b j"]] | None:
        """The document of each query and of each key, or None where all are of one.

        Raises ValueError where only one of the two says its documents.
        """
        queries, keys = self.queries.document(device), self.keys.document(device)
        if queries is None and keys is None:
            return None
        if queries is None or keys is None:
            raise ValueError(
                "queries and keys must both say their documents, got one that does not: "
                "pass packed positions, or coordinates with document=, for both"
            )
        return _row(queries), _row(keys)

    def orders(self, device: Device = None) -> tuple[Int[Tensor, "#b i"], Int[Tensor, "#b j"]]:
        """The order of each query and of each key."""
        return _row(self.queries.order(device)), _row(self.keys.order(device))


def _row(x: Tensor) -> Tensor:
    x = x if x.is_floating_point() else x.long()  # differences of narrower numbers would wrap
    return x if x.ndim == 2 else x[None]


def _pairwise(queries: Tensor, keys: Tensor) -> Tensor:
    """Query minus key for every pair, `[b, 1, i, j]`."""
    return queries[:, None, :, None] - keys[:, None, None, :]
