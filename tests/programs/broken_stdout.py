import os
import sys

reader, writer = os.pipe()
os.dup2(writer, 1)
os.close(reader)
os.close(writer)
print("lost")
if sys.argv[1:]:
    raise ValueError("lost too")
