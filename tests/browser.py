"""A page in headless Chromium: what a script that is put into it finds there."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium")
DARK = "--blink-settings=preferredColorScheme=0"


def command(folder: Path, *options: str) -> list[str]:
    """Chromium with a profile in that folder, which asks no network of its own."""
    return [
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *(f"--user-data-dir={folder / 'browser'}", *options),
    ]


def with_script(page: str, name: str) -> str:
    """The page with a script of this folder at its end."""
    return page.replace("</body>", f"<script>{(Path(__file__).parent / name).read_text()}</script></body>")


def acted(page: str, script: str, folder: Path, *options: str) -> Any:
    """What a script leaves as JSON in an element with the id `result`."""
    (folder / "page.html").write_text(with_script(page, script))
    words = [*command(folder, *options), "--dump-dom", (folder / "page.html").as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr
    return json.loads(html.unescape(found[1]))
