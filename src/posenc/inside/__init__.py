"""The three places inside attention: turn queries and keys, add numbers to the logits, meet the query with vectors."""

from posenc.inside.bias import BiasEncoding
from posenc.inside.content import ContentEncoding
from posenc.inside.rotary import RotaryEncoding

__all__ = ["BiasEncoding", "ContentEncoding", "RotaryEncoding"]
