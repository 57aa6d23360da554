"""`florhook logs`: every line with the loops around it, as the lines themselves say; values, tables, frames."""

from __future__ import annotations

import ast
import csv
import io
import re

import pytest
from conftest import Flor
from telling import HINDSIGHT, SIMPLE, TELLING, known, lines_of, record, replay, rows_of, said, told

from florhook.history.headers import Count, counts


def test_every_line_has_its_loops(flor: Flor) -> None:
    """In functions, nested, after and between loops; begun in one iteration and ended in another; overwritten."""
    record(flor, TELLING)
    rows = rows_of(flor)
    assert [row["text"] for row in rows] == lines_of(flor.python("train.py").stdout)
    assert [row["text"] for row in rows if "|" not in row["text"]] == ["over"] * 3
    for row in told(rows):
        assert known(row) == said(row["text"]), row
    facts = {(row["source"], row["replay"], row["rank"]) for row in rows}
    assert facts == {("recorded", None, 0)}


def test_times(flor: Flor) -> None:
    """In seconds from the start, never backwards, of what was recorded last before a line."""
    record(flor, TELLING.replace('print("| between")', 'time.sleep(0.3)\nprint("| between")'))
    rows = rows_of(flor)
    times = [row["time"] for row in rows if row["time"] is not None]
    assert times == sorted(times)
    assert len(times) == len(rows) - 1  # of what came before all loops nothing is known
    halved = next(row["time"] for row in rows if row["text"].endswith("halved"))
    written = next(row["time"] for row in rows if row["text"].endswith("written"))
    assert 0.3 <= halved - written < 30


def test_what_the_record_does_not_tell_is_left_open(flor: Flor) -> None:
    """Of loops too quick to be recorded one by one a line has the loops around or none, never wrong ones."""
    program = TELLING.replace(
        "        time.sleep(0.003)\n", "        time.sleep(0.006 * (epoch > 2500))\n", 1
    )
    record(flor, program.replace("range(10, 40, 10)", "range(10, 3000, 10)"), FLOR_EPSILON="0.0667")
    rows = told(rows_of(flor))
    assert len(rows) > 1500
    for row in rows:
        assert known(row).items() <= said(row["text"]).items(), row
    slow = [row for row in rows if said(row["text"]).get("epoch", 0) > 2500]
    assert sum(known(row) == said(row["text"]) for row in slow) > len(slow) / 2


LEFT = """
import time

def first(limit):
    for step in range(9):
        time.sleep(0.003)
        print(f"epoch={epoch} step={step} | looks")
        if step == limit:
            return step
    return -1

def fails():
    for step in range(9):
        time.sleep(0.003)
        if step == 1:
            print(f"epoch={epoch} step={step} | fails")
            raise ValueError(step)

def waits():
    left = 9
    while True:
        time.sleep(0.003)
        left -= 1
        if left == 7:
            return left

for epoch in range(2):
    print(f"epoch={epoch} | found", first(1))
    try:
        fails()
    except ValueError as error:
        print(f"epoch={epoch} | caught", error)
    print(f"epoch={epoch} | waited until", waits())
    print(f"epoch={epoch} | after")
    time.sleep(0.003)
    for step in range(1):
        time.sleep(0.003)
        print(f"epoch={epoch} step={step} | over")
print("| end")
"""


def test_loops_left_by_return_and_exception(flor: Flor) -> None:
    """What is printed after them, or later by a replay, is not theirs."""
    record(flor, LEFT)
    for row in told(rows_of(flor)):
        assert known(row) == said(row["text"]), row
    probed = re.sub(
        r'^( *)print\(f?("[^|]*\|)', r"\1print(f\2 new'); \g<0>".replace("'", '"'), LEFT, flags=re.MULTILINE
    )
    assert replay(flor, probed).returncode == 0
    rows = rows_of(flor)
    assert [row["text"] for row in rows] == lines_of(flor.python("train.py").stdout)
    for row in told(rows):
        assert known(row) == said(row["text"]), row


def test_a_run_that_crashed(flor: Flor) -> None:
    """The iterations that it crashed in are known as the others are, since their loops' headers count them."""
    crash = "        if epoch == 30 and step == 2: raise ValueError"
    program = TELLING.replace("        print(f", f"{crash}\n        print(f", 1)
    flor.write("train.py", program.replace('begins", end=" ")', 'begins")'))
    done = flor("train.py", FLOR_EPSILON="inf")
    assert done.returncode == 1
    rows = told(rows_of(flor))
    assert len(rows) == 1 + 2 * 7 + 3
    for row in rows:
        assert known(row) == said(row["text"]), row


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("e in range(9)", Count((), 0, 1)),
        ("e in range(5, 40, -3)", Count((), 5, -3)),
        ("e in trange(1, 9)", Count((), 1, 1)),
        ("e in tqdm.tqdm(range(-2, 9), desc='x')", Count((), -2, 1)),
        ("i, x in enumerate(loader)", Count((0,), 0, 1)),
        ("i, x in tqdm(enumerate(loader, 7))", Count((0,), 7, 1)),
        ("i, x in enumerate(loader, start=3)", Count((0,), 3, 1)),
        ("e in range(start, 9)", None),
        ("e in range(*bounds)", None),
        ("i, x in enumerate(loader, first)", None),
        ("x in loader", None),
        ("x in zip(range(3), y)", None),
    ],
)
def test_headers_that_count(header: str, expected: Count | None) -> None:
    """From and by numbers that stand there, or not."""
    found = counts(ast.parse(f"for {header}:\n    pass\n"))
    assert found == ({} if expected is None else {1: expected})


def test_a_run_that_was_killed(flor: Flor) -> None:
    """What it left has its places, as far as it is certain."""
    program = TELLING.replace("sleep(0.003)", "sleep(0.2)").replace("import random", "import os, random")
    program = program.replace("    print()", "    epoch == 30 and os.kill(os.getpid(), 9)\n    print()")
    flor.write("train.py", program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == -9
    rows = told(rows_of(flor))
    for row in rows:
        assert known(row).items() <= said(row["text"]).items(), row
    first = [known(row) for row in rows if " loss " in row["text"]][:4]
    assert first == [{"epoch": 10}, {"epoch": 10, "step": 1}, {"epoch": 10, "step": 2}, {"epoch": 20}]


def test_loops_without_numbers(flor: Flor) -> None:
    """Of `for x in lists` the iteration's number is shown; a variable that comes twice is numbered."""
    record(
        flor,
        """
        import time
        for item in [[1], [2]]:
            time.sleep(0.003)
            print("a")
        for name in ["x", "y"]:
            for inner in [1]:
                for name in [True, False]:
                    time.sleep(0.003)
                    print("b")
        """,
    )
    rows = rows_of(flor)
    assert [row["item"] for row in rows[:2]] == [0, 1]
    # `name` is another column, and the inner loop has set the outer one's variable when that iteration ends.
    assert [(row["loop name"], row["inner"], row["name_2"]) for row in rows[2:]] == [
        (False, 1, True),
        (False, 1, False),
    ] * 2


# Values ---------------------------------------------------------------------------------------------------


def test_values_in_each_form(flor: Flor) -> None:
    """A row for each value; its loops, true step and source; by name, whatever its case and hyphens."""
    record(flor, SIMPLE)
    replay(flor, HINDSIGHT)
    rows = rows_of(flor, "loss", "Val-Acc")
    assert [
        (row["epoch"], row.get("step"), row["name"], row["value"], row["global_step"], row["source"])
        for row in rows
    ] == [
        (1, 0, "loss", 0.25, 0, "recorded"),
        (1, 1, "loss", 1.25, 1, "recorded"),
        (1, None, "val acc", 100.0, 0, "recorded"),
        (2, 0, "loss", 0.5, 2, "recorded"),
        (2, 1, "loss", 1.5, 3, "recorded"),
        (2, None, "val acc", 50.0, 1, "recorded"),
    ]
    table = flor("logs", "last", "grad norm", "--select", "epoch=2").stdout
    assert table.splitlines() == [
        "epoch  step             name       value",
        "2      0     hindsight  grad norm  20",
        "2      1     hindsight  grad norm  21",
    ]
    found = list(csv.DictReader(io.StringIO(flor("logs", "loss", "--csv", "--select", "step=1").stdout)))
    assert [(row["epoch"], row["step"], row["value"]) for row in found] == [
        ("1", "1", "1.25"),
        ("2", "1", "1.5"),
    ]


def test_pivot(flor: Flor) -> None:
    """One row for each iteration, hindsight values in the rows of theirs."""
    record(flor, SIMPLE)
    replay(flor, HINDSIGHT)
    assert flor("logs", "--pivot", "--csv").stdout == (
        "epoch,step,global_step,lr,grad norm,loss,val acc\n"
        ",,0,0.5,,,\n"
        "1,0,0,,10,0.25,\n"
        "1,1,1,,11,1.25,\n"
        "1,,0,,,,100.0\n"
        "2,0,2,,20,0.5,\n"
        "2,1,3,,21,1.5,\n"
        "2,,1,,,,50.0\n"
    )


def test_several_of_a_name_in_one_iteration(flor: Flor) -> None:
    """Each makes a row of its own, and a replay's other value under the same name has a column of its own."""
    program = (
        "import time\nfor epoch in range(2):\n    time.sleep(0.003)\n    print('a=1 b=5')\n    print('a=2')\n"
    )
    record(flor, program)
    replay(
        flor, program.replace("    print('a=2')\n", "    print('b=5')\n    print('a=2')\n    print('a=7')\n")
    )
    assert flor("logs", "--pivot", "--csv").stdout == (
        "epoch,global_step,a,b,a (hindsight)\n0,0,1,5,7\n0,0,2,,\n1,1,1,5,7\n1,1,2,,\n"
    )


def test_dataframe(flor: Flor) -> None:
    """One row for each iteration; the same numbers as were printed."""
    pytest.importorskip("pandas")
    record(flor, SIMPLE)
    replay(flor, HINDSIGHT)
    program = """
        import florhook
        frame = florhook.dataframe("loss", "grad_norm", run="last")
        print(*frame.columns, sep=",")
        for row in frame.itertuples(index=False):
            print(*map(float, row))
        print(len(florhook.dataframe(select="epoch=1")))
        """
    done = flor.python(str(flor.write("look.py", program)))
    assert (done.stdout.splitlines(), done.stderr) == (
        [
            "epoch,step,global_step,grad norm,loss",
            "1.0 0.0 0.0 10.0 0.25",
            "1.0 1.0 1.0 11.0 1.25",
            "2.0 0.0 2.0 20.0 0.5",
            "2.0 1.0 3.0 21.0 1.5",
            "3",
        ],
        "",
    )


def test_parquet(flor: Flor) -> None:
    """Reads back as what JSON says; whole numbers and others in one column are floats."""
    parquet = pytest.importorskip("pyarrow.parquet")
    record(flor, SIMPLE + "print('a=3')\nprint('a=0.5')\nprint('a=99999999999999999999')\n")
    assert flor("logs", "--parquet", "lines.parquet").returncode == 0
    rows = parquet.read_table(flor.folder / "lines.parquet").to_pylist()
    assert rows == [{"epoch": None, "step": None, **row} for row in rows_of(flor)]
    assert flor("logs", "a", "--parquet", "a.parquet").returncode == 0
    values = parquet.read_table(flor.folder / "a.parquet").column("value").to_pylist()
    assert values == [3.0, 0.5, 1e20]
    done = flor("logs", "--parquet", "no/such/folder.parquet")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("florhook: cannot write no/such/folder.parquet: ")


def test_folders_named_like_subcommands(flor: Flor) -> None:
    """A folder of the user's is a program only if Python could run it."""
    record(flor, "print('loss', 3)\n")
    for name in ("logs", "runs"):
        (flor.folder / name).mkdir()
    assert flor("logs").stdout == "text\nloss 3\n"
    assert flor("runs").returncode == 0
    flor.write("logs/__main__.py", "print('a program')\n")
    assert flor("logs").stdout == "a program\n"


def test_log_is_a_print(flor: Flor) -> None:
    """The same with and without florhook recording; it gives the value back, and imports nothing."""
    flor.write(
        "train.py",
        """
        import sys
        import florhook
        print(florhook.log("val acc", 0.5) + 1)
        print("pandas" in sys.modules)
        """,
    )
    plain = flor.python("train.py")
    assert (plain.stdout, plain.stderr) == ("val acc=0.5\n1.5\nFalse\n", "")
    assert flor("train.py").stdout == plain.stdout


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["logs", "--csv", "--json"], 2, "--csv and --json do not go together"),
        (["logs", "--what"], 2, "logs has no option --what; see python -m florhook --help"),
        (
            ["logs", "--select", "nope"],
            2,
            "--select: 'nope' is not of the form epoch=3:5, epoch=::10 or epoch=7",
        ),
        (["logs", "--select", "nope=1"], 2, "--select: no loop of the program has a variable nope"),
        (
            ["logs", "last", "nope"],
            3,
            "nothing that was printed is named 'nope'; there are: lr, loss, epoch, val acc",
        ),
        (["logs", "19990101-000000-abcdef"], 3, "no run '19990101-000000-abcdef' in "),
        (["export", "loss"], 2, "export needs one of --tensorboard FOLDER, --mlflow FOLDER, --wandb FOLDER"),
        (["export", "--tensorboard"], 2, "--tensorboard needs a value"),
    ],
)
def test_one_line_where_it_is_refused(words: list[str], status: int, message: str, simple: Flor) -> None:
    done = simple(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert done.stderr.startswith(f"florhook: {message}")


@pytest.fixture(scope="module")
def simple(tmp_path_factory: pytest.TempPathFactory) -> Flor:
    """A store with one run in it."""
    folder = tmp_path_factory.mktemp("simple")
    flor = Flor(folder, folder / "store")
    record(flor, SIMPLE)
    return flor
