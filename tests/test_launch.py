"""A program run by florhook.launch cannot be told from one run by plain python: status, stdout and stderr are equal.

The runner is a list of words put between `python [options]` and the program, so that the same table serves any of them.
"""

from __future__ import annotations

import os
import py_compile
import re
import signal
import subprocess
import sys
import traceback
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import Flor

from florhook.launch import INTERRUPTED, UNFLUSHED, trim

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "programs"
DRIVER = ("-m", "launch_driver")
ISOLATED_DRIVER = (str(PROGRAMS / "driver" / "isolated_driver.py"),)

Result = tuple[int, bytes, bytes]

SCRIPTS = [
    ("attributes.py", "a", "-b", "--help"),
    ("./attributes.py",),
    ("../programs/folder/../attributes.py",),
    (str(PROGRAMS / "attributes.py"),),
    ("chained.py",),
    ("group.py",),
    ("excepthook.py",),
    ("excepthook_fails.py",),
    ("excepthook_exits.py",),
    ("excepthook_missing.py",),
    ("syntax_error.py",),
    ("indentation_error.py",),
    ("latin1.py",),
    ("bom.py",),
    *[("exit_status.py", how) for how in ("0", "3", "256", "none", "text", "negative", "true", "list")],
    ("os_exit.py",),
    ("interrupt.py",),
    ("terminate.py",),
    ("threads.py",),
    ("at_exit.py",),
    ("at_exit.py", "exit"),
    ("at_exit.py", "raise"),
    ("lifetimes.py", "exit"),
    ("lifetimes.py", "raise"),
    ("pool.py", "spawn"),
    ("pool.py", "forkserver"),
    ("pool.py", "fork"),
    ("source.py",),
    ("stdin.py",),
    ("broken_stdout.py",),
    ("broken_stdout.py", "raise"),
    ("interleaved.py",),
    ("no_streams.py",),
    ("recursion.py",),
    ("trace.py",),
    ("forks.py",),
    ("bad_import.py",),
    ("missing.py",),
    ("folder", "a"),
    ("./folder/",),
    ("empty",),
    ("-m", "attributes", "a", "-m"),
    ("-m", "package", "x"),
    ("-m", "package.sub.tool", "x"),
    ("-m", "package.sub"),
    ("-m", "package.missing"),
    ("-m", "package.raises"),
    ("-m", "nowhere"),
    ("-m", "nowhere.at.all"),
    ("-m", "syntax_error"),
    ("-m", "package.broken"),
    ("-m", "interrupt"),
    ("-m", "chained"),
    ("-m", "at_exit", "exit"),
    ("-m", "at_exit", "raise"),
    ("-m", "interleaved"),
    ("-m", "excepthook"),
    ("-m", "this"),
    ("-m", "recursion"),
    (
        "-c",
        "import sys; print(sys.argv, sys.path[0] == '', sorted(set(globals()) - {'__flor__'}), __loader__)",
        "a",
    ),
    ("-c", "print('é')\n1/0"),
    ("-c", "x = = 1"),
    ("-c", "raise SystemExit('bye')"),
]

OPTIONS = [("-P",), ("-I",), ("-B", "-O"), ("-W", "error"), ("-X", "dev"), ("-s", "-E"), ("-u",)]
SEEN_WITH_OPTIONS = [
    ("attributes.py",),
    ("folder",),
    ("-m", "attributes"),
    ("-c", "import sys; print(sys.path)"),
]


def environ(**changes: str) -> dict[str, str]:
    """The environment of a child: nothing of florhook's settings, its source and the driver importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLOR_", "PYTHON"))}
    path = os.pathsep.join((str(ROOT / "src"), str(PROGRAMS / "driver")))
    return {
        **kept,
        "PYTHONPATH": path,
        "PYTHONIOENCODING": "utf-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        **changes,
    }


def result(command: Sequence[str], cwd: Path, env: dict[str, str]) -> Result:
    """What a command leaves: its status, stdout and stderr, less the addresses of objects."""
    done = subprocess.run(command, cwd=cwd, env=env, input=b"one\ntwo\n", capture_output=True, timeout=60)
    return done.returncode, without_addresses(done.stdout), without_addresses(done.stderr)


def without_addresses(output: bytes) -> bytes:
    """Nor what a recording says, once, where it could keep no state."""
    output = re.sub(rb"(?m)^florhook: \d+ checkpoints were not taken .*\n", b"", output)
    return re.sub(rb"0x[0-9a-f]+", b"0x...", output)


def assert_same(
    program: Sequence[str],
    tmp_path: Path,
    runner: Sequence[str] = DRIVER,
    options: Sequence[str] = (),
    cwd: Path = PROGRAMS,
    **changes: str,
) -> Result:
    """Compares a program under a runner with plain python, and gives what both did."""
    env = environ(FLOR_HOME=str(tmp_path / "store"), **changes)
    plain = result([sys.executable, *options, *program], cwd, env)
    ours = result([sys.executable, *options, *runner, *program], cwd, env)
    assert ours == plain
    return plain


@pytest.mark.parametrize("program", SCRIPTS, ids=" ".join)
def test_a_program_cannot_be_told_from_a_plain_run(program: tuple[str, ...], tmp_path: Path) -> None:
    """Every way to start and to end gives the same status and the same bytes."""
    assert_same(program, tmp_path)


@pytest.mark.parametrize("program", SEEN_WITH_OPTIONS, ids=" ".join)
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_interpreter_options_are_kept(
    program: tuple[str, ...], options: tuple[str, ...], tmp_path: Path
) -> None:
    """-P, -I and their kin decide `sys.path[0]` and the flags as they do for plain python."""
    if options == ("-P",) and sys.version_info < (3, 11):
        pytest.skip("-P came with Python 3.11")
    # With -I and -E nothing finds the driver by PYTHONPATH.
    runner = ISOLATED_DRIVER if {"-I", "-E"} & set(options) else DRIVER
    assert_same(program, tmp_path, runner, options)


def test_the_path_is_safe_when_the_environment_says_so(tmp_path: Path) -> None:
    """PYTHONSAFEPATH does what -P does."""
    assert_same(("attributes.py",), tmp_path, PYTHONSAFEPATH="1")


def test_a_linked_script_imports_from_beside_its_target(tmp_path: Path) -> None:
    """`sys.path[0]` is the folder of the link's target, for links that are absolute, relative and of a folder."""
    (tmp_path / "absolute.py").symlink_to(PROGRAMS / "attributes.py")
    (tmp_path / "relative.py").symlink_to("real/attributes.py")
    (tmp_path / "again.py").symlink_to("relative.py")
    (tmp_path / "real").symlink_to(PROGRAMS)
    for script in ("absolute.py", "relative.py", "again.py", "real/attributes.py"):
        _, stdout, _ = assert_same((script,), tmp_path, cwd=tmp_path)
        assert str(PROGRAMS).encode() in stdout


def test_zip_files_and_bytecode_run(tmp_path: Path) -> None:
    """A zip file with `__main__.py` and a lone .pyc are run as plain python runs them."""
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        archive.write(PROGRAMS / "attributes.py", "__main__.py")
    py_compile.compile(str(PROGRAMS / "attributes.py"), str(tmp_path / "program.pyc"))
    (tmp_path / "program.py").write_bytes((tmp_path / "program.pyc").read_bytes())
    for script in ("program.zip", "program.pyc", "program.py"):
        assert_same((script,), tmp_path, cwd=tmp_path)


def test_an_unreadable_script_is_reported_as_python_does(tmp_path: Path) -> None:
    """What cannot be opened gives python's message and status 2."""
    (tmp_path / "loop.py").symlink_to("loop.py")
    status, _, stderr = assert_same(("loop.py",), tmp_path, cwd=tmp_path)
    assert status == 2
    assert b"can't open file" in stderr


@pytest.mark.parametrize(
    ("program", "status"),
    [
        (("exit_status.py", "3"), 3),
        (("exit_status.py", "256"), 0),
        (("exit_status.py", "text"), 1),
        (("at_exit.py",), 0),
        (("chained.py",), 1),
        (("excepthook_exits.py",), 7),
        (("interrupt.py",), INTERRUPTED),
        (("broken_stdout.py",), UNFLUSHED),
        (("broken_stdout.py", "raise"), UNFLUSHED),
        (("missing.py",), 2),
        (("forks.py",), 0),
        (("-m", "package"), 6),
        (("os_exit.py",), None),
    ],
    ids=str,
)
def test_at_exit_is_called_once_with_the_status(
    program: tuple[str, ...], status: int | None, tmp_path: Path
) -> None:
    """The status told is the one that the process will have; after `os._exit` nothing is told."""
    told = tmp_path / "status"
    command = [sys.executable, *DRIVER, *program]
    returned, _, _ = result(command, PROGRAMS, environ(DRIVER_STATUS=str(told)))
    assert (told.read_text() if told.exists() else "") == ("" if status is None else f"{status}\n")
    if status is not None:
        assert returned == (-signal.SIGINT if status == INTERRUPTED else status)


def test_failing_callbacks_do_not_disturb_the_program(tmp_path: Path) -> None:
    """If florhook's own parts fail, the program runs as it is, and one line on stderr says so."""
    driver = tmp_path / "failing.py"
    driver.write_text(
        "import sys\n"
        "from florhook.launch import Target, run\n"
        "def fail(*args): raise RuntimeError('ours')\n"
        "run(Target('script', sys.argv[1], sys.argv[2:]), fail, fail, fail)\n"
    )
    done = result([sys.executable, str(driver), "exit_status.py", "3"], PROGRAMS, environ())
    assert done[:2] == (3, b"")
    lines = done[2].decode().splitlines()
    assert len(lines) == 2
    assert all(line.startswith("florhook: could not ") for line in lines)


def test_trim_removes_our_frames_wherever_they_are() -> None:
    """Frames at the start, in the middle and in the causes go; the program's own stay."""
    ours = {"__name__": "florhook.anything"}
    exec("def call(f):\n    return f()", ours)

    def inner() -> None:
        raise KeyError

    def outer() -> None:
        try:
            ours["call"](inner)
        except KeyError as error:
            raise ValueError from error

    with pytest.raises(ValueError) as caught:
        ours["call"](outer)
    error = caught.value
    trim(error)
    assert error.__cause__ is not None
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:] == ["outer"]
    assert [frame.name for frame in traceback.extract_tb(error.__cause__.__traceback__)] == ["outer", "inner"]


def test_importing_launch_is_cheap() -> None:
    """Start-up imports none of the slow parts of the standard library."""
    code = "import runpy, sys; import florhook.launch; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ(), capture_output=True, text=True, check=True
    )
    assert not {"inspect", "multiprocessing", "typing", "ast", "dataclasses", "pathlib"} & set(
        done.stdout.split()
    )


def test_a_module_is_found_from_a_console_script_too(tmp_path: Path) -> None:
    """`florhook -m module` is `python -m florhook -m module`: a script's own folder is not where modules are."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "start.py").write_text("from florhook.cli import main\nmain()\n")
    (tmp_path / "tool.py").write_text("import sys\nprint(sys.path[0], __name__)\n")
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "FLOR_MODE": "off"}
    plain, ours = (
        subprocess.run([sys.executable, *words], cwd=tmp_path, env=environ, capture_output=True, text=True)
        for words in (("-m", "tool"), ("bin/start.py", "-m", "tool"))
    )
    assert (ours.returncode, ours.stdout) == (0, plain.stdout), ours.stderr
    assert plain.stdout == f"{tmp_path.resolve()} __main__\n"


@pytest.mark.parametrize("words", [["s.py"], ["-m", "nothing_of_that_name"], ["-c", "print('code')"]])
def test_a_working_folder_that_was_removed(flor: Flor, words: list[str]) -> None:
    """Python runs what it finds all the same; so does a recording, which says that there is none."""
    script = flor.write("s.py", "print('ran')\n")
    gone = flor.folder / "gone"
    for place in ([str(script)], words):
        outcomes = []
        for command in ([], ["-m", "florhook"]):
            gone.mkdir()
            shell = ["/bin/sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", sys.executable, *command, *place]
            done = subprocess.run(shell, cwd=gone, env=flor.environ(), capture_output=True, text=True)
            errors = [line for line in done.stderr.splitlines() if not line.startswith("florhook: ")]
            outcomes.append((done.returncode, done.stdout, [line.rpartition("/")[2] for line in errors]))
        assert outcomes[0] == outcomes[1]
        assert "the program runs without being recorded" in done.stderr
    gone.mkdir()
    shell = ["/bin/sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", sys.executable, "-m", "florhook", "runs"]
    done = subprocess.run(shell, cwd=gone, env=flor.environ(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "florhook: the working folder is not there any more\n"
