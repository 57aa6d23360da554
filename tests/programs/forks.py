import os
import sys

sys.stdout.flush()
child = os.fork()
if child == 0:
    print("child")
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
