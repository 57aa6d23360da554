"""Lines of hindsight as they are kept: their loops, their pieces, and files that are taken away."""

from __future__ import annotations

import os
from pathlib import Path

from florhook.logs.kept import KeptLines as Kept
from florhook.logs.kept import Logged, Loop, common, publish, read, replays_of

EPOCH: Loop = ("m::0", 0, 1, {"epoch": 1})
STEPS: list[Loop] = [("m:f:0", 0, step, {"step": step}) for step in range(3)]


class Place:
    """Stands for the replayer."""

    def __init__(self) -> None:
        self.loops: list[Loop] = []
        self.asked = 0
        self.said: list[str] = []

    def look(self) -> list[Loop]:
        self.asked += 1
        return list(self.loops)

    def keeper(self, path: Path) -> Kept:
        kept = Kept(self.look, lambda: list(self.loops), self.said.append)
        kept.goes_to(str(path))
        return kept


def lines(path: Path) -> list[tuple[list[Loop], int, bool, str, Logged | None]]:
    """What is kept there, behind the line about the replay."""
    path.with_suffix(".whole").write_bytes(b"{}\n" + path.read_bytes())
    return [(*row[:4], row[5]) for row in read(path.with_suffix(".whole"))]


def test_pieces_make_lines(tmp_path: Path) -> None:
    """Each with what was around its beginning and its end; the place is looked at once for each iteration."""
    place = Place()
    kept = place.keeper(tmp_path / "kept")
    place.loops = [EPOCH, STEPS[0]]
    for piece in ("a", " ", "1", "\n", "b\nc\n"):
        kept.take(piece, 7, True)
    kept.take("d", 8, True)
    place.loops = [EPOCH, STEPS[1]]
    kept.take("e\nf", 9, False)
    assert place.asked == 2
    place.loops = []
    kept.take("g\n", 10, False)
    kept.take("no end", 11, True)
    kept.finish()
    assert lines(tmp_path / "kept") == [
        ([EPOCH, STEPS[0]], 7, True, "a 1", None),
        ([EPOCH, STEPS[0]], 7, True, "b", None),
        ([EPOCH, STEPS[0]], 7, True, "c", None),
        ([EPOCH], 8, True, "de", None),
        ([], 9, False, "fg", None),
        ([], 11, True, "no end", None),
    ]
    assert place.said == []


def test_what_two_places_have_in_common() -> None:
    """From outside in, by iteration, whatever the variables hold now."""
    changed: Loop = (*EPOCH[:3], {"epoch": 5})
    assert common([EPOCH, STEPS[0]], [changed, STEPS[0]]) == [EPOCH, STEPS[0]]
    assert common([EPOCH, STEPS[0]], [EPOCH, STEPS[1]]) == [EPOCH]
    assert common([STEPS[0]], [EPOCH, STEPS[0]]) == []


def test_a_file_of_the_programs_is_never_written_to(tmp_path: Path) -> None:
    """Where a program closes descriptors that are not its own and opens files in their place."""
    place = Place()
    kept = place.keeper(tmp_path / "kept")
    descriptor = kept._descriptor
    assert descriptor is not None
    own = os.open(tmp_path / "own", os.O_WRONLY | os.O_CREAT)
    os.dup2(own, descriptor)
    kept.take("a\n", 0, True)
    kept.flush()
    kept.take("b\n", 0, True)
    kept.goes_to(None)
    assert (tmp_path / "own").read_bytes() == (tmp_path / "kept").read_bytes() == b""
    assert place.said == ["what this replay prints is not kept for florhook logs: Bad file descriptor"]
    os.fstat(descriptor)  # the program's file is still open
    os.close(descriptor)
    os.close(own)


def test_replays_of_a_run(tmp_path: Path) -> None:
    """Those that printed, oldest first; what is no line of ours is passed over."""
    parts = [tmp_path / name for name in ("0", "1", "2")]
    parts[0].write_text('[[], 0, true, "x"]\n')
    parts[2].write_text(
        '[[["m::0", 0, 1, {"epoch": 1}]], 4, false, "y", ["m", 7]]\n[1]\n{"a": 2}\n[[[1]], 5, true, "z"]\n[[], 5, true'
    )
    publish(tmp_path, "run", parts, {"replay": "b", "ended": 2.0})
    publish(tmp_path, "run", parts[:1], {"replay": "c", "ended": 1.0})
    publish(tmp_path, "run", parts[1:2], {"replay": "a", "ended": 3.0})  # it printed nothing
    found = replays_of(tmp_path, "run")
    assert [about["replay"] for about, _ in found] == ["c", "b"]
    assert list(read(found[1][1])) == [
        ([], 0, True, "x", None, None),
        ([EPOCH], 4, False, "y", ("m", 7), None),
    ]
    assert found[1][1].stat().st_mode & 0o777 == 0o600
    assert replays_of(tmp_path, "other") == []


def test_what_is_logged(tmp_path: Path) -> None:
    """It stands between the printed lines, with the loops around it and what its library says."""
    place = Place()
    kept = place.keeper(tmp_path / "kept")
    place.loops = [EPOCH]
    kept.take("begun ", 7, True)
    how = ("logging", "INFO root", "train.py:3", "")
    kept.log("loss=1", how, 7, True)
    kept.take("ended\n", 7, True)
    kept.finish()
    assert lines(tmp_path / "kept") == [
        ([EPOCH], 7, True, "loss=1", how),
        ([EPOCH], 7, True, "begun ended", None),
    ]
