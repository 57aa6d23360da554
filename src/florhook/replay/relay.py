"""What the two ends of a replay on other machines say to each other, over TCP.

    supervisor                                   steward, on the other machine
      listens; sends a challenge           -->
                                           <--     number of the worker, the challenge signed by the replay's secret
      what the pool answers                -->     as it is, to the worker
                                           <--     frames: lines of the worker, output of items, stderr, how it ended

The secret goes with the job, by the cluster's own way. What is sent is not encrypted, as on the clusters' own channels.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import struct
from collections.abc import Iterator
from enum import IntEnum

from ..dataclass import dataclass

CHALLENGE = 32  # bytes
_HELLO = struct.Struct("!I32s")  # the worker's number, the signature
_FRAME = struct.Struct("!BII")  # what, the item's number or an exit status, bytes that follow
_STATUS = 1 << 31  # added to exit statuses, which may be negative
# Seconds of silence, between probes, and probes without an answer, until the other machine counts as gone.
_IDLE, _INTERVAL, _PROBES = 10, 5, 4


class What(IntEnum):
    SAYS = 0  # a line of the worker's for the pool
    PRINTS = 1  # bytes of an item's output
    KEEPS = 2  # bytes of an item's hindsight lines
    ERRORS = 3  # bytes of the worker's stderr
    ENDED = 4  # the worker; its status
    REFUSES = 5  # this machine cannot do it: why


@dataclass(frozen=True)
class Frame:
    what: What
    number: int
    data: bytes

    def encoded(self) -> bytes:
        """The bytes that `frames` makes the same of."""
        number = self.number + _STATUS if self.what is What.ENDED else self.number
        return _FRAME.pack(self.what, number, len(self.data)) + self.data


def frames(buffer: bytearray) -> Iterator[Frame]:
    """The whole frames at the beginning of a buffer, which are taken out of it."""
    while len(buffer) >= _FRAME.size:
        what, number, length = _FRAME.unpack_from(buffer)
        end = _FRAME.size + length
        if len(buffer) < end:
            return
        data = bytes(buffer[_FRAME.size : end])
        del buffer[:end]
        yield Frame(What(what), number - _STATUS if what == What.ENDED else number, data)


def challenge(sock: socket.socket, secret: str) -> int | None:
    """The supervisor's side: the number of the worker that a connection is for; None where it has not the secret."""
    nonce = os.urandom(CHALLENGE)
    sock.sendall(nonce)
    hello = _received(sock, _HELLO.size)
    if len(hello) < _HELLO.size:
        return None
    number, signature = _HELLO.unpack(hello)
    return number if hmac.compare_digest(signature, _signed(secret, nonce, number)) else None


def introduce(sock: socket.socket, secret: str, number: int) -> None:
    """The steward's side."""
    nonce = _received(sock, CHALLENGE)
    sock.sendall(_HELLO.pack(number, _signed(secret, nonce, number)))


def notice_silence(sock: socket.socket) -> None:
    """Let a connection break where the other machine is gone without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("IDLE", _IDLE), ("INTVL", _INTERVAL), ("CNT", _PROBES)):
        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_KEEP{option}"), value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (_IDLE + _INTERVAL * _PROBES))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def line(**message: object) -> bytes:
    """A message to the pool, as a worker writes it."""
    return json.dumps(message).encode() + b"\n"


def _signed(secret: str, nonce: bytes, number: int) -> bytes:
    return hmac.digest(secret.encode(), b"%d:%b" % (number, nonce), "sha256")


def _received(sock: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (more := sock.recv(count - len(found))):
        found += more
    return found
