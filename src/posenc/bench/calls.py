"""The calls that are measured: ours, torch's plain attention, and those of the peers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

import posenc
from posenc import catalog
from posenc.bench import peers
from posenc.bench.setting import Setting, Subject, build

__all__ = ["WAYS", "Call", "called", "embeds", "planned", "prepare"]

SEED = 20210420  # the same numbers for all that are compared, and in every run

Forward = Callable[[], list[Tensor]]


class Call(NamedTuple):
    """A computation and the numbers in it. Those of one scheme at one setting are the same for every way."""

    forward: Forward
    given: list[Tensor]
    """Queries, keys and values, and embeddings where the scheme is added to them."""
    parameters: list[Tensor]
    """What is trained besides."""
    encoding: Any
    """Ours: it has the numbers of the computation, also where that is a peer's. None without a scheme."""


def called(subject: Subject, setting: Setting, train: bool) -> Call:
    """The forward pass, with numbers of its own."""
    options: dict[str, Any] = {"device": setting.device, "dtype": getattr(torch, setting.dtype)}
    generator = torch.Generator(setting.device).manual_seed(SEED)
    sizes = [(setting.batch, setting.heads, tokens, setting.head_dim) for tokens in (setting.asking, setting.tokens)]
    shapes: list[tuple[int, ...]] = [sizes[0], sizes[1], sizes[1]]
    if embeds(subject):
        shapes.append((setting.batch, setting.tokens, setting.heads * setting.head_dim))
    given = [torch.randn(shape, generator=generator, **options).requires_grad_(train) for shape in shapes]
    with _seeded():
        encoding = build(subject, setting) if subject.scheme else None
        forward, parameters = WAYS.get(subject.way, _peer)(subject, setting, given, encoding)
    return Call(forward, given, [each for each in parameters if each.requires_grad], encoding)


def prepare(subject: Subject, setting: Setting, train: bool) -> Callable[[], object]:
    """The call to measure: the forward pass without gradients, or both passes."""
    call = called(subject, setting, train)
    if not train:
        return lambda: _infer(call.forward)
    gradients = [torch.randn_like(output) for output in call.forward()]
    return lambda: torch.autograd.grad(call.forward(), [*call.given, *call.parameters], gradients)


def embeds(subject: Subject) -> bool:
    """Whether a scheme is added to embeddings, and not used in attention."""
    return bool(subject.scheme) and catalog.card(subject.scheme).place in ("absolute", "conditional")


def planned(subject: Subject, setting: Setting, train: bool) -> str:
    """The name of the backend that `attention` chooses, or of what takes its place.

    Raises ValueError where the backend that was asked for cannot compute it.
    """
    if subject.way in peers.NAMES:
        return peers.NAMES[subject.way].package
    if subject.way not in ("attention", "ready") or embeds(subject):
        return "torch"
    few = setting.tiny()  # a plan reads no sizes
    with torch.set_grad_enabled(train):
        call = called(subject._replace(way="plain"), few, train)
        q, k, v = call.given[:3]
        encodings = [] if call.encoding is None else [call.encoding]
        options: dict[str, Any] = {"positions": few.positions(), "causal": few.causal}
        return posenc.explain(q, k, v, *encodings, backend=subject.backend, **options).backend.NAME


def _infer(forward: Forward) -> list[Tensor]:
    with torch.inference_mode():
        return forward()


@contextmanager
def _seeded() -> Iterator[None]:
    """What encodings draw is the same in every run, and whoever calls us draws on as if nothing had been drawn."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        yield


# --- ways: subject, setting, what is given and the encoding -> the forward pass, and what is trained ---

Made = tuple[Forward, list[Tensor]]


def _plain(subject: Subject, setting: Setting, given: list[Tensor], encoding: Any) -> Made:
    q, k, v = given[:3]
    return lambda: [functional.scaled_dot_product_attention(q, k, v, is_causal=setting.causal)], []


def _masked(subject: Subject, setting: Setting, given: list[Tensor], encoding: Any) -> Made:
    """Plain attention with a mask that is ready, one number a head, query and key."""
    q, k, v = given[:3]
    mask = torch.randn(1, setting.heads, setting.asking, setting.tokens, device=q.device, dtype=q.dtype)
    return lambda: [functional.scaled_dot_product_attention(q, k, v, mask)], []


def _attention(subject: Subject, setting: Setting, given: list[Tensor], encoding: Any) -> Made:
    """Attention with the scheme, evaluated in every call; or plain attention, and the embeddings with the scheme."""
    positions, parameters = setting.positions(), [] if encoding is None else list(encoding.parameters())
    if embeds(subject):
        plain, x = _plain(subject, setting, given, encoding)[0], given[3]
        return lambda: [*plain(), encoding(x, positions)], parameters
    return _attend(subject, setting, given, [] if encoding is None else [encoding], positions), parameters


def _ready(subject: Subject, setting: Setting, given: list[Tensor], encoding: Any) -> Made:
    """Attention with the scheme's term, evaluated beforehand, as the layers of a model share it."""
    return _attend(subject, setting, given, [_term(setting, given, encoding)], None), []


def _term(setting: Setting, given: list[Tensor], encoding: Any) -> Any:
    keys = setting.positions()
    queries = keys if not setting.queries else posenc.sequence(setting.queries, start=setting.tokens - setting.queries)
    dtype = torch.promote_types(given[0].dtype, torch.float32)
    with torch.no_grad():
        return encoding.term(queries, keys, device=setting.device, dtype=dtype)


def _attend(
    subject: Subject, setting: Setting, given: list[Tensor], encodings: list[Any], positions: posenc.Positions | None
) -> Forward:
    q, k, v = given[:3]
    options: dict[str, Any] = {"positions": positions, "causal": setting.causal, "backend": subject.backend}
    return lambda: [posenc.attention(q, k, v, *encodings, **options)]


def _cloned(subject: Subject, setting: Setting, given: list[Tensor], encoding: Any) -> Made:
    q, k = given[:2]
    return lambda: [q.clone(), k.clone()], []


def _rotated(subject: Subject, setting: Setting, given: list[Tensor], encoding: Any) -> Made:
    """Queries and keys turned, for an attention of one's own."""
    positions, parameters = setting.positions(), list(encoding.parameters())
    q, k = given[:2]
    return lambda: list(encoding(q, k, positions, positions)), parameters


def _ready_rotated(subject: Subject, setting: Setting, given: list[Tensor], encoding: Any) -> Made:
    """The same by a term that was evaluated beforehand."""
    term, (q, k) = _turning(subject, setting, given, encoding), given[:2]
    return lambda: list(term.rotate(q, k)), []


def _ready_rotated_in_place(subject: Subject, setting: Setting, given: list[Tensor], encoding: Any) -> Made:
    term, (q, k) = _turning(subject, setting, given, encoding), given[:2]
    return lambda: list(term.rotate_(q, k)), []


def _turning(subject: Subject, setting: Setting, given: list[Tensor], encoding: Any) -> Any:
    if catalog.card(subject.scheme).place != "rotary":
        raise ValueError(f"{subject.scheme} turns no queries and keys: measure a rotary scheme in this way")
    return _term(setting, given, encoding)


def _peer(subject: Subject, setting: Setting, given: list[Tensor], encoding: Any) -> Made:
    """A peer's call, in place of ours."""
    made = peers.NAMES[subject.way].made(encoding, setting)
    for each in made.parameters:
        each.requires_grad_(not subject.frozen)
    q, k, v = given[:3]
    if embeds(subject):
        plain, x = _plain(subject, setting, given, encoding)[0], given[3]
        return lambda: [*plain(), made.call(x)], made.parameters
    return lambda: [made.call(q, k, v)], made.parameters


WAYS: dict[str, Callable[[Subject, Setting, list[Tensor], Any], Made]] = {
    "plain": _plain,
    "plain with a ready mask": _masked,
    "attention": _attention,
    "ready": _ready,
    "clone": _cloned,
    "rotate": _rotated,
    "ready rotate": _ready_rotated,
    "ready rotate_": _ready_rotated_in_place,
}
