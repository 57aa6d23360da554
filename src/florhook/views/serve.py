"""`florhook view --serve`: the page on loopback, for whoever has the address with its token, while runs go on."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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
                self._answer("application/json", json.dumps(data_of(home, which, live=True)))
            else:
                self.send_error(404)
        except FlorError as error:
            self.send_error(503, explain=str(error))
        except (BrokenPipeError, ConnectionResetError):
            return  # the browser has gone on to something else

    def _answer(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nobody reads it."""
