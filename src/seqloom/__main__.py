"""python -m seqloom, as torchrun wants it."""

from seqloom.cli import main

main()
