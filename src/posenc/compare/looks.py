"""The colours of the report: those of Okabe and Ito, told apart by colour-blind readers."""

__all__ = ["BLUE", "GREEN", "GREY", "INK", "OLIVE", "ORANGE", "PURPLE", "SKY", "VERMILION"]

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
OLIVE, GREY = "#9A8F00", "#8a8a8a"
INK = "#010203"  # the colour of the page's text, put in its place when a picture is written
