"""`florhook completion`: what the Tab key offers, asked of the shells themselves."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Flor, run

SHELLS = ("bash", "zsh", "fish")
PATIENCE = 30.0  # seconds


@dataclass(frozen=True)
class Place:
    """A folder with a program, a store beside it with two runs, and `florhook` on the PATH."""

    flor: Flor
    runs: tuple[str, str]  # the older, the newer
    scripts: dict[str, str]

    def environ(self) -> dict[str, str]:
        path = f"{self.flor.folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return self.flor.environ(PATH=path, HOME=str(self.flor.folder.parent), TERM="xterm")

    def bash(self, *words: str) -> list[str]:
        """What stands in COMPREPLY when the last of the words is completed."""
        quoted = " ".join(f"'{word}'" for word in ("florhook", *words))
        text = f"{self.scripts['bash']}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words)}\n_florhook\n"
        text += 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = run(["bash", "--norc", "-c", text], self.flor.folder, self.environ())
        return done.stdout.split()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("completion")
    flor = Flor(root / "program", root / "store")
    flor.write("train.py", "for epoch in range(2):\n    print(epoch)\n")
    flor.write("notes.txt", "")
    flor.write("tool/__init__.py", "")
    command = root / "bin" / "florhook"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m florhook "$@"\n')
    command.chmod(0o755)
    for _ in range(2):
        assert flor("train.py").returncode == 0
    listed = flor("runs").stdout.splitlines()[1:]
    older, newer = (line.split()[0] for line in listed)
    scripts = {shell: flor("completion", shell).stdout for shell in SHELLS}
    return Place(flor, (older, newer), scripts)


def test_bash_completes_subcommands_and_programs(place: Place) -> None:
    """As the first word: subcommands by their beginning, .py files and folders, nothing else."""
    assert place.bash("sho") == ["show"]
    assert place.bash("p") == ["pin", "push"]
    assert place.bash("t") == ["train.py", "tool"]
    assert place.bash("no") == []
    assert {"replay", "runs", "init", "train.py", "tool"} <= set(place.bash(""))
    assert place.bash("doctor", "tr") == ["train.py"]


def test_bash_completes_options_and_their_values(place: Place) -> None:
    """Those of the place: of the command line, of a subcommand, and behind an option what it takes."""
    assert place.bash("--ep") == ["--epsilon"]
    assert place.bash("--max") == ["--max-bytes"]
    assert place.bash("logs", "--p") == ["--pivot", "--parquet"]
    assert place.bash("gc", "--d") == ["--delete", "--dry-run"]
    assert place.bash("--mode", "re") == ["record", "replay", "resume"]
    assert place.bash("--mode", "replay", "tra") == ["train.py"]
    assert place.bash("--home", "to") == ["tool"]
    assert place.bash("completion", "z") == ["zsh"]
    assert place.bash("--select", "") == []


def test_bash_leaves_the_program_s_arguments_alone(place: Place) -> None:
    """Behind a program all words are its own: bash completes file names then."""
    assert place.bash("train.py", "--mode", "re") == []
    assert place.bash("-m", "tool", "sho") == []
    assert place.bash("train.py", "--ep") == []


def test_bash_completes_runs(place: Place) -> None:
    """Ids of the store that the words or the variables name, where a run is expected."""
    older, newer = place.runs
    assert place.bash("show", "") == ["last", newer, older]
    assert place.bash("show", newer[:-1]) == [newer]
    assert place.bash("gc", "--delete", older) == [older]
    assert place.bash("--run", "la") == ["last"]
    assert place.bash("runs", "") == []
    assert place.bash("--home", "tool", "show", "") == []


def completed(place: Place, shell: list[str], start: str, typed: str) -> str:
    """The line as it is after Tab, from an interactive shell that is made to say it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place.flor.folder)
        os.execvpe(shell[0], shell, {**place.environ(), "PS1": "", "PROMPT": ""})
    shown = ""

    def until(pattern: str) -> str:
        nonlocal shown
        deadline = time.monotonic() + PATIENCE
        while not (match := re.search(pattern, shown)):
            left = deadline - time.monotonic()
            assert left > 0, shown
            if select.select([terminal], [], [], left)[0]:
                shown += os.read(terminal, 4096).decode()
        shown = shown[match.end() :]
        return match[1]

    try:
        os.write(terminal, f"{start}\necho rea''dy\n".encode())
        until(r"(ready)\r")
        os.write(terminal, f"{typed}\t".encode())
        time.sleep(1.0)  # the key is answered when the runs have been asked for
        os.write(terminal, b"\x01echo 'GOT'=\x05=\n")
        return until(r"GOT=\s?(.*?)\s*=[\r\n]").replace("\x1b[K", "")
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@pytest.mark.parametrize(("typed", "whole"), [("gc --del", "gc --delete"), ("tra", "train.py")])
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_in_a_terminal(shell: str, typed: str, whole: str, place: Place) -> None:
    """The whole way: the script is read in, Tab is pressed, the line is complete."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    load = f'eval "$(florhook completion {shell})"'
    if shell == "zsh":
        load = f"unsetopt prompt_sp; autoload -U compinit; compinit -u -D; {load}"
    command = [shell, "--norc", "-i"] if shell == "bash" else [shell, "-f", "-i"]
    assert completed(place, command, load, f"florhook {typed}") == f"florhook {whole}"


def test_fish(place: Place) -> None:
    """It tells what it would offer."""
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    path = Path(place.flor.folder.parent, "florhook.fish")
    path.write_text(place.scripts["fish"])

    def offered(line: str) -> list[str]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"],
            cwd=place.flor.folder, env=place.environ(), capture_output=True, text=True,
        )  # fmt: skip
        assert done.stderr == ""
        return [each.split("\t")[0] for each in done.stdout.splitlines()]

    older, newer = place.runs
    assert offered("florhook sho") == ["show"]
    assert offered("florhook tra") == ["train.py"]
    assert set(offered("florhook gc --d")) == {"--delete", "--dry-run"}
    assert offered("florhook show ") == ["last", newer, older]
    assert offered("florhook gc --delete la") == ["last"]
    assert set(offered("florhook --mode re")) == {"record", "replay", "resume"}
    assert offered("florhook completion z") == ["zsh"]
    assert offered("florhook train.py no") == ["notes.txt"]


def test_every_subcommand_has_a_page_and_is_completed(place: Place) -> None:
    """What the command line dispatches, the help and the scripts know."""
    from florhook.cli import SUBCOMMANDS
    from florhook.help import PAGE
    from florhook.help import SUBCOMMANDS as PAGES

    assert set(PAGES) == {*SUBCOMMANDS, "replay"} == set(place.bash("")) - {"train.py", "tool"}
    for name, page in PAGES.items():
        assert page.startswith(f"usage: florhook {name}")
        assert re.search(rf"\b{name} ", PAGE)


@pytest.mark.parametrize("words", [(), ("tcsh",), ("bash", "zsh")])
def test_wrong_usage(words: tuple[str, ...], flor: Flor) -> None:
    """One line."""
    said = flor("completion", *words)
    assert (said.returncode, said.stderr) == (2, "florhook: completion takes one of bash, zsh, fish\n")
