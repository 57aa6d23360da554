"""Runs a program through florhook.launch without rewriting anything, as `python -m launch_driver [-m|-c] program args`."""

import os
import sys

from florhook.launch import Target, run


def at_exit(status):
    if "DRIVER_STATUS" in os.environ:
        with open(os.environ["DRIVER_STATUS"], "a") as file:
            file.write(f"{status}\n")


def main():
    args = sys.argv[1:]
    kind = {"-m": "module", "-c": "code"}.get(args[0], "script")
    if kind != "script":
        args = args[1:]
    run(
        Target(kind, args[0], args[1:]),
        lambda source, filename, name: compile(source, filename, "exec", dont_inherit=True),
        lambda module: None,
        at_exit,
    )


main()
