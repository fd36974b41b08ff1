"""`python3 -m spade_guest CONTROL_FD LIMIT...`: start the zygote."""

import sys

from .zygote import main

main(sys.argv[1:])
