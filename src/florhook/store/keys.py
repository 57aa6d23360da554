"""The user's key, and the seals that say that a checkpoint was written with it.

A store is code (pickle streams). xxh3 finds damage, not malice, so the streams are covered by BLAKE2b.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from florhook.store.own_key import BYTES as _BYTES
from florhook.store.own_key import key_path, read_key
from florhook.store.rows import CheckpointRow

if TYPE_CHECKING:
    import hashlib

__all__ = ["is_signed", "key_path", "load_key", "seal", "sign"]


def load_key(create: bool = False) -> bytes | None:
    """The user's key, made when missing if so asked; None when there is none."""
    path = key_path()
    try:
        if create and not path.exists():
            _create(path)
    except (OSError, RuntimeError):
        return None
    return read_key()


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"key.{os.urandom(8).hex()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(os.urandom(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # fails when another process was first; then its key is the one
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def seal(content: bytes | memoryview) -> bytes:
    """The cryptographic digest of a stream."""
    return _blake2b(content).digest()


def sign(key: bytes, run_id: str, row: CheckpointRow) -> bytes:
    """The MAC over all of a checkpoint: its row, the digests of its pieces and the seals of its streams."""
    head = json.dumps(
        [
            run_id,
            row.ctx,
            row.iteration,
            row.taken,
            row.out,
            row.meta,
            row.lengths,
            row.streams,
            len(row.seals),
        ]
    ).encode()
    mac = _blake2b(key=key, person=b"florhook-1")
    mac.update(len(head).to_bytes(8, "little"))
    mac.update(head)
    mac.update(b"".join(row.seals))
    mac.update(b"".join(row.digests))
    return mac.digest()


def is_signed(key: bytes, run_id: str, row: CheckpointRow) -> bool:
    """Whether the MAC is right."""
    import hmac  # where OpenSSL is imported, as in `_blake2b`

    return hmac.compare_digest(sign(key, run_id, row), row.mac)


def _blake2b(content: bytes | memoryview = b"", **more: bytes) -> hashlib.blake2b:
    from hashlib import blake2b  # not at the start, which OpenSSL makes longer: a short run seals nothing

    return blake2b(content, digest_size=_BYTES, **more)  # type: ignore[arg-type]
