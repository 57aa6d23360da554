import atexit
import sys
import threading
import time


def work(name, delay):
    time.sleep(delay)
    print(name, "done")
    if name == "exits":
        sys.exit(9)
    if name == "fails":
        raise ValueError("in a thread")


atexit.register(print, "atexit")
for number, name in enumerate(["exits", "fails", "last"]):
    threading.Thread(target=work, args=(name, 0.1 + number / 20), name=name).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("main done", threading.current_thread() is threading.main_thread())
