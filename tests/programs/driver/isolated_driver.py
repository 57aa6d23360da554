"""The driver for -I and -E: run as a script, it finds florhook by itself and gives `sys.path` back as `-m` has it."""

import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
source = os.path.join(here, "..", "..", "..", "src")
path0 = sys.path[:1] == [here]
sys.path[0:0] = [source, here]
try:
    import florhook.launch

    del sys.path[:2]
    if path0:
        sys.path[0] = os.getcwd()
    sys.path_importer_cache.pop(source), sys.path_importer_cache.pop(here)
finally:
    sys.path_hooks = list(sys.path_hooks)

with open(os.path.join(here, "launch_driver.py")) as file:
    exec(compile(file.read(), "launch_driver.py", "exec"))
