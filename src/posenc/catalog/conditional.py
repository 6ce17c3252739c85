"""The cards of the conditional place."""

from posenc.catalog.card import Card

CARDS = (
    Card(
        name="ConditionalEncoding",
        place="conditional",
        title="Conditional position encoding (PEG)",
        year=2021,
        paper="Conditional Positional Encodings for Vision Transformers (CPVT), arXiv:2102.10882",
        equation="x_i + c + Σ_m w_m ⊙ x_(i+m), a depth-wise convolution over the grid, zero outside it",
        axes="any",
        trained=True,
        parameters="dim · (kernel_size^axes + 1)",
        numbers=lambda a: a["dim"] * (a.get("kernel_size", 3) ** a.get("axes", 2) + 1),
        relative=False,
        reference="conditional_encoding",
        sizes=("dim", "axes"),
        examples=(
            {"dim": 24, "axes": 2},
            {"dim": 23, "kernel_size": 5, "axes": 2},
            {"dim": 24, "axes": 1},
            {"dim": 24, "axes": 1, "causal": True},
            {"dim": 23, "kernel_size": 5, "axes": 1, "causal": True},
            {"dim": 24, "axes": 3},
        ),
        peers=("timm.models.twins.PosConv", "timm.models.coat.ConvPosEnc", "timm.models.davit.ConvPosEnc"),
    ),
)
