"""Files that a program writes in its loops and reads back: a replay that skips must find the recorded versions."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, Flor, run
from test_record_replay import probe, record, replay

from florhook.replay.files import FileHistory, Found, Version
from florhook.runtime.opened import content_digest
from florhook.store.rows import FileRow

STARTED, ENDED, NOW = 1000.0, 1100.0, 2e9


def at(seconds: float | None, path: str = "") -> Found | None:
    return None if seconds is None else Found(path, 3, int(seconds * 1e9))


@pytest.mark.parametrize(
    ("users", "overlays", "version"),
    [
        (None, None, Version.AS_IT_IS),
        (900.0, None, Version.AS_IT_IS),  # was there before the run
        (900.0, 0.0, Version.AS_IT_IS),
        (1200.0, None, Version.CHANGED_SINCE),
        (1015.0, None, Version.OF_THE_RUN),  # last written in the first part that was skipped
        (1015.0, 0.0, Version.OF_THE_RUN),  # the overlay's is from before that
        (1015.0, NOW, Version.AS_IT_IS),  # written by the replay after the last jump
        (1035.0, 1.0, Version.OF_THE_RUN),
        (1039.995, None, Version.UNKNOWN),  # in the last moment of the second part, or just after it?
        (1015.0, 1.0, Version.AS_IT_IS),  # the replay wrote it between the two
        (1005.0, 0.0, Version.AS_IT_IS),  # last written in a part that was executed
        (
            1009.995,
            0.0,
            Version.UNKNOWN,
        ),  # in its last moment, by the replay too, or in the first of the skipped?
        (1009.98, 0.0, Version.AS_IT_IS),
        (1029.995, 0.0, Version.UNKNOWN),  # just before or just in the second part?
        (1050.0, None, Version.UNKNOWN),  # written again later: the version of now is nowhere
        (1050.0, 0.0, Version.UNKNOWN),
    ],
)
def test_the_time_of_the_last_write_tells_the_version(
    users: float | None, overlays: float | None, version: Version
) -> None:
    """A run of 100 s of which the seconds 10 to 20 and 30 to 40 were skipped."""
    history = FileHistory(STARTED, ENDED)
    history.jumped(10.0, 20.0)
    history.jumped(30.0, 40.0)
    assert history.version(at(users), at(overlays)) is version


def test_without_a_jump_everything_is_as_it_is() -> None:
    """Nothing was skipped, so the replay has written what the run had written."""
    assert FileHistory(STARTED, ENDED).version(at(1030.0), at(NOW)) is Version.AS_IT_IS


def test_what_was_noted_at_the_place_tells_the_version(tmp_path: Path) -> None:
    """A file that is what it was at the checkpoint holds; else the overlay's, if that has the content of then."""
    users, overlays = tmp_path / "users", tmp_path / "overlays"
    users.write_bytes(b"new")
    overlays.write_bytes(b"old")
    os.utime(users, (1039.999, 1039.999))
    os.utime(overlays, (0, 0))
    new, old = content_digest(str(users), 3), content_digest(str(overlays), 3)
    changed = os.stat(users).st_mtime_ns
    for row, version in (
        (FileRow("log", "size", 40.0, 3, changed), Version.UNKNOWN),  # it may have been written again at once
        (FileRow("log", "size", 40.0, 3, changed - 10**9), Version.UNKNOWN),
        (FileRow("log", "gone", 40.0, -1, 0), Version.GONE),
    ):
        assert version_at_40([row], users, overlays) is version
    size = FileRow("log", "size", 40.0, 3, changed)
    assert (
        version_at_40([size, FileRow("log", "content", 40.0, 3, new)], users, overlays) is Version.OF_THE_RUN
    )
    assert version_at_40([size, FileRow("log", "content", 40.0, 3, old)], users, overlays) is Version.AS_IT_IS
    later = [FileRow("log", "size", 41.0, 3, changed), FileRow("log", "content", 41.0, 3, new)]
    assert (
        version_at_40([size, FileRow("log", "content", 40.0, 3, old), *later], users, overlays)
        is Version.AS_IT_IS
    )
    settled = FileRow("log", "size", 39.0, 3, int(1035e9))
    os.utime(users, (1035, 1035))
    assert version_at_40([settled], users, overlays) is Version.OF_THE_RUN


def version_at_40(rows: list[FileRow], users: Path, overlays: Path) -> Version:
    history = FileHistory(STARTED, ENDED, rows)
    history.jumped(10.0, 40.0)
    return history.version(Found.at(str(users)), Found.at(str(overlays)), history.known("log"))


BEST = """
    import time
    def save(epoch):
        with open("best.txt", "w") as file:
            file.write(str(epoch))
    def rare(epoch):
        pass
    for epoch in range(6):
        time.sleep(0.05)
        if epoch == 1:
            rare(epoch)
        if epoch in (1, 4):
            save(epoch)
    with open("best.txt") as file:
        best = file.read()
    print(best)
"""


def test_a_checkpoint_file_is_read_in_the_version_of_the_run(flor: Flor) -> None:
    """Epoch 1 is executed and writes its file; epoch 4, whose file is read at the end, is skipped."""
    flor.write("train.py", BEST)
    record(flor, "train.py")
    probe(flor, "train.py", "def rare(epoch):", "    print('@@', epoch)")
    probe(flor, "train.py", "best = file.read()", "print('@@', best)")
    output, stats = replay(flor, "train.py")
    assert output == "@@ 1\n@@ 4\n"
    assert stats["iterations_skipped"] > 0


def test_a_file_that_was_overwritten_later_is_not_read_in_the_wrong_version(flor: Flor) -> None:
    """What the second stage left is not what the first had read: the replay runs in full."""
    flor.write(
        "train.py",
        """
        import time
        for epoch in range(4):
            time.sleep(0.05)
            open("model.txt", "w").write(f"first {epoch}")
        kept = open("model.txt").read()
        print(kept)
        for epoch in range(4):
            time.sleep(0.05)
            open("model.txt", "w").write(f"second {epoch}")
        """,
    )
    record(flor, "train.py")
    probe(flor, "train.py", "kept = open", "print('@@', kept)")
    output, _ = replay(flor, "train.py")
    assert output == "@@ first 3\n"


def test_a_log_that_is_written_on_has_its_length(flor: Flor) -> None:
    """After a jump the open file holds what it held in the run, and its position is that of the run."""
    flor.write(
        "train.py",
        """
        import time
        log = open("log.txt", "w")
        for epoch in range(6):
            time.sleep(0.05)
            log.write(f"epoch {epoch}\\n")
        log.close()
        print(open("log.txt").read().count("epoch"))
        """,
    )
    record(flor, "train.py")
    probe(flor, "train.py", "log.write(", "print('@@', epoch, log.tell())")
    output, _ = replay(flor, "train.py", FLOR_SELECT="epoch=4:5")
    assert output == "@@ 4 40\n"
    output, _ = replay(flor, "train.py", FLOR_LOG="all", FLOR_SELECT="epoch=4:5")
    assert output.splitlines()[-1] == "6"


def test_a_data_file_that_was_changed_after_the_run_is_named(flor: Flor) -> None:
    """The replay reads what is there now, and says so."""
    flor.write("train.py", "for i in range(3):\n    total = open('data.txt').read()\n    print(total)\n")
    data = flor.write("data.txt", "1")
    record(flor, "train.py")
    data.write_text("2")
    os.utime(data, (time.time() + 60, time.time() + 60))
    probe(flor, "train.py", "print(total)", "print('@@', total)")
    done = flor("train.py", FLOR_MODE="replay")
    assert "data.txt was changed after the run" in done.stderr


def test_a_replay_begins_without_the_files_that_the_run_made(flor: Flor) -> None:
    """A program that resumes from its own checkpoint starts afresh, and a log that it appends to is empty."""
    flor.write(
        "train.py",
        """
        import os
        import time
        start = int(open("last.txt").read()) + 1 if os.path.exists("last.txt") else 0
        for epoch in range(start, 4):
            time.sleep(0.02)
            with open("log.txt", "a") as log:
                log.write(f"{epoch};")
            with open("last.txt", "w") as last:
                last.write(str(epoch))
            text = open("log.txt").read()
            print(epoch, text, sorted(name for name in os.listdir() if name.endswith("txt")))
        """,
    )
    record(flor, "train.py")
    (flor.folder / "notes.md").write_text("mine, from before\n")
    probe(flor, "train.py", "print(epoch, text", "print('@@', epoch, start, text)")
    done = flor("train.py", FLOR_MODE="replay")
    assert done.stdout == "@@ 0 0 0;\n@@ 1 0 0;1;\n@@ 2 0 0;1;2;\n@@ 3 0 0;1;2;3;\n"
    assert (flor.folder / "log.txt").read_text() == "0;1;2;3;"


def test_descriptors_have_the_numbers_of_the_run(flor: Flor) -> None:
    """A descriptor kept as a number still names the program's file after a checkpoint was restored."""
    flor.write(
        "train.py",
        """
        import os
        descriptor = os.open("raw.bin", os.O_WRONLY | os.O_CREAT)
        sizes = []
        for epoch in range(4):
            sizes.append(os.write(descriptor, b"x" * (epoch + 1)))
        print(sizes, descriptor)
        """,
    )
    record(flor, "train.py")
    probe(flor, "train.py", "sizes.append(", "print('@@', epoch, sizes, descriptor)")
    replay(flor, "train.py")


def test_descriptors_that_come_and_go_have_the_numbers_of_the_run(flor: Flor) -> None:
    """None of ours lies among the low ones."""
    flor.write(
        "train.py",
        """
        import os
        seen = []
        for epoch in range(3):
            ends = os.pipe()
            seen.append(ends)
            os.close(ends[0])
            os.close(ends[1])
        print(len(seen))
        """,
    )
    record(flor, "train.py")
    probe(flor, "train.py", "seen.append(", "print('@@', epoch, ends)")
    _, stats = replay(flor, "train.py")
    assert stats["diverged"] == 0


LOG = """
    import os, time
    def log(epoch):
        new = not os.path.isfile("log.csv")
        with open("log.csv", "w" if new else "a") as file:
            file.write(f"{epoch}\\n")
    def rare(lines):
        pass
    for name in ("log.csv", "whole.txt"):
        if os.path.exists(name):
            os.remove(name)
    for epoch in range(8):
        if time.sleep(0.05) is not None:  # by itself, it would be skipped
            break
        if epoch in (3, 6):
            with open("log.csv") as file:
                lines = file.read().split()
            rare(lines)
        log(epoch)
        if epoch == 7:  # nobody sees this one being opened
            with open("part.txt", "w") as file:
                file.write("all")
            os.replace("part.txt", "whole.txt")
    print(len(lines))
"""


def test_a_log_that_was_only_appended_to_is_read_as_it_was(flor: Flor) -> None:
    """After a jump it is there, with the lines of then, and what the replay appends comes after these."""
    flor.write("train.py", LOG)
    record(flor, "train.py")
    probe(flor, "train.py", "def rare(lines):", "    print('@@', lines, os.listdir().count('whole.txt'))")
    out, stats = replay(flor, "train.py")
    lines = [str(epoch) for epoch in range(6)]
    assert out.splitlines() == [f"@@ {lines[:3]} 0", f"@@ {lines} 0"]
    assert (stats["iterations_skipped"], stats["iterations_executed"]) == (
        6 + 2,
        2,
    )  # two of the loop that clears up


def test_a_log_that_was_rewritten_later_runs_in_full(flor: Flor) -> None:
    """What it held then is nowhere."""
    flor.write("train.py", LOG.replace('"w" if new else "a"', '"w" if new or epoch == 7 else "a"'))
    record(flor, "train.py")
    probe(flor, "train.py", "def rare(lines):", "    print('@@', lines)")
    out, stats = replay(flor, "train.py")
    assert out.splitlines() == [f"@@ {[str(epoch) for epoch in range(last)]}" for last in (3, 6)]
    assert stats["iterations_skipped"] == 0


EACH = """
    import os, time
    def main():
        total = 0
        for epoch in range(4):
            for step in range(5):
                total += step
                time.sleep(0.004)
            BEFORE
            for step in range(3):
                INSIDE
                time.sleep(0.002)
            AFTER
            text = open("log.txt").read() if os.path.exists("log.txt") else "none"
        return text
    main()
"""


@pytest.mark.parametrize("epsilon", ["inf", "0.0667"])
@pytest.mark.parametrize(
    ("before", "inside", "after"),
    [
        ('open("log.txt", "a").write(f"{epoch};")', "pass", "pass"),
        ("pass", 'open("log.txt", "a").write(f"{epoch};")', "pass"),
        ("pass", "pass", 'open("log.txt", "a").write(f"{epoch};")'),
        ('open("log.txt", "w").write(f"{epoch};")', 'open("log.txt", "r+").write(f"{step}")', "pass"),
        (
            'open("log.txt", "w").write(f"{epoch};")',
            'os.path.exists("log.txt") and os.remove("log.txt")',
            "pass",
        ),
        ("pass", 'open("new", "w").write(f"{epoch}.{step}"); os.replace("new", "log.txt")', "pass"),
        ("pass", "pass", 'open("new", "w").write(f"{epoch}"); os.replace("new", "log.txt")'),
        ("pass", 'open("log.txt", "w").write("long" * 9)', 'os.truncate("log.txt", epoch)'),
    ],
)
def test_a_file_written_around_a_skipped_loop(
    flor: Flor, before: str, inside: str, after: str, epsilon: str
) -> None:
    """However close to the loop's beginning or end it is written, the probe sees what the run saw."""
    program = EACH.replace("BEFORE", before).replace("INSIDE", inside).replace("AFTER", after)
    flor.write("train.py", program)
    record(flor, "train.py", FLOR_EPSILON=epsilon)
    size = 'os.path.exists("log.txt") and os.path.getsize("log.txt")'
    probe(flor, "train.py", "text = open(", f"print('@@', epoch, {size}, text)")
    done = flor("train.py", FLOR_MODE="replay")
    left = sorted(path for path in flor.folder.iterdir() if path.is_file() and path.suffix != ".py")
    for path in left:
        path.unlink()
    wanted = flor.python("train.py").stdout
    assert (done.stdout, done.returncode) == (wanted, 0)
    assert wanted.count("@@") == 4


TORCH = """
    import time, torch
    best = torch.zeros(2)
    for epoch in range(5):
        for step in range(3):
            best += step
            time.sleep(0.005)
        torch.save(best, "best.pt")
    kept = torch.load("best.pt", weights_only=True).tolist()
    print(kept)
"""


@pytest.mark.needs_torch
def test_what_torch_saved_last_is_known(flor: Flor) -> None:
    """Its C code opens the file, right before the loop's last checkpoint: that is seen, and nothing runs again."""
    flor.write("train.py", TORCH)
    record(flor, "train.py")
    probe(flor, "train.py", "kept = ", "print('@@', kept)")
    output, stats = replay(flor, "train.py")
    assert output == "@@ [15.0, 15.0]\n"
    assert (stats["iterations_skipped"], stats["iterations_executed"]) == (5, 0)


@pytest.mark.needs_torch
def test_a_failing_save_shows_no_frame_of_ours(flor: Flor) -> None:
    flor.write("train.py", "import torch\ntorch.save(1, 'nowhere/best.pt')\n")
    assert flor("train.py").stderr == flor.python("train.py").stderr


DELETED = """
import json
import os
import time

for epoch in range(9):
    if epoch == 1:
        open("flag", "w").close()
    if epoch == 7:
        os.remove("flag")
    time.sleep(0.02)
"""


@pytest.mark.parametrize(
    "question",
    [
        "os.path.exists('flag')",
        "sorted(os.listdir('.'))",
        "len(open('flag').read()) if 0 < epoch < 7 else None",
    ],
)
@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_file_that_was_deleted_later(flor: Flor, question: str, workers: str) -> None:
    """It is nowhere any more, so a replay that is asked for it executes everything."""
    flor.write("train.py", DELETED)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    probe = f"    if epoch % 4 == 0 or epoch == 5: print('@@', epoch, {question})\n"
    flor.write("train.py", DELETED.replace("    time", f"{probe}    time"))
    plain = flor.folder.parent / "plain"
    plain.mkdir()
    (plain / "train.py").write_text((flor.folder / "train.py").read_text())
    wanted = run([sys.executable, "train.py"], plain, flor.environ()).stdout
    done = flor("train.py", FLOR_MODE="replay", FLOR_WORKERS=workers)
    assert (done.returncode, done.stdout) == (0, wanted), done.stderr


OPENED = {
    "zip": ("import zipfile", "zipfile.ZipFile('data')", "data.read('a')[step]"),
    "npz": ("import numpy", "numpy.load('data')", "int(data['a'][step])"),
    "hdf5": ("import h5py", "h5py.File('data', 'r')", "int(data['a'][step])"),
}


@pytest.mark.parametrize("kind", OPENED)
def test_an_open_data_file_that_is_only_read(flor: Flor, kind: str) -> None:
    """It has no state that a loop could change, so that checkpoints are taken while it is open."""
    imported, opened, item = OPENED[kind]
    library = pytest.importorskip(imported.removeprefix("import "))
    if kind == "zip":
        with library.ZipFile(flor.folder / "data", "w") as file:
            file.writestr("a", bytes(range(10)))
    elif kind == "npz":
        with open(flor.folder / "data", "wb") as file:
            library.savez(file, a=library.arange(10))
    else:
        with library.File(flor.folder / "data", "w") as file:
            file["a"] = list(range(10))
    source = f"""
{imported}
import time
data, total = {opened}, 0
for epoch in range(6):
    for step in range(3):
        total += {item}
        time.sleep(0.004)
    print(epoch, total)
"""
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf").stderr == ""
    flor.write("train.py", f"{source}    print('@@', total)\n")
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [word for epoch in range(6) for word in ("@@", str(3 * (epoch + 1)))]
    assert json.loads(stats.read_text())["blocks_skipped"] == 6


def test_bytecode_that_the_first_run_writes(flor: Flor) -> None:
    """A replay reads it, our own too, at other places than where the run wrote it; that forbids no jump."""
    ours = shutil.copytree(
        ROOT / "src", flor.home.parent / "ours", ignore=shutil.ignore_patterns("__pycache__"), symlinks=True
    )
    changes = {"PYTHONPATH": str(ours), "PYTHONDONTWRITEBYTECODE": ""}
    source = """
import time
total = 0.0
for epoch in range(5):
    if epoch == 1:
        import decimal  # which florhook has a module for
    for step in range(3):
        total += step
        time.sleep(0.004)
    print(epoch, total)
"""
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf", **changes).returncode == 0
    assert list(ours.rglob("decimal_kinds.*.pyc"))
    flor.write("train.py", source.replace("    print(", "    print('@@', epoch, total)\n    print("))
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats), **changes)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"@@ {epoch} {3.0 * (epoch + 1)}\n" for epoch in range(5))
    assert json.loads(stats.read_text())["blocks_skipped"] == 5


IN_A_FOLDER = """
import json, pathlib
here = pathlib.Path(__file__).resolve().parent
out = here / "out"
out.mkdir(exist_ok=True)
log = open(here / "log.txt", "w")
settings = json.loads((here / "settings.json").read_text())
total = 0
for epoch in range(4):
    for step in range(5):
        total += step * epoch * settings["factor"]
    (out / f"{epoch}.json").write_text(json.dumps(total))
    print(epoch, file=log, flush=True)
"""


@pytest.mark.parametrize("old_folder", ["stays", "goes"])
def test_a_copy_of_the_project_is_replayed_in_its_own_folder(
    flor: Flor, tmp_path: Path, old_folder: str
) -> None:
    """Paths that the program keeps lead into the old folder; by hand: 10 * epoch * 3 more each time, one file more."""
    first = Flor(flor.folder, flor.folder / ".store")
    first.write("train.py", IN_A_FOLDER)
    first.write("settings.json", '{"factor": 3}')
    first("train.py", FLOR_EPSILON="inf")
    copy = Flor(Path(shutil.copytree(flor.folder, tmp_path / "copy")), tmp_path / "copy" / ".store")
    if old_folder == "goes":
        shutil.rmtree(flor.folder)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json") if ".store" not in path.parts}
    names = "sorted(path.name for path in out.iterdir())"
    probe = f"    print('@@', len({names}), json.loads((out / f'{{epoch}}.json').read_text()), log.tell())\n"
    after = "print('@@', len(list(out.iterdir())), open(log.name).read().split())\n"
    for text, wanted in (
        (probe, "@@ 1 0 2\n@@ 2 30 4\n@@ 3 90 6\n@@ 4 180 8\n"),
        (after, "@@ 4 ['0', '1', '2', '3']\n"),
    ):
        copy.write("train.py", IN_A_FOLDER + text)
        done = copy("train.py", FLOR_MODE="replay")
        assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")
    assert before == {path: path.read_bytes() for path in before}
