"""What goes wrong in a comparison because of what it was given."""

import difflib
from collections.abc import Iterable

__all__ = ["BadInput", "WorkerLost", "near"]


class BadInput(ValueError):
    """Settings or data that cannot be compared. Raised before anything is trained or written; the CLI exits with 2."""


class WorkerLost(RuntimeError):
    """A process that ran trials ended by itself. What was finished is kept."""


def near(kind: str, name: str, known: Iterable[str]) -> BadInput:
    """The error for a name that is not known, with the nearest names that are.

    >>> str(near("encoding", "rotory", ["rotary", "alibi"]))
    'unknown encoding "rotory": did you mean rotary? Known: alibi, rotary'
    """
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    guess = f": did you mean {' or '.join(close)}? Known" if close else ". Known"
    return BadInput(f'unknown {kind} "{name}"{guess}: {", ".join(names)}')
