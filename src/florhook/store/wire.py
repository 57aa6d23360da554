"""Messages between the training process and its writer, sent without ever waiting.

A message is a marshalled tuple (both ends are the same interpreter; marshal, unlike pickle, runs nothing) behind its
length as a u32.

Things that don't work: SOCK_SEQPACKET, whose queue holds 10 packets (net.unix.max_dgram_qlen); counting sent bytes in
Python after `send`, as a KeyboardInterrupt raised between the two tears the stream. So the result of a send is put
away by C code, in the same bytecode as the call, and what was sent is always derived from it.
"""

from __future__ import annotations

import errno
import marshal
import os
import socket
import struct
from collections import deque
from itertools import starmap
from typing import Any

_LENGTH = struct.Struct("<I")
_LONGEST = 1 << 31
_CHUNK = 1 << 18
_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)

Message = tuple[Any, ...]


class WireError(Exception):
    """The other end sent what is no message of ours."""


def encode(message: Message) -> bytes:
    """Gives the bytes of a message; subclasses of str and the like, which marshal refuses, are made plain."""
    try:
        data = marshal.dumps(message, 2)
    except ValueError:
        data = marshal.dumps(_plain(message), 2)
    return _LENGTH.pack(len(data)) + data


def decode(data: bytes) -> Message:
    """Gives the message back, from its bytes without their length; WireError when they are none."""
    try:
        message = marshal.loads(data)
    except (EOFError, ValueError, TypeError) as error:
        raise WireError(f"unreadable message: {error}") from None
    if not isinstance(message, tuple) or not message:
        raise WireError("unreadable message")
    return message


class Joiner:
    """Finds the messages in a stream that arrives in any parts."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Takes the next bytes; gives the messages that are complete now."""
        buffer = self._buffer
        buffer += data
        messages = []
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if length > _LONGEST:
                raise WireError(f"a message of {length} bytes")
            end = at + _LENGTH.size + length
            if end > len(buffer):
                break
            messages.append(decode(bytes(buffer[at + _LENGTH.size : end])))
            at = end
        del buffer[:at]
        return messages


class _Outgoing:
    __slots__ = ("data", "fds", "results")

    def __init__(self, data: bytes, fds: tuple[int, ...]) -> None:
        self.data = data
        self.fds = fds
        self.results: list[int] = []  # of each send

    @property
    def rest(self) -> memoryview:
        return memoryview(self.data)[sum(self.results) :]


class Channel:
    """One end of the socket. `post` is atomic, so that threads and signal handlers may post at any time."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.waiting = 0  # bytes posted and not yet sent, about
        self.gone = False  # the other end has closed, and all that it sent was received
        self.drained = False  # the last `receive` found no more
        self.fds: deque[int] = deque()  # received, in order
        self._identity = _identity(sock.fileno())
        self._queue: deque[_Outgoing] = deque()
        self._joiner = Joiner()

    def post(self, message: Message, fds: tuple[int, ...] = ()) -> None:
        """Queues a message; the descriptors belong to the channel from here on."""
        outgoing = _Outgoing(encode(message), fds)
        self.waiting += len(outgoing.data)
        self._queue.append(outgoing)

    def flush(self) -> bool:
        """Sends what the socket takes now; True when nothing waits. OSError when the other end is gone."""
        while self._queue:
            head = self._queue[0]
            if not self._send(head):
                return False
            self._queue.popleft()
            self.waiting -= len(head.data)
            _close(head.fds)
        self.waiting = 0
        return True

    def _send(self, head: _Outgoing) -> bool:
        while rest := head.rest:
            rights = struct.pack(f"{len(head.fds)}i", *head.fds)
            ancillary = (
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if head.fds and not head.results else []
            )
            flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            try:
                head.results.extend(starmap(self.sock.sendmsg, (([rest[:_CHUNK]], ancillary, flags),)))
            except OSError as error:
                if error.errno in _FULL:
                    return False
                raise
        return True

    def receive(self, most: int = 64) -> list[Message]:
        """Gives the messages that have arrived, from at most that many reads."""
        messages: list[Message] = []
        self.drained = False
        for _ in range(most):
            data = self._read()
            if not data:
                self.drained = True
                break
            messages += self._joiner.feed(data)
        return messages

    def _read(self) -> bytes:
        while not self.gone:
            try:
                data, ancillary, flags, _ = self.sock.recvmsg(
                    _CHUNK, socket.CMSG_SPACE(4), socket.MSG_DONTWAIT
                )
            except BlockingIOError:
                return b""
            except ConnectionResetError:
                continue  # the other end died with messages unread; end of file follows
            if flags & socket.MSG_CTRUNC:
                raise WireError("too many open files")
            self.fds.extend(_rights(ancillary))
            if data:
                return data
            self.gone = True
        return b""

    def is_ours(self) -> bool:
        """Whether the descriptor is still our socket: os.closerange() and daemonising close what is not theirs."""
        return _identity(self.sock.fileno()) == self._identity

    def close(self) -> None:
        """Closes the socket and the descriptors that were not sent."""
        while self._queue:
            _close(self._queue.popleft().fds)
        self.sock.close()


def _rights(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    return [
        fd
        for level, kind, data in ancillary
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        for (fd,) in struct.iter_unpack("i", data[: len(data) // 4 * 4])
    ]


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        stat = os.fstat(fd)
    except (OSError, ValueError):
        return None
    return stat.st_dev, stat.st_ino


def _close(fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)


def _plain(value: Any) -> Any:
    """The same value made of exact built-in types."""
    if value is None or isinstance(value, (bool, bytes)):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    return tuple(_plain(item) for item in value)
