"""`python -m spade_actors` is the `spade-actors` command."""

from spade_actors.cli import main

main()
