"""Names that `tempfile` draws, folders that appear whole, and sockets of the file system: a replay finds its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import Flor


def check(flor: Flor, program: str, probe: str, line: str, wanted: list[str], *, skips: bool = True) -> None:
    """Replay a recorded program with a probe behind a line."""
    flor.write("train.py", program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    margin = line[: len(line) - len(line.lstrip())]
    flor.write("train.py", program.replace(line, f"{line}\n{margin}{probe}"))
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr
    skipped = json.loads((flor.folder / "stats.json").read_text())["iterations_skipped"]
    assert bool(skipped) == skips


FOLDER = """
import pathlib, shutil, tempfile, time
tmp = pathlib.Path(tempfile.mkdtemp())
for epoch in range(4):
    time.sleep(0.01)
    (tmp / f"w{epoch}.txt").write_text(str(epoch))
shutil.rmtree(tmp)
"""


def test_a_folder_made_before_the_loop_and_removed_after_it(flor: Flor) -> None:
    wanted = [str([f"w{n}.txt" for n in range(epoch + 1)]) for epoch in range(4)]
    probe = "print(sorted(path.name for path in tmp.iterdir()))"
    line = '    (tmp / f"w{epoch}.txt").write_text(str(epoch))'
    check(flor, FOLDER, probe, line, wanted, skips=False)


@pytest.mark.parametrize("left", [True, False])
def test_names_are_those_of_the_run(flor: Flor, left: bool) -> None:
    """Before, in and after the loop; whether or not what had the name is still there."""
    program = f"""
import os, tempfile, time
names = []
for epoch in range(3):
    time.sleep(0.01)
    file = tempfile.NamedTemporaryFile(delete={not left})
    names.append(os.path.basename(file.name))
    file.close()
last = os.path.basename(tempfile.mkdtemp())
{"" if left else "os.rmdir(os.path.join(tempfile.gettempdir(), last))"}
open("names.txt", "w").write(repr([*names, last]))
"""
    flor.write("train.py", program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    recorded = eval((flor.folder / "names.txt").read_text())
    try:
        flor.write("train.py", program + "\nprint([*names, last])\n")
        done = flor("train.py", FLOR_MODE="replay")
        assert (done.returncode, done.stdout) == (0, f"{recorded!r}\n"), done.stderr
        flor.write("train.py", program.replace("    file.close()", "    file.close()\n    print(file.name)"))
        done = flor("train.py", FLOR_MODE="replay")
        assert [Path(line).name for line in done.stdout.splitlines()] == recorded[:3], done.stderr
    finally:
        import tempfile

        for name in recorded:
            path = Path(tempfile.gettempdir()) / name
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


RENAMED = """
import os, time
for epoch in range(4):
    time.sleep(0.01)
    os.makedirs("tmp-ckpt")
    open("tmp-ckpt/w.txt", "w").write("x" * epoch)
    os.rename("tmp-ckpt", f"ckpt-{epoch}")
    done = epoch
"""


@pytest.mark.parametrize("workers", ["1", "3"])
def test_folders_that_appear_by_renaming(flor: Flor, workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOR_WORKERS", workers)
    probe = "print(sorted(name for name in os.listdir('.') if 'ckpt' in name), os.path.getsize(f'ckpt-{epoch}/w.txt'))"
    wanted = [f"{[f'ckpt-{n}' for n in range(epoch + 1)]} {epoch}" for epoch in range(4)]
    check(flor, RENAMED, probe, "    done = epoch", wanted, skips=False)


def test_folders_that_were_renamed_in_what_is_skipped(flor: Flor) -> None:
    flor.write("train.py", RENAMED)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    probe = "    if epoch == 2: print(sorted(name for name in os.listdir('.') if 'ckpt' in name))"
    flor.write("train.py", RENAMED + probe + "\n")
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout) == (0, "['ckpt-0', 'ckpt-1', 'ckpt-2']\n"), done.stderr
    assert json.loads((flor.folder / "stats.json").read_text())["iterations_executed"] == 1


SOCKET = """
import os, socket, threading, time
server = socket.socket(socket.AF_UNIX)
server.bind("a.sock")
server.listen()
total = 0
for epoch in range(3):
    time.sleep(0.01)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(os.path.abspath("a.sock"))
        with server.accept()[0] as other:
            other.sendall(b"x" * epoch)
        total += len(client.recv(10))
server.close()
os.unlink("a.sock")
"""


def test_sockets_of_the_file_system(flor: Flor) -> None:
    """In folders whose names are longer than a socket's path may be, too."""
    check(flor, SOCKET, "print(total)", "        total += len(client.recv(10))", ["0", "1", "3"], skips=False)
    assert not (flor.folder / "a.sock").exists()


LINKS = """
import os, time
for epoch in range(4):
    time.sleep(0.01)
    open(f"ckpt{epoch}.txt", "w").write(str(epoch))
    if epoch == 1:
        os.symlink("ckpt1.txt", "first")
    os.symlink(f"ckpt{epoch}.txt", "latest.new")
    seen = os.path.lexists("latest") and os.readlink("latest")
    os.replace("latest.new", "latest")
    if epoch == 3:
        os.remove("first")
"""


@pytest.mark.parametrize("condition", ["True", "epoch == 2", "epoch == 3"])
def test_symbolic_links_are_those_of_the_place(flor: Flor, condition: str) -> None:
    """Executed, and after a jump; by hand."""
    flor.write("train.py", LINKS)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    probe = f"    if {condition}: print(epoch, seen, os.readlink('latest'), os.path.lexists('first'), "
    probe += "os.path.exists('first') and open('first').read())\n"
    flor.write("train.py", LINKS + probe)
    done = flor("train.py", FLOR_MODE="replay")
    wanted = [
        "0 False ckpt0.txt False False",
        "1 ckpt0.txt ckpt1.txt True 1",
        "2 ckpt1.txt ckpt2.txt True 1",
        "3 ckpt2.txt ckpt3.txt False False",
    ]
    chosen = [line for epoch, line in enumerate(wanted) if eval(condition, {"epoch": epoch})]
    assert (done.returncode, done.stdout.splitlines()) == (0, chosen), done.stderr
    assert (flor.folder / "latest").readlink() == Path("ckpt3.txt")


LOG = """
import datetime, os, shutil, time, uuid
run = datetime.datetime.now().strftime("run-%H%M%S.%f") + uuid.uuid4().hex
os.makedirs(run)
log = open(f"{run}/log.txt", "w")
for epoch in range(4):
    time.sleep(0.01)
    open(f"{run}/{epoch}.txt", "w").write("a")
    log.write("x" * (epoch + 1))
    log.flush()
"""


@pytest.mark.parametrize("end", ["log.close()", "log.close(); shutil.rmtree(run)"])
@pytest.mark.parametrize("condition", ["True", "epoch == 2"])
def test_a_log_in_a_folder_that_is_named_by_the_clock(flor: Flor, condition: str, end: str) -> None:
    program = LOG + end + "\n"
    flor.write("train.py", program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    probe = f"    if {condition}: print(epoch, os.path.getsize(f'{{run}}/log.txt'), log.name == f'{{run}}/log.txt')\n"
    flor.write("train.py", LOG + probe + end + "\n")
    done = flor("train.py", FLOR_MODE="replay")
    sizes = [1, 3, 6, 10]
    wanted = [f"{epoch} {sizes[epoch]} True" for epoch in range(4) if eval(condition, {"epoch": epoch})]
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr


HELD = """
import atexit, os, time

def end(folder):
    with open(f"{folder}/end.txt", "a") as file:
        file.write("end")

run = f"runs/{time.time_ns()}"
os.makedirs(run)
atexit.register(end, run)
for epoch in range(4):
    time.sleep(0.03)
"""


def test_a_folder_that_is_named_by_the_clock_can_be_written_to_by_who_holds_its_name(flor: Flor) -> None:
    """No restore reaches what `atexit` or a library's thread holds: the name is the replay's own there."""
    flor.write("train.py", HELD)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    made = [path.name for path in (flor.folder / "runs").iterdir()]
    probed = HELD + "    print(epoch, os.listdir('runs') == [os.path.basename(run)])\n"
    flor.write("train.py", probed.replace('write("end")', 'write("end")\n        print(file.tell())'))
    done = flor("train.py", FLOR_MODE="replay")
    wanted = [*(f"{epoch} True" for epoch in range(4)), "3"]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, wanted, "")
    assert [path.name for path in (flor.folder / "runs").iterdir()] == made
