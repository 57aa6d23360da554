import sys

print("init", sys.argv, __name__, flush=True)
