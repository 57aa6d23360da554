"""The user's key, and the seals that say that a checkpoint was written with it.

A program's process reads the key and imports nothing for it that takes long.

A store is code (pickle streams). xxh3 finds damage, not malice, so the streams are covered by BLAKE2b.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from florhook.store.rows import CheckpointRow

_BYTES = 32


def key_path() -> Path:
    """Where the key of this user is: FLOR_KEY names the file where machines are to share one."""
    named = os.environ.get("FLOR_KEY")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path("~/.config").expanduser()) / "florhook" / "key"


def load_key(create: bool = False) -> bytes | None:
    """The user's key, made when missing if so asked; None when there is none."""
    path = key_path()
    try:
        if create and not path.exists():
            _create(path)
        key = path.read_bytes()
    except (OSError, RuntimeError):
        return None
    return key if len(key) == _BYTES else None


def _create(path: Path) -> None:
    import secrets

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"key.{secrets.token_hex(8)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # fails when another process was first; then its key is the one
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def seal(content: bytes | memoryview) -> bytes:
    """The cryptographic digest of a stream."""
    import hashlib

    return hashlib.blake2b(content, digest_size=_BYTES).digest()


def sign(key: bytes, run_id: str, row: CheckpointRow) -> bytes:
    """The MAC over all of a checkpoint: its row, the digests of its pieces and the seals of its streams."""
    import hashlib

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
    mac = hashlib.blake2b(key=key, digest_size=_BYTES, person=b"florhook-1")
    mac.update(len(head).to_bytes(8, "little"))
    mac.update(head)
    mac.update(b"".join(row.seals))
    mac.update(b"".join(row.digests))
    return mac.digest()


def is_signed(key: bytes, run_id: str, row: CheckpointRow) -> bool:
    """Whether the MAC is right."""
    import hmac

    return hmac.compare_digest(sign(key, run_id, row), row.mac)
