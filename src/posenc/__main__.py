"""`python -m posenc` is the command `posenc`."""

from posenc.cli import main

main()
