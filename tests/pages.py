"""Pages of the documentation, tried as a reader would: commands are run, edits made, and what is shown is compared.

A page's fenced blocks are taken in order:

    ```python title=train.py    a file, to be saved under that name
    ```diff                     an edit of the file that its `+++` line names
    ```console                  commands after `$ `, each with what it shows; a line `...` stands for any lines

Compared is what a terminal shows, up to what differs between two runs: see `alike`. Other blocks are not looked at.
`python tests/pages.py PAGE...` runs pages and puts in what is shown now.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"^```(python title=(?P<name>\S+)|diff|console)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
VARYING: list[tuple[str, Any]] = [  # in this order
    (r"\s+", " "),
    (r"\b20\d{6}-\d{6}(-[0-9a-f]{6})?\b", "ID"),
    (r"\b20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d)?\b", "DATE"),
    (r"\b\d+(\.\d+)? ([KMG]?B|s|ms|%)(?!\w)", "AMOUNT"),
    (r"\b\d+(\.\d+)?%", "AMOUNT"),
    (r"-?\b\d+\.\d+(e[-+]?\d+)?\b", "NUMBER"),
    (r"\b\d+ (checkpoints?|common boundaries|of \d+ values)\b", r"COUNT \1"),
    (r"(?<=^ID ).*\d.*$", lambda match: re.sub(r"\d+", "COUNT", match[0])),  # a row of `runs` or `verify`
]
UNSAID = "florhook: not verified"  # on a busy machine a short run gets few checkpoints to verify a replay by


@dataclass(frozen=True)
class Step:
    """A file to save, an edit to make, or a command with what it shows; `span` is where that stands in the page."""

    kind: str
    subject: str
    text: str
    span: tuple[int, int]


def steps_of(page: str) -> Iterator[Step]:
    for block in BLOCK.finditer(page):
        text = block["text"]
        if block["name"]:
            yield Step("file", block["name"], text, block.span("text"))
        elif block[1] == "diff":
            yield Step("edit", re.search(r"^\+\+\+ (\S+)", text, re.MULTILINE)[1], text, block.span("text"))  # type: ignore[index]
        else:
            for command in re.finditer(
                r"^\$ (?P<command>.*)\n(?P<shown>(?:(?!\$ ).*\n)*)", text, re.MULTILINE
            ):
                start = block.start("text")
                span = (start + command.start("shown"), start + command.end("shown"))
                yield Step("command", command["command"], command["shown"], span)


def edit(path: Path, diff: str) -> None:
    """Make the edit of a diff, whose context has to be found exactly once for each hunk."""
    text = path.read_text()
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] != "+")
        new = "".join(line[1:] for line in lines if line[0] != "-")
        assert text.count(old) == 1, f"{path.name} has this {text.count(old)} times, not once:\n{old}"
        text = text.replace(old, new)
    path.write_text(text)


def environ(folder: Path, **changes: str) -> dict[str, str]:
    """A user's environment: `python` and `florhook` are these, and no FLOR_* variable is set."""
    bin_folder = folder.parent / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name, words in [("python", ""), ("florhook", "-m florhook")]:
        script = bin_folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOR_")}
    return {
        **kept,
        "PATH": f"{bin_folder}{os.pathsep}{kept['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), kept.get("PYTHONPATH")])),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        **changes,
    }


def shell(command: str, folder: Path, **changes: str) -> str:
    """What a terminal would show of a command."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environ(folder, **changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    return done.stdout


def take(step: Step, folder: Path, **changes: str) -> str | None:
    """Do what a step says; what a command shows."""
    if step.kind == "file":
        (folder / step.subject).write_text(step.text)
    elif step.kind == "edit":
        edit(folder / step.subject, step.text)
    else:
        return shell(step.subject, folder, **changes)
    return None


def alike(shown: str) -> list[str]:
    """Lines without what differs between two runs or machines: ids, dates, times, sizes and numbers with a point."""
    lines = []
    for line in shown.splitlines():
        if line.startswith(UNSAID):
            continue
        for pattern, name in VARYING:
            line = re.sub(pattern, name, line)
        lines.append(" ".join(line.split()))
    return lines


def agrees(shown: str, expected: str) -> bool:
    """Whether output is what a page shows."""
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in alike(expected))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in alike(shown))) is not None


def rewrite(path: Path, folder: Path) -> None:
    """Run a page in a folder and put in what is shown now; but for what shows parts only (`...`) and still agrees."""
    page = path.read_text()
    changes = []
    for step in steps_of(page):
        shown = take(step, folder)
        if shown is not None and not ("...\n" in step.text and agrees(shown, step.text)):
            changes.append((step.span, shown))
    for (start, end), shown in reversed(changes):
        page = page[:start] + shown + page[end:]
    path.write_text(page)


if __name__ == "__main__":
    for word in sys.argv[1:]:
        page_path = Path(word).resolve()
        with tempfile.TemporaryDirectory() as outside:
            program = Path(outside) / page_path.parent.name
            program.mkdir()
            if page_path.parent.parent.name == "examples":
                for file in page_path.parent.iterdir():
                    if file.suffix in (".py", ".txt"):
                        (program / file.name).write_bytes(file.read_bytes())
            rewrite(page_path, program)
