"""The cards are complete, true of the code, and readable without torch."""

import inspect
import re
import subprocess
import sys

import pytest
import torch

import posenc
from posenc import catalog, reference

CARDS = pytest.mark.parametrize("card", catalog.CARDS, ids=[card.name for card in catalog.CARDS])
EXAMPLES = pytest.mark.parametrize(
    ("card", "arguments"),
    [(card, arguments) for card in catalog.CARDS for arguments in card.examples],
    ids=[f"{card.name}-{number}" for card in catalog.CARDS for number, _ in enumerate(card.examples)],
)

PUBLIC_BASES = {
    "absolute": posenc.Absolute,
    "rotary": posenc.RotaryEncoding,
    "bias": posenc.BiasEncoding,
    "content": posenc.ContentEncoding,
    "conditional": posenc.Conditional,
}


def axes_of(card: catalog.Card, arguments: dict) -> int:
    if card.axes.isdigit():
        return int(card.axes)
    return len(arguments["shape"]) if "shape" in arguments else arguments.get("axes", 1)


def test_every_public_scheme_has_one_card_and_every_card_a_scheme():
    public = {
        name
        for name in posenc.__all__
        if inspect.isclass(value := getattr(posenc, name))
        and issubclass(value, tuple(PUBLIC_BASES.values()))
        and value not in PUBLIC_BASES.values()
    }
    assert sorted(card.name for card in catalog.CARDS) == sorted(public)


@CARDS
def test_card_is_complete(card):
    assert card.place in catalog.PLACES
    assert issubclass(getattr(posenc, card.name), PUBLIC_BASES[card.place])
    assert all(text == text.strip() != "" for text in (card.title, card.paper, card.equation, card.parameters))
    assert 2017 <= card.year <= 2026
    assert "arXiv:" in card.paper
    assert card.axes.isdigit() or card.axes == "any"
    assert not (card.relative and card.place in ("absolute", "conditional"))
    assert len(card.examples) >= 3
    assert all("." in peer and peer.replace(".", "").replace("_", "").isalnum() for peer in card.peers)
    assert all(reason.strip() for reason in card.exempt.values())


@CARDS
def test_year_is_that_of_the_first_paper(card):
    numbers = [part.split(":")[1][:2] for part in card.paper.split() if part.startswith("arXiv:")]
    assert str(card.year)[2:] == numbers[0]


@CARDS
def test_card_says_whether_the_defaults_are_trained(card):
    encoding = getattr(posenc, card.name)(**card.examples[0])
    assert card.trained == any(parameter.requires_grad for parameter in encoding.parameters())
    assert (card.parameters == "0") == (not card.trained and "learnable" not in card.parameters)


@CARDS
def test_examples_differ_and_cover_the_axes(card):
    assert len({repr(sorted(arguments.items())) for arguments in card.examples}) == len(card.examples)
    axes = {axes_of(card, arguments) for arguments in card.examples}
    assert axes == ({int(card.axes)} if card.axes.isdigit() else {1, 2, 3})


@CARDS
def test_examples_and_sizes_are_constructor_arguments(card):
    accepted = inspect.signature(getattr(posenc, card.name)).parameters
    assert set(card.sizes) <= set(accepted)
    for arguments in card.examples:
        assert set(arguments) <= set(accepted)


@EXAMPLES
def test_example_constructs(card, arguments):
    encoding = getattr(posenc, card.name)(**arguments)
    assert isinstance(encoding, posenc.Encoding)
    assert encoding.axes == axes_of(card, arguments)


@CARDS
def test_reference_exists_and_takes_every_constructor_argument(card):
    accepted = inspect.signature(getattr(reference, card.reference)).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        return
    wanted = {name for arguments in card.examples for name in arguments}
    assert wanted <= set(accepted)


@pytest.mark.parametrize("shape", [(9,), (3, 5), (2, 3, 4)])
@CARDS
def test_arguments_fit_a_model(card, shape):
    if card.axes.isdigit() and len(shape) != int(card.axes):
        with pytest.raises(
            ValueError, match=f"{card.name} has (one axis|. axes), got shape .*: give it (one length|. sizes)"
        ):
            catalog.arguments(card.name, shape=shape)
        return
    arguments = catalog.arguments(card.name, shape=shape, dim=24, num_heads=3, head_dim=12, max_distance=2)
    encoding = getattr(posenc, card.name)(**arguments)
    positions = posenc.sequence(*shape) if len(shape) == 1 else posenc.grid(*shape)
    if card.place in ("absolute", "conditional"):
        x = torch.randn(2, positions.length, 24)
        assert encoding(x, positions).shape == x.shape
    else:
        q = torch.randn(2, 3, positions.length, 12)
        assert posenc.attention(q, q, q, encoding, positions=positions, causal=card.causal).shape == q.shape


@pytest.mark.parametrize("name", ["RelativePositionBias", "relative-position-bias", "RELATIVE_POSITION_BIAS"])
def test_names_are_found_however_they_are_written(name):
    assert catalog.card(name).name == "RelativePositionBias"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Rotery", "Rotary"),
        ("rope", "Rotary or MixedRotary or MultimodalRotary"),
        ("swin", "RelativePositionBias or ContinuousPositionBias"),
        ("t5", "T5Bias"),
        ("Sinusoid", "Sinusoidal or SinusoidalLogits"),
    ],
)
def test_unknown_name_is_answered_with_near_names(name, near):
    message = f"unknown scheme {name!r}: did you mean {near}? `posenc list` shows them all"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        catalog.card(name)


def test_a_name_near_to_nothing_gets_no_guess():
    with pytest.raises(ValueError, match=r"^unknown scheme 'zzzz': `posenc list` shows them all$"):
        catalog.card("zzzz")


def test_cards_are_immutable():
    with pytest.raises(AttributeError):
        catalog.CARDS[0].name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        catalog.CARDS[0].exempt["law"] = "because"  # type: ignore[index]


def test_catalog_needs_the_standard_library_alone():
    program = (
        "import sys; before = set(sys.modules); from posenc import catalog; assert len(catalog.CARDS) > 10;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new - set(sys.stdlib_module_names)))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "['posenc']"
