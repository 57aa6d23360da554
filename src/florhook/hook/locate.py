"""Finds a module as an import would, without importing anything, its parents neither."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec


def find_spec(name: str) -> ModuleSpec | None:
    """The spec of a module by its full name, as the finders of this process and its `sys.path` give it."""
    spec = None
    folders: list[str] | None = None
    for end in [*(index for index, letter in enumerate(name) if letter == "."), len(name)]:
        if spec is not None and folders is None:
            return None  # the parent is no package
        spec = _ask(name[:end], folders)
        if spec is None:
            return None
        folders = folders_of(spec)
    return spec


def folders_of(spec: ModuleSpec) -> list[str] | None:
    """The folders that a package's modules are looked for in; None for what is no package."""
    found = spec.submodule_search_locations
    # Those of a namespace package ask the imported parent, which there is none of, whenever they are iterated over.
    return None if found is None else list(getattr(found, "_path", found))


def _ask(name: str, folders: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find(name, folders) if find is not None else None
        if spec is not None:
            return spec
    return None
