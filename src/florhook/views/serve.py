"""`florhook view --serve`: the page on loopback, for whoever has the address with its token, while runs go on."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import xxhash

from ..errors import FlorError
from .report import data_of, page

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost")  # by another name, a page of somebody else's would ask


class Server(ThreadingHTTPServer):
    """Serves the page below a path that nobody can guess."""

    def __init__(self, home: Path, which: Sequence[str], port: int = 0) -> None:
        super().__init__((LOOPBACK, port), Handler)
        self.home, self.which = home, which
        self.token = secrets.token_urlsafe(16)
        self.told: tuple[str, list[tuple[str, int, int]]] = (
            "",
            [],
        )  # a version of the data, of what files it is

    def files(self) -> list[tuple[str, int, int]]:
        """Name, size and time of change of what the data is read from: it changes with them."""
        paths = [*self.home.glob("catalog.sqlite*"), *(self.home / "logs").glob("*/*.json*")]
        found = []
        for path in sorted(path for path in paths if not path.name.endswith("-shm")):
            with contextlib.suppress(FileNotFoundError):  # what is written whole was renamed
                stat = path.stat()
                found.append((str(path), stat.st_size, stat.st_mtime_ns))
        return found

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}/{self.token}/"


class Handler(BaseHTTPRequestHandler):
    """Answers GET for the page and for its data."""

    server: Server

    def do_GET(self) -> None:
        """The page at /TOKEN/, what it shows at /TOKEN/data."""
        host = (self.headers.get("Host") or "").partition(":")[0]
        token, _, rest = self.path.lstrip("/").partition("/")
        if host not in HOSTS or not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self.send_error(404)
            return
        home, which = self.server.home, self.server.which
        try:
            if rest == "":
                self._answer("text/html; charset=utf-8", page(home, which, live=True))
            elif rest == "data":
                self._answer_data()
            else:
                self.send_error(404)
        except FlorError as error:
            self.send_error(503, explain=str(error))
        except (BrokenPipeError, ConnectionResetError):
            return  # the browser has gone on to something else

    def _answer_data(self) -> None:
        """Nothing, where the browser has the same already: RFC 9110, section 13.1.2."""
        server, wanted, files = self.server, self.headers.get("If-None-Match"), self.server.files()
        if wanted and (wanted, files) == server.told:
            self._nothing_new()
            return
        data = data_of(server.home, server.which, live=True)
        version = f'"{xxhash.xxh3_64_hexdigest(json.dumps({**data, "made": ""}).encode())}"'
        server.told = version, files
        if wanted == version:
            self._nothing_new()
        else:
            self._answer("application/json", json.dumps(data), version)

    def _nothing_new(self) -> None:
        self.send_response(304)
        self.end_headers()

    def _answer(self, kind: str, text: str, version: str = "") -> None:
        body = text.encode()
        self.send_response(200)
        if version:
            self.send_header("ETag", version)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nobody reads it."""
