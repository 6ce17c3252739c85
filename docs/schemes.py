"""Write docs/schemes.md from the cards of the catalog: `python docs/schemes.py`. A test holds the page to them."""

from pathlib import Path

from posenc import catalog

PAGE = Path(__file__).with_name("schemes.md")

INTRODUCTION = """# The schemes

Every scheme of the library, by the place where it enters a transformer. Written by `docs/schemes.py` from the cards that
`posenc list` prints, `posenc list NAME` says the same of one, and `posenc show NAME` draws it.

In the equations i is the position of a query and j that of a key; Δ = i − j on an axis of a grid. *Relative* means that
the effect depends on i − j alone. *Parameters* counts what is trained or drawn. A scheme is checked against the code of
others that is named; where none is packaged, against a second loop, written differently from the first. The first one,
in float64 NumPy, is `posenc.reference`.
"""

PLACES = {
    "absolute": "A vector of the position is added to the embeddings: x_i + p(i).",
    "rotary": "Pairs of channels of queries and keys turn by position · frequency: R(i) q_i · R(j) k_j.",
    "bias": "A number of the relative position is added to the logits of a head: s_ij + b_h(i − j).",
    "content": "A vector of the relative position meets the query, or the key, or joins the values: s_ij + q_i · r(i − j).",
    "conditional": "A vector of a token's neighbourhood is added to the embeddings: x + f(x around i).",
}


def page() -> str:
    """The text of the page."""
    parts = [INTRODUCTION]
    for place, equation in PLACES.items():
        cards = [card for card in catalog.CARDS if card.place == place]
        rows = ["| scheme | year | axes | trained | relative |", "|---|---|---|---|---|"]
        rows += [
            f"| [`{card.name}`](#{card.name.lower()}) | {card.year} | {card.axes} | {_word(card.trained)} | "
            f"{_word(card.relative)} |"
            for card in cards
        ]
        parts += [f"## {place.capitalize()}\n\n{equation}\n", "\n".join(rows) + "\n", *map(_scheme, cards)]
    return "\n".join(parts)


def _scheme(card: catalog.Card) -> str:
    said = [
        f"`{card.equation}`" if "`" not in card.equation else card.equation,
        f"Paper: {card.paper}.",
        f"Parameters: {card.parameters}.",
    ]
    if card.causal:
        said.append("Attention must be causal.")
    said += [f"Law that does not apply: {law}, because {why}." for law, why in card.exempt.items()]
    said.append(
        "Checked against " + ", ".join(f"`{peer}`" for peer in card.peers) + "."
        if card.peers
        else f"No packaged peer; checked against a second loop, `{card.second}`."
    )
    return f"### {card.name}\n\n{card.title}.\n\n" + "\n".join(f"- {line}" for line in said) + "\n"


def _word(value: bool) -> str:
    return "yes" if value else "no"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
