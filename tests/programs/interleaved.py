import os
import sys

os.dup2(1, 2)
print("out 1")
sys.stderr.write("err 1\n")
print("out 2")
raise ValueError("last")
