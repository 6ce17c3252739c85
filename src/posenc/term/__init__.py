"""What an encoding is once its positions are known: the numbers that attention needs, and nothing of the scheme.

A `Rotation` turns queries and keys, a `Bias` adds numbers to the logits, a `Content` adds inner products with queries
and keys (and may add vectors to the values). Tensors have explicit batch and head axes, of size 1 where shared.
"""

from posenc.term.base import Term
from posenc.term.bias import Bias
from posenc.term.content import Content, Part
from posenc.term.rotation import Decay, Rotation, repeated

__all__ = ["Bias", "Content", "Decay", "Part", "Rotation", "Term", "repeated"]
