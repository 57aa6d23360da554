import sys
import traceback


def hook(kind, value, tb):
    print("hook", kind.__name__, value, len(traceback.extract_tb(tb)), sys.exc_info())
    print([frame.name for frame in traceback.extract_tb(tb)], sys.last_value is value, sys.last_traceback is tb)
    traceback.print_exception(kind, value, tb)


sys.excepthook = hook


def fail():
    raise ValueError("hooked")


fail()
