"""Switches florhook on in any Python that is started with this folder on PYTHONPATH and FLOR_MODE set.

Python imports this at every start, so it imports nothing but `sys` and `os`, does its part only where a script, a
folder or a module (-m) is about to run, and then hands on to the `sitecustomize` that it hides.

The program is taken over by an audit hook: CPython raises `cpython.run_file` or `cpython.run_module` right before it
runs the program, when `sys.argv` and `sys.path[0]` are as they will be; ends if the hook raises; and handles a
SystemExit from there like the program's own. Tried out on 3.10 to 3.13: a script raises run_file, -m raises run_module
with the module's name, a folder or zip file raises run_module with "__main__".

Things that don't work:

- Running the program from here: `sys.path[0]` is not there yet, and `site` has not finished.
- Replacing the loader's `get_code`: it is never asked for a script's code.
- A hook without `__cantrace__`: CPython turns tracing off while it runs, so no debugger or coverage would see anything.
"""

import os
import sys

MODES = ("record", "replay", "resume")
OWN_PROGRAMS = ("florhook", "pip")
here = os.path.dirname(os.path.abspath(__file__))


def wanted() -> bool:
    """Tells if this process may run a program to be taken over, from the environment and the way it was started."""
    environ = os.environ
    if environ.get("FLOR_MODE") not in MODES or environ.get("FLOR_OWNER") or environ.get("FLOR_INERT"):
        return False
    program = sys.argv[0] if getattr(sys, "argv", None) else ""
    if program == "-m":
        return module_name().partition(".")[0] not in OWN_PROGRAMS
    if program in ("", "-", "-c"):
        return False
    folder = os.path.dirname(os.path.realpath(program))
    return folder not in {os.path.realpath(folder) for folder in scripts_folders()}


def module_name() -> str:
    """Finds the name given to -m: until the program runs, only `sys.orig_argv` has it."""
    count = len(sys.argv) - 1
    name = sys.orig_argv[-count - 1]
    # Written as one word, as in -mpip or -Bmpip, it hangs on its option.
    return name.partition("m")[2] if name.startswith("-") else name


def scripts_folders() -> list[str]:
    """The folders of console scripts: what lies there is not the user's program."""
    folders = [os.path.join(prefix, "bin") for prefix in (sys.prefix, sys.base_prefix)]
    return [*folders, os.path.dirname(sys.executable)]


def listen() -> None:
    """Waits for the program to be run."""
    pending = True

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal pending
        if pending and event in ("cpython.run_file", "cpython.run_module"):
            pending = False
            # From now on the hook is called for the program's own events, and no tracer is to see it.
            del hook.__cantrace__  # type: ignore[attr-defined]
            take_over(event, str(args[0]))

    hook.__cantrace__ = True  # type: ignore[attr-defined]
    sys.addaudithook(hook)


def take_over(event: str, argument: str) -> None:
    """Runs the program in florhook; returns only where it is to be run plainly."""
    before = sys.modules.get("__main__")
    try:
        import_activate().take_over(event, argument)  # type: ignore[no-untyped-call]
    except Exception as error:
        complain(error)
        # It has run already, or was to write into an overlay, and would now write over what the run had written.
        if sys.modules.get("__main__") is not before or os.environ.get("FLOR_MODE") != "record":
            raise SystemExit(1) from None


def import_activate():  # type: ignore[no-untyped-def]
    """Imports florhook, installed or from the source tree that this file lies in."""
    for folder in (os.path.join(here, os.pardir, "src"), os.path.join(here, os.pardir, os.pardir)):
        if os.path.isfile(os.path.join(folder, "florhook", "activate.py")):
            sys.path.insert(0, os.path.abspath(folder))
            try:
                import florhook.activate
            finally:
                del sys.path[0]
            return florhook.activate
    import florhook.activate

    return florhook.activate


def complain(error: BaseException) -> None:
    """Says on stderr that florhook does not run the program."""
    sys.stderr.write(f"florhook: could not switch itself on ({type(error).__name__}: {error})\n")


def same_folder(entry: str) -> bool:
    """Tells if an entry of `sys.path` is this folder, under whatever name: handing on to it would never end."""
    try:
        return os.path.samestat(os.stat(entry or "."), os.stat(here))
    except OSError:
        return False


def hand_on() -> None:
    """Executes the `sitecustomize` that this one hides, in its own name; its errors are for `site` to report."""
    paths = [entry for entry in sys.path if not same_folder(entry)]
    spec = sys.modules["_frozen_importlib_external"].PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        module = sys.modules["_frozen_importlib"].module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    if wanted():
        listen()
except Exception as error:
    complain(error)
hand_on()
