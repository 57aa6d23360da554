import atexit
import os
import signal
import sys
import time


class Last:
    def __del__(self):
        sys.stdout.write("finalised\n")


last = Last()
atexit.register(print, "atexit")
print("before")
os.kill(os.getpid(), signal.SIGINT)
time.sleep(5)
