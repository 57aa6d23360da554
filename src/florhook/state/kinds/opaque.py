"""Objects whose inside cannot be read: which of them may be left as they are, and which forbid a restore.

A live opaque object stays as it is in the replaying process. That is right only if it has no state, or its state is as
it was at the loop's entry. A *fingerprint* tells: as long as it is the same, so is the state.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from typing import Any

H5_READING = 0  # H5F_ACC_RDONLY
UNKNOWN = object()  # the fingerprint of what may have changed without a sign

INERT = frozenset(
    {
        "_csv.writer",
        "_abc._abc_data",
        "builtins.builtin_function_or_method",
        "builtins.method-wrapper",
        "builtins.module",
        "builtins.mappingproxy",
        "builtins.frame",
        "builtins.traceback",
        "builtins.getset_descriptor",
        "builtins.member_descriptor",
        "builtins.classmethod_descriptor",
        "builtins.PyCapsule",
        "ctypes.CDLL",
        "ctypes.PyDLL",
        "_ctypes.PyCFuncPtrType",
        "posix.DirEntry",
        "ssl.SSLContext",
        "_contextvars.Context",
        "_contextvars.Token",
        "florhook.state.kinds.base.Missing",  # the placeholder of one of these
    }
)
INERT_PACKAGES = ("torch", "torch._C", "numpy", "functools", "operator", "typing")
MOVING = frozenset({"numpy.flatiter", "numpy.nditer", "numpy.broadcast"})  # with a place in their arrays


# Python classes whose instances stand for something outside the process's memory, or for other processes: what they
# hold are numbers that mean nothing in another process, so that they are never restored as plain instances.
RESOURCES = frozenset(
    {
        "ctypes.CDLL",
        "subprocess.Popen",
        "multiprocessing.process.BaseProcess",
        "multiprocessing.popen_fork.Popen",
        "multiprocessing.connection._ConnectionBase",
        "multiprocessing.connection.Listener",
        "multiprocessing.queues.Queue",
        "multiprocessing.queues.SimpleQueue",
        "multiprocessing.synchronize.SemLock",
        "multiprocessing.synchronize.Condition",
        "multiprocessing.synchronize.Event",
        "multiprocessing.sharedctypes.SynchronizedBase",
        "multiprocessing.shared_memory.SharedMemory",
        "multiprocessing.heap.Arena",
        "multiprocessing.heap.BufferWrapper",
        "multiprocessing.pool.Pool",
        "multiprocessing.pool.ApplyResult",
        "multiprocessing.pool.IMapIterator",
        "multiprocessing.managers.BaseManager",
        "multiprocessing.managers.BaseProxy",
        "concurrent.futures._base.Executor",
        "concurrent.futures._base.Future",
        "selectors.BaseSelector",
        "tempfile.TemporaryDirectory",
        "tempfile._TemporaryFileWrapper",
        "asyncio.events.AbstractEventLoop",
        "asyncio.runners.Runner",
        "socket.socket",
        "socketserver.BaseServer",
        "zipfile.ZipFile",
        "zipfile._zipfile.ZipFile",
        "numpy.lib.npyio.NpzFile",
        "numpy.lib._npyio_impl.NpzFile",
        "h5py._objects.ObjectID",
        "tensorboard.summary.writer.event_file_writer.EventFileWriter",
        "tensorboardX.event_file_writer.EventFileWriter",
        "ipykernel.iostream.OutStream",
        "h5py._hl.base.HLObject",
        "tarfile.TarFile",
        "mmap.mmap",
    }
)


def is_resource(cls: type) -> bool:
    return not RESOURCES.isdisjoint(_names(cls))


def _sqlite_connection(obj: Any) -> Any:
    return obj.total_changes, obj.in_transaction


def _digest(obj: Any) -> Any:
    return obj.digest()


def _memory(obj: Any) -> Any:
    return bytes(memoryview(obj).cast("B"))


def _library_function(obj: Any) -> Any:
    return obj.restype, obj.argtypes, getattr(obj, "errcheck", None)


def _popen(obj: Any) -> Any:
    # A child that runs does so in a replay too; what went through its pipes is known to nobody.
    piped = any(pipe is not None for pipe in (obj.stdin, obj.stdout, obj.stderr))
    return UNKNOWN if piped and obj.returncode is None else ("ended", obj.returncode)


def _threads(obj: Any) -> Any:
    # An idle pool starts its threads when they are needed: only its shutting down is state. To end its threads, that
    # leaves a word for them in the queue.
    if obj._shutdown and not any(thread.is_alive() for thread in obj._threads):
        return "ended"
    idle = obj._work_queue.empty() and obj._idle_semaphore._value == len(obj._threads)
    return ("idle", obj._shutdown) if idle else UNKNOWN


def _processes(obj: Any) -> Any:
    return obj._queue_count, obj._shutdown_thread


def _process_pool(obj: Any) -> Any:
    ended = obj._state != "RUN" and all(map(_has_ended, obj._pool))
    return ("ended", obj._state) if ended else UNKNOWN


def _process(obj: Any) -> Any:
    return "ended" if _has_ended(obj) else UNKNOWN


def _has_ended(process: Any) -> bool:
    """As far as the program knows: to ask the system would tell it."""
    if isinstance(process, threading.Thread):  # a pool of threads has these for its processes
        return not process.is_alive()
    return process._closed or getattr(process._popen, "returncode", None) is not None


def _closed_socket(obj: Any) -> Any:
    return "closed" if obj.fileno() < 0 else UNKNOWN


def _closed(obj: Any) -> Any:
    return "closed" if obj.closed else UNKNOWN


def _semaphore(obj: Any) -> Any:
    return obj._semlock._get_value(), obj._semlock._count()


def _temporary_folder(obj: Any) -> Any:
    return obj.name, obj._finalizer.alive


def _temporary_file(obj: Any) -> Any:
    return obj.file.closed or (obj.file.tell(), obj.file.seekable())


def _zip_file(obj: Any) -> Any:
    # Each member that is read has a place of its own; what is written lies in the file and in the table of members.
    reading = obj.mode == "r" and obj._fileRefCnt == (obj.fp is not None)
    return ("reading", obj.fp is None, obj.pwd) if reading else UNKNOWN


def _npz_file(obj: Any) -> Any:
    return "closed" if obj.zip is None else _zip_file(obj.zip)


def _event_writer(obj: Any) -> Any:
    # What waits to be written, and how far that has come, is a thread's: no state that the program can see.
    return "closed" if getattr(getattr(obj, "_async_writer", None), "_closed", False) else "open"


def _h5py_object(obj: Any) -> Any:
    if not obj.valid:
        return "closed"
    if type(obj).__module__ not in ("h5py.h5f", "h5py.h5g", "h5py.h5d"):
        return "description"  # of types, shapes, access: made for a file, and left as they are
    of_file: Any = sys.modules["h5py.h5i"].get_file_id(obj)
    return "reading" if of_file.get_intent() == H5_READING else UNKNOWN


# What is known only once it has ended or was closed.
ENDED: dict[str, Callable[[Any], Any]] = {
    "mmap.mmap": _closed,
    "multiprocessing.pool.Pool": _process_pool,
    "multiprocessing.process.BaseProcess": _process,
    "socket.socket": _closed_socket,
    "tarfile.TarFile": _closed,
}
FINGERPRINTS: dict[str, Callable[[Any], Any]] = {
    **ENDED,
    "sqlite3.Connection": _sqlite_connection,
    "_hashlib.HASH": _digest,
    "_ctypes._SimpleCData": _memory,
    "_ctypes.Array": _memory,
    "_ctypes.Structure": _memory,
    "_ctypes.Union": _memory,
    "ctypes.CDLL.__init__.<locals>._FuncPtr": _library_function,
    "subprocess.Popen": _popen,
    "concurrent.futures.thread.ThreadPoolExecutor": _threads,
    "concurrent.futures.process.ProcessPoolExecutor": _processes,
    "multiprocessing.synchronize.SemLock": _semaphore,
    "tempfile.TemporaryDirectory": _temporary_folder,
    "tempfile._TemporaryFileWrapper": _temporary_file,
    "zipfile.ZipFile": _zip_file,
    "zipfile._zipfile.ZipFile": _zip_file,
    "numpy.lib.npyio.NpzFile": _npz_file,
    "numpy.lib._npyio_impl.NpzFile": _npz_file,
    "h5py._objects.ObjectID": _h5py_object,
    "tensorboard.summary.writer.event_file_writer.EventFileWriter": _event_writer,
    "tensorboardX.event_file_writer.EventFileWriter": _event_writer,
    "ipykernel.iostream.OutStream": lambda obj: "a notebook's",
    "h5py._hl.base.HLObject": lambda obj: _h5py_object(obj.id),
}


def _names(cls: type) -> list[str]:
    return [f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__]


def fingerprint(obj: Any) -> Any:
    """What stays equal while the object's state does; None for what has no state to speak of."""
    cls = type(obj)
    name = _names(cls)[0]
    if name in MOVING:
        return UNKNOWN
    if (
        name in INERT
        or issubclass(cls, types.ModuleType)  # of a class of its own, or under a name of its own
        or cls.__module__.partition(".")[0] in INERT_PACKAGES
        or cls.__module__ in INERT_PACKAGES
    ):
        return None
    if any(obj is stream for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return None
    known = next(filter(None, (FINGERPRINTS.get(each) for each in _names(cls))), None)
    if known is None:
        return UNKNOWN
    try:
        return known(obj)
    except Exception:  # a closed connection, say: it is not what it was
        return UNKNOWN
