"""Settings in the project's pyproject.toml, and `florhook init`, which puts them there."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Flor, run

from florhook.errors import UsageError
from florhook.project import KEYS, NAME, read_table
from florhook.settings import AUTO, Settings, from_sources

PROGRAM = "for epoch in range(3):\n    print(epoch)\n"
BROKEN = "[tool.florhook]\nhome = = 'x'\n"


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    path.write_text(text)
    return path


def settings_of(folder: Path, text: str, flags: dict[str, str] | None = None, **variables: str) -> Settings:
    write(folder, f"[tool.florhook]\n{text}")
    return from_sources(variables, flags or {}, folder)


def test_every_key(tmp_path: Path) -> None:
    """Each with the type that TOML has for it."""
    got = settings_of(
        tmp_path,
        "mode = 'replay'\nhome = 'a/b'\nrun = '2026'\nselect = 'epoch=3:5'\nlog = 'all'\nstats = 's.json'\n"
        "at = 'epoch=7'\nepsilon = 0.25\nworkers = 3\nmax_bytes = 5000\ninclude = ['a.*', 'b']\n"
        "exclude = 'c, d'\nquiet = true\n",
    )
    assert got == Settings(
        mode="replay", home=tmp_path / "a/b", run="2026", select="epoch=3:5", log="all", stats=tmp_path / "s.json",
        at="epoch=7", epsilon=0.25, workers=3, max_bytes=5000, include=("a.*", "b"), exclude=("c", "d"), quiet=True,
        configured=str(tmp_path / NAME),
    )  # fmt: skip
    assert len(KEYS) == 15
    more = settings_of(
        tmp_path, "epsilon = inf\nworkers = 'auto'\nmax_bytes = '2K'\nhome = 's3://b/c'\nquiet = false"
    )
    assert (more.epsilon, more.workers, more.max_bytes) == (math.inf, AUTO, 2000)
    assert (more.remote, more.quiet) == ("s3://b/c", False)


def test_a_flag_comes_before_a_variable_before_the_file(tmp_path: Path) -> None:
    """For each of them alone; relative paths count from where they were given."""
    text = "home = 'file'\nworkers = 2\nquiet = true\n"
    assert settings_of(tmp_path, text).workers == 2
    assert settings_of(tmp_path, text, FLOR_WORKERS="3").workers == 3
    assert settings_of(tmp_path, text, {"workers": "4"}, FLOR_WORKERS="3").workers == 4
    assert not settings_of(tmp_path, text, FLOR_QUIET="0").quiet
    below = tmp_path / "below"
    below.mkdir()
    assert from_sources({}, {}, below).home == tmp_path / "file"
    assert from_sources({"FLOR_HOME": "mine"}, {}, below).home == below / "mine"
    assert from_sources({}, {}, below).base == tmp_path


def test_the_nearest_file_is_the_one(tmp_path: Path) -> None:
    """Even if it has no table of ours."""
    write(tmp_path, "[tool.florhook]\nworkers = 2\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert from_sources({}, {}, below).workers == 2
    write(tmp_path / "a", "[project]\nname = 'x'\n")
    assert from_sources({}, {}, below) == Settings(home=below / ".florhook")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epsilom = 1", "[tool.florhook] has no key 'epsilom'; it knows mode, home, run, "),
        ("key = 'k'", "[tool.florhook] has no key 'key'"),
        ("workers = 0", "[tool.florhook] workers must be a number of processes from 1 on, or auto, not '0'"),
        ("workers = 1.5", "[tool.florhook] workers must be a number of processes from 1 on, or auto, not '1.5'"),
        ("workers = true", "[tool.florhook] workers must be a number or a text, not True"),
        ("epsilon = []", "[tool.florhook] epsilon must be a number or a text, not []"),
        ("mode = 'rec'", "[tool.florhook] mode must be one of record, replay, resume, off, not 'rec'"),
        ("home = 3", "[tool.florhook] home must be a text, not 3"),
        ("include = [1]", "[tool.florhook] include must be a list of texts, not [1]"),
        ("quiet = 'yes'", "[tool.florhook] quiet must be true or false, not 'yes'"),
        ("max_bytes = 'much'", "[tool.florhook] max_bytes must be a number of bytes such as 500M or 20G, not 'much'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str, said: str, tmp_path: Path) -> None:
    """File, key and value in one line."""
    with pytest.raises(UsageError) as caught:
        settings_of(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / NAME}: {said}")
    assert "\n" not in str(caught.value)


def test_a_variable_that_is_wrong_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    """The message names where the value came from."""
    with pytest.raises(UsageError, match=r"^FLOR_WORKERS must"):
        settings_of(tmp_path, "workers = 2", FLOR_WORKERS="x")
    with pytest.raises(UsageError, match=r"^--workers must"):
        settings_of(tmp_path, "workers = 2", {"workers": "x"})


@pytest.mark.parametrize(
    "text",
    [
        "[tool.'florhook']\nworkers = 2\n",
        "['tool'.florhook]\nworkers = 2\n",
        "tool.florhook.workers = 2\n",
        "[tool]\nflorhook.workers = 2\n",
        "[tool]\nflorhook = {workers = 2}\n",
        "[ tool . florhook ]\nworkers = 2\n",
    ],
)
def test_other_ways_to_write_the_table(text: str, tmp_path: Path) -> None:
    write(tmp_path, text)
    assert from_sources({}, {}, tmp_path).workers == 2


def test_what_is_no_table(tmp_path: Path) -> None:
    """A list of tables, and a file that begins with a byte order mark, which TOML has not."""
    write(tmp_path, "[[tool.florhook]]\nworkers = 2\n")
    with pytest.raises(UsageError, match=r"\[tool\.florhook\] must be a table$"):
        read_table(tmp_path)
    write(tmp_path, "\ufeff[tool.florhook]\nworkers = 2\n")
    assert "the file is no valid TOML" in read_table(tmp_path).problem


@pytest.mark.parametrize("content", [b"[tool.ruff]\n# [tool.florhook]\nx = = 1\n", b"\xff\xfe", b""])
def test_a_file_that_says_nothing_of_us_is_not_read(content: bytes, tmp_path: Path) -> None:
    """However broken it is."""
    (tmp_path / NAME).write_bytes(content)
    assert read_table(tmp_path) == read_table(tmp_path / "nowhere") == type(read_table(tmp_path))()


def test_no_parser_is_imported_where_it_is_not_needed(tmp_path: Path) -> None:
    """Start-up stays as fast as it was."""
    code = (
        "import sys, florhook.cli as cli; cli.from_sources({}, {}, cli.Path(sys.argv[1])); "
        "print({'tomllib', 'tomli'} & sys.modules.keys() != set())"
    )
    for text, imported in (("[tool.ruff]\n", "False"), ("[tool.florhook]\nhome = '/x'\n", "True")):
        write(tmp_path, text)
        done = run([sys.executable, "-c", code, str(tmp_path)], tmp_path, Flor(tmp_path, tmp_path).environ())
        assert done.stdout == f"{imported}\n", done.stderr


def without_home(flor: Flor, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in flor.environ(**changes).items() if name != "FLOR_HOME"}
    return run([sys.executable, "-m", "florhook", *words], flor.folder, environ)


def test_a_wrong_table_stops_before_the_program(flor: Flor) -> None:
    """With one line, and nothing of the program has run."""
    flor.write("train.py", PROGRAM)
    write(flor.folder, "[tool.florhook]\nworks = 1\n")
    done = without_home(flor, "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"florhook: {flor.folder / NAME}: [tool.florhook] has no key 'works'")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("start", [["-m", "florhook"], ["-c", "from florhook.cli import main; main()"]])
def test_a_broken_file_does_not_harm_a_recording(start: list[str], flor: Flor) -> None:
    """One line, however florhook was started; the run is recorded, and replayed with the same line."""
    flor.write("train.py", PROGRAM)
    write(flor.folder, BROKEN)
    environ = {name: value for name, value in flor.environ().items() if name != "FLOR_HOME"}
    for more in ({}, {"FLOR_MODE": "replay", "FLOR_LOG": "all"}):
        done = run([sys.executable, *start, "train.py"], flor.folder, {**environ, **more})
        assert (done.returncode, done.stdout) == (0, "0\n1\n2\n"), done.stderr
        ours = [line for line in done.stderr.splitlines() if NAME in line]
        assert len(ours) == 1
        assert ours[0].startswith(
            f"florhook: {flor.folder / NAME}: [tool.florhook] is not read, the file is no valid"
        )
    assert (flor.folder / ".florhook" / "catalog.sqlite").exists()


def test_off_in_the_file_is_a_plain_run(flor: Flor) -> None:
    """The program finds its environment as it was, though florhook has been started anew for the hash seed."""
    flor.write("train.py", "import os\nprint(sorted(name for name in os.environ if 'HASH' in name))\n")
    write(flor.folder, "[tool.florhook]\nmode = 'off'\n")
    done = without_home(flor, "train.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    assert not (flor.folder / ".florhook").exists()


def test_replay_in_the_file(flor: Flor) -> None:
    """The record's hash seed is the replay's, though the process has drawn another one before it read the file."""
    flor.write(
        "train.py",
        "import os\nfor name in {'a', 'b', 'c', 'd'}:\n    print(name, os.environ.get('PYTHONHASHSEED'))\n",
    )
    recorded = without_home(flor, "train.py")
    write(flor.folder, "[tool.florhook]\nmode = 'replay'\nlog = 'all'\n")
    done = without_home(flor, "train.py")
    assert (done.returncode, done.stdout) == (0, recorded.stdout), done.stderr


# florhook init


def init(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "florhook", "init", *words], folder, Flor(folder, folder).environ())


def test_init_in_a_new_project(tmp_path: Path) -> None:
    """Both files are made; the settings are as without; a second time changes nothing; git ignores a store below."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    done = init(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{tmp_path / NAME}: made, with a table [tool.florhook], all of it commented out",
        f"{tmp_path / '.gitignore'}: made, with the line .florhook/",
    ]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert before[".gitignore"] == b".florhook/\n"
    assert from_sources({}, {}, tmp_path) == Settings(
        home=tmp_path / ".florhook", configured=str(tmp_path / NAME)
    )
    again = init(tmp_path)
    assert [line.split(": ")[1] for line in again.stdout.splitlines()] == [
        "has a table [tool.florhook] already",
        "has the line .florhook/ already",
    ]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    store = tmp_path / "below" / ".florhook"
    store.mkdir(parents=True)
    ignored = subprocess.run(["git", "check-ignore", "-q", store / "catalog.sqlite"], cwd=tmp_path)
    assert ignored.returncode == 0


def test_what_init_writes_is_right_once_it_is_uncommented(tmp_path: Path) -> None:
    """Each key is there, with a value that is taken."""
    init(tmp_path)
    text = (tmp_path / NAME).read_text()
    (tmp_path / NAME).write_text(
        "\n".join(line.removeprefix("#") if line[1:2] != " " else line for line in text.split("\n"))
    )
    assert set(read_table(tmp_path).values) == set(KEYS)
    assert from_sources({}, {}, tmp_path).max_bytes == 20_000_000_000


def test_init_appends(tmp_path: Path) -> None:
    """What was there stays, byte for byte, with its ends of lines; --dry-run leaves all as it is."""
    (tmp_path / ".git").mkdir()
    (tmp_path / NAME).write_bytes(b"[project]\r\nname = 'x'")
    (tmp_path / ".gitignore").write_bytes(b"*.pyc")
    below = tmp_path / "below"
    below.mkdir()
    dry = init(below, "--dry-run")
    assert dry.returncode == 0
    assert "would be added" in dry.stdout
    assert (tmp_path / NAME).read_bytes() == b"[project]\r\nname = 'x'"
    done = init(below)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".gitignore").read_bytes() == b"*.pyc\n.florhook/\n"
    text = (tmp_path / NAME).read_bytes()
    assert text.startswith(b"[project]\r\nname = 'x'\r\n\r\n[tool.florhook]\r\n")
    assert text.count(b"\n") == text.count(b"\r\n")
    assert list(below.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "enough"), [(".florhook", True), ("/.florhook/", True), ("#.florhook", False)]
)
def test_init_knows_other_ways_to_ignore(line: str, enough: bool, tmp_path: Path) -> None:
    """No second line for the same."""
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")
    (tmp_path / ".gitignore").write_text(f"{line}\n")
    init(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == (f"{line}\n" if enough else f"{line}\n.florhook/\n")


@pytest.mark.parametrize("text", ["x = = 1\n", "tool = {ruff = {}}\n"])
def test_init_leaves_what_it_cannot_extend(text: str, tmp_path: Path) -> None:
    """One line, status 2, and neither file is touched."""
    (tmp_path / ".git").mkdir()
    (tmp_path / NAME).write_text(text)
    done = init(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"florhook: {tmp_path / NAME} ")
    assert done.stderr.count("\n") == 1
    assert (tmp_path / NAME).read_text() == text
    assert not (tmp_path / ".gitignore").exists()


def test_init_without_git(tmp_path: Path) -> None:
    """No .gitignore, and it says so."""
    done = init(tmp_path)
    assert done.stdout.splitlines()[1] == f"no .gitignore: {tmp_path} is in no git work tree"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
