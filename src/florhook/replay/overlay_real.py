"""The file functions as they were before any patch: what the overlay itself works with."""

from __future__ import annotations

import io
import os


class real:  # noqa: N801 - a namespace: module globals would be replaced along with everybody else's
    """The originals, kept in a class because `overlay_patch` replaces what module globals refer to."""

    access = staticmethod(os.access)
    chdir = staticmethod(os.chdir)
    chmod = staticmethod(os.chmod)
    getcwd = staticmethod(os.getcwd)
    link = staticmethod(os.link)
    listdir = staticmethod(os.listdir)
    lstat = staticmethod(os.lstat)
    mkdir = staticmethod(os.mkdir)
    open = staticmethod(os.open)
    readlink = staticmethod(os.readlink)
    rename = staticmethod(os.rename)
    rmdir = staticmethod(os.rmdir)
    scandir = staticmethod(os.scandir)
    stat = staticmethod(os.stat)
    symlink = staticmethod(os.symlink)
    unlink = staticmethod(os.unlink)
    open_file = staticmethod(io.open)
    FileIO = io.FileIO
