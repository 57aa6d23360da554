"""The command line of `florhook view`."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

from ..errors import UsageError
from ..settings import Settings
from .options import options_of
from .report import page
from .serve import Server

DEFAULT = "florhook.html"


def view(settings: Settings, words: list[str]) -> None:
    """Write the page to a file, or serve it until Ctrl-C; its name or address is printed."""
    words = ["--output" if word == "-o" else word for word in words]
    options, which = options_of("view", words, ("output", "port"), ("serve", "open"))
    which = which or [settings.run]
    if "serve" in options:
        _serve(settings.home, which, _port(options.get("port", ["0"])[-1]), "open" in options)
        return
    path = Path(options.get("output", [DEFAULT])[-1])
    text = page(settings.home, which)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    print(path)
    if "open" in options:
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
