"""Processes that the program starts itself: recorded plainly, replayed in full, with their hindsight shown."""

from __future__ import annotations

import json

import pytest
from conftest import Flor

MAIN = """
import multiprocessing as mp
import sys
import time

from helper import halve


class Box:
    def __init__(self, value):
        self.value = value


def square(box):
    result = Box(box.value ** 2)
    return result


def work(number):
    total = 0
    for step in range(3):
        total += halve(step * number)
    with open(f"out{number}.txt", "w") as file:
        file.write(str(total))


def main(method):
    for quiet in range(4):
        time.sleep(0.003)  # longer than a checkpoint may cost
    context = mp.get_context(method)
    for epoch in range(2):
        with context.Pool(1) as pool:
            boxes = pool.map(square, [Box(3), Box(epoch)])
        child = context.Process(target=work, args=(epoch,))
        child.start()
        child.join()
        total = float(open(f"out{epoch}.txt").read()) + sum(box.value for box in boxes)
        print("epoch", epoch, total)


if __name__ == "__main__":
    main(sys.argv[1])
"""
HELPER = """
def halve(value):
    half = value / 2
    return half
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_show_their_hindsight(method: str, flor: Flor) -> None:
    """Of the script and of modules, in every child; the loop that starts them is run, another one is not."""
    flor.write("main.py", MAIN)
    flor.write("helper.py", HELPER)
    plain = flor.python("main.py", method)
    done = flor("main.py", method, FLOR_EPSILON="inf")
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, "")
    probe = r"print(f'@@ {result.value} {box.value}\n', end='', flush=True)"
    flor.write("main.py", MAIN.replace("    return result", f"    {probe}\n    return result"))
    probe = r"print(f'@@ half {half}\n', end='', flush=True)"
    flor.write("helper.py", HELPER.replace("    return half", f"    {probe}\n    return half"))
    wanted = [line for line in flor.python("main.py", method).stdout.splitlines() if "@@" in line]
    files = {path.name: path.stat().st_mtime_ns for path in flor.folder.glob("out*")}
    stats = flor.home.parent / "stats.json"
    again = flor("main.py", method, FLOR_MODE="replay", FLOR_STATS=str(stats))
    assert sorted(again.stdout.splitlines()) == sorted(wanted)
    assert len(wanted) == 2 * (2 + 3)
    assert {path.name: path.stat().st_mtime_ns for path in flor.folder.glob("out*")} == files
    assert "processes that the program starts are not in the record" in again.stderr
    figures = json.loads(stats.read_text())
    assert (figures["unverified"], figures["diverged"], figures["iterations_skipped"]) == (1, 0, 4)


def test_workers_of_a_data_loader_are_no_children_of_that_sort(flor: Flor) -> None:
    """Their loops are skipped as ever."""
    pytest.importorskip("torch")
    source = """
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        loader = DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2, num_workers=1)
        total = 0.0
        for epoch in range(3):
            for (batch,) in loader:
                total += batch.sum().item()
            last = total
        print(total)
    """
    flor.write("main.py", source)
    assert flor("main.py", FLOR_EPSILON="inf").stdout == "45.0\n"
    flor.write(
        "main.py", source.replace("last = total", "last = total\n            print('@@', epoch, total)")
    )
    stats = flor.home.parent / "stats.json"
    again = flor("main.py", FLOR_MODE="replay", FLOR_STATS=str(stats))
    assert (again.stdout, again.stderr) == ("@@ 0 15.0\n@@ 1 30.0\n@@ 2 45.0\n", "")
    assert json.loads(stats.read_text())["iterations_skipped"] == 9


def test_workers_that_stay_run_what_a_probe_stands_in(flor: Flor) -> None:
    """They start in the first pass only, and a probe in what they run is asked for in all passes."""
    pytest.importorskip("torch")
    source = """
        import torch
        from torch.utils.data import DataLoader, Dataset


        class Squares(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                value = index * index
                return torch.tensor(value)


        loader = DataLoader(Squares(), 2, num_workers=1, persistent_workers=True)
        total = 0
        for epoch in range(3):
            for part in loader:
                total += int(part.sum())
        print(total)
    """
    flor.write("main.py", source)
    assert flor("main.py", FLOR_EPSILON="inf").stdout == "42\n"
    probe = "                print('@@', index, value, flush=True)\n                return torch"
    flor.write("main.py", source.replace("                return torch", probe))
    again = flor("main.py", FLOR_MODE="replay")
    assert again.stdout == "@@ 0 0\n@@ 1 1\n@@ 2 4\n@@ 3 9\n" * 3, again.stderr
