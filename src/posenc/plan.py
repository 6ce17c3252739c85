"""Which backend computes an attention, and why not the others.

A plan is made from facts alone (places, structure, dtype, device, gradients, masks); it never reads a tensor. Reasons
are constants, so that a compiled model makes one graph for all lengths; only `explain` turns them into sentences.
"""

from collections.abc import Sequence as SequenceOf
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from posenc.kernels.eager import traced, transformed
from posenc.mask import Visibility
from posenc.term import Bias, Content, Decay, Rotation, Term, repeated

__all__ = ["Backend", "Facts", "Plan", "Problem", "choose", "run"]


class Facts(NamedTuple):
    """What a backend may decide by."""

    terms: tuple[str, ...]
    """Kinds of the terms left in the logits; a rotation without decay is applied before."""
    visibility: str
    """ "all", "causal" or "mask"."""
    dtype: torch.dtype
    device: str
    gradients: bool
    dropout: bool
    forms: tuple[str, ...] = ()
    """Forms of the same terms: "table", "pairs", "rows" or "other"."""
    joins_values: bool = False
    """Whether a term adds vectors to the values."""
    widest: int = 0
    """Channels of a head: of queries or of values, the more of the two."""
    rotation: str = "none"
    """ "none"; "fixed", where there is one, without gradients, that turns a key in one way; or "other"."""
    by_real_order: bool = False
    """Whether who sees whom goes by an order of real numbers."""
    exporting: bool = False
    """Whether a graph is made for another runtime, which has torch's operators alone."""
    transformed: bool = False
    """Whether torch.func or forward-mode differentiation is at work."""
    wanted: str = "auto"
    """The backend that was asked for."""


class Problem(NamedTuple):
    """One attention to compute."""

    q: Float[Tensor, "b h i d"]
    k: Float[Tensor, "b g j d"]
    v: Float[Tensor, "b g j e"]
    unrotated_q: Float[Tensor, "b h i d"]
    """What content terms meet."""
    unrotated_k: Float[Tensor, "b g j d"]
    rotations: list[Rotation]
    """What q and k are still to be turned by, none for a backend that does not rotate."""
    terms: list[Bias | Content | Decay]
    visibility: Visibility
    scale: float
    dropout: float

    def facts(self, wanted: str = "auto") -> Facts:
        """What a plan is made from."""
        return Facts(
            tuple(term.kind for term in self.terms),
            self.visibility.kind,
            self.q.dtype,
            self.q.device.type,
            self.gradients,
            self.dropout > 0,
            tuple(term.form for term in self.terms),
            any(term.joins_values for term in self.terms),
            max(self.q.shape[-1], self.v.shape[-1]),
            self.rotation,
            self.visibility.by_real_order,
            traced(),
            transformed(),
            wanted,
        )

    @property
    def gradients(self) -> bool:
        """Whether anything that goes in has a gradient."""
        if not torch.is_grad_enabled():
            return False
        terms: list[Term] = [*self.rotations, *self.terms]
        tensors = [self.q, self.k, self.v, *(tensor for term in terms for tensor in term.tensors())]
        return any(tensor.requires_grad for tensor in tensors)

    @property
    def rotation(self) -> str:
        """What the rotations are to a backend: as in `Facts`."""
        if not self.rotations:
            return "none"
        rotation = self.rotations[0]
        repeats = rotation.key[0].shape[1] > 1 and self.k.shape[1] != self.q.shape[1]
        trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in rotation.tensors())
        own = type(rotation) is not Rotation  # a term of one's own may turn in another way
        return "other" if len(self.rotations) > 1 or repeats or trained or own else "fixed"

    def rotated(self) -> "Problem":
        """The same with q and k turned. Where heads turn differently, there is a key and a value for each of them."""
        q, k = self.q, self.k
        for rotation in self.rotations:
            q, k = rotation.rotate(q, k)
        return self._replace(q=q, k=k, v=repeated(self.v, k.shape[1]), rotations=[])


@runtime_checkable
class Backend(Protocol):
    """A way to compute attention: a module with these four names."""

    NAME: str
    ROTATES: bool
    """Whether it turns queries and keys itself."""

    def refuses(self, facts: Facts) -> list[str]:
        """Why these facts are not for this backend; empty where it computes them exactly."""

    def run(self, problem: Problem) -> Float[Tensor, "b h i e"]:
        """The output, in q's dtype."""


class Plan(NamedTuple):
    """The backend that was chosen and the reasons against each one that comes before it."""

    backend: Backend
    facts: Facts
    refusals: dict[str, list[str]]
    passed_over: list[str]
    notes: SequenceOf[str] = ()
    """What facts leave out, in sentences."""

    def __str__(self) -> str:
        pairwise = {"pairs": " (a number for every pair, L x L)"}
        named = zip(self.facts.terms, self.facts.forms, strict=True)
        terms = ", ".join(term + pairwise.get(form, "") for term, form in named) or "none"
        when = "as they are read" if self.backend.ROTATES else "before"
        turned = "" if self.facts.rotation == "none" else f"; q and k turned {when}"
        gradients = "with" if self.facts.gradients else "without"
        lines = [
            f"backend: {self.backend.NAME}",
            f"  terms in the logits: {terms}{turned}; visibility: {self.facts.visibility}; {self.facts.dtype} "
            f"on {self.facts.device}, {gradients} gradients",
        ]
        lines += [f"  not {name}: {'; '.join(reasons)}" for name, reasons in self.refusals.items()]
        if self.passed_over:
            lines.append(f"  not {', '.join(self.passed_over)}: {self.backend.NAME} comes first")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def choose(facts: Facts, backends: SequenceOf[Backend]) -> Plan:
    """The first of `backends` that refuses nothing, or the wanted one.

    Raises ValueError for an unknown name, and where the wanted backend refuses.
    """
    names, wanted = [backend.NAME for backend in backends], facts.wanted
    if wanted != "auto" and wanted not in names:
        raise ValueError(
            f"backend must be one of auto, {', '.join(names)}, got {wanted!r}: leave it out for the fastest"
        )
    refusals: dict[str, list[str]] = {}
    for place, backend in enumerate(backends):
        reasons = backend.refuses(facts) if wanted in ("auto", backend.NAME) else [f"backend={wanted!r} was asked for"]
        if not reasons:
            return Plan(backend, facts, refusals, names[place + 1 :])
        refusals[backend.NAME] = reasons
    raise ValueError(f"backend {wanted!r} cannot compute this: {'; '.join(refusals[wanted])}: leave backend out")


def run(problem: Problem, backends: SequenceOf[Backend], wanted: str = "auto") -> Float[Tensor, "b h i e"]:
    """The output, by the backend of the plan."""
    backend = choose(problem.facts(wanted), backends).backend
    return backend.run(problem if backend.ROTATES else problem.rotated())


def left_in_logits(terms: SequenceOf[Term]) -> list[Bias | Content | Decay]:
    """The terms that act on the logits."""
    return [term for term in terms if isinstance(term, Bias | Content | Decay)]
