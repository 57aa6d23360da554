"""What the store holds, beside one torch.save an epoch: all epochs of a fine-tuning with 90 % of the weights frozen."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .figures import Figure, Options
from .record import checkpoints
from .runs import bench, size

PAIRS = 5  # of no meaning here: bytes are the same each time
SHARE = 0.2
NAMES = {"finetune": "finetune.py"}


def measure(options: Options) -> list[Figure]:
    epochs, width = (3, 50) if options.quick else (20, 1000)
    with tempfile.TemporaryDirectory() as name:
        place = bench(Path(name), NAMES["finetune"], options.threads)
        place.plain(NAMES["finetune"], str(epochs), str(width), "1")
        saved = sum(path.stat().st_size for path in place.folder.glob("*.pt"))
        place.recorded(NAMES["finetune"], str(epochs), str(width), "0", FLOR_EPSILON="inf")
        kept, possible = checkpoints(place.home)
        stored = size(place.home)
    return [
        Figure("store, beside one torch.save an epoch", (stored / saved,), "times", SHARE),
        Figure("store", (stored / 2**20,), "MiB"),
        Figure("one torch.save an epoch", (saved / 2**20,), "MiB"),
        Figure(f"epochs without a checkpoint, of {possible}", (possible - kept,), "epochs", 0),
    ]
