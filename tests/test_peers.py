"""The cards and the tests against peers name the same peers; see test_peers_<place>.py for the tests."""

from __future__ import annotations

import importlib

import pytest

from peers import CHECKED, LOOPED
from posenc import catalog

for place in catalog.PLACES:
    importlib.import_module(f"test_peers_{place}")


@pytest.mark.parametrize("card", catalog.CARDS, ids=lambda card: card.name)
def test_a_card_names_the_peers_that_its_scheme_is_checked_against(card: catalog.Card) -> None:
    assert set(card.peers) == CHECKED[card.name]
    assert card.second == LOOPED.get(card.name, "")
    assert bool(card.peers) != bool(card.second), "a scheme has peers, or a second loop in their place"


def test_peers_are_of_schemes_that_have_a_card() -> None:
    assert set(CHECKED) <= {card.name for card in catalog.CARDS}
