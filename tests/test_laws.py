"""Every law, on every example of every card; on layouts that Hypothesis draws; and on a broken encoding."""

import os
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import posenc
from laws import LAWS, Subject
from laws.broken import BROKEN
from laws.drawn import Drawn, answer, problems, schemes
from laws.subject import INSIDE
from posenc import catalog

SUBJECTS = [
    (f"{card.name}-{number}", Subject(card, arguments, getattr(posenc, card.name)))
    for card in catalog.CARDS
    for number, arguments in enumerate(card.examples)
]
# Compiling and exporting take seconds. They see the operations of a scheme and not its numbers, so they run on the
# first example of a card and on those whose graphs differ from all before: one axis or several, a prefix of its own, a
# scaling by length, another choice of words and switches (`Subject.graph`); not for another layout, size or base.
GRAPHS = [(subject.card.name, subject.graph) for _, subject in SUBJECTS]
CASES = [
    pytest.param(name, subject, id=f"{name}: {label}")
    for number, (label, subject) in enumerate(SUBJECTS)
    for name, law in LAWS.items()
    if law.concerns(subject)
    and name not in subject.card.exempt
    and not (law.slow and GRAPHS[number] in GRAPHS[:number])
]


@pytest.mark.parametrize(("name", "subject"), CASES)
def test_law(name: str, subject: Subject, seed: int) -> None:
    LAWS[name].check(subject)


@settings(max_examples=100 if os.environ.get("POSENC_CHECK_SHAPES") else 400)
@given(problems([subject for _, subject in SUBJECTS]))
def test_any_problem_is_answered_as_by_the_reference(drawn: Drawn) -> None:
    """Any scheme on any layout, with any masks, in any dtype: what float64 loops over pairs of tokens give."""
    ours, wanted, real = answer(drawn)
    assert ours.dtype == drawn.dtype
    off = np.abs(ours.detach().double().numpy() - wanted)[np.broadcast_to(real, wanted.shape[:-1])]
    far = np.nanmax(np.abs(np.concatenate(drawn.tokens.coordinates)), initial=1.0)
    fastest = 1e3 if drawn.subject.place in INSIDE else 1.0  # bands turn many times from one position to the next
    allowed = {
        torch.float64: 1e-12 * max(1.0, far / fastest),
        torch.float32: 200 * torch.finfo(torch.float32).eps,
        torch.bfloat16: 8 * torch.finfo(torch.bfloat16).eps,
        torch.float16: 8 * torch.finfo(torch.float16).eps,
    }[drawn.dtype]
    assert off.max(initial=0.0) <= allowed * np.abs(wanted).max(initial=1.0)


QUICK = [name for name, law in LAWS.items() if not law.slow]


@pytest.mark.parametrize("name", QUICK)
@settings(max_examples=20)
@given(data=st.data())
def test_law_on_drawn_tokens(name: str, data: st.DataObject) -> None:
    """The law on tokens of other shapes than the examples': long and short, with one cell on an axis, any seed."""
    law = LAWS[name]
    able = [subject for _, subject in SUBJECTS if law.concerns(subject) and name not in subject.card.exempt]
    subject = data.draw(schemes(able))
    sizes = (3, 20) if subject.axes == 1 else (2, 5) if name in NEEDS_NEIGHBOURS else (1, 5)
    tokens = st.tuples(*[st.integers(*sizes)] * subject.axes).filter(lambda shape: np.prod(shape) >= 3)
    subject, seed = subject.on(*data.draw(tokens)), data.draw(st.integers(0, 2**32 - 1))
    torch.manual_seed(seed)
    random.seed(seed)
    law.check(subject)


# Where a cell has no neighbour on an axis, the numbers of that axis change nothing.
NEEDS_NEIGHBOURS = ("gradients are right and reach every parameter", "axes are not mixed up")


def test_every_law_has_a_broken_encoding() -> None:
    assert {name for name, *_ in BROKEN} == LAWS.keys()


def test_cards_are_exempt_from_laws_that_there_are() -> None:
    for card in catalog.CARDS:
        assert card.exempt.keys() <= LAWS.keys(), card.name


@pytest.mark.parametrize(("name", "kind", "arguments"), BROKEN)
def test_law_finds_a_broken_encoding(
    name: str, kind: type[posenc.Encoding], arguments: dict[str, Any], seed: int
) -> None:
    scheme = kind.__mro__[1].__name__
    subject = Subject(catalog.card(scheme), arguments, kind)
    assert LAWS[name].concerns(subject)
    with pytest.raises(AssertionError):
        LAWS[name].check(subject)
