"""What must hold of every encoding: one table of laws, each a function of a subject that raises AssertionError.

A subject is an encoding's class with arguments to make it. Every law draws fresh random inputs, odd sizes and
non-square grids. `test_laws.py` runs every law on every example of every card, on layouts that Hypothesis draws, and on
a broken encoding that it must find out. A law goes into the module of its theme: `values` (what is computed), `state`
(what is held), `precision` (how exactly), `graphs` (compiled and exported).
"""

from laws import graphs, precision, state, values
from laws.subject import LAWS, Law, Subject

__all__ = ["LAWS", "Law", "Subject", "graphs", "precision", "state", "values"]
