"""What the overlay does not catch, the kernel refuses: C code, and programs that a replay starts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from conftest import Flor

from florhook.replay.landlock import only_write_below


def in_a_child(check: object) -> int:
    """The restriction is for good, so a process of its own has it."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = check()  # type: ignore[operator]
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def can_restrict(tmp_path: Path) -> bool:
    return in_a_child(lambda: int(not only_write_below(tmp_path, []))) == 0


@pytest.fixture(autouse=True)
def landlock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files lie elsewhere than the files of the tests, as they mostly do."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    if not can_restrict(tmp_path):
        pytest.skip("this kernel has no Landlock")


def test_does_nothing_where_the_users_files_are_temporary_ones(tmp_path: Path) -> None:
    below = tmp_path / "temporary" / "project"

    def check() -> int:
        restricted = only_write_below(tmp_path / "store", [str(below)])
        (tmp_path / "here").write_text("still allowed")
        return int(restricted)

    assert in_a_child(check) == 0


def test_refuses_what_lies_elsewhere(tmp_path: Path) -> None:
    store, work = tmp_path / "store", tmp_path / "work"
    for folder in (store, work):
        (folder / "below").mkdir(parents=True)
        (folder / "file").write_text("as it was")

    def check() -> int:
        assert only_write_below(store, [str(work)])
        refused = 0
        for change in (
            lambda folder: (folder / "file").write_text("changed"),
            lambda folder: (folder / "new").write_text("new"),
            lambda folder: os.truncate(folder / "file", 1),
            lambda folder: (folder / "below").rmdir(),
            lambda folder: (folder / "more").mkdir(),
            lambda folder: (folder / "file").rename(folder / "other"),
            lambda folder: (folder / "link").symlink_to("file"),
        ):
            try:
                change(work)
            except PermissionError:
                refused += 1
            change(store)
        assert (work / "file").read_text() == "as it was"
        Path("/dev/null").write_text("still there")
        return refused

    assert in_a_child(check) == 7
    assert sorted(path.name for path in work.iterdir()) == ["below", "file"]
    assert (store / "other").read_text() == "c"


def test_what_was_open_stays_open_and_stdout_can_be_opened_again(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    target = tmp_path / "work" / "out.txt"

    def check() -> int:
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        assert only_write_below(tmp_path / "store", [str(tmp_path)])
        os.write(1, b"one\n")
        os.system("echo two >> /dev/stdout; echo three > " + str(tmp_path / "work" / "other"))
        return 0

    (tmp_path / "store").mkdir()
    assert in_a_child(check) == 0
    assert target.read_text() == "one\ntwo\n"
    assert not (tmp_path / "work" / "other").exists()


PROGRAM = """
import ctypes, os, subprocess, sys, time

libc = ctypes.CDLL(None)
os.makedirs("out", exist_ok=True)
for epoch in range(3):
    time.sleep(0.01)
    libc.creat(b"by_c.txt", 0o644)
    status = os.system(f"rm -rf out; echo {epoch} > by_shell.txt")
    made = subprocess.run([sys.executable, "-c", "import tempfile; print(tempfile.mkstemp() is not None)"],
                          capture_output=True, text=True).stdout.strip()
"""


def test_a_replay_that_starts_programs(flor: Flor) -> None:
    """The user's files stay, whatever the probe executes; children have a place for temporary files."""
    flor.write("train.py", PROGRAM)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    (flor.folder / "out").mkdir(exist_ok=True)
    (flor.folder / "out" / "precious").write_text("since the run")
    (flor.folder / "by_shell.txt").write_text("edited since")
    (flor.folder / "by_c.txt").write_text("edited since")
    flor.write("train.py", PROGRAM + "    print('@@', epoch, made)\n")
    done = flor("train.py", FLOR_MODE="replay", FLOR_WORKERS="1")
    assert done.stdout == "".join(f"@@ {epoch} True\n" for epoch in range(3))
    assert (flor.folder / "out" / "precious").read_text() == "since the run"
    assert (flor.folder / "by_shell.txt").read_text() == "edited since"
    assert (flor.folder / "by_c.txt").read_text() == "edited since"
    assert "Permission denied" in done.stderr
