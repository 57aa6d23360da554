"""Objects held by the frames of an exit die at the same moment as with plain python."""
import atexit
import sys


class Noisy:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        sys.stdout.write(f"del {self.name}\n")


def leave(how):
    local = Noisy("local")
    if how == "exit":
        sys.exit(2)
    raise ValueError(local.name)


kept = Noisy("global")
atexit.register(print, "atexit")
leave(sys.argv[1])
