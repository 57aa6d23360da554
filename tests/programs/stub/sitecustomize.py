"""Chained to by florhook's sitecustomize: puts a florhook.cli in place that only launches, to test activation alone."""

import sys
import types


def run_target(target):
    import os

    from florhook.launch import run

    os.environ["FLOR_OWNER"] = "test:1"
    if "STUB_SAYS" in os.environ:
        sys.stderr.write(f"taken over: {target}\n")

    run(
        target,
        lambda source, filename, name: compile(source, filename, "exec", dont_inherit=True),
        lambda module: None,
        lambda status: None,
    )


stub = types.ModuleType("florhook.cli")
stub.run_target = run_target
sys.modules["florhook.cli"] = stub
