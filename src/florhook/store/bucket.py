"""The far side of a remote store: objects below an fsspec URL, in two folders, `runs` and `packs`.

Writing an object need not be atomic (`file://` is not). Who reads one must know what it is to hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from florhook.errors import StoreError
from florhook.settings import without_password
from florhook.store.remote import NOT_INSTALLED

RUNS, PACKS = "runs", "packs"
_BLOCK = 1 << 20
_LONGEST = 300  # characters of what a file system says
# They have no folders, and to make one there would make a bucket.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss"}
_ADVICE = {
    "NoCredentialsError": "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "PermissionError": "access is denied: look at the credentials, and at what they may do there",
    "FileNotFoundError": "there is no such bucket or folder: make it, or correct FLOR_HOME",
}


class Bucket:
    """A connection. All methods raise StoreError, in a line that names FLOR_HOME and says what to do."""

    def __init__(self, url: str) -> None:
        self._url = url
        with self._told():
            try:
                from fsspec.core import url_to_fs
            except ModuleNotFoundError:
                raise StoreError(f"FLOR_HOME={without_password(url)}: {NOT_INSTALLED}") from None
            protocol = url.partition("://")[0]
            options: dict[str, Any] = {"auto_mkdir": True} if protocol in ("file", "local") else {}
            self._fs, root = url_to_fs(url, use_listings_cache=False, **options)
            self._root = root.rstrip("/")
            self._has_folders = protocol not in _OBJECT_STORES

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # each file system has its own
            reason = next(
                (_ADVICE[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _ADVICE), ""
            )
            if isinstance(error, ImportError):
                reason = f"{error}; pip install 'florhook[remote]' or what fsspec needs for it"
            reason = reason or " ".join(str(error).split())[:_LONGEST] or type(error).__name__
            raise StoreError(f"FLOR_HOME={without_password(self._url)}: {reason}") from error

    def sizes(self, folder: str) -> dict[str, int]:
        """The names in a folder, with the bytes of each object; none where the folder is not there yet."""
        with self._told():
            self._fs.invalidate_cache()
            found = self._fs.find(f"{self._root}/{folder}", maxdepth=1, detail=True)
            if not found and not self._has_folders:
                with contextlib.suppress(PermissionError):  # to see no more than the folder
                    self._fs.ls(self._root.partition("/")[0])  # says whether there is such a bucket
            return {name.rpartition("/")[2]: int(info["size"] or 0) for name, info in found.items()}

    def size(self, folder: str, name: str) -> int | None:
        """Bytes of an object; None where it is not there."""
        with self._told():
            try:
                return int(self._fs.info(f"{self._root}/{folder}/{name}")["size"])
            except FileNotFoundError:
                return None

    def put(self, folder: str, name: str, blocks: Iterable[bytes | memoryview]) -> None:
        """Writes an object, at most a few MB of it in memory."""
        with self._told():
            if self._has_folders:
                self._fs.makedirs(f"{self._root}/{folder}", exist_ok=True)
            with self._fs.open(f"{self._root}/{folder}/{name}", "wb") as file:
                for block in blocks:
                    file.write(block)

    def put_file(self, folder: str, name: str, path: Path) -> None:
        """The same, from a file."""
        with path.open("rb") as file:
            self.put(folder, name, iter(lambda: file.read(_BLOCK), b""))

    def get(self, folder: str, name: str, path: Path) -> None:
        """Writes what an object holds to a file."""
        with self._told():
            self._fs.get_file(f"{self._root}/{folder}/{name}", str(path))

    def remove(self, folder: str, names: Iterable[str]) -> None:
        """Removes objects; those that are gone already count as removed."""
        with self._told():
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(f"{self._root}/{folder}/{name}")
