"""Runs a program as a true `__main__` in this process and ends as plain python would.

What the program sees (argv, `sys.path[0]`, the module's attributes) is built as CPython's own `main.c` builds it;
`-m`, folders and zip files go through `runpy`'s own functions, because its frames stand in plain tracebacks too.

Things that don't work:

- `runpy.run_path`, `runpy.run_module`: they put the old `__main__` back before the atexit callbacks run.
- `raise error.with_traceback(...)` out of here: the interpreter adds our frames again before it prints.
- Killing ourselves after Ctrl-C: the standard streams would not be flushed, nor objects finalised. Only the
  interpreter may do it, at its very end; see `_die_by_interrupt`.

Known limit: our frames and runpy's lie below `__main__`'s, so `sys._getframe().f_back` at its top level is not None.
"""

# Paths are joined by text as CPython joins them, and pathlib would slow every start.

from __future__ import annotations

import atexit
import builtins
import errno
import os
import sys
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER

from florhook import frames
from florhook.hook.finder import InstrumentingLoader, WarnedBefore, report
from florhook.shadows import show_folder, working_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import CodeType, FrameType, ModuleType, TracebackType
    from typing import Any, Literal, NoReturn

    CompileMain = Callable[[bytes, str, str], CodeType]
    AtStart = Callable[[ModuleType], object]
    AtExit = Callable[[int], object]

INTERRUPTED = 130
"""The status given to `at_exit` after an uncaught KeyboardInterrupt; the process then dies by SIGINT."""

UNFLUSHED = 120
"""CPython's status when stdout or stderr cannot be flushed at exit."""

_GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())


class Target:
    """The program to run: a script (file, folder or zip), a module (-m) or code (-c), and its arguments."""

    __slots__ = ("argv", "kind", "value")

    def __init__(self, kind: Literal["script", "module", "code"], value: str, argv: list[str]) -> None:
        self.kind, self.value, self.argv = kind, value, argv

    def __repr__(self) -> str:
        return f"Target({self.kind!r}, {self.value!r}, {self.argv!r})"


def run(target: Target, compile_main: CompileMain, at_start: AtStart, at_exit: AtExit) -> None:
    """Runs the program; returns if it ended normally, else raises the SystemExit that gives plain python's status."""
    ending = _Ending(at_exit)
    atexit.register(ending.notify)
    words = sys.argv
    try:
        _run_and_report(target, _Program(compile_main, at_start), ending)
    except SystemExit as ended:
        if ending.status != INTERRUPTED:
            ending.status = exit_status(ended.code)
        raise
    finally:
        if _is_debugged():
            sys.argv = words  # pdb starts us again


def run_plainly(target: Target) -> None:
    """FLOR_MODE=off: as plain python."""
    run(target, lambda source, path, _: compile(source, path, "exec", dont_inherit=True), _nothing, _nothing)


def _nothing(_: object) -> None:
    pass


def exit_status(code: object) -> int:
    """Gives the status of a process that ends by `SystemExit(code)`."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def trim(error: BaseException) -> None:
    """Takes florhook's frames out of the tracebacks of an exception and of all that hang on it."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _without_our_frames(current.__traceback__)
        pending += (current.__cause__, current.__context__)
        if isinstance(current, _GROUP):
            pending += current.exceptions


class _Ending:
    """Tells `at_exit` once, in this process only, with the status that the process will have."""

    def __init__(self, at_exit: AtExit) -> None:
        self.status = 0
        self._at_exit = at_exit
        self._pid = os.getpid()

    def notify(self) -> None:
        if os.getpid() != self._pid:
            return
        self._pid = 0
        try:
            self._at_exit(self.status if _flushed() else UNFLUSHED)
        except BaseException:  # the program's end is its own, whatever goes wrong here
            return


class _Program:
    """The module `__main__` and how its code is made."""

    def __init__(self, compile_main: CompileMain, at_start: AtStart) -> None:
        self.main = _install_main()
        self._compile_main = compile_main
        self._at_start: AtStart | None = at_start

    def compile(self, source: bytes, path: str, name: str) -> CodeType:
        try:
            return self._compile_main(source, path, name)
        except SyntaxError as error:
            raise error.with_traceback(None) from None
        except Exception as error:
            report(path, error)
        return compile(source, path, "exec", dont_inherit=True)

    def announce(self) -> None:
        """The program is about to begin; said once."""
        at_start, self._at_start = self._at_start, None
        try:
            if at_start is not None:
                at_start(self.main)
        except Exception as error:
            _write_stderr(f"florhook: could not start ({error!r}), running the program as it is\n")

    def execute(self, code: CodeType) -> None:
        self.announce()
        _allow_for_our_frames(plain=0)
        try:
            exec(code, self.main.__dict__)
        finally:
            _flushed()  # before a traceback is shown, as CPython does for scripts and -c


def _install_main() -> ModuleType:
    main = type(sys)("__main__")
    if sys.version_info < (3, 14):
        main.__dict__.update(__annotations__={})
    main.__dict__.update(__builtins__=builtins)
    main.__loader__ = BuiltinImporter
    sys.modules["__main__"] = main
    # A spawn pool returns instances of the script's classes under this name; multiprocessing may be imported already.
    sys.modules["__mp_main__"] = main
    return main


def _allow_for_our_frames(plain: int) -> None:
    """Raises the recursion limit by what lies below `__main__` now and does not with plain python.

    So a program fails at the same depth as ever; only `sys.getrecursionlimit()` tells the difference.
    """
    frame: FrameType | None = sys._getframe(1)
    depth = -plain
    while frame is not None:
        depth += 1
        if sys.version_info < (3, 12) and frame.f_code.co_name == "<module>" and frame.f_back is not None:
            depth += 1  # the call of exec() counts too
        frame = frame.f_back
    if sys.version_info < (3, 12) and not plain:
        depth += 1
    frames.allow_for(depth)


def _run_and_report(target: Target, program: _Program, ending: _Ending) -> None:
    error = _run_guarded(target, program)
    if error is not None:
        _show_uncaught(error)
        ending.status = 1
    if target.kind == "script" and program.main.__spec__ is None:
        # CPython takes these away when a script has ended, unless it ended by SystemExit.
        program.main.__dict__.pop("__file__", None)
        program.main.__dict__.pop("__cached__", None)
    if error is not None:
        interrupted = type(error) is KeyboardInterrupt
        del error  # its frames lead back to this one: the cycle would outlive the program's globals
        if interrupted:
            ending.status = INTERRUPTED
            _die_by_interrupt()
        raise SystemExit(1)


def _run_guarded(target: Target, program: _Program) -> BaseException | None:
    """Runs the program and gives back its uncaught exception; SystemExit passes, the interpreter handles it best."""
    try:
        {"script": _run_script, "module": _run_module, "code": _run_command}[target.kind](target, program)
    except SystemExit:
        raise
    except BaseException as error:
        if _is_debugged():
            raise  # pdb ends, or looks at what is left
        return error  # shown outside this block, so that the program's hook sees no exception being handled
    return None


def _is_debugged() -> bool:
    """Whether pdb or its like runs us, and waits for the program's exceptions."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "bdb":
        frame = frame.f_back
    return frame is not None


# --- script, folder, zip ---------------------------------------------------------------------------------------------


def _run_script(target: Target, program: _Program) -> None:
    sys.argv = [target.value, *target.argv]
    path = target.value if os.path.isabs(target.value) else os.path.join(working_folder(), target.value)
    if has_importer(path):
        set_path0(path, always=True)
        _run_by_runpy("__main__", False, program)
    else:
        set_path0(script_folder(target.value))
        _run_file(path, program)


def _run_file(path: str, program: _Program) -> None:
    source = _read_script(path)
    main = program.main
    main.__dict__.update(__file__=path, __cached__=None)
    if source[:2] == MAGIC_NUMBER[:2]:
        main.__loader__ = SourcelessFileLoader("__main__", path)
        code = main.__loader__.get_code("__main__")
        assert code is not None
    else:
        main.__loader__ = SourceFileLoader("__main__", path)
        code = program.compile(source, path, "__main__")
    program.execute(code)


def _read_script(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        number = error.errno or errno.EIO
        problem = f"can't open file {path!r}: [Errno {number}] {os.strerror(number)}"
    _write_stderr(f"{sys.orig_argv[0]}: {problem}\n")
    raise SystemExit(2)


def has_importer(path: str) -> bool:
    """Tells if a path is run as an entry of `sys.path` (a folder, a zip file), in the way of `PyImport_GetImporter`."""
    importer = None
    for hook in sys.path_hooks:
        try:
            importer = hook(path)
            break
        except ImportError:
            continue
    sys.path_importer_cache[path] = importer  # None too, as CPython does
    return importer is not None


def script_folder(script: str) -> str:
    """Gives `sys.path[0]` for a script: one link is followed by text, then everything is resolved, as CPython does."""
    try:
        script = os.path.join(os.path.dirname(script), os.readlink(script))
    except OSError:
        pass
    try:
        return os.path.dirname(os.path.realpath(script))
    except OSError:  # the working folder was removed
        return os.path.dirname(script)


def folder_of(target: Target) -> str:
    """Where the program's own modules are looked for first; "" for the working folder."""
    if target.kind != "script":
        return ""
    return target.value if os.path.isdir(target.value) else script_folder(target.value)


def set_path0(folder: str, always: bool = False) -> None:
    """Replaces the entry that `python -m florhook` got; with -P or -I only a folder or zip file gets one."""
    show_folder()
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[:1] = [folder]
    elif always and sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


# --- module ----------------------------------------------------------------------------------------------------------


def _run_module(target: Target, program: _Program) -> None:
    sys.argv = ["-m", *target.argv]
    set_path0(working_folder())  # a console script of ours has the folder of scripts there
    program.announce()  # the packages that the module lies in are part of the program, too
    _run_by_runpy(target.value, True, program)


def _run_by_runpy(name: str, by_name: bool, program: _Program) -> None:
    """Runs `runpy._run_module_as_main` with two of its globals replaced until the program's code runs."""
    import runpy

    patched = _Runpy(runpy, name, program)
    try:
        runpy._run_module_as_main(name, by_name)  # type: ignore[attr-defined]
    finally:
        patched.undo()


class _Runpy:
    """Stands in for `importlib` and `exec` in runpy: the main module is found with our loader and announced."""

    def __init__(self, runpy: Any, name: str, program: _Program) -> None:
        self._runpy, self._importlib = runpy, runpy.importlib
        self._names = (name, name + ".__main__")
        self._program = program
        self.util, self.machinery = self, runpy.importlib.machinery
        runpy.importlib, runpy.exec = self, self._exec

    def undo(self) -> None:
        self._runpy.importlib = self._importlib
        vars(self._runpy).pop("exec", None)

    def find_spec(self, name: str, package: str | None = None) -> ModuleSpec | None:
        spec: ModuleSpec | None = self._importlib.util.find_spec(name, package)
        loader = spec and spec.loader
        if spec and name in self._names and type(loader) in (SourceFileLoader, InstrumentingLoader):
            spec.loader = _MainLoader(name, spec.origin, self._program)
        return spec

    def _exec(self, code: CodeType, namespace: dict[str, Any]) -> None:
        if namespace is self._program.main.__dict__:
            self.undo()
            self._program.announce()
            _allow_for_our_frames(plain=2)
        exec(code, namespace)


class _MainLoader(SourceFileLoader):
    """Gives the code of `__main__` once, and is an ordinary `SourceFileLoader` from then on."""

    def __init__(self, name: str, path: Any, program: _Program) -> None:
        super().__init__(name, path)
        self._program = program

    def get_code(self, fullname: str) -> CodeType | None:
        program = self._program
        del self._program
        self.__class__ = SourceFileLoader  # type: ignore[assignment]
        try:
            with WarnedBefore(self.path):
                return program.compile(self.get_data(self.path), self.path, "__main__")
        except SyntaxError:
            pass
        return SourceFileLoader.get_code(self, fullname)  # raises it from the frames that plain python shows


# --- code ------------------------------------------------------------------------------------------------------------


def _run_command(target: Target, program: _Program) -> None:
    sys.argv = ["-c", *target.argv]
    set_path0("")
    code = program.compile(target.value.encode(), "<string>", "__main__")
    if sys.version_info >= (3, 13):
        import linecache

        # The first releases of 3.13 kept the text of -c under its file name.
        key = code if hasattr(linecache, "_interactive_cache") else "<string>"
        linecache._register_code(key, target.value, "<string>")  # type: ignore[attr-defined]
    program.execute(code)


# --- how it ends -----------------------------------------------------------------------------------------------------


def _show_uncaught(error: BaseException) -> None:
    """Does what CPython's `PyErr_Print` does with an uncaught exception, without our frames."""
    trim(error)
    _set_last(error)
    hook = getattr(sys, "excepthook", None)
    if hook is None:
        _write_stderr("sys.excepthook is missing\n")
        sys.__excepthook__(type(error), error, error.__traceback__)
        return
    failure = _call_hook(hook, error)
    if isinstance(failure, SystemExit):
        raise failure
    if failure is not None:
        trim(failure)
        _write_stderr("Error in sys.excepthook:\n")
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        _write_stderr("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)


def _call_hook(hook: Callable[..., object], error: BaseException) -> BaseException | None:
    try:
        sys.audit("sys.excepthook", hook, type(error), error, error.__traceback__)
        hook(type(error), error, error.__traceback__)
    except BaseException as failure:
        return failure
    return None


def _set_last(error: BaseException) -> None:
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error


def _die_by_interrupt() -> NoReturn:
    """Ends so that the interpreter, once finalised, kills itself by SIGINT as after an uncaught Ctrl-C.

    It does so if the last source *text* that it ran ended by KeyboardInterrupt, caught or not.
    """
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        pass
    raise SystemExit(INTERRUPTED)


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    kept = traceback
    while traceback is not None:
        following = traceback.tb_next
        if following is not None and _is_ours(following):
            traceback.tb_next = following.tb_next
        else:
            traceback = following
    return kept


def _is_ours(traceback: TracebackType) -> bool:
    name = traceback.tb_frame.f_globals.get("__name__")
    return isinstance(name, str) and (name == "florhook" or name.startswith("florhook."))


def _flushed() -> bool:
    """Flushes the standard streams and tells if that worked; a closed or missing stream counts as flushed."""
    done = [_flushed_stream(getattr(sys, name, None)) for name in ("stdout", "stderr")]
    return all(done)


def _flushed_stream(stream: Any) -> bool:
    try:
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
    except Exception:
        return False
    return True


def _write_stderr(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:  # a closed stderr; plain python is silent then too
        return
