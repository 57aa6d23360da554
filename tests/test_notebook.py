"""`%%record` and `%%replay`: in a real IPython shell, compared with the same cells run plainly; and in a kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Flor, new_flor

pytest.importorskip("IPython")

SESSION = ROOT / "tests" / "notebook_session.py"
HELPER = """\
def scaled(value):
    total = 0.0
    for part in range(3):
        total += abs(value) * part
    return total
"""
NET = """\
class Net:
    def __init__(self, weights):
        self.weights = weights
    def forward(self, x):
        return sum(self.weights) * x

def train(epochs):
    for epoch in range(epochs):
        net.weights[0] += helper.scaled(random.gauss(0, 1))
        print('epoch', epoch, net.forward(2))
    return epoch
Point = namedtuple('Point', 'x y')
"""
START = """\
random.seed(7)
net = Net([random.random() for _ in range(4)])
also = net
random.seed(8)
rounds = 0
"""
BEFORE = [
    "import random, helper\nfrom collections import namedtuple\nrandom.seed()",
    NET,
    START + "place, file = Point(1, 2), open('helper.py')",
]
TRAINING = "for again in range(2):\n    last = train(3)\n    rounds += 1\n(last, rounds, place, also is net)"
PROBED = TRAINING.replace(
    "    rounds += 1\n", "    rounds += 1\n    print('probe', again, net.weights, place.y)\n"
)
FORWARD = "    def forward(self, x):\n"
FAILING = "kept = [rounds]\nfor number in range(3):\n    kept.append(1 / (1 - number))"
DEFINES = """\
seen = []
def fit(count):
    for i in range(count):
        seen.append(abs(i))
def numbers():
    for i in range(9):
        yield abs(i)
items = numbers()
next(items)
fit(2)
"""
INTERRUPTED = (
    "import os, signal\nfor number in range(9):\n    number != 4 or os.kill(os.getpid(), signal.SIGINT)"
)


@dataclass(frozen=True)
class Shown:
    """What a cell printed and displayed, its value, and the exception that ended it."""

    out: str
    err: str
    result: str
    error: str | None

    @property
    def probes(self) -> list[str]:
        return [line for line in self.out.splitlines() if line.startswith("probe")]


def run_cells(flor: Flor, cells: list[str], **changes: str) -> list[Shown]:
    done = subprocess.run(
        [sys.executable, str(SESSION)],
        cwd=flor.folder,
        env=flor.environ(IPYTHONDIR=str(flor.folder / "ipython"), **changes),
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return [Shown(**each) for each in json.loads(done.stdout)]


def with_helper(folder: Path) -> Flor:
    flor = new_flor(folder)
    (flor.folder / "helper.py").write_text(HELPER)
    return flor


@dataclass(frozen=True)
class Sessions:
    """The cells by name: of a notebook with florhook, and of the same one without."""

    recorded: dict[str, Shown]
    plain: dict[str, Shown]
    flor: Flor


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Sessions:
    flor = with_helper(tmp_path_factory.mktemp("notebook"))
    forward = NET.partition("Point =")[0].replace(FORWARD, f"{FORWARD}        print('probe', x)\n")
    new = "{each for each in {*dir()} - names if each[:2] != '_i'}"
    look = f"print(net.weights, rounds, last, {new}, file.tell(), random.getstate() == state)"
    behind = "import notebook_session\nprint(notebook_session.left_behind())\ndel notebook_session"
    cells = {
        **{f"before {number}": text for number, text in enumerate(BEFORE)},
        "load": "%load_ext florhook",
        "clean": behind,
        "record": f"%%record --epsilon inf\n{TRAINING}",
        "recorded": behind,
        "names": "names = state = None\nnames = {*dir()}",
        "state": "state = random.getstate()",
        "probe": f"%%replay\n{PROBED}",
        "unchanged": look,
        "not stored": f"%%replay\n{TRAINING.replace('    rounds', '    print(file.name)' + chr(10) + '    rounds')}",
        "redefine": forward,
        "probe in a function": f"%%replay\n{TRAINING}",
        "edit a module": "text = open('helper.py').read()\n"
        "_n = open('helper.py', 'w').write(text.replace('total +=', \"print('probe', part); total +=\"))",
        "probe in a module": f"%%replay --select epoch=1\n{TRAINING}",
        "mend the module": "_n = open('helper.py', 'w').write(text)",
        "another program": f"%%replay\n{TRAINING.replace('train(3)', 'train(4)')}",
        "runs": "%florhook runs",
        "logs": "%florhook logs last",
        "failing": f"%%record\n{FAILING}",
        "failed": "print(kept, number)",
        "interrupted": f"%%record\n{INTERRUPTED}",
        "after it": "print(number)",
        "defines": f"%%record --epsilon inf\n{DEFINES}",
        "goes on": "print(next(items), fit.__code__.co_names)",
        "uses": "%%record --epsilon inf\nfit(3)",
        "displays": "%%replay\nfit(3)\nlen(seen), seen[0]",
        "magics": "%%record\n%matplotlib --list\nlisted = !echo one\nprint(listed)",
        "no magics": "%%replay\n%matplotlib --list\nlisted = !echo one\nprint(listed, listed)",
        "wrong option": "%%record --epsilom 1\nprint('not run')",
        "not first": "a = 1\n%%record\nb = 2",
        "silent": "%%record\nrounds;",
        "at the end": behind,
        "awaits": "import asyncio",
        "awaited": "%%record\nawait asyncio.sleep(0)\nprint('awaited')",
        "unload": "%unload_ext florhook",
        "unloaded": "%%record\nprint(1)",
    }
    plain = {
        name: text.replace("%%record", "# %%record")
        for name, text in cells.items()
        if name in ("record", "failing", "failed", "interrupted", "after it") or name.startswith("before")
    }
    plain["record again"] = START + PROBED
    return Sessions(
        dict(zip(cells, run_cells(flor, list(cells.values())), strict=True)),
        dict(zip(plain, run_cells(flor, list(plain.values())), strict=True)),
        flor,
    )


def without_numbers(text: str) -> str:
    return re.sub(r"(In|Out)\[\d+\]", r"\1[n]", text)


@pytest.mark.parametrize("name", ["record", "failing", "failed", "interrupted", "after it"])
def test_a_recorded_cell_is_as_without(sessions: Sessions, name: str) -> None:
    """Its output, its value, what is displayed, exceptions with the cell's own lines, and interrupts."""
    recorded, plain = sessions.recorded[name], sessions.plain[name]
    assert without_numbers(recorded.out) == without_numbers(plain.out)
    assert (recorded.result, recorded.error, recorded.err) == (plain.result, plain.error, "")


def test_a_replay_prints_what_the_prints_would_have_shown(sessions: Sessions) -> None:
    """The state before the cell is the recorded one, that of unseeded generators included."""
    shown = sessions.recorded["probe"]
    assert shown.probes == sessions.plain["record again"].probes
    assert len(shown.probes) == 2
    assert (shown.out.splitlines(), shown.err, shown.error) == (shown.probes, "", None)


def test_a_replay_changes_nothing_of_the_notebook(sessions: Sessions) -> None:
    """Its variables, its names, its files, `_` and `Out` are as before."""
    assert "(2, 2, Point(x=1, y=2), True)" in sessions.plain["record"].out
    weights = sessions.plain["record again"].probes[-1].partition("1 ")[2].rpartition(" ")[0]
    assert sessions.recorded["unchanged"].out == f"{weights} 2 2 set() 0 True\n"


def test_a_probe_in_a_function_of_an_earlier_cell(sessions: Sessions) -> None:
    """Its cell was edited and run again; the class whose method it is, too."""
    shown = sessions.recorded["probe in a function"]
    assert (shown.probes, shown.err, shown.error) == (["probe 2"] * 6, "", None)


def test_a_probe_in_a_module_that_was_imported_before(sessions: Sessions) -> None:
    """The module had been imported before florhook was; of each call, one epoch was asked for.

    The other probe, in a function that was redefined, is there still.
    """
    shown = sessions.recorded["probe in a module"]
    assert (shown.probes, shown.err, shown.error) == (
        ["probe 0", "probe 1", "probe 2", "probe 2"] * 2,
        "",
        None,
    )


def test_a_cell_that_computes_something_else_is_refused(sessions: Sessions) -> None:
    """As any edit that is no probe, with the line of the cell."""
    shown = sessions.recorded["another program"]
    assert "In[6].py:3: changed `last = train(3)` to `last = train(4)`" in shown.err
    assert "UsageError: the replay of run" in shown.err
    assert shown.out == ""


def test_what_cannot_be_stored_is_named_when_it_is_used(sessions: Sessions) -> None:
    """An open file of before the cell."""
    shown = sessions.recorded["not stored"]
    assert "(the variable file), which no checkpoint holds" in shown.err
    assert shown.out == ""


def test_recorded_cells_are_runs(sessions: Sessions) -> None:
    """They are listed, and what they printed is theirs, with the loops around it."""
    runs = sessions.recorded["runs"].out.splitlines()
    assert [line.split()[1].rpartition("/")[2] for line in runs] == ["program", "In[6].py"]
    assert re.search(r"^0 +0 +epoch 0 ", sessions.recorded["logs"].out, re.MULTILINE)
    assert sessions.flor("verify", "--all").stdout.count(": ok\n") == 7


def test_what_a_recorded_cell_defines_lives_on(sessions: Sessions) -> None:
    """Its functions are as they were written, suspended generators go on, and later recordings know them."""
    assert sessions.recorded["goes on"].out == "1 ('range', 'seen', 'append', 'abs')\n"
    assert sessions.recorded["uses"].err == ""


def test_an_expression_added_at_the_end_is_displayed(sessions: Sessions) -> None:
    """As the value of a cell is."""
    shown = sessions.recorded["displays"]
    assert (shown.err, shown.out) == ("", "(5, 0)\n")


def test_a_cell_that_awaits_is_run_plainly(sessions: Sessions) -> None:
    """With one line that says why."""
    shown = sessions.recorded["awaited"]
    assert (shown.out, shown.error) == ("awaited\n", None)
    assert re.fullmatch(
        r"florhook: this cell is not recorded \(SyntaxError: 'await' outside function .*\)\n", shown.err
    )


def test_magics(sessions: Sessions) -> None:
    """They run in a recorded cell as ever; what a replay cannot know of is refused."""
    assert sessions.recorded["magics"].out.splitlines()[-1] == "['one']"
    assert sessions.recorded["magics"].err == ""
    assert "florhook: line 3: !echo one cannot be replayed\n" in sessions.recorded["no magics"].err


def test_wrong_usage(sessions: Sessions) -> None:
    """One line, and the cell does not run."""
    assert (
        sessions.recorded["wrong option"].err
        == "UsageError: unknown option --epsilom; see python -m florhook --help\n"
    )
    assert sessions.recorded["wrong option"].out == ""
    assert sessions.recorded["not first"].err.startswith(
        "UsageError: Line magic function `%%record` not found"
    )
    assert sessions.recorded["unloaded"].err.startswith("UsageError: Cell magic `%%record` not found")


def test_a_semicolon_hides_the_value(sessions: Sessions) -> None:
    """As in any cell."""
    assert sessions.recorded["silent"].out == ""


def test_nothing_is_left_behind(sessions: Sessions) -> None:
    """After one recording and after several: hooks, threads, streams, functions, names, descriptors."""
    clean = sessions.recorded["clean"].out
    assert "'import hooks'" in clean
    assert sessions.recorded["recorded"].out == clean
    end = eval(sessions.recorded["at the end"].out)
    before = eval(clean)
    for each in (end, before):
        each.pop("functions")  # two cells were run again
    assert end == before


def test_a_store_that_cannot_be_written_costs_one_line(tmp_path: Path) -> None:
    """The cell runs as it is."""
    flor = with_helper(tmp_path)
    flor.home.write_text("a file")
    *_, shown = run_cells(flor, ["%load_ext florhook", "%%record\nfor i in range(2):\n    print(i)"])
    assert (shown.out, shown.error) == ("0\n1\n", None)
    assert re.fullmatch(r"florhook: this cell is not recorded \(.*\)\n", shown.err)


def test_without_florhook_started_cells_are_plain(tmp_path: Path) -> None:
    """FLOR_MODE=off."""
    flor = with_helper(tmp_path)
    *_, shown = run_cells(flor, ["%load_ext florhook", "%%record\nprint(1)"], FLOR_MODE="off")
    assert (shown.out, shown.err) == ("1\n", "")
    assert not flor.home.exists()


@pytest.mark.needs_torch
def test_training_with_torch(tmp_path: Path) -> None:
    """Models, optimizers and loaders of before the cell; the class of the model was defined anew since."""
    flor = with_helper(tmp_path)
    net = (
        "import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Numbers(Dataset):\n    def __len__(self):\n        return 12\n"
        "    def __getitem__(self, i):\n        return torch.tensor([float(i)])\n"
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.line = torch.nn.Linear(1, 1)\n    def forward(self, x):\n        return self.line(x)\n"
    )
    state = (
        "torch.manual_seed(5)\nnet = Net()\nopt = torch.optim.Adam(net.parameters())\n"
        "loader = DataLoader(Numbers(), batch_size=4, shuffle=True)\nlock = __import__('threading').Lock()"
    )
    training = (
        "for epoch in range(3):\n    for x in loader:\n        loss = (net(x) - 2 * x).pow(2).mean()\n"
        "        opt.zero_grad()\n        loss.backward()\n        opt.step()\n"
    )
    probed = training.replace(
        "        opt.step()\n", "        opt.step()\n        print('probe', net.line.weight.item(), x[0])\n"
    )
    again = "class Net(torch.nn.Module):\n    pass"
    record, replay = f"%%record --epsilon inf\n{training}", f"%%replay\n{probed}"
    _, _, plain, *_, shown = run_cells(
        flor, [net, state, probed, "%load_ext florhook", state, again, record, "net = None", replay]
    )
    assert len(plain.probes) == 9
    assert (shown.out, shown.err, shown.error) == (plain.out, "", None)


def test_in_a_kernel(tmp_path: Path) -> None:
    """The same in Jupyter, where a failing cell still ends a run of all cells."""
    pytest.importorskip("ipykernel")
    nbclient: Any = pytest.importorskip("nbclient")
    nbformat: Any = pytest.importorskip("nbformat")
    flor = with_helper(tmp_path)
    cells = [
        *BEFORE,
        "%load_ext florhook",
        f"%%record --epsilon inf\n{TRAINING}",
        f"%%replay\n{PROBED}",
        "%%record\n1 / 0",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(flor.folder)}})
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="ZeroDivisionError"):
        client.execute(env=flor.environ(IPYTHONDIR=str(flor.folder / "ipython")))
    recorded, replayed, failed = (
        notebook.cells[4].outputs,
        notebook.cells[5].outputs,
        notebook.cells[6].outputs,
    )
    assert recorded[-1]["data"]["text/plain"] == "(2, 2, Point(x=1, y=2), True)"
    assert {each["name"] for each in replayed} == {"stdout"}
    printed = "".join(each["text"] for each in replayed)  # a kernel sends it in pieces
    assert [line.split()[:2] for line in printed.splitlines()] == [["probe", "0"], ["probe", "1"]]
    assert [each["output_type"] for each in failed] == ["error"]
