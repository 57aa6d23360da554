"""`--help`, of all and of each subcommand."""

from __future__ import annotations

import pytest
from conftest import Flor

from florhook.cli import SUBCOMMANDS, main
from florhook.help import PAGE
from florhook.help import SUBCOMMANDS as PAGES

NAMES = sorted({*SUBCOMMANDS, "replay"})


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["--help", "train.py"], ["--mode", "replay", "--help"]]
)
def test_the_page_of_all(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Among the options, before any program."""
    main(words)
    assert capsys.readouterr().out == PAGE


@pytest.mark.parametrize("name", NAMES)
def test_a_page_for_each(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the subcommand or before it, and whatever is wrong with the settings."""
    monkeypatch.setenv("FLOR_WORKERS", "wrong")
    for words in ([name, "--help"], [name, "-h"], ["--help", name]):
        main(words)
        assert capsys.readouterr().out == PAGES[name]
    assert all(len(line) <= 120 for line in PAGES[name].splitlines())


def test_the_program_s_help_is_the_program_s(flor: Flor) -> None:
    """Also where the program is called like a subcommand, and where doctor is asked about it."""
    flor.write("train.py", "import sys\nprint('mine', *sys.argv[1:])\n")
    (flor.folder / "runs").write_bytes((flor.folder / "train.py").read_bytes())
    assert flor("train.py", "--help", FLOR_MODE="off").stdout == "mine --help\n"
    assert flor("runs", "--help", FLOR_MODE="off").stdout == "mine --help\n"
    assert "__main__ (train.py): instrumented" in flor("doctor", "train.py", "--help").stdout
