"""`florhook export`: what other tools read back; packages that are missing."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Flor
from telling import HINDSIGHT, SIMPLE, record, replay

BLOCK = 32768  # bytes, of LevelDB's log format
TRUE_STEPS = {
    "loss": [(0, 0.25), (1, 1.25), (2, 0.5), (3, 1.5)],
    "grad norm": [(0, 10.0), (1, 11.0), (2, 20.0), (3, 21.0)],
    "val acc": [(0, 100.0), (1, 50.0)],
}


def read_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (run,) = folder.iterdir()
    events = module.EventAccumulator(str(run))
    events.Reload()
    return {
        tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def read_mlflow(folder: Path) -> dict[str, list[tuple[int, float]]]:
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("florhook").experiment_id])
    return {
        name: sorted((each.step, each.value) for each in client.get_metric_history(run.info.run_id, name))
        for name in run.data.metrics
    }


def read_wandb(folder: Path) -> dict[str, list[tuple[int, float]]]:
    protocol = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    found: dict[str, list[tuple[int, float]]] = {}
    for data in records_of(path.read_bytes()):
        row = protocol.Record()
        row.ParseFromString(data)
        items = {
            item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in row.history.item
        }
        for name in items.keys() - {"global_step"}:
            if not name.startswith("_"):
                found.setdefault(name, []).append((items["global_step"], items[name]))
    return found


def records_of(log: bytes) -> Iterator[bytes]:
    """The records of a log in the format of LevelDB, with 7 bytes of W&B's before it."""
    at, record = 7, b""
    while at + 7 <= len(log):
        _, size, kind = struct.unpack_from("<IHB", log, at)
        record += log[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield record
            record = b""
        if BLOCK - at % BLOCK < 7:  # no header fits in the rest of a block
            at += BLOCK - at % BLOCK


@pytest.mark.parametrize(
    ("tool", "read"), [("tensorboard", read_tensorboard), ("mlflow", read_mlflow), ("wandb", read_wandb)]
)
@pytest.mark.filterwarnings("ignore")
def test_exports_have_true_steps(
    tool: str, read: Callable[[Path], dict[str, list[tuple[int, float]]]], flor: Flor
) -> None:
    """The innermost loop's count over the whole run, read back from what the tool itself wrote."""
    pytest.importorskip(tool)
    record(flor, SIMPLE)
    replay(flor, HINDSIGHT)
    done = flor("export", "loss", "grad norm", "val acc", f"--{tool}", "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("10 values in out\n")
    assert read(flor.folder / "out") == TRUE_STEPS


def test_curves_of_several_loops(flor: Flor) -> None:
    """A name that is printed in two loops makes two curves, whose steps are those of each."""
    pytest.importorskip("tensorboard")
    record(flor, SIMPLE.replace("val acc {100 / epoch}%", "loss {epoch}"))
    for _ in range(2):  # the second one replaces the first
        assert flor("export", "loss", "--tensorboard", "out").returncode == 0
    assert read_tensorboard(flor.folder / "out") == {
        "loss (step)": TRUE_STEPS["loss"],
        "loss (epoch)": [(0, 1.0), (1, 2.0)],
    }


@pytest.mark.parametrize(
    ("module", "words", "extra"),
    [
        ("pandas", ["-c", "import florhook; florhook.dataframe()"], "pandas"),
        ("pyarrow", ["-m", "florhook", "logs", "--parquet", "x"], "parquet"),
        ("tensorboard", ["-m", "florhook", "export", "--tensorboard", "x"], "tensorboard"),
        ("mlflow", ["-m", "florhook", "export", "--mlflow", "x"], "mlflow"),
        ("wandb", ["-m", "florhook", "export", "--wandb", "x"], "wandb"),
    ],
)
def test_a_package_that_is_missing(
    module: str, words: list[str], extra: str, flor: Flor, tmp_path: Path
) -> None:
    """Named in one line, with the extra that brings it."""
    record(flor, SIMPLE)
    (tmp_path / f"{module}.py").write_text(f"raise ImportError('No module named {module}')\n")
    path = os.pathsep.join([str(tmp_path), flor.environ()["PYTHONPATH"]])
    done = flor.python(*words, PYTHONPATH=path)
    line = done.stderr.splitlines()[-1]
    assert done.returncode == (1 if words[0] == "-c" else 2)
    assert f"this needs {module}: pip install 'florhook[{extra}]'" in line
