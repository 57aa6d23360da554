"""Promises about the project as a whole: who imports whom, what is shipped, what the documents say."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import Flor

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "florhook"
BASE = {  # for all
    *(
        "errors",
        "settings",
        "project",
        "descriptors",
        "frames",
        "registration",
        "ranks",
        "hash_seed",
        "uncollected",
        "dataclass",
    ),
}


# who may import whom


def parts_of(cell: str) -> list[str]:
    """`errors.py`, `hook/` -> errors, hook."""
    return [name.removesuffix(".py").rstrip("/") for name in re.findall(r"`([\w./]+)`", cell)]


def import_table() -> dict[str, set[str]]:
    """The table of docs/design.md: each file or folder of the package with those that it may import."""
    rows = []
    for line in (ROOT / "docs" / "design.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and parts_of(cells[0]):
            rows.append((parts_of(cells[0]), cells[2]))
    known = [part for parts, _ in rows for part in parts]
    table, above = {}, set()
    for parts, may in rows:
        allowed = set(re.findall(r"\w+", may)) & set(known)
        if "the above" in may:
            allowed |= above
        if may == "everything":
            allowed = set(known)
        above |= set(parts)
        table |= {part: allowed | set(parts) | BASE for part in parts}
    return table


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """The parts of florhook that a file imports anywhere, in functions too."""
    package = ["florhook", *path.relative_to(PACKAGE).parent.parts]
    names = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *filter(None, [node.module])])
            names += [f"{module}.{alias.name}" for alias in node.names]
    split = [name.split(".") for name in names]
    return {name[1] for name in split if name[0] == "florhook" and len(name) > 1}


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "sitecustomize_dir" not in path.parts]


def test_the_table_is_read() -> None:
    """The rows and words of the table mean what this file thinks."""
    table = import_table()
    assert {
        "errors",
        "settings",
        "hook",
        "runtime",
        "state",
        "store",
        "replay",
        "logs",
        "views",
        "cli",
    } <= set(table)
    assert table["hook"] == {"hook", *BASE}
    assert "store" not in table["state"]
    assert "replay" in table["cli"]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_the_line(path: Path) -> None:
    """hook, runtime, state, store, replay, logs, views: never up, as docs/design.md has it."""
    table = import_table()
    part = part_of(path)
    if part == "__init__":
        allowed = {"registration", "history", "notebook"}
    else:
        assert part in table, f"docs/design.md has no row for {part}"
        allowed = table[part]
    ours = {
        imported for imported in imported_parts(path) if (PACKAGE / imported).is_dir() or is_module(imported)
    }
    assert ours <= allowed


def is_module(name: str) -> bool:
    return (PACKAGE / f"{name}.py").exists()


# what is shipped


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """File names of the wheel that is built from the sdist, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    skip = shutil.ignore_patterns(
        "__pycache__", "*.egg-info", ".venv*", ".git", "build", "dist", ".*_cache", ".florhook"
    )
    shutil.copytree(ROOT, tree, symlinks=True, ignore=skip)
    hook = "import setuptools.build_meta as b, sys; print(getattr(b, sys.argv[1])(sys.argv[2]))"
    build(tree, [sys.executable, "-c", hook, "build_sdist", str(folder)])
    (sdist,) = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    build(folder, [*pip, "-w", str(folder), str(sdist)])
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def build(folder: Path, command: list[str]) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_wheel_holds_the_package_and_nothing_else(wheel: list[str]) -> None:
    """No test, script or top-level module beside florhook; every module of it and the mark of its types."""
    assert {name.split("/")[0] for name in wheel if ".dist-info/" not in name} == {"florhook"}
    assert "florhook/py.typed" in wheel
    assert {f"florhook/{path.relative_to(PACKAGE).as_posix()}" for path in modules()} <= set(wheel)


@pytest.mark.slow
def test_wheel_ships_sitecustomize_as_data(wheel: list[str]) -> None:
    """In a folder of its own, where no program imports it unasked."""
    if not (ROOT / "sitecustomize" / "sitecustomize.py").exists():
        pytest.skip("there is no sitecustomize yet")
    assert [name for name in wheel if name.endswith("sitecustomize.py")] == [
        "florhook/sitecustomize_dir/sitecustomize.py"
    ]


# what the documents say


@pytest.mark.skipif(
    importlib.util.find_spec("florhook.cli") is None, reason="florhook has no command line yet"
)
def test_readme_knows_every_variable_flag_and_subcommand(flor: Flor) -> None:
    """Whatever the sources read or the help lists stands in the README."""
    readme = (ROOT / "README.md").read_text()
    help_text = flor("--help").stdout
    sources = "".join((PACKAGE / name).read_text() for name in ("settings.py", "cli.py"))
    variables = set(re.findall(r"\bFLOR_[A-Z]+\b", sources + help_text))
    flags = set(re.findall(r"(?<![\w-])--[a-z]+\b", help_text)) - {"--help", "--version"}
    words = set(
        re.findall(
            r"^ +(runs|show|sitedir|logs|diff|view|shell|verify|gc|export|doctor)\b", help_text, re.MULTILINE
        )
    )
    assert variables
    assert flags
    missing = {name for name in variables | flags | words if not re.search(rf"{name}\b", readme)}
    assert not missing
    promised = re.findall(
        r"^\| `([a-z]+)[` ].*\|$", readme.partition("| subcommand |")[2].partition("\n\n")[0], re.MULTILINE
    )
    assert promised
    assert {name for name in promised if not re.search(rf"\b{name}\b", help_text)} == set()


@pytest.mark.parametrize(
    "path",
    [*(path for path in sorted((ROOT / "scripts").iterdir()) if path.is_file()), ROOT / ".ci" / "run"],
    ids=lambda path: path.name,
)
def test_scripts(path: Path) -> None:
    """Every script parses, stops at errors, and can be started, but for what the others source."""
    text = path.read_text()
    if not text.startswith("#!/usr/bin/env bash"):
        assert path.name == "venv.sh" or not text.startswith("#!/bin")
        return
    assert os.access(path, os.X_OK)
    assert re.search(r"^set -e?uo pipefail$", text, re.MULTILINE)
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def project_files() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_nothing_of_the_machine_it_was_made_on() -> None:
    """No path of a developer's machine and no host of a package index in any file."""
    roots = "work|root|home/[a-z]+|Users/[a-z]+|opt/[a-z]+"
    bad = re.compile(rf"(?<![\w.}}$])/({roots})(?=[/\s'\"])|pypi\.[a-z]|index-url|download\.pytorch")
    found = []
    for path in project_files():
        if path == Path(__file__).resolve():
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in bad.finditer(text)]
    assert not found
