import sys


def hook(*args):
    raise TypeError("in the hook")


sys.excepthook = hook
raise ValueError("first")
