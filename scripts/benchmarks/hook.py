"""What the hook costs a program that is being recorded: start-up, loops, calls, a large project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .figures import Figure, Options, alternate, compared

PAIRS = 9
MODULES, LINES = 40, 500  # of the large project
TIMED = """
import time

{body}

best = float("inf")
for attempt in range(5):
    began = time.perf_counter()
    run()
    best = min(best, time.perf_counter() - began)
print(best)
"""
EMPTY = "def empty():\n    pass\n\n\n"
LOOPS = {  # name: (body, at most so many times plain)
    "for, a body of one addition": (
        "def run():\n    x = 0\n    for i in range(3_000_000):\n        x += 1\n",
        1.1,
    ),
    "for, calls an empty function": (
        f"{EMPTY}def run():\n    for i in range(1_500_000):\n        empty()\n",
        1.3,
    ),
    "for, a body of 2 microseconds": (
        "data = list(range(180))\n\n\ndef run():\n    for i in range(150_000):\n        sum(data)\n",
        1.03,
    ),
    "while, a body of one addition": (
        "def run():\n    x = 0\n    while x < 3_000_000:\n        x += 1\n",
        1.1,
    ),
    "while, a body of 2 microseconds": (
        (
            "data = list(range(180))\n\n\ndef run():\n"
            "    i = 0\n    while i < 150_000:\n        sum(data)\n        i += 1\n"
        ),
        1.03,
    ),
    "calls: naive Fibonacci": (
        "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n\n\ndef run():\n    fib(26)\n",
        1.15,
    ),
}


def measure(options: Options) -> list[Figure]:
    """All figures, `pairs` alternating runs each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [each for part in options.wanted(NAMES) for each in NAMES[part](folder, options.pairs)]


def environ() -> dict[str, str]:
    """As a user has it: nothing that steers Python (to leave bytecode unwritten, say), nor florhook."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FLOR"))}


def _start_up(folder: Path, pairs: int) -> list[Figure]:
    (folder / "nothing.py").write_text("")
    plain = _timed(folder, "nothing.py")
    whole = alternate(plain, _timed(folder, "-m", "florhook", "nothing.py"), pairs)
    imported = alternate(_timed(folder, "-c", "pass"), _timed(folder, "-c", "import florhook.record"), pairs)
    return [
        compared("start-up", *whole, 120, "ms more"),
        compared("of which import of florhook", *imported, 60, "ms more"),
    ]


def _timed(folder: Path, *arguments: str) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments], cwd=folder, check=True, stdin=subprocess.DEVNULL, env=environ()
        )
        return time.perf_counter() - began

    return run


def _loops(folder: Path, pairs: int) -> list[Figure]:
    figures = []
    for name, (body, limit) in LOOPS.items():
        (folder / "loops.py").write_text(TIMED.format(body=body))
        found = alternate(_told(folder, "loops.py"), _told(folder, "-m", "florhook", "loops.py"), pairs)
        figures.append(compared(name, *found, limit))
    return figures


def _told(folder: Path, *arguments: str) -> Callable[[], float]:
    """The seconds that the program measured itself."""

    def run() -> float:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
            env=environ(),
        )
        return float(done.stdout)

    return run


def _project(folder: Path, pairs: int) -> list[Figure]:
    """A program that imports 20,000 lines; plain python compiles them anew too, as after an edit."""
    package = folder / "project"
    package.mkdir()
    for number in range(MODULES):
        (package / f"part{number}.py").write_text(_module(number))
    imports = "".join(f"import project.part{number}\n" for number in range(MODULES))
    (folder / "large.py").write_text(
        "import sys\nsys.dont_write_bytecode = True\nimport time\n"
        f"began = time.perf_counter()\n{imports}print(time.perf_counter() - began)\n"
    )
    plain, hooked = _told(folder, "large.py"), _told(folder, "-m", "florhook", "large.py")

    def anew() -> float:
        shutil.rmtree(folder / ".florhook" / "rewritten", ignore_errors=True)
        return hooked()

    what = f"import of {MODULES * LINES} lines"
    first = alternate(plain, anew, pairs)
    return [
        compared(f"{what}, rewritten", *first, 300, "ms more"),
        compared(f"{what}, kept", *alternate(plain, hooked, pairs), 300, "ms more"),
    ]


def _module(number: int) -> str:
    """Some functions and classes with loops, `LINES` lines in all."""
    part = '''

class Model{k}:
    """A model."""

    def __init__(self, size, rate=0.1):
        self.size, self.rate = size, rate
        self.weights = [0.0] * size
        self.history = {{"loss": [], "step": []}}

    def forward(self, batch):
        total = 0.0
        for index, value in enumerate(batch):
            if value is None:
                continue
            total += self.weights[index % self.size] * value
        return total / max(1, len(batch))

    def fit(self, batches, epochs):
        for epoch in range(epochs):
            for batch in batches:
                loss = self.forward(batch)
                self.history["loss"].append(loss)
                self.weights = [weight - self.rate * loss for weight in self.weights]
        return self
'''
    text, k = f'"""Part {number}."""\n', 0
    while text.count("\n") < LINES - part.count("\n"):
        text += part.format(k=k)
        k += 1
    return text + "# the end\n" * (LINES - text.count("\n"))


NAMES = {"start": _start_up, "loops": _loops, "project": _project}
