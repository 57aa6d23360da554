"""The write overlay: a program sees its files as without it, and the real ones stay as they are."""

from __future__ import annotations

import errno
import hashlib
import io
import logging
import multiprocessing
import os
import pickle
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from florhook.replay.overlay import Overlay


def fingerprint(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Name, kind, mode, times and contents of everything in a folder; to be called without the overlay."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        info = path.lstat()
        content: Any = None
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        changed = None if stat.S_ISFIFO(info.st_mode) else info.st_mtime_ns
        found[str(path.relative_to(folder))] = (info.st_mode, changed, content)
    return found


def make_project(folder: Path) -> None:
    """A small folder as a user might ship it."""
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "a.txt").write_text("alpha\n")
    (folder / "data" / "b.txt").write_text("beta\n")
    (folder / "data" / "deep" / "c.txt").write_text("gamma\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest").symlink_to("data")
    (folder / "dangling").symlink_to("nowhere")


@contextmanager
def overlay_over(project: Path, root: Path) -> Iterator[Overlay]:
    """Install an overlay, work in the project, and check that it is untouched in the end."""
    before = fingerprint(project)
    overlay = Overlay(root)
    cwd = os.getcwd()
    os.chdir(project)
    overlay.install()
    try:
        yield overlay
    finally:
        overlay.uninstall()
        os.chdir(cwd)
    assert fingerprint(project) == before


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    make_project(folder)
    return folder


@pytest.fixture
def overlay(project: Path, tmp_path: Path) -> Iterator[Overlay]:
    with overlay_over(project, tmp_path / "overlay") as installed:
        yield installed


# Random programs


def read(path: str, _: str) -> Any:
    with open(path) as file:
        return file.name, file.read()


def write(mode: str) -> Callable[[str, str], Any]:
    def run(path: str, other: str) -> Any:
        with open(path, mode) as file:
            position = file.tell()
            file.write(f"{mode} {other}\n")
        return position

    return run


def write_raw(path: str, other: str) -> Any:
    with io.FileIO(path, "a") as file:
        return file.write(other.encode())


def open_only(flags: int) -> Callable[[str, str], Any]:
    def run(path: str, _: str) -> None:
        os.close(os.open(path, flags, 0o640))

    return run


def describe(path: str, _: str) -> Any:
    asked = (os.path.exists, os.path.lexists, os.path.isfile, os.path.isdir, os.path.islink)
    return [ask(path) for ask in asked] + [os.access(path, os.X_OK), os.path.relpath(os.path.realpath(path))]


def kind_and_size(info: os.stat_result) -> Any:
    return info.st_mode, None if stat.S_ISDIR(info.st_mode) else info.st_size


def scan(path: str, _: str) -> Any:
    with os.scandir(path) as entries:
        return sorted(
            (
                *(e.name, e.path, os.fspath(e), e.is_dir(), e.is_file(), e.is_symlink()),
                *(e.is_dir(follow_symlinks=False), kind_and_size(e.stat(follow_symlinks=False))),
            )
            for e in entries
        )


def scan_descriptor(path: str, _: str) -> Any:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return sorted(os.listdir(descriptor)), sorted(e.name for e in os.scandir(descriptor))
    finally:
        os.close(descriptor)


def unlink_at(path: str, _: str) -> None:
    head, tail = os.path.split(path)
    descriptor = os.open(head or ".", os.O_RDONLY)
    try:
        os.unlink(tail, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def visit(path: str, other: str) -> Any:
    here = os.getcwd()
    os.chdir(path)
    try:
        return os.path.relpath(os.getcwd(), here), describe("b.txt", ""), write("w")("b.txt", other)
    finally:
        os.chdir(here)


def set_time(path: str, _: str) -> int:
    os.utime(path, (1000, 2000))
    return int(os.stat(path).st_mtime)


OPERATIONS: dict[str, Callable[[str, str], Any]] = {
    "read": read,
    "w": write("w"),
    "a": write("a"),
    "x": write("x"),
    "r+": write("r+"),
    "FileIO": write_raw,
    "creat": open_only(os.O_RDONLY | os.O_CREAT),
    "excl": open_only(os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "nofollow": open_only(os.O_RDWR | os.O_NOFOLLOW),
    "directory": open_only(os.O_RDONLY | os.O_DIRECTORY),
    "describe": describe,
    "stat": lambda path, _: kind_and_size(os.stat(path)),
    "lstat": lambda path, _: kind_and_size(os.lstat(path)),
    "listdir": lambda path, _: sorted(os.listdir(path)),
    "listdir bytes": lambda path, _: sorted(os.listdir(os.fsencode(path))),
    "scandir": scan,
    "descriptor": scan_descriptor,
    "mkdir": lambda path, _: os.mkdir(path, 0o750),
    "makedirs": lambda path, _: os.makedirs(path, exist_ok=True),
    "rmdir": lambda path, _: os.rmdir(path),
    "unlink": lambda path, _: os.unlink(path),
    "unlink_at": unlink_at,
    "rename": lambda path, other: os.rename(path, other),
    "replace": lambda path, other: os.replace(path, other),
    "link": lambda path, other: os.link(path, other),
    "symlink": lambda path, other: os.symlink(other, path),
    "readlink": lambda path, _: os.readlink(path),
    "truncate": lambda path, _: os.truncate(path, 3),
    "chmod": lambda path, _: os.chmod(path, 0o600 if os.path.isfile(path) else 0o700),
    "utime": set_time,
    "rmtree": lambda path, _: shutil.rmtree(path),
    "copy2": lambda path, other: shutil.copy2(path, other),
    "copytree": lambda path, other: shutil.copytree(path, other.replace("/", "_") + "_copy", symlinks=True),
    "move": lambda path, other: shutil.move(path, other),
    "touch": lambda path, _: Path(path).touch(),
    "chdir": visit,
}
PATHS = [
    "a.txt",
    "data",
    "data/b.txt",
    "data/deep",
    "data/deep/c.txt",
    "data/../a.txt",
    "empty",
    "empty/new",
    "latest",
    "latest/b.txt",
    "latest/new",
    "latest/../a.txt",
    "dangling",
    "fresh",
    "fresh/x",
    "fresh/x/y",
    "a.txt/below",
    "data/",
    ".",
    "",
]


def outcome(step: tuple[str, str, str]) -> Any:
    """What an operation returned or raised."""
    operation, path, other = step
    try:
        return OPERATIONS[operation](path, other)
    except OSError as error:
        if isinstance(error, NotADirectoryError) and path.startswith("fresh/"):
            error = FileNotFoundError(
                errno.ENOENT, "", error.filename, None, error.filename2
            )  # a known limit
        return type(error).__name__, error.errno, error.filename, error.filename2
    except shutil.Error as error:
        return type(error).__name__, len(error.args)


def everything() -> Any:
    """All files below the working folder, as the program sees them."""
    found = []
    for folder, folders, files in os.walk("."):
        for name in folders + files:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            content: Any = None
            if stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(info.st_mode):
                content = Path(path).read_bytes()
            found.append((path, kind_and_size(info), content))
    return sorted(found, key=lambda each: each[0])


def run_program(program: list[tuple[str, str, str]]) -> list[Any]:
    return [outcome(step) for step in program] + [everything()]


steps = st.tuples(st.sampled_from(sorted(OPERATIONS)), st.sampled_from(PATHS), st.sampled_from(PATHS))


@settings(
    max_examples=int(os.environ.get("OVERLAY_EXAMPLES", "250")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(program=st.lists(steps, min_size=1, max_size=14))
@example(
    program=[("rmtree", "data", ""), ("mkdir", "data", ""), ("listdir", "data", ""), ("w", "data/b.txt", "x")]
)
@example(
    program=[
        ("rename", "data", "fresh"),
        ("read", "fresh/b.txt", ""),
        ("mkdir", "data", ""),
        ("scandir", "data", ""),
    ]
)
@example(program=[("rename", "a.txt", "latest"), ("a", "latest/b.txt", "x")])
@example(program=[("symlink", "fresh", "data"), ("a", "fresh/b.txt", "x"), ("read", "latest/b.txt", "")])
def test_a_program_sees_what_it_would_see_without_the_overlay(program: list[tuple[str, str, str]]) -> None:
    """Any sequence of operations returns, raises and leaves behind the same, and changes no real file."""
    cwd = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        # Of the same length and depth, so that relative links and paths are alike.
        plain, layered = Path(name, "one"), Path(name, "two")
        for folder in (plain, layered):
            make_project(folder)
        os.chdir(plain)
        try:
            expected = run_program(program)
        finally:
            os.chdir(cwd)
        with overlay_over(layered, Path(name, "overlay")):
            assert run_program(program) == expected


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_each_operation_on_each_path(operation: str, tmp_path: Path) -> None:
    """One operation alone, with every path, and after a change that moved its subject into the overlay."""
    befores: list[list[tuple[str, str, str]]] = [
        [],
        [("a", "data/b.txt", "x"), ("makedirs", "fresh/x", ""), ("unlink", "a.txt", "")],
        [("rmtree", "data", ""), ("mkdir", "data", ""), ("w", "a.txt", "x")],
    ]
    for number, before in enumerate(befores):
        for index, path in enumerate(PATHS):
            program = [*before, (operation, path, "fresh/z" if index % 2 else "data")]
            base = tmp_path / f"{number}-{index}"
            plain, layered = base / "one", base / "two"
            make_project(plain)
            make_project(layered)
            cwd = os.getcwd()
            os.chdir(plain)
            try:
                expected = run_program(program)
            finally:
                os.chdir(cwd)
            with overlay_over(layered, base / "overlay"):
                assert run_program(program) == expected, program


# What programs do


def test_append_and_update_start_from_the_real_contents(overlay: Overlay) -> None:
    with open("a.txt", "a") as file:
        assert file.tell() == 6
        file.write("more\n")
    with open("data/b.txt", "r+b") as file:
        file.seek(1)
        file.write(b"E")
    assert Path("a.txt").read_text() == "alpha\nmore\n"
    assert Path("data/b.txt").read_text() == "bEta\n"


def test_atomic_save(overlay: Overlay) -> None:
    """A file written aside and moved into place."""
    with open("a.txt.tmp", "w") as file:
        file.write("new")
        file.flush()
        os.fsync(file.fileno())
    os.replace("a.txt.tmp", "a.txt")
    assert Path("a.txt").read_text() == "new"
    assert "a.txt.tmp" not in os.listdir()


def test_rmtree_of_a_shipped_folder_and_a_new_start(overlay: Overlay, project: Path) -> None:
    shutil.rmtree(project / "data")
    assert not os.path.exists("data")
    os.makedirs("data/new", exist_ok=True)
    Path("data/new/x").write_text("x")
    assert [sorted(files) for _, _, files in os.walk("data")] == [[], ["x"]]


def test_rmtree_without_descriptors(overlay: Overlay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "_use_fd_functions", False)
    Path("data/new").mkdir()
    shutil.rmtree("data")
    assert not os.path.exists("data")


def test_pathlib(overlay: Overlay, project: Path) -> None:
    path = Path("data") / "new.txt"
    path.write_text("new")
    assert path.rename("data/newer.txt").read_text() == "new"
    (project / "data" / "b.txt").unlink()
    assert sorted(each.name for each in Path("data").glob("*.txt")) == ["newer.txt"]
    assert sorted(str(each) for each in Path().rglob("*.txt")) == [
        "a.txt",
        "data/deep/c.txt",
        "data/newer.txt",
    ]
    Path("data/newer.txt").replace("a.txt")
    assert Path("a.txt").stat().st_size == 3
    with pytest.raises(FileNotFoundError) as caught:
        Path("data/newer.txt").read_text()
    assert caught.value.filename == "data/newer.txt"


def test_tempfile(overlay: Overlay, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x").write_text("x")
        assert os.listdir(folder) == ["x"]
        subprocess.run(["test", "-f", f"{folder}/x"], check=True)
    assert not os.path.exists(folder)
    with tempfile.NamedTemporaryFile(dir="data") as named:
        named.write(b"1")
        assert os.path.exists(named.name)
    assert not os.path.exists(named.name)
    with tempfile.NamedTemporaryFile("w", delete=False) as kept:
        kept.write("kept")
    os.replace(kept.name, "a.txt")
    assert Path("a.txt").read_text() == "kept"
    assert not os.path.exists(kept.name)
    with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as beside:
        beside.write("beside")
    os.replace(beside.name, "a.txt")
    assert Path("a.txt").read_text() == "beside"
    with tempfile.TemporaryFile() as unnamed:
        unnamed.write(b"1")


def test_logging(overlay: Overlay) -> None:
    handler = logging.FileHandler("a.txt")
    record = logging.LogRecord("x", logging.INFO, "", 0, "logged", None, None)
    handler.emit(record)
    handler.close()
    assert Path("a.txt").read_text() == "alpha\nlogged\n"


def test_sqlite(tmp_path: Path, project: Path) -> None:
    with sqlite3.connect(project / "runs.db") as made:
        made.execute("create table runs (name)")
    made.close()
    with overlay_over(project, tmp_path / "overlay"):
        for name in ("runs.db", "file:runs.db?mode=rw"):
            with sqlite3.connect(name, uri=name.startswith("file:")) as connection:
                connection.execute("insert into runs values ('a')")
            connection.close()
        reading = sqlite3.connect(f"file:{project}/runs.db?mode=ro", uri=True)
        assert reading.execute("select count(*) from runs").fetchall() == [(2,)]
        reading.close()
        sqlite3.connect("data/new.db").close()
        with pytest.raises(sqlite3.OperationalError):
            sqlite3.connect("nowhere/new.db")


def test_the_name_and_kind_of_an_opened_file(overlay: Overlay) -> None:
    with open("fresh", "w") as file:
        assert type(file) is io.TextIOWrapper
        assert file.name == "fresh"
    with open(b"fresh", "rb", buffering=0) as raw:
        assert raw.name == b"fresh"
        assert isinstance(raw, io.FileIO)
    with io.FileIO(Path("fresh"), "w") as raw:
        assert raw.name == Path("fresh")
        assert isinstance(raw, io.RawIOBase)


def test_working_in_a_folder_of_the_overlay(overlay: Overlay, project: Path) -> None:
    """A program may make its run folder and work in it."""
    os.makedirs("runs/1")
    os.chdir("runs/1")
    assert os.getcwd() == str(project / "runs" / "1")
    Path("x").write_text("x")
    assert Path("x").resolve() == project / "runs" / "1" / "x"
    assert Path("../../a.txt").read_text() == "alpha\n"
    os.chdir(project)
    assert Path("runs/1/x").read_text() == "x"


def test_forget_shows_the_real_file_again(overlay: Overlay) -> None:
    Path("a.txt").write_text("x")
    overlay.forget("a.txt")
    assert Path("a.txt").read_text() == "alpha\n"
    shutil.rmtree("data")
    overlay.forget("data/deep/c.txt")
    assert Path("data/deep/c.txt").read_text() == "gamma\n"
    assert os.listdir("data") == ["deep"]
    shutil.rmtree("data")
    os.mkdir("data")
    assert os.listdir("data") == []


def test_paused_is_for_one_thread(overlay: Overlay) -> None:
    seen: list[str] = []
    Path("a.txt").write_text("x")
    with overlay.paused():
        thread = threading.Thread(target=lambda: seen.append(Path("a.txt").read_text()))
        thread.start()
        thread.join()
        seen.append(Path("a.txt").read_text())
    assert seen == ["x", "alpha\n"]


def test_an_overlay_is_found_again(project: Path, tmp_path: Path) -> None:
    with overlay_over(project, tmp_path / "overlay"):
        Path("fresh").write_text("x")
        os.unlink("a.txt")
    with overlay_over(project, tmp_path / "overlay"):
        assert Path("fresh").read_text() == "x"
        assert not os.path.exists("a.txt")


def test_forked_children_share_the_overlay(overlay: Overlay) -> None:
    """What a forked child writes and deletes, its parent sees, and the other way round."""
    Path("before").write_text("x")
    child = os.fork()
    if child == 0:
        Path("a.txt").unlink()
        Path("child").write_text(Path("before").read_text())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not os.path.exists("a.txt")
    assert Path("child").read_text() == "x"


def test_multiprocessing_manager(overlay: Overlay) -> None:
    """Its socket lies in a folder made by Python code and is bound by C code."""
    with multiprocessing.get_context("fork").Manager() as manager:
        assert manager.list([1])[0] == 1


def test_threads_write_at_once(overlay: Overlay) -> None:
    def work(number: int) -> None:
        for _ in range(20):
            os.makedirs("fresh/deep", exist_ok=True)
            with open("a.txt", "a") as file:
                file.write("x")
            Path(f"fresh/deep/{number}").write_text("x")
            os.unlink(f"fresh/deep/{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Path("a.txt").read_text() == "alpha\n" + 80 * "x"


def test_devices_pipes_and_descriptors_pass_through(overlay: Overlay) -> None:
    with open(os.devnull, "w") as null:
        null.write("x")
    reads, writes = os.pipe()
    with open(writes, "w") as sender:
        sender.write("x")
    with open(reads) as receiver:
        assert receiver.read() == "x"
    assert os.path.exists("/proc/self/status")


def test_a_real_fifo_is_opened_itself(project: Path, tmp_path: Path) -> None:
    os.mkfifo(project / "fifo")
    with overlay_over(project, tmp_path / "overlay"):
        reads = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
        with open("fifo", "w") as file:
            file.write("x")
        assert os.read(reads, 1) == b"x"
        os.close(reads)


def test_a_descriptor_of_a_real_file_cannot_change_it(overlay: Overlay) -> None:
    with open("a.txt") as file:
        os.fchmod(file.fileno(), 0o600)
        os.utime(file.fileno(), (1, 1))
    info = os.stat("a.txt")
    assert (stat.S_IMODE(info.st_mode), info.st_mtime) == (0o600, 1)


def test_patches_look_like_the_originals(overlay: Overlay) -> None:
    with overlay.paused():
        assert io.open is open
    assert (open.__name__, os.stat.__name__, os.stat.__module__) == ("open", "stat", "posix")
    assert os.stat.__doc__.startswith("Perform a stat")
    assert os.open in os.supports_dir_fd
    assert os.scandir in os.supports_fd
    assert pickle.loads(pickle.dumps(os.stat)) == os.stat

    class Holder:
        opener = open

    with Holder().opener("a.txt") as file:
        assert file.read() == "alpha\n"


def test_an_error_keeps_its_context(overlay: Overlay) -> None:
    """Raised while another is handled, an error names that one, and only one frame is ours."""
    try:
        raise KeyError("first")
    except KeyError:
        with pytest.raises(FileNotFoundError) as caught:
            os.remove("nowhere")
    assert isinstance(caught.value.__context__, KeyError)
    assert not caught.value.__suppress_context__
    assert len(caught.traceback) == 2


def test_uninstall_puts_everything_back(project: Path, tmp_path: Path) -> None:
    names = ("open", "stat", "scandir", "unlink", "rename", "getcwd")
    before = [open, io.open, io.FileIO, *(getattr(os, name) for name in names), sqlite3.connect]
    supports = set(os.supports_dir_fd)
    with overlay_over(project, tmp_path / "overlay"):
        kept = os.stat
        assert kept is not before[3]
    assert before == [open, io.open, io.FileIO, *(getattr(os, name) for name in names), sqlite3.connect]
    assert supports == os.supports_dir_fd
    assert kept(project / "a.txt").st_size == 6


def test_a_module_that_the_program_wrote_can_be_imported(overlay: Overlay, project: Path) -> None:
    Path("made_in_overlay.py").write_text("answer = 42\n")
    sys.path.insert(0, str(project))
    try:
        assert __import__("made_in_overlay").answer == 42
    finally:
        sys.path.remove(str(project))
        sys.modules.pop("made_in_overlay", None)
        sys.path_importer_cache.pop(str(project), None)


def test_without_permission(tmp_path: Path) -> None:
    """Who may not write a file or a folder is told so, as without the overlay."""
    script = """
        import os, sys
        from pathlib import Path
        from florhook.replay.overlay import Overlay
        base = Path(sys.argv[1])
        if os.geteuid() == 0:
            os.setegid(65534), os.seteuid(65534)
        overlay = Overlay(base / "open" / "overlay")
        def attempt(act):
            try:
                return act()
            except OSError as error:
                return type(error).__name__, error.errno, error.filename
        os.chdir(base / "shut")
        acts = [
            lambda: open("file", "a"), lambda: open("new", "w"), lambda: os.unlink("file"), lambda: os.mkdir("new"),
            lambda: os.rename("file", "new"), lambda: os.rmdir("folder"), lambda: os.truncate("file", 0),
        ]
        plain = [attempt(act) for act in acts]
        overlay.install()
        layered = [attempt(act) for act in acts]
        overlay.uninstall()
        assert plain == layered, (plain, layered)
        assert all(name == "PermissionError" for name, *_ in plain), plain
    """
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        Path(name, "open").mkdir()
        Path(name, "open").chmod(0o777)
        Path(name, "shut", "folder").mkdir(parents=True)
        Path(name, "shut", "file").write_text("x")
        Path(name, "shut", "file").chmod(0o444)
        Path(name, "shut").chmod(0o555)
        try:
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONDONTWRITEBYTECODE": "1",
            }
            subprocess.run(
                [sys.executable, "-c", textwrap.dedent(script), name],
                check=True,
                cwd=tmp_path,
                env=environment,
            )
        finally:
            Path(name, "shut").chmod(0o755)


def test_a_call_costs_a_few_microseconds(project: Path, tmp_path: Path) -> None:
    path = str(project / "a.txt")
    plain = min(timeit.repeat(lambda: os.stat(path), number=2000, repeat=5)) / 2000
    with overlay_over(project, tmp_path / "overlay"):
        Path("fresh").write_text("x")
        layered = min(timeit.repeat(lambda: os.stat(path), number=2000, repeat=5)) / 2000
    assert layered - plain < 40e-6  # 5 where nothing else runs


def test_unix_sockets_in_temporary_folders(overlay: Overlay) -> None:
    """C code binds a socket in the real file system; a temporary folder is there, too."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/s")
        assert stat.S_ISSOCK(os.stat(f"{folder}/s").st_mode)


# Libraries


def test_numpy(overlay: Overlay) -> None:
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(4.0)
    numpy.save("data/x.npy", values)
    numpy.savez("data/x.npz", values=values)
    numpy.savetxt("data/x.txt", values)
    values.tofile("data/x.bin")
    numpy.load("data/x.npy", mmap_mode="r+")[0] = 7
    memory = numpy.memmap("data/x.map", dtype="f8", mode="w+", shape=4)
    memory[:] = values
    memory.flush()
    assert numpy.load("data/x.npy").tolist() == [7, 1, 2, 3]
    assert numpy.load("data/x.npz")["values"].tolist() == [0, 1, 2, 3]
    assert numpy.loadtxt("data/x.txt").tolist() == [0, 1, 2, 3]
    assert numpy.fromfile("data/x.bin").tolist() == [0, 1, 2, 3]
    assert numpy.fromfile("data/x.map").tolist() == [0, 1, 2, 3]


def test_torch_files(tmp_path: Path, project: Path) -> None:
    torch = pytest.importorskip("torch")
    shipped = torch.arange(3)
    torch.save(shipped, project / "model.pt")
    with overlay_over(project, tmp_path / "overlay"):
        assert torch.load("model.pt").tolist() == [0, 1, 2]
        for legacy in (False, True):
            torch.save(shipped + 1, "model.pt", _use_new_zipfile_serialization=not legacy)
            assert torch.load("model.pt").tolist() == [1, 2, 3]
        torch.save(shipped + 2, project / "data" / "müller.pt")
        assert torch.load("data/müller.pt", mmap=True).tolist() == [2, 3, 4]
        torch.save(shipped, "model.tmp")
        os.replace("model.tmp", "model.pt")
        assert torch.load("model.pt").tolist() == [0, 1, 2]
        with pytest.raises(RuntimeError, match="Parent directory nowhere does not exist"):
            torch.save(shipped, "nowhere/model.pt")
        with pytest.raises(FileNotFoundError):
            torch.load("nowhere/model.pt")
        mapped = torch.UntypedStorage.from_file("storage.bin", shared=True, nbytes=8)
        mapped.fill_(1)
        assert Path("storage.bin").read_bytes() == 8 * b"\1"
        script = torch.jit.trace(torch.nn.Linear(1, 1), torch.ones(1))
        script.save("script.pt")
        torch.jit.save(script, "script2.pt")
        assert (
            torch.jit.load("script.pt")(torch.ones(1)).shape
            == torch.jit.load("script2.pt")(torch.ones(1)).shape
        )


def test_torch_imported_after_the_overlay(tmp_path: Path, project: Path) -> None:
    pytest.importorskip("torch")
    script = """
        import os, sys
        from pathlib import Path
        from florhook.replay.overlay import Overlay
        overlay = Overlay(Path(sys.argv[1]))
        overlay.install()
        import torch
        import torch.utils.data
        assert "overlay" not in type(torch._C.__loader__).__module__
        torch.save(torch.ones(2), "model.pt")
        assert torch.load("model.pt").sum() == 2

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                Path(f"seen{index}").touch()
                return torch.load("model.pt")

        assert sum(batch.sum() for batch in torch.utils.data.DataLoader(Data(), num_workers=2)) == 16
        assert os.path.exists("seen7")
    """
    before = fingerprint(project)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "overlay")]
    subprocess.run(command, check=True, cwd=project, env=environment)
    assert fingerprint(project) == before


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
def test_torch_compile(tmp_path: Path, project: Path) -> None:
    """What a compiler of torch leaves for its child processes, they find."""
    pytest.importorskip("torch")
    script = """
        import sys
        from pathlib import Path
        from florhook.replay.overlay import Overlay
        overlay = Overlay(Path(sys.argv[1]))
        overlay.install()
        import torch
        assert torch.compile(lambda x: x.sin() + 1)(torch.zeros(3)).sum() == 3
    """
    cache = tmp_path / "cache"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
    }
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "overlay")]
    subprocess.run(command, check=True, cwd=project, env=environment)
