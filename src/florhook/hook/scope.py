"""Decides from a module's name and path alone whether it is the user's.

The user's are the files under the script's folder, the working folder and the project root. Inside those, what some
installation put there (the standard library, site-packages, virtual environments) is not.
"""

# Every import of the program comes through here, and pathlib is many times slower.

from __future__ import annotations

import os
import site
import sys
import sysconfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

DEFAULT_INCLUDE: tuple[str, ...] = (
    "transformers.trainer",
    "lightning.pytorch.loops",
    "pytorch_lightning.loops",
    "skorch.net",
    "ignite.engine.engine",
)
"""Module patterns treated as the user's wherever they lie: training loops that live in libraries."""

PROJECT_MARKS = (".git", "pyproject.toml", "setup.cfg", "setup.py")
LIBRARIES = "the interpreter's libraries"
STANDARD = "the standard library"
SCHEME_KEYS = {
    "purelib": "site-packages",
    "platlib": "site-packages",
    "scripts": "a folder of installed scripts",
    "stdlib": STANDARD,
    "platstdlib": STANDARD,
}
INSTALL_FOLDERS = frozenset(("site-packages", "dist-packages"))


class Decision:
    """Whether a module is the user's, and why."""

    __slots__ = ("reason", "user")
    user: bool
    reason: str

    def __init__(self, user: bool, reason: str) -> None:
        object.__setattr__(self, "user", user)
        object.__setattr__(self, "reason", reason)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Decision is frozen: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and (self.user, self.reason) == (other.user, other.reason)

    def __hash__(self) -> int:
        return hash((self.user, self.reason))

    def __repr__(self) -> str:
        return f"Decision({self.user!r}, {self.reason!r})"


class Scope:
    """Knows the folders of the user and of the installations; `decide` costs a few microseconds for the latter."""

    def __init__(
        self, script_dir: str | None, cwd: str, include: Iterable[str] = (), exclude: Iterable[str] = ()
    ) -> None:
        self._include = [_pattern(text) for text in (*include, *DEFAULT_INCLUDE)]
        self._exclude = [_pattern(text) for text in exclude]
        self._user = _with_separator(_user_folders(script_dir, cwd))
        self._installed = _with_separator(_installation_folders(self._user))
        self._installed_prefixes = tuple(self._installed)
        self._folders: dict[str, Decision] = {}

    @property
    def user_folders(self) -> list[str]:
        """The folders whose files are the user's, with symbolic links resolved."""
        return [folder.rstrip(os.sep) or os.sep for folder in self._user]

    def decide(self, name: str, path: str | os.PathLike[str] | None) -> Decision:
        """Tells whether the module of that name and source file is the user's."""
        return self._by_name(name) or self._by_path(path)

    def is_pythons(self, name: str, path: str) -> bool:
        """Tells whether a program is a tool of Python's own, like pdb or cProfile, that runs the user's."""
        decision = self.decide(name, path)
        return not decision.user and decision.reason in (f"in {STANDARD}", f"in {LIBRARIES}")

    def _by_name(self, name: str) -> Decision | None:
        for text, matches in self._exclude:
            if matches(name):
                return Decision(False, f"excluded by {text}")
        for text, matches in self._include:
            if matches(name):
                return Decision(True, f"included by {text}")
        return None

    def _by_path(self, path: str | os.PathLike[str] | None) -> Decision:
        if path is None:
            return Decision(False, "no source file")
        path = os.fspath(path)
        if path.startswith("<"):
            return Decision(False, "not a file")
        # The spelling as given settles nearly all library modules without a system call.
        if path.startswith(self._installed_prefixes):
            return self._installed_decision(path)
        return self._by_real_path(path)

    def _by_real_path(self, path: str) -> Decision:
        folder, name = os.path.split(os.path.abspath(path))
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            return Decision(False, "no such file")
        if os.path.islink(path):
            folder = os.path.dirname(os.path.realpath(path))
        return self.decide_folder(folder)

    def decide_folder(self, folder: str) -> Decision:
        """Tells whether the files of a folder, a namespace package for one, are the user's."""
        if folder not in self._folders:
            self._folders[folder] = self._folder_decision(os.path.join(os.path.realpath(folder), ""))
        return self._folders[folder]

    def _folder_decision(self, real: str) -> Decision:
        """Decides for all files of a folder, given resolved and with a separator at its end."""
        if real.startswith(self._installed_prefixes):
            return self._installed_decision(real)
        for root, label in self._user.items():
            if real.startswith(root):
                return _nested_installation(root, real) or Decision(True, f"in {label}")
        return Decision(False, "outside the script's folder, the working folder and the project")

    def _installed_decision(self, path: str) -> Decision:
        label = next(label for root, label in self._installed.items() if path.startswith(root))
        return Decision(False, f"in {label}")


def is_included(name: str, include: Iterable[str] = ()) -> bool:
    """Tells whether a module is treated as the user's for its name, by these patterns or the default ones."""
    return any(_pattern(text)[1](name) for text in (*include, *DEFAULT_INCLUDE))


def _pattern(text: str) -> tuple[str, Callable[[str], bool]]:
    """Compiles a module pattern: "name" stands for the module and all below it, anything else is an fnmatch glob."""
    if not any(character in text for character in "*?["):
        return text, lambda name: name == text or name.startswith(text + ".")
    import fnmatch
    import re

    match = re.compile(fnmatch.translate(text)).match
    return text, lambda name: match(name) is not None


def _with_separator(folders: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Maps each folder, a separator at its end, to its label; the first label given for a folder stays."""
    labels: dict[str, str] = {}
    for folder, label in folders:
        labels.setdefault(os.path.join(folder, ""), label)
    return labels


def _user_folders(script_dir: str | None, cwd: str) -> Iterator[tuple[str, str]]:
    """Gives the user's folders resolved, the widest last: the first that holds a file names the reason."""
    cwd = os.path.realpath(cwd)
    script_dir = os.path.realpath(script_dir) if script_dir else cwd
    yield script_dir, "the script's folder"
    if cwd != script_dir:
        yield cwd, "the working folder"
    root = _project_root(script_dir)
    if root not in (None, cwd, script_dir):
        yield root, f"the project {root}"


def _project_root(folder: str) -> str | None:
    """Finds the nearest folder, from this one up, that looks like a project; "/" and the home folder are none."""
    home = os.path.realpath(os.path.expanduser("~"))
    while folder not in (home, os.path.dirname(folder)):
        if any(os.path.exists(os.path.join(folder, mark)) for mark in PROJECT_MARKS):
            return folder
        folder = os.path.dirname(folder)
    return None


def _nested_installation(root: str, folder: str) -> Decision | None:
    """Finds a site-packages folder or a virtual environment between a user's root and a folder in it."""
    current = root
    for part in folder[len(root) :].split(os.sep):
        current = os.path.join(current, part)
        if part in INSTALL_FOLDERS:
            return Decision(False, f"in {part}")
        if part and os.path.exists(os.path.join(current, "pyvenv.cfg")):
            return Decision(False, f"in the virtual environment {current}")
    return None


def _installation_folders(user_folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Gives the folders of installations, each as spelled and resolved."""
    user_folders = tuple(user_folders)
    for folder, label in _spelled_installation_folders():
        for spelling in {folder, os.path.realpath(folder)}:
            # A project may lie below something as wide as /usr/lib; narrower folders cover the libraries there.
            if label != LIBRARIES or not any(
                user.startswith(os.path.join(spelling, "")) for user in user_folders
            ):
                yield spelling, label


def _spelled_installation_folders() -> Iterator[tuple[str, str]]:
    yield os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "florhook itself"
    for folder in (*site.getsitepackages(), site.getusersitepackages()):
        yield folder, "site-packages"
    for scheme in sysconfig.get_scheme_names():
        paths = sysconfig.get_paths(scheme)
        for key, label in SCHEME_KEYS.items():
            yield paths[key], label
    for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}:
        for name in {"lib", "lib64", sys.platlibdir}:
            yield os.path.join(prefix, name), LIBRARIES
