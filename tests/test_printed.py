"""Which statement printed a line, by the texts that calls can give."""

from __future__ import annotations

import ast
import textwrap

import pytest

from florhook.history.printed import Printers, printers_in, shown_by
from florhook.hook.rewrite import rewrite

PROGRAM = textwrap.dedent(
    """\
    print(f"epoch {epoch} loss {loss:.3f}")
    print("epoch", epoch, "best")
    print("a", b, sep="=")
    print("%d%% of %-5s done" % (1, x))
    print("{{{}}} at {:>{w}}".format(x, y, w=3))
    print("up to " + str(x) + " of")
    print({"lr": lr, 'mean': x})
    print("first line\\nsecond", x)
    print("not here", file=sys.stderr)
    logger.info("step %d took %.1f s", 1, 2)
    florhook.log("norm", x)
    print("rest of it", x, end=" ")
    say("a label", x)
    print(x, y)
    for epoch in range(3):
        for step in range(3):
            print(f"score {x}")
        for step in range(3):
            print(f"score {x}")
        print(f"score of all {x}")
    def f():
        print(f"score {x} twice")
    """
)


@pytest.fixture(scope="module")
def printers() -> Printers:
    sites = rewrite(ast.parse(PROGRAM), "m", "m.py").sites
    return Printers(printers_in(PROGRAM.encode(), "m", sites))


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("epoch 3 loss 0.250", 1),
        ("epoch 3 best", 2),
        ("epoch 3 worst", None),
        ("a=4", 3),
        ("12% of 30    done", 4),
        ("{7} at   8", 5),
        ("up to 8 of", 6),
        ("up to 8 of 9", None),
        ("{'lr': 0.1, 'mean': 2.0}", 7),
        ("first line", 8),
        ("second 5", 8),
        ("not here", None),
        ("12:00 INFO step 4 took 0.1 s of CPU", 10),
        ("norm=0.5", 11),
        ("rest of it 3 and more", 12),
        ("a label 3", None),
        ("1 2", None),
        ("score of all 3", 20),
        ("score 3 twice", 22),
        ("score 3" + " " * 5000, None),
    ],
)
def test_a_line_belongs_to_the_call_that_fits(printers: Printers, line: str, number: int | None) -> None:
    assert printers.of(line, ["m::0"]) == (None if number is None else ("m", number))


def test_loops_tell_the_same_texts_apart(printers: Printers) -> None:
    """Unless they are not known."""
    assert printers.of("score 1", ["m::0", "m::1"]) == ("m", 17)
    assert printers.of("score 1", ["m::0", "m::2"]) == ("m", 19)
    assert printers.of("score 1", ["m::0"]) is None
    assert printers.of("score of all 1", ["m::9"]) is None
    assert printers.of("score of all 1", []) == ("m", 20)


def test_a_source_that_cannot_be_read_has_none() -> None:
    assert printers_in(b"print(", "m", []) == []
    assert printers_in(b"\x00", "m", []) == []


def test_what_probes_show() -> None:
    """Names that are no words are found by the expressions of the probe."""
    line = "epoch=1 net.norm()=tensor(0.5) x[0]=3 name=a b"
    assert shown_by("net.norm(), x[0], name if epoch > 0", line) == [("net.norm()", 0.5), ("x[0]", 3)]
    assert shown_by("print('x', 1)", "x 1") == []
    assert shown_by("for x in y: print(x)", "1") == []
