"""Laws of precision: no dtype, cast, autocast or distance spoils an angle."""

import copy
import random

import numpy as np
import torch
from torch import Tensor

import posenc
from laws.subject import INSIDE, Subject, attend, draw, equal, law, logits, shifted


@law("the output dtype is the input's")
def output_dtype_is_the_inputs(subject: Subject) -> None:
    encoding, positions = subject.make(torch.float32), subject.layout()
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for numbers in (encoding, copy.deepcopy(encoding).to(dtype)):
            x = draw(2, positions.length, subject.width, dtype=dtype)
            assert attend(subject, numbers, x, positions).dtype == dtype


@law("a cast moves no angle")
def a_cast_moves_no_angle(subject: Subject) -> None:
    positions = far(subject)
    x = draw(2, positions.length, subject.width, dtype=torch.float32)
    for cast in (torch.nn.Module.half, torch.nn.Module.bfloat16):
        rounded = subject.make()
        narrow = cast(copy.deepcopy(rounded))
        rounded.load_state_dict(narrow.state_dict())  # numbers that the narrow dtype holds exactly
        # the same result, to float32's rounding and no worse
        equal(attend(subject, narrow, x, positions), attend(subject, rounded, x.double(), positions), 2e-5)


def far(subject: Subject, offset: int = 4095) -> posenc.Positions:
    """The subject's layout, where it may stand anywhere, far from the origin."""
    positions = subject.layout()
    free = subject.place != "conditional" and not (subject.place == "absolute" and subject.bounded)
    return shifted(positions, [offset] * subject.axes) if free and not subject.by_length else positions


@law("autocast moves no angle")
def autocast_moves_no_angle(subject: Subject) -> None:
    """What a scheme computes from positions is as exact as ever; matrix products of the model itself may be rounded."""
    encoding, positions = subject.make(torch.float32), far(subject)
    x = draw(2, positions.length, subject.width, dtype=torch.float32)
    wanted = attend(subject, encoding, x, positions)
    with torch.autocast("cpu", torch.bfloat16):
        ours = attend(subject, encoding, x, positions)
        if subject.place == "absolute":
            added = encoding(x, positions)
        elif subject.place in INSIDE:
            term = encoding.term(positions)
    assert ours.dtype == torch.float32
    assert (ours - wanted).norm() < 2e-2 * wanted.norm()
    if subject.place == "absolute":
        equal(added, encoding(x, positions), 1e-6)
    elif subject.place in INSIDE:
        for tensor, exact in zip(term.tensors(), encoding.term(positions).tensors(), strict=True):
            equal(tensor, exact, 1e-6)
            assert tensor.dtype == torch.float32


DECADES = [(10**power, 10 ** (power + 1)) for power in range(3, 7)]
EPS = torch.finfo(torch.float32).eps


def anywhere(subject: Subject) -> bool:
    """Whether it computes with positions, and they may be anything."""
    exact = subject.arguments.get("precision", "exact") == "exact"
    return exact and not (subject.place == "absolute" and subject.bounded)


@law("long positions are exact", ("absolute", *INSIDE), anywhere)
def long_positions_are_exact(subject: Subject) -> None:
    """At offsets from 1e3 to 1e7, every decade: as exact in float32, and no worse in bfloat16, than at the origin."""
    encoding, near = subject.make(torch.float32), subject.layout()
    truth = subject.make().to(torch.float64)
    truth.load_state_dict(encoding.state_dict())
    for low, high in DECADES:
        positions = shifted(near, [random.randint(low, high) for _ in range(subject.axes)])
        if subject.place == "absolute":
            zero = torch.zeros(1, near.length, subject.width)
            wanted = truth(zero.double(), positions)
            equal(encoding(zero, positions).double(), wanted, 1e-7 if not list(encoding.parameters()) else 8 * EPS)
            continue
        if subject.place == "rotary":
            cosines_are_exact(encoding, truth, positions)
        logits_are_exact(subject, encoding, truth, near, positions)


def cosines_are_exact(encoding: posenc.Encoding, truth: posenc.Encoding, positions: posenc.Positions) -> None:
    """Cosines and sines in float32 within 1e-7 of those of angles in 80-bit floats."""
    length = (positions.coordinates().amax() + 1).reshape(1, 1) if truth.by_length else None
    frequencies = truth.frequencies(length).detach()
    frequencies = frequencies.flatten(0, -3) if frequencies.ndim > 2 else frequencies[None]  # [heads, axes, pairs]
    exact = (
        np.asarray(frequencies, np.longdouble)[:, None] * np.asarray(positions.coordinates(), np.longdouble)[..., None]
    )
    angles = exact.sum(-2)  # [heads, tokens, pairs]
    factor = truth.attention_factor
    ours = encoding.cos_sin(positions, dtype=torch.float32)
    for tensor, function in zip(ours, (np.cos, np.sin), strict=True):
        error = np.abs(tensor[0].detach().numpy() - factor * function(angles)).max()
        assert error <= 1e-7 * max(1.0, factor), f"a cosine is {error:.1e} off"


def logits_are_exact(
    subject: Subject, encoding: posenc.Encoding, truth: posenc.Encoding, near: posenc.Positions, far: posenc.Positions
) -> None:
    """A shift leaves the logits as they are: within 4 eps |q| |k| in float32, and in bfloat16 as exact as before.

    Those of a scheme that depends on more than relative position are as exact as float32 allows where they are.
    """
    q, k = (draw(32, subject.heads, near.length, subject.head_dim, dtype=torch.bfloat16) for _ in range(2))
    norms = q.double().norm(dim=-1)[..., :, None] * k.double().norm(dim=-1)[..., None, :]
    allowed = torch.ones(near.length, near.length, dtype=torch.bool)
    allowed = allowed.tril() if subject.causal else allowed
    shifts = subject.card.relative and not subject.by_length
    turned = subject.place == "rotary"  # of turned q and k the float64 product at the origin is known
    known = truth if turned or not shifts else encoding
    norms = norms * max(1.0, getattr(truth, "attention_factor", 1.0)) ** 2

    def error(positions: posenc.Positions, dtype: torch.dtype) -> Tensor:
        wide = torch.float64 if known is truth else torch.float32
        term = known.term(near if shifts else positions, dtype=wide)
        wanted = logits(term, q.to(wide), k.to(wide), allowed).detach().double()
        ours = logits(encoding.term(positions), q.to(dtype), k.to(dtype), allowed).detach()
        scale = norms if turned else norms + wanted.abs().nan_to_num(posinf=0.0).amax(-1, keepdim=True)
        return ((ours - wanted).abs() / scale)[(wanted.isfinite() & allowed).expand_as(wanted)]

    worst, most = error(far, torch.float32).max(), 4 if turned or shifts else 16
    assert worst <= most * EPS, f"a logit is {worst / EPS:.1f} eps |q| |k| off"
    here, there = (error(positions, torch.bfloat16).square().mean().sqrt() for positions in (near, far))
    assert there <= 2 * here + EPS, f"in bfloat16 {there / here:.1f} times the error at the origin"
