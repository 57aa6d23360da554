"""Libraries whose C code opens files by path: their functions get the overlay's path instead."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, unquote

from florhook.replay.overlay_ops import Operations

# module: (attribute, position of the path, the parameter's name, how it is opened)
FUNCTIONS: dict[str, tuple[tuple[str, int, str, str], ...]] = {
    "torch": (("from_file", 0, "filename", "map"),),
    "safetensors": (("safe_open", 0, "filename", "r"), ("serialize_file", 1, "filename", "w")),
    "safetensors.torch": (("safe_open", 0, "filename", "r"), ("serialize_file", 1, "filename", "w")),
    "safetensors.numpy": (("safe_open", 0, "filename", "r"), ("serialize_file", 1, "filename", "w")),
    "cv2": (("imread", 0, "filename", "r"), ("imwrite", 0, "filename", "w")),
}


class Natives(importlib.abc.MetaPathFinder):
    """Replaces the functions of a library right after its import, or now if it is imported."""

    def __init__(self, operations: Operations, is_active: Callable[[], bool]) -> None:
        self._operations = operations
        self._is_active = is_active
        self._undo: list[Callable[[], None]] = []
        self._after: dict[str, Callable[[ModuleType], None]] = dict.fromkeys(FUNCTIONS, self._patch_functions)
        self._after["torch._C"] = self._patch_torch_files
        self._after["torch.storage"] = self._patch_torch_storage
        self._after["sqlite3"] = self._after["sqlite3.dbapi2"] = self._patch_sqlite
        self._after["socket"] = self._patch_socket

    def apply(self) -> None:
        """Patch what is imported, and watch the imports to come."""
        for name, patch in self._after.items():
            if name in sys.modules:
                patch(sys.modules[name])
        sys.meta_path.insert(0, self)

    def revert(self) -> None:
        """Undo everything, last first."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        while self._undo:
            self._undo.pop()()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Let the other finders find a library, and have it patched once it has run."""
        patch = self._after.get(fullname)
        if patch is None:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else ()
        for finder in others:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, patch)
                return spec
        return None

    def _set(self, owner: Any, name: str, value: Any) -> None:
        old = vars(owner).get(name, self)
        setattr(owner, name, value)
        self._undo.append(lambda: delattr(owner, name) if old is self else setattr(owner, name, old))

    def _path(self, path: Any, how: str) -> Any:
        if not self._is_active():
            return path
        if how == "r":
            return self._operations.readable(path)
        try:
            return self._operations.writable(path, keep=how == "r+")
        except OSError:
            # The C code is to fail in its own words. It cannot create the file: the overlay has no such folder.
            return self._operations.blocked(path)

    def _patch_functions(self, module: ModuleType) -> None:
        for name, position, keyword, how in FUNCTIONS[module.__name__]:
            function = getattr(module, name, None)
            if isinstance(function, type):
                self._set(module, name, self._wrapped_type(function))
            elif function is not None:
                self._set(module, name, self._wrapped(function, position, keyword, how))

    def _wrapped(
        self, function: Callable[..., Any], position: int, keyword: str, how: str
    ) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) > position:
                mode = self._mapped(args[1:], kwargs) if how == "map" else how
                args = (*args[:position], self._path(args[position], mode), *args[position + 1 :])
            elif keyword in kwargs:
                mode = self._mapped(args, kwargs) if how == "map" else how
                kwargs[keyword] = self._path(kwargs[keyword], mode)
            return function(*args, **kwargs)

        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            if hasattr(function, attribute):
                setattr(call, attribute, getattr(function, attribute))
        call.__wrapped__ = function  # type: ignore[attr-defined]
        return call

    @staticmethod
    def _mapped(rest: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """A file mapped by torch is written only if it is shared."""
        return "r+" if kwargs.get("shared", rest[0] if rest else False) else "r"

    def _wrapped_type(self, base: Any, how: str = "r") -> Any:
        """The same class, but for the path that its constructor is given."""
        redirect = self._path

        def new(cls: type, path: Any, *args: Any, **kwargs: Any) -> Any:
            return base.__new__(cls, redirect(path, how), *args, **kwargs)

        def init(self: Any, path: Any, *args: Any, **kwargs: Any) -> None:
            base.__init__(self, redirect(path, how), *args, **kwargs)

        # pybind11 builds its objects in __init__, PyO3 in __new__.
        builds = {"__init__": init} if base.__init__ is not object.__init__ else {"__new__": new}
        names = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
        try:
            return type(base)(base.__name__, (base,), {**names, **builds})
        except TypeError:  # a class that cannot be subclassed
            return self._wrapped(base, 0, "filename", how)

    def _patch_torch_files(self, module: ModuleType) -> None:
        for name, how in (("PyTorchFileReader", "r"), ("PyTorchFileWriter", "w")):
            if hasattr(module, name):
                self._set(module, name, self._wrapped_type(getattr(module, name), how))
        if hasattr(module, "import_ir_module"):
            self._set(module, "import_ir_module", self._wrapped(module.import_ir_module, 1, "filename", "r"))
        for name in ("ScriptModule", "ScriptFunction"):
            script = getattr(module, name, None)
            if script is not None:
                self._set(script, "save", self._wrapped(script.save, 1, "filename", "w"))

    def _patch_torch_storage(self, module: ModuleType) -> None:
        storage = module.UntypedStorage
        self._set(storage, "from_file", staticmethod(self._wrapped(storage.from_file, 0, "filename", "map")))

    def _patch_sqlite(self, module: ModuleType) -> None:
        connect = module.connect

        def call(database: Any, *args: Any, **kwargs: Any) -> Any:
            return connect(self._database(database, kwargs.get("uri", False)), *args, **kwargs)

        call.__name__, call.__doc__, call.__module__ = "connect", connect.__doc__, connect.__module__
        self._set(module, "connect", call)

    def _patch_socket(self, module: ModuleType) -> None:
        """The sockets of the file system: their paths may not be long, so the overlay's are reached by a descriptor."""
        family = getattr(module, "AF_UNIX", None)

        def wrapped(name: str, how: str) -> Callable[..., Any]:
            plain = getattr(module.socket, name)

            def call(self: Any, address: Any) -> Any:
                is_path = isinstance(address, (str, bytes)) and address[:1] not in ("", b"", "\0", b"\0")
                found = self_path(address, how) if self.family == family and is_path else address
                if found == address:
                    return plain(self, address)
                folder = os.open(os.path.dirname(found), os.O_PATH | os.O_CLOEXEC)
                try:
                    return plain(self, f"/proc/self/fd/{folder}/{os.path.basename(os.fsdecode(found))}")
                finally:
                    os.close(folder)

            call.__name__, call.__qualname__, call.__doc__ = name, f"socket.{name}", plain.__doc__
            return call

        self_path = self._path
        for name, how in (("bind", "w"), ("connect", "r"), ("connect_ex", "r")):
            self._set(module.socket, name, wrapped(name, how))

    def _database(self, database: Any, uri: bool) -> Any:
        if not self._is_active() or database in ("", b"", ":memory:", b":memory:"):
            return database
        if not (uri and isinstance(database, str) and database.startswith("file:")):
            return self._database_file(database)
        address, _, query = database.partition("?")
        options = dict(parse_qsl(query))
        path = unquote(address.partition("#")[0][len("file:") :])
        path = "/" + path.lstrip("/") if path.startswith("/") else path
        if not path or path == ":memory:" or options.get("mode") == "memory":
            return database
        reads = options.get("mode") == "ro" or "immutable" in options
        found = self._operations.readable(path) if reads else self._database_file(path)
        return database if found == path else f"file:{_quoted(found)}" + (f"?{query}" if query else "")

    def _database_file(self, path: Any) -> Any:
        try:
            found = self._operations.writable(path, keep=True)
        except OSError:
            return self._operations.readable(path)
        text = os.fsdecode(path)
        for suffix in ("-wal", "-journal"):
            if found != path and os.path.exists(text + suffix):
                self._operations.writable(text + suffix, keep=True)
        return found


class _Loader(importlib.abc.Loader):
    """Gives way to the real loader before the module could see it, and patches the module afterwards."""

    def __init__(self, inner: Any, patch: Callable[[ModuleType], None]) -> None:
        self._inner = inner
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        spec.loader = self._inner
        try:
            module: ModuleType | None = self._inner.create_module(spec)
        finally:
            spec.loader = self
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        self._patch(sys.modules.get(module.__name__, module))


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
