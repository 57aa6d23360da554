import atexit
import sys


class Noisy:
    def __del__(self):
        sys.stdout.write("del\n")


def show(text):
    names = sorted(name for name in globals() if name.startswith("__") and name != "__flor__")
    print(text, names, sys.modules["__main__"].Noisy is Noisy)


def fail():
    raise ValueError("in atexit")


noisy = Noisy()
atexit.register(show, "first")
atexit.register(fail)
atexit.register(show, "second")
if sys.argv[1:] == ["exit"]:
    sys.exit(4)
if sys.argv[1:] == ["raise"]:
    raise ValueError("ends")
