"""With the folder sitecustomize on PYTHONPATH and FLOR_MODE set, plain `python train.py` is taken over, exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_launch import PROGRAMS, ROOT, SCRIPTS, environ, result

from florhook.activate import decide, sitedir
from florhook.launch import Target

SITE = ROOT / "sitecustomize"
STUB = PROGRAMS / "stub"

PROGRAMS_RUN = [program for program in SCRIPTS if program[0] != "-c"]


def paths(*folders: Path) -> str:
    return os.pathsep.join(map(str, folders))


def python(*args: str, cwd: Path = PROGRAMS, **changes: str) -> subprocess.CompletedProcess[str]:
    env = environ(**{"PYTHONPATH": paths(SITE, STUB), "STUB_SAYS": "1", **changes})
    command = [sys.executable, *args]
    return subprocess.run(
        command, cwd=cwd, env=env, input="", capture_output=True, text=True, timeout=60, check=False
    )


def taken_over(*args: str, **changes: str) -> bool:
    return "taken over: " in python(*args, **{"FLOR_MODE": "record", **changes}).stderr


@pytest.mark.parametrize("program", PROGRAMS_RUN, ids=" ".join)
def test_a_program_taken_over_cannot_be_told_from_a_plain_run(program: Sequence[str]) -> None:
    """Every way to start and to end gives the same status and the same bytes."""
    path = paths(SITE, STUB)
    plain = result([sys.executable, *program], PROGRAMS, environ(PYTHONPATH=path))
    ours = result([sys.executable, *program], PROGRAMS, environ(PYTHONPATH=path, FLOR_MODE="record"))
    assert ours == plain


@pytest.mark.parametrize(
    "program",
    [
        ("bom.py",),
        ("./bom.py",),
        (str(PROGRAMS / "bom.py"),),
        ("folder",),
        ("-m", "bom"),
        ("-mbom",),
        ("-Bm", "package"),
    ],
    ids=" ".join,
)
def test_programs_of_the_user_are_taken_over(program: Sequence[str]) -> None:
    """Scripts, folders and modules are, in each mode that records or replays."""
    assert all(taken_over(*program, FLOR_MODE=mode) for mode in ("record", "replay", "resume"))


@pytest.mark.parametrize(
    "program",
    [
        ("-c", "1"),
        ("-m", "this"),
        ("-m", "json.tool", "-h"),
        ("-m", "pip", "-h"),
        ("-m", "nowhere"),
        ("-",),
        (),
    ],
    ids=" ".join,
)
def test_other_programs_are_left_alone(program: Sequence[str]) -> None:
    """Code on the command line, the library's own modules and what comes by stdin are not the user's programs."""
    assert not taken_over(*program)


@pytest.mark.parametrize(
    "changes",
    [{"FLOR_MODE": "off"}, {"FLOR_MODE": ""}, {"FLOR_OWNER": "run:1"}, {"FLOR_INERT": "1"}],
    ids=str,
)
def test_the_environment_keeps_it_inert(changes: dict[str, str]) -> None:
    """Nothing is taken over where no mode is set, in children of a run, and where florhook is told to keep out."""
    assert not taken_over("bom.py", **changes)
    code = "import sys; print([name for name in sys.modules if 'florhook' in name])"
    script = python("-c", code, **changes)
    assert script.stdout == "['florhook.cli']\n"  # the stub


def test_installed_programs_are_left_alone(tmp_path: Path) -> None:
    """A console script, and a script or module in site-packages, is not the user's; one beside them is."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    site_packages = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    scripts = [tmp_path / "venv" / "bin" / "tool", site_packages / "tool.py", tmp_path / "tool.py"]
    for script in scripts:
        script.write_text("print('ran')\n")
    env = environ(PYTHONPATH=paths(SITE, STUB), STUB_SAYS="1", FLOR_MODE="record")
    seen = []
    for args in [*([str(script)] for script in scripts), ["-m", "tool"]]:
        command = [tmp_path / "venv" / "bin" / "python", *args]
        done = subprocess.run(
            command, cwd=tmp_path / "venv", env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout == "ran\n"
        seen.append("taken over" in done.stderr)
    assert seen == [False, False, True, False]


def test_other_sitecustomize_files_still_run(tmp_path: Path) -> None:
    """The next one on the path runs under its own name, once, also where our folder is on the path twice."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('other', __name__, __file__)\n")
    (tmp_path / "link").symlink_to(SITE)
    for mode in ("record", "off"):
        path = paths(SITE, tmp_path / "link", SITE, other)
        done = python("-c", "import sitecustomize as s; print(s.__file__)", PYTHONPATH=path, FLOR_MODE=mode)
        file = other / "sitecustomize.py"
        assert done.stdout == f"other sitecustomize {file}\n{file}\n"
        assert done.stderr == ""


def test_without_another_sitecustomize_nothing_is_missing() -> None:
    """Ours alone is silent."""
    done = python(
        "-c", "import sitecustomize as s; print(s.__file__)", PYTHONPATH=str(SITE), FLOR_MODE="record"
    )
    assert (done.stderr, done.returncode) == ("", 0)


def test_errors_of_another_sitecustomize_are_reported_by_python(tmp_path: Path) -> None:
    """Python says of it what it says without florhook, and the program runs."""
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    plain = python("bom.py", PYTHONPATH=str(tmp_path))
    ours = python("bom.py", PYTHONPATH=paths(SITE, tmp_path))
    assert "theirs" in plain.stderr
    assert (ours.stdout, ours.stderr) == (plain.stdout, plain.stderr)


@pytest.mark.parametrize(("mode", "status"), [("record", 3), ("replay", 1), ("resume", 1)])
def test_a_broken_florhook_lets_a_recorded_program_run(tmp_path: Path, mode: str, status: int) -> None:
    """One line says so, and the program runs plainly; not so a replay, which would write over the run's files."""
    (tmp_path / "sitecustomize").mkdir()
    copy = tmp_path / "sitecustomize" / "sitecustomize.py"
    copy.write_bytes((SITE / "sitecustomize.py").read_bytes())
    (tmp_path / "src" / "florhook").mkdir(parents=True)
    (tmp_path / "src" / "florhook" / "__init__.py").touch()
    (tmp_path / "src" / "florhook" / "activate.py").write_text("1/0\n")
    done = python("exit_status.py", "3", PYTHONPATH=str(copy.parent), FLOR_MODE=mode)
    assert done.returncode == status
    assert done.stderr == "florhook: could not switch itself on (ZeroDivisionError: division by zero)\n"


def test_tracing_works_in_a_program_taken_over() -> None:
    """CPython turns tracing off in audit hooks; debuggers and coverage need it."""
    plain = python("trace.py")
    ours = python("trace.py", FLOR_MODE="record")
    assert "traced" in plain.stdout
    assert ours.stdout == plain.stdout


def test_it_costs_little_where_it_is_inert(tmp_path: Path) -> None:
    """Less than a millisecond, as Python itself measures it, and no import."""
    cache = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    times, imported = [], set()
    for _ in range(10):
        done = python("-X", "importtime", "-c", "", PYTHONPATH=str(SITE), FLOR_MODE="record", **cache)
        lines = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:")]
        times += [int(line[1]) for line in lines if line[2].strip() == "sitecustomize"]
        imported |= {line[2].strip() for line in lines}
    assert min(times) < 1000
    assert not {"florhook", "importlib.util", "pathlib", "re"} & imported


def test_sitedir_is_the_folder_that_switches_florhook_on() -> None:
    """The folder is found from the package."""
    assert sitedir() == SITE


def test_the_main_program_of_an_installation_is_not_the_users() -> None:
    """The standard library's own programs are told by location."""
    assert not decide(Target("script", os.__file__, [])).user
    assert not decide(Target("module", "json.tool", [])).user
    assert not decide(Target("module", "nowhere.at_all", [])).user
    assert decide(Target("script", __file__, [])).user
    assert decide(Target("script", str(PROGRAMS / "folder"), [])).user
