"""`florhook doctor`: what it says of a program is what a recording of it does."""

from __future__ import annotations

import configparser
import json
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, Flor

from florhook.doctor.place import EXTRAS
from florhook.replay.record import Record
from florhook.store.store import Store

PROGRAM = """
    import json
    import os.path
    import sys
    import zipped
    import namespace.inner
    from package import sub, value
    from package.other import *
    try:
        import not_there
    except ImportError:
        pass
    if False:
        import broken

    def job():
        import package.late
        return package.late.value

    for epoch in range(2):
        for step in range(3):
            job()

    total = 0
    for number in range(3):
        total += number

    class Table:
        for row in range(2):
            pass

    def numbers():
        for number in range(3):
            yield number

    def njit(function):
        return function

    @njit
    def compiled():
        for number in range(3):
            print(number)

    def counted():
        for number in range(3):
            global total
            total += number

    list(numbers()), counted(), print(total, value, sub.value)
"""


def write_program(flor: Flor, text: str = PROGRAM) -> None:
    flor.write("train.py", text)
    flor.write("package/__init__.py", "value = 1\nif value:\n    from . import relative\n")
    flor.write("package/relative.py", "from .deeper import leaf\n")
    flor.write("package/deeper/__init__.py", "")
    flor.write("package/deeper/leaf.py", "value = 2\n")
    flor.write("package/sub.py", "import package.side\nvalue = 3\n")
    for name in ("side", "other", "late"):
        flor.write(f"package/{name}.py", "value = 4\n")
    flor.write("namespace/inner.py", "value = 5\n")
    flor.write("broken.py", "def f(:\n")
    flor.write("unused.py", "value = 6\n")
    with zipfile.ZipFile(flor.folder / "lib.zip", "w") as file:
        file.writestr("zipped.py", "value = 7\n")


def lines_of(text: str) -> dict[str, str]:
    """What stands behind each name that begins a line."""
    return {line.partition(":")[0].partition(" ")[0]: line for line in text.splitlines() if line[:1] != " "}


def test_what_it_says_is_what_a_recording_does(flor: Flor) -> None:
    """The modules called instrumented are those in the store, the loops called recorded those with an execution."""
    write_program(flor)
    path = os.pathsep.join([str(flor.folder / "lib.zip"), flor.environ()["PYTHONPATH"]])
    said = flor("doctor", "train.py", PYTHONPATH=path)
    assert (said.returncode, said.stderr) == (0, "")
    assert not flor.home.exists()
    done = flor("train.py", PYTHONPATH=path, FLOR_EPSILON="inf")
    assert done.returncode == 0, done.stderr
    with Store.open(flor.home) as store:
        record = Record(store, store.find("last"))
        executed = {(loop.site.key.partition(":")[0], loop.site.line) for loop in record.loops.values()}
        sources = {row.module for row in record.sources}
    lines = lines_of(said.stdout)
    assert {name for name, line in lines.items() if ": instrumented" in line} == sources
    loops = re.findall(r"^    line (\d+): (.*?)  \[(.*)\]$", said.stdout, re.MULTILINE)
    recorded = {int(line) for line, _, how in loops if how == "recorded" or how.startswith("entered")}
    assert {("__main__", line) for line in recorded} == executed
    source = (flor.folder / "train.py").read_text().splitlines()
    assert all(source[int(line) - 1].strip() == text for line, text, _ in loops)
    assert len(loops) == sum(line.strip().startswith("for ") for line in source)
    hindrances = [how for _, _, how in loops if how != "recorded"]
    assert [how.partition(":")[0].partition(" (")[0] for how in hindrances] == [
        "entered and left only",
        "it stands in a class body",
        "it suspends",
        "it is compiled by numba or torch",
        "it holds a global statement",
    ]


def test_the_reasons_for_what_is_left_alone(flor: Flor) -> None:
    """One for each kind of module, with the option that changes it."""
    write_program(flor)
    path = os.pathsep.join([str(flor.folder / "lib.zip"), flor.environ()["PYTHONPATH"]])
    said = flor("doctor", "-v", "train.py", PYTHONPATH=path, FLOR_EXCLUDE="package.late")
    lines = lines_of(said.stdout)
    reasons = {
        "json": "in the standard library",
        "sys": "built into Python",
        "zipped": "in a zip file",
        "not_there": "not found",
        "broken": "it cannot be parsed (line 1",
        "namespace": "a folder of modules",
        "package.late": "excluded by package.late",
    }
    for name, reason in reasons.items():
        assert f": not instrumented, {reason}" in lines[name], lines.get(name)
    assert "unused" not in lines
    assert ": instrumented" in lines["namespace.inner"]
    assert "os.path" not in lines


def test_installed_packages_are_summed_up(flor: Flor, tmp_path: Path) -> None:
    """By their top package, with the option that includes them; once included, they are the program's own."""
    site = tmp_path / "site-packages"
    for name in ("__init__", "a", "b"):
        (site / "lib").mkdir(parents=True, exist_ok=True)
        (site / "lib" / f"{name}.py").write_text("for number in range(3):\n    print(number)\n")
    flor.write("train.py", "import sys\nimport lib.a, lib.b\n")
    path = os.pathsep.join([str(site), flor.environ()["PYTHONPATH"]])
    # A folder of that name is an installation's only below the user's; here it is nobody's.
    said = flor("doctor", "train.py", PYTHONPATH=path)
    assert "lib, lib.a, lib.b: not instrumented, outside the script's folder" in said.stdout
    said = flor("doctor", "train.py", PYTHONPATH=path, FLOR_INCLUDE="lib.*")
    assert "lib.a and 1 more modules: instrumented, included by lib.*; 2 loops, 2 recorded" in said.stdout
    done = flor("train.py", PYTHONPATH=path, FLOR_INCLUDE="lib.*")
    with Store.open(flor.home) as store:
        modules = {row.module for row in Record(store, store.find("last")).sources}
    assert (done.returncode, modules) == (0, {"__main__", "lib.a", "lib.b"})


def test_a_library_s_loops_are_named(flor: Flor) -> None:
    """Those of the list, though only the library itself imports them."""
    pytest.importorskip("transformers")
    flor.write("train.py", "from transformers import Trainer\n")
    said = flor("doctor", "train.py")
    assert re.search(
        r"^transformers\.trainer: instrumented when it is imported, included by transformers\.trainer; \d+ loops",
        said.stdout,
        re.MULTILINE,
    )
    assert re.search(r"^transformers: not instrumented, in site-packages", said.stdout, re.MULTILINE)


@pytest.mark.parametrize("words", [("-m", "pack.tool"), ("-m", "pack"), ("folder",), ("-c", "import helper")])
def test_modules_folders_and_code(words: tuple[str, ...], flor: Flor) -> None:
    """Each with the search path that python would give it."""
    flor.write("pack/__init__.py", "")
    flor.write("pack/__main__.py", "import pack.helper\n")
    flor.write("pack/tool.py", "from . import helper\n")
    flor.write("pack/helper.py", "")
    flor.write("folder/__main__.py", "import helper\n")
    flor.write("folder/helper.py", "")
    flor.write("helper.py", "")
    said = flor("doctor", *words)
    done = flor(*words)
    assert (said.returncode, done.returncode) == (0, 0), (said.stderr, done.stderr)
    with Store.open(flor.home) as store:
        sources = {row.module: row.path for row in Record(store, store.find("last")).sources}
    found = dict(re.findall(r"^(\S+) \((.*?)\): instrumented", said.stdout, re.MULTILINE))
    assert {name: os.path.abspath(flor.folder / path) for name, path in found.items()} == {
        name: os.path.abspath(flor.folder / path) for name, path in sources.items()
    }


def test_wrong_usage(flor: Flor) -> None:
    """One line and status 2, as elsewhere."""
    for words in (["nothing.py"], ["-m", "nothing"], ["-x", "train.py"], ["-m"]):
        said = flor("doctor", *words)
        assert (said.returncode, said.stdout) == (2, ""), said
        assert re.fullmatch(r"florhook: .*\n", said.stderr)


def test_the_place(flor: Flor) -> None:
    """Without a program: a run was recorded both ways, nothing was left behind."""
    said = flor("doctor")
    assert (said.returncode, said.stderr) == (0, "")
    found = dict(line.split(": ", 1) for line in said.stdout.splitlines())
    assert found["recording"] == found["starting without a changed command (florhook sitedir)"] == "works"
    assert found["python"].startswith(f"CPython {sys.version.split()[0]}")
    assert found["store"].startswith(f"{flor.home} is not there yet and can be made")
    assert "psutil" in found["packages that florhook needs"]
    assert re.fullmatch(r"\d+ MB/s, of \d+ MB written and synced(; slow.*)?", found["disk"])
    assert found["settings"] == "no [tool.florhook] in a pyproject.toml"
    assert found["optional package pandas"].endswith(" (florhook.dataframe)")
    assert not flor.home.exists()
    assert list(flor.folder.iterdir()) == []


DOCTOR = "import sys; sys.path += {}; sys.argv[1:] = ['doctor']; from florhook.cli import main; main()"


def test_a_place_where_it_does_not_work(flor: Flor) -> None:
    """It says what went wrong, and ends well all the same."""
    flor.home.write_text("a file")
    home = flor.home / "store"
    done = flor.python("-S", "-c", DOCTOR.format(json.dumps(sys.path)), FLOR_HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert f"store: {home} cannot be made: {flor.home} is no folder" in done.stdout
    assert "disk: cannot be tried: Not a directory" in done.stdout
    assert "(florhook sitedir): cannot work: this Python was started with -S" in done.stdout


def test_every_extra_is_explained() -> None:
    """Those of setup.cfg that a user installs, each with what it is for."""
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    developers = {"test", "test-s3", "check", "examples"}
    extras = set(metadata["options.extras_require"]) - developers
    assert {extra for extra, _ in EXTRAS.values()} == extras


def test_the_settings_s_place_is_told(flor: Flor) -> None:
    """Where a pyproject.toml has a say."""
    (flor.folder / "pyproject.toml").write_text("[tool.florhook]\nworkers = 2\n")
    assert f"settings: from {flor.folder / 'pyproject.toml'}\n" in flor("doctor").stdout
