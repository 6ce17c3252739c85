"""The command line: each command checks its options, then makes one call.

One module a command. torch, NumPy, matplotlib and rich are imported inside the commands that need them, so that
`posenc list` and `--help` are about as quick as importing typer. Bad input ends in one message on stderr and exit code
2, before anything is written; a missing package in the command that installs it and exit code 1.
"""

from posenc.cli.app import main  # first, as it answers for a missing typer

# isort: split
from posenc.cli import bench, compare, listing, show

__all__ = ["bench", "compare", "listing", "main", "show"]
