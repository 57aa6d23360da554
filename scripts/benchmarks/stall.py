"""How long a checkpoint keeps the training waiting, beside other ways to keep the same state in the same run."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from .figures import Figure, Options, compared
from .record import checkpoints
from .runs import PROGRAMS, bench, say

PAIRS = 15  # checkpoints
TIMES = 1.5  # a warm copy: the most that a checkpoint may take besides the walk
WALK = 30.0  # ms for 20,000 objects
OTHERS = {
    "torch_save": "torch.save",
    "async_save": "DCP async_save, kept stager",
    "thread": "a thread that clones and saves",
}


def measure(options: Options) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        return [each for part in options.wanted(NAMES) for each in NAMES[part](Path(name), options)]


def _beside_others(folder: Path, options: Options) -> list[Figure]:
    say("ways")
    place = bench(folder, "stall.py", options.threads)
    shutil.copy(PROGRAMS / "ways.py", place.folder)
    rounds, width = (3, 20) if options.quick else (options.pairs + 2, 1800)
    files = folder / "files"
    ran = place.recorded(
        "stall.py", str(rounds), str(width), str(files), FLOR_EPSILON="inf", FLOR_EXCLUDE="ways"
    )
    # The first round of each fills what is used again: the staging memory, the buffers, the stager.
    took = {way: tuple(seconds[1:]) for way, seconds in json.loads((files / "took.json").read_text()).items()}
    copy = took["warm_copy"][: len(took["florhook"])]
    walk = ran.stats["stall"]["walk"] / ran.stats["walks"]
    besides = tuple(seconds - walk for seconds in took["florhook"])
    kept, possible = checkpoints(place.home)
    return [
        Figure(f"boundaries without a checkpoint, of {possible}", (possible - kept,), "", 0),
        compared("florhook without the walk, beside a warm copy", copy, besides, TIMES),
        Figure("florhook", _ms(took["florhook"]), "ms"),
        Figure("of which the walk", (1000 * walk,), "ms"),
        Figure("a warm copy of the same bytes", _ms(took["warm_copy"]), "ms"),
        *(Figure(title, _ms(took[way]), "ms") for way, title in OTHERS.items()),
    ]


def _walk(folder: Path, options: Options) -> list[Figure]:
    say("walk")
    place = bench(folder, "graph.py", options.threads)
    objects = 100 if options.quick else 20_000
    runs = [
        place.recorded("graph.py", "5", str(objects), FLOR_EPSILON="inf")
        for _ in range(max(1, options.pairs // 3))
    ]
    walks = tuple(run.stats["stall"]["walk"] / run.stats["walks"] for run in runs)
    return [Figure(f"the walk of {objects:,} objects", _ms(walks), "ms", WALK)]


def _ms(seconds: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(1000 * each for each in seconds)


NAMES = {"ways": _beside_others, "walk": _walk}
