"""Rewritten modules that are kept from run to run: used where nothing has changed, and only there."""

from __future__ import annotations

import ast
import os
import warnings
from pathlib import Path
from types import CodeType

import pytest
from conftest import ROOT, Flor

from florhook.hook.kept import MOST, SEAL, KeptModules
from florhook.hook.quiet import without_syntax_warnings
from florhook.hook.rewrite import rewrite
from florhook.hook.sites import Instrumented
from florhook.store.keys import load_key

KEY = b"k" * 32
PROGRAM = """
    import helper
    for epoch in range(3):
        helper.train(epoch)
    print("end")
"""
HELPER = """
    def train(epoch):
        total = 0
        for step in range(4):
            total += abs(step * epoch)
        print(epoch, total)
"""
SHOWN = "0 0\n1 6\n2 12\nend\n"  # by hand: 0 + 1 + 2 + 3 is 6


def rewritten(source: str, path: str = "helper.py", replaying: bool = False) -> tuple[Instrumented, CodeType]:
    tree = ast.parse(source)
    info = rewrite(tree, Path(path).stem, path, replaying=replaying, statements={} if replaying else None)
    return info, compile(tree, path, "exec", dont_inherit=True)


def entries(flor: Flor) -> list[Path]:
    return sorted((flor.home / "rewritten").iterdir())


def of_helper(flor: Flor) -> Path:
    """The entry of helper.py: that in which its function's name stands."""
    (found,) = [
        path for path in entries(flor) if b"train" in path.read_bytes() and b"total" in path.read_bytes()
    ]
    return found


@pytest.mark.parametrize("replaying", [False, True])
def test_an_entry_gives_back_what_was_kept(tmp_path: Path, replaying: bool) -> None:
    """For whole programs: equal code objects, and all that the rewriting told."""
    kept = KeptModules(tmp_path / "kept", KEY)
    paths = [*ROOT.glob("tests/programs/*.py"), *ROOT.glob("src/florhook/hook/*.py")]
    assert len(paths) > 30
    for path in paths:
        try:
            with without_syntax_warnings():
                info, code = rewritten(path.read_text(), str(path), replaying)
        except (SyntaxError, UnicodeDecodeError):
            continue
        name = kept.name(path.read_bytes(), replaying)
        assert kept.get(name) is None
        kept.put(name, info, code)
        assert KeptModules(tmp_path / "kept", KEY).get(name) == (info, code)


@pytest.mark.usefixtures("own_key")
def test_the_next_run_takes_what_was_kept(flor: Flor) -> None:
    """Seen by an entry in whose place another is put; an edited module has another name."""
    assert load_key(create=True)
    flor.write("train.py", PROGRAM)
    helper = flor.write("helper.py", HELPER)
    assert flor("train.py").stdout == SHOWN
    assert len(entries(flor)) == 2
    info, _ = rewritten(helper.read_text())
    other = compile("def train(epoch): print('kept', epoch)", str(helper), "exec")
    key = load_key()
    assert key
    KeptModules(flor.home / "rewritten", key).put(of_helper(flor).name, info, other)
    done = flor("train.py")
    assert (done.stdout, done.stderr) == ("kept 0\nkept 1\nkept 2\nend\n", "")
    helper.write_text(helper.read_text().replace("abs(", "2 * abs("))
    assert flor("train.py").stdout == "0 0\n1 12\n2 24\nend\n"


@pytest.mark.usefixtures("own_key")
def test_runs_with_kept_modules_are_replayed(flor: Flor) -> None:
    """Twice recorded, twice replayed: the second time nothing of what is unchanged is rewritten."""
    assert load_key(create=True)
    program = flor.write("train.py", PROGRAM)
    flor.write("helper.py", HELPER)
    for _ in range(2):
        assert flor("train.py", FLOR_EPSILON="inf").stdout == SHOWN
    program.write_text(program.read_text().replace("    helper", "    print('@@', epoch)\n    helper"))
    for _ in range(2):
        done = flor("train.py", FLOR_MODE="replay")
        assert (done.returncode, done.stdout) == (0, "@@ 0\n@@ 1\n@@ 2\n"), done.stderr
    assert len(entries(flor)) == 3  # two of the recordings, and the helper's of the replay


@pytest.mark.usefixtures("own_key")
@pytest.mark.parametrize("harm", ["torn", "changed", "swapped", "another's"])
def test_what_is_not_as_it_was_written_is_not_used(flor: Flor, harm: str) -> None:
    """A torn or forged entry runs nothing: it is made anew."""
    assert load_key(create=True)
    flor.write("train.py", PROGRAM)
    flor.write("helper.py", HELPER)
    flor("train.py")
    entry = of_helper(flor)
    good = entry.read_bytes()
    info, code = rewritten("print('forged')")
    if harm == "torn":
        entry.write_bytes(good[: len(good) // 2])
    elif harm == "changed":
        entry.write_bytes(good[:SEAL] + good[SEAL:].replace(b"total", b"later"))
    elif harm == "swapped":
        (other,) = [path for path in entries(flor) if path != entry]
        entry.write_bytes(other.read_bytes())
    else:
        KeptModules(flor.home / "rewritten", KEY).put(entry.name, info, code)
    assert entry.read_bytes() != good
    done = flor("train.py")
    assert (done.stdout, done.stderr) == (SHOWN, "")
    assert entry.read_bytes() == good


@pytest.mark.usefixtures("own_key")
def test_warnings_are_given_each_time(flor: Flor) -> None:
    """A module of which Python warns is compiled in each run, as in a run without florhook that leaves no bytecode."""
    assert load_key(create=True)
    flor.write("train.py", PROGRAM)
    flor.write("helper.py", HELPER + "    assert (1, 'always')\n")
    plain = flor.python("train.py", PYTHONDONTWRITEBYTECODE="1")
    assert plain.stderr.count("SyntaxWarning") == 1
    for _ in range(2):
        done = flor("train.py", PYTHONDONTWRITEBYTECODE="1")
        assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)
    assert len(entries(flor)) == 1


@pytest.mark.usefixtures("own_key")
def test_a_file_in_the_folders_place(flor: Flor) -> None:
    assert load_key(create=True)
    flor.write("train.py", PROGRAM)
    flor.write("helper.py", HELPER)
    flor.home.mkdir()
    (flor.home / "rewritten").write_text("mine")
    done = flor("train.py")
    assert (done.stdout, done.stderr) == (SHOWN, "")
    assert (flor.home / "rewritten").read_text() == "mine"


def test_names_tell_what_decides(tmp_path: Path) -> None:
    """Another source, id or filter of warnings is another name; the same ones are the same."""
    kept = KeptModules(tmp_path, KEY)
    first = kept.name(b"x = 1", "path", (0, 2, 0))
    assert kept.name(b"x = 1", "path", (0, 2, 0)) == first
    others = [kept.name(b"x = 2", "path", (0, 2, 0)), kept.name(b"x = 1", "path", (0, 3, 0))]
    with warnings.catch_warnings():
        warnings.simplefilter("error", SyntaxWarning)
        others.append(kept.name(b"x = 1", "path", (0, 2, 0)))
    assert len({first, *others}) == 4


def test_the_older_ones_go(tmp_path: Path) -> None:
    """Of more than so many entries, the newest half of that number stays, and what is written then."""
    info, code = rewritten("x = 1")
    for number in range(MOST + 1):
        path = tmp_path / f"{number}"
        path.touch()
        os.utime(path, (number, number))
    KeptModules(tmp_path, KEY).put("new", info, code)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"new", *(f"{number}" for number in range(MOST + 1 - MOST // 2, MOST + 1))}
