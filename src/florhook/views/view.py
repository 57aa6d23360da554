"""The command line of `florhook view`."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

from ..errors import UsageError
from ..settings import Settings
from .report import page
from .serve import Server

DEFAULT = "florhook.html"


def view(settings: Settings, words: list[str]) -> None:
    """Write the page to a file, or serve it until Ctrl-C; its name or address is printed."""
    which: list[str] = []
    target, port, serves, opens = "", 0, False, False
    rest = list(words)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        if word in ("-o", "--output", "--port") and not equals:
            if not rest:
                raise UsageError(f"{word} needs a value")
            value = rest.pop(0)
        if word in ("-o", "--output"):
            target = value
        elif word == "--port":
            port = _port(value)
        elif word in ("--serve", "--open"):
            serves, opens = serves or word == "--serve", opens or word == "--open"
        elif word.startswith("-"):
            raise UsageError(f"view takes runs, -o FILE, --serve, --port N and --open, not {word!r}")
        else:
            which.append(word)
    which = which or [settings.run]
    if serves:
        _serve(settings.home, which, port, opens)
        return
    path = Path(target or DEFAULT)
    text = page(settings.home, which)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    print(path)
    if opens:
        webbrowser.open(path.absolute().as_uri())


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"--port must be a number up to 65535, not {text!r}")
    return int(text)


def _serve(home: Path, which: list[str], port: int, opens: bool) -> None:
    page(home, which)  # says what is wrong before anybody asks
    try:
        server = Server(home, which, port)
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}") from None
    with server:
        print(server.url, flush=True)
        if opens:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stderr.write("\n")
