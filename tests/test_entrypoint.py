"""scripts/docker-entrypoint.sh, started as a container engine starts process 1."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENTRYPOINT = ROOT / "scripts" / "docker-entrypoint.sh"

# In place of `python`: it tells how it was started, or runs the program after `-m florhook` plainly.
STUB = """#!{python}
import json, os, sys

if len(sys.argv) > 3 and sys.argv[3].endswith(".py"):
    os.execv({python!r}, [{python!r}, *sys.argv[3:]])
env = {{name: value for name, value in os.environ.items() if name.startswith("FLOR_")}}
print(json.dumps({{"pid": os.getpid(), "argv": sys.argv[1:], "env": env}}))
"""

WAITING = """
import os, signal, sys, time

{handler}
os.write(1, b"ready\\n")  # a handler that is called in the middle of a print cannot print
time.sleep(60)
"""

HANDLER = """
def stop(number, frame):
    print("stopping", flush=True)
    sys.exit(7)

signal.signal(signal.SIGTERM, stop)
"""


def container(tmp_path: Path, python: str) -> dict[str, str]:
    """The container's environment, with the script `python` as its python."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "python").write_text(python)
    (bin_folder / "python").chmod(0o755)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("FLOR_")}
    return {
        **ours,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "FLOR_HOME": str(tmp_path / "flor"),
    }


@pytest.fixture
def stub(tmp_path: Path) -> dict[str, str]:
    return container(tmp_path, STUB.format(python=sys.executable))


@pytest.fixture(params=["stub", pytest.param("florhook", marks=pytest.mark.slow)])
def environ(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """With the stub, and with the real florhook recording."""
    if request.param == "stub":
        return container(tmp_path, STUB.format(python=sys.executable))
    if importlib.util.find_spec("florhook.cli") is None:
        pytest.skip("florhook has no command line yet")
    return container(tmp_path, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')


@contextmanager
def started(
    environ: dict[str, str], *args: str, prefix: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    command = [*prefix, str(ENTRYPOINT), *args]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(environ: dict[str, str], *args: str) -> dict:
    with started(environ, *args) as process:
        out = json.loads(process.communicate(timeout=30)[0])
        return {**out, "same process": out["pid"] == process.pid, "exit": process.returncode}


def test_python_takes_the_place_of_the_script(stub: dict[str, str]) -> None:
    """exec: the program is the process that the engine started, and gets its arguments unchanged."""
    out = told(stub, "train.txt", "--lr", "0.1", "two words", "*")
    assert out["same process"]
    assert out["argv"] == ["-m", "florhook", "train.txt", "--lr", "0.1", "two words", "*"]


@pytest.mark.parametrize(
    ("args", "passed"),
    [
        ((), ["--help"]),
        (("florhook",), ["--help"]),
        (("florhook", "runs"), ["runs"]),
        (("runs",), ["runs"]),
        (("show", "last"), ["show", "last"]),
        (("-m", "shop.train", "--lr", "0.1"), ["-m", "shop.train", "--lr", "0.1"]),
        (("--mode", "off", "-m", "shop"), ["--mode", "off", "-m", "shop"]),
    ],
)
def test_what_runs(stub: dict[str, str], args: tuple[str, ...], passed: list[str]) -> None:
    """Programs, modules, subcommands and nothing at all."""
    assert told(stub, *args)["argv"] == ["-m", "florhook", *passed]


def test_variables_pass_through(stub: dict[str, str]) -> None:
    """FLOR_MODE and its kin reach florhook; FLOR_HOME is the volume unless it is said."""
    assert told({**stub, "FLOR_MODE": "replay", "FLOR_SELECT": "epoch=3:5"}, "train.txt")["env"] == {
        "FLOR_MODE": "replay",
        "FLOR_SELECT": "epoch=3:5",
        "FLOR_HOME": stub["FLOR_HOME"],
    }
    without = {name: value for name, value in stub.items() if name != "FLOR_HOME"}
    assert told(without, "train.txt")["env"] == {"FLOR_HOME": "/flor"}


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "train.py"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("code", [0, 1, 3, 77])
def test_exit_code(environ: dict[str, str], program: Callable[[str], str], code: int) -> None:
    """The program's exit code is the container's."""
    with started(environ, program(f"import sys\nsys.exit({code})\n")) as process:
        assert process.wait(timeout=60) == code


def test_sigterm_reaches_the_program(environ: dict[str, str], program: Callable[[str], str]) -> None:
    """A handler of the program runs and decides the exit code."""
    with started(environ, program(WAITING.format(handler=HANDLER))) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == "stopping\n"
        assert process.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_without_a_handler(
    environ: dict[str, str], program: Callable[[str], str], number: signal.Signals
) -> None:
    """Without one the program ends as plain python does: by the signal itself."""
    with started(environ, program(WAITING.format(handler=""))) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(timeout=60) == -number


def own_pid_namespace() -> tuple[str, ...]:
    """A command prefix under which the entrypoint really is process 1, empty where that is not allowed."""
    prefix = ("unshare", "--pid", "--fork", "--kill-child")
    allowed = (
        shutil.which("unshare") and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    )
    return prefix if allowed else ()


def test_as_process_1(environ: dict[str, str], program: Callable[[str], str]) -> None:
    """Where it really is process 1, SIGTERM reaches the program's handler too."""
    prefix = own_pid_namespace()
    if not prefix:
        pytest.skip("no process namespaces here")
    text = "import os\nprint(os.getpid(), flush=True)\n" + WAITING.format(handler=HANDLER)
    with started(environ, program(text), prefix=prefix) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        assert process.stdout.readline() == "ready\n"
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == "stopping\n"
        assert process.returncode == 7


def test_image_runs_the_entrypoint_under_an_init() -> None:
    """Process 1 gets no signal that it has no handler for, so the image must not make python process 1."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["tini", "--", "docker-entrypoint"]' in dockerfile
    assert "scripts/docker-entrypoint.sh /usr/local/bin/docker-entrypoint" in dockerfile
    assert "FLOR_HOME=/flor" in dockerfile
    assert "scripts" not in (ROOT / ".dockerignore").read_text().split()
