import sys

sys.excepthook = lambda *args: sys.exit(7)
raise ValueError("first")
