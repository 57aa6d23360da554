"""What a program sets on modules and classes of libraries is state of the program."""

from __future__ import annotations

import ast
import json

import pytest
from conftest import Flor

from florhook.hook.library import LibraryAttributes
from florhook.hook.rewrite import rewrite

IMPORTS = "import a.b, c.d as e\nfrom f.g import h as i, j\nfrom .own import k\nimport sys\n"
SETS = {
    "a.x = 1": [("a", "x")],
    "a.b.x += 1": [("a", "b", "x")],
    "e.x: int = 1": [("c.d", "x")],
    "del i.x": [("f.g", "h", "x")],
    "(j.x, [v, *e.y]) = f()": [("c.d", "y"), ("f.g", "j", "x")],
    "setattr(j, 'x', 1)": [("f.g", "j", "x")],
    "delattr(a.b, 'x')": [("a", "b", "x")],
    "setattr(j, name, 1)": [],
    "k.x = 1": [],
    "v.x = 1": [],
    "a().x = 1": [],
    "a[0].x = 1": [],
    "sys.stdout = v": [],
    "v = a.x": [],
}


@pytest.mark.parametrize("statement", SETS)
def test_what_statements_set(statement: str) -> None:
    found = LibraryAttributes()
    for node in ast.parse(IMPORTS + statement).body:
        found.see(node, once=False)
    assert list(found.paths()) == SETS[statement]


def test_what_is_executed_once_is_left_out() -> None:
    """A statement of the module outside of loops is executed in every replay."""
    source = """
        import a
        a.once = 1
        if a: a.also_once = 1
        for x in a: a.in_a_loop = 1
        def f(): a.in_a_function = 1
        class C: a.in_a_class = 1
    """
    tree = ast.parse("if 1:\n" + source)
    found = rewrite(tree, "m", "m.py").attributes
    assert found == (("a", "in_a_class"), ("a", "in_a_function"), ("a", "in_a_loop"))


PROGRAM = """
    import builtins, json, random, time
    import json.decoder as decoder
    from textwrap import TextWrapper
    import settings

    class Thing:
        def __init__(self, epoch): self.epoch = epoch

    def silence(rank):
        plain = builtins.print
        def shown(*args, **kwargs):
            if rank == 0: plain(*args, **kwargs)
        builtins.print = shown

    def change(epoch):
        json.flag = epoch
        decoder.JSONDecoder.extra = Thing(epoch)
        setattr(TextWrapper, "width", [epoch])
        settings.rate = settings.rate / 2
        random.choice = random.random if epoch > 1 else random.shuffle
        if epoch == 1:
            json.gone = "there"
        if epoch == 3:
            del json.gone

    def main():
        silence(0)
        for epoch in range(5):
            time.sleep(0.02)
            change(epoch)
            print(epoch)
        print("end")

    main()
"""
SEEN = """(json.flag, decoder.JSONDecoder.extra.epoch, TextWrapper.width, settings.rate,
        random.choice.__name__, getattr(json, "gone", None), builtins.print.__name__)"""


@pytest.mark.parametrize(
    ("place", "probe"),
    [
        ('        print("end")', f'        print("@@", {SEEN})\n        print("end")'),
        ("            print(epoch)\n", f'            print(epoch)\n            print("@@", {SEEN})\n'),
    ],
    ids=["end", "epochs"],
)
def test_they_are_restored(flor: Flor, place: str, probe: str) -> None:
    """Set, changed, deleted, on modules and classes, and what the program put in the place of a function."""
    flor.write("settings.py", "rate = 1024\n")
    flor.write("train.py", PROGRAM)
    assert flor("train.py", FLOR_EPSILON="inf").stdout == "0\n1\n2\n3\n4\nend\n"
    flor.write("train.py", PROGRAM.replace(place, probe))
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    assert wanted
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr
    stats = json.loads((flor.folder / "stats.json").read_text())
    assert stats["diverged"] == 0
    assert stats["iterations_skipped"] >= 4


def test_a_segment_begins_with_what_was_set_by_then(flor: Flor) -> None:
    """An attribute that the skipped iterations set, or deleted, is as they left it where the replay jumps to."""
    program = """
        import json
        import time

        for epoch in range(6):
            time.sleep(0.02)
            seen = getattr(json, "flag", None)
            if epoch == 2:
                json.flag = epoch
            if epoch == 4:
                del json.flag
    """
    flor.write("train.py", program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    asks = 'seen = getattr(json, "flag", None)'
    flor.write("train.py", program.replace(asks, f"{asks}\n            print(epoch, seen)"))
    for iteration, seen in ((2, None), (3, 2), (4, 2), (5, None)):
        done = flor("train.py", FLOR_MODE="replay", FLOR_SELECT=f"epoch={iteration}", FLOR_STATS="stats.json")
        assert (done.returncode, done.stdout) == (0, f"{iteration} {seen}\n"), done.stderr
        assert json.loads((flor.folder / "stats.json").read_text())["iterations_skipped"] >= iteration - 1


def test_objects_on_the_way_are_not_asked(flor: Flor) -> None:
    """What is neither a module nor a class may run code for each question, `isinstance` included."""
    flor.write(
        "library.py",
        """
        class Proxy:
            @property
            def __class__(self): raise RuntimeError("asked")
        proxy = Proxy()
        gone = None
    """,
    )
    program = """
        import time
        import library

        def change(epoch):
            if epoch < 0:
                library.proxy.x = epoch
                library.gone.x = epoch
                library.proxy.part.x = epoch
                library.missing.x = epoch

        for epoch in range(4):
            time.sleep(0.02)
            change(epoch)
        print("end")
    """
    flor.write("pyproject.toml", '[tool.florhook]\nexclude = ["library"]\n')
    flor.write("train.py", program)
    recorded = flor("train.py", FLOR_EPSILON="inf")
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (0, "end\n", "")
    flor.write("train.py", program.replace('print("end")', 'print(epoch)\n        print("end")'))
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert json.loads((flor.folder / "stats.json").read_text())["iterations_skipped"] == 4
