"""Rewritten modules on disk: a program's next run does not rewrite again what is as it was.

An entry is named by all that decides what the rewriting gives: the module's source, the ids that it begins with, the
rewriting's own code, Python and its filters of warnings. It is sealed with the user's key, as checkpoints are: whoever
writes one decides what the program runs. None is made of a module of which Python warned: whoever has it compiled is
warned each time.

Things that don't work: Python's own .pyc files, beside the user's modules, for which the import system has one format;
a time of a file as a part of the name, for sources that are generated in each run.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
import threading
import time
import warnings
from _blake2 import blake2b  # hashlib's own; hashlib itself takes milliseconds to import
from types import CodeType

import xxhash

from .. import __version__
from ..dataclass import asdict
from .sites import Instrumented, Site

MOST = 2000  # entries; more than that, and the older half goes
SEAL = 32  # bytes, before an entry's own
MODE = 0o644
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
SITES = ("sites", "statements")  # fields of what the rewriting told that are sites themselves


class KeptModules:
    """Of one folder, which is made with the first entry. Nothing here raises an exception for what is on disk."""

    def __init__(self, folder: str | os.PathLike[str], key: bytes) -> None:
        self._folder, self._key = folder, key
        self._looked_after = False
        self._rewriting = _rewriting()

    def name(self, source: bytes, *others: object) -> str:
        """The name of the entry of a module's source; `others` is what it depends on besides, by its `repr`."""
        decides = (*others, sys.version, sys.flags.optimize, warnings.filters, self._rewriting)
        return xxhash.xxh3_128_hexdigest(f"{decides}\n".encode(errors="surrogatepass") + source)

    def get(self, name: str) -> tuple[Instrumented, CodeType] | None:
        with contextlib.suppress(OSError), open(os.path.join(self._folder, name), "rb") as file:
            seal, data = file.read(SEAL), file.read()
            if seal == self._seal(name, data):
                told, code = marshal.loads(data)
                for field in SITES:
                    told[field] = tuple(Site(**each) for each in told[field])
                return Instrumented(**told), code
        return None

    def put(self, name: str, info: Instrumented, code: CodeType) -> None:
        data = marshal.dumps((asdict(info), code))
        place = os.path.join(self._folder, name)
        draft = f"{place}.{os.getpid()}.{time.time_ns()}"  # others may have the same store, and write the same entry
        with contextlib.suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)
            self._look_after()
            descriptor = os.open(draft, NEW, MODE)
            try:
                with open(descriptor, "wb") as file:
                    file.write(self._seal(name, data) + data)
                os.replace(draft, place)
            except OSError:
                os.unlink(draft)

    def _seal(self, name: str, data: bytes) -> bytes:
        mac = blake2b(name.encode(), key=self._key, digest_size=SEAL, person=b"florhook-kept")
        mac.update(data)
        return mac.digest()

    def _look_after(self) -> None:
        """Once in a process: of too many entries those that were made last are kept."""
        if self._looked_after:
            return
        self._looked_after = True
        entries = list(os.scandir(self._folder))
        if len(entries) > MOST:
            entries.sort(key=lambda entry: entry.stat().st_mtime)
            for entry in entries[: len(entries) - MOST // 2]:
                os.unlink(entry.path)


def _rewriting() -> object:
    """What tells one version of the code in this folder from another."""
    try:
        return sorted(
            (entry.name, entry.stat().st_size, entry.stat().st_mtime_ns)
            for entry in os.scandir(os.path.dirname(__file__))
            if entry.name.endswith(".py")
        )
    except OSError:  # in a zip file, say
        return __version__


class Unwarned:
    """Tells, afterwards, whether Python surely warned of nothing inside. Its warnings are shown as ever."""

    def __init__(self) -> None:
        self.sure = False

    def __enter__(self) -> Unwarned:
        self.sure = threading.active_count() == 1  # other threads may warn, and be in here, too
        if self.sure:
            self._show = warnings._showwarnmsg  # type: ignore[attr-defined]
            warnings._showwarnmsg = self._note  # type: ignore[attr-defined]
        return self

    def __exit__(self, *exception: object) -> None:
        if hasattr(self, "_show"):
            warnings._showwarnmsg = self._show  # type: ignore[attr-defined]

    def _note(self, message: warnings.WarningMessage) -> None:
        self.sure = False
        self._show(message)
