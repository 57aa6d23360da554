"""One training kept in different ways: not at all, by a torch.save an epoch, by florhook, by FlorDB if it is there.

FlorDB is that of the environment which the variable FLORDB_PYTHON names; scripts/bench makes one. The program is
written for it: `checkpointing` and `loop` around the main loop, `log` for what is printed. It is asked for more with
`--replay_flor`, as its own `replay` command does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from .figures import Figure, Options, Values, compared
from .runs import PROGRAMS, Bench, Ran, say, seconds_of, size, with_line

PAIRS = 5
FLORDB = "FLORDB_PYTHON"
PROGRAM = "peer.py"
SIZES = "EPOCHS, STEPS, WIDTH = 8, 30, 1000"
QUICK = "EPOCHS, STEPS, WIDTH = 2, 2, 10"
LOOP = "for epoch in range(EPOCHS):\n"
INNER, OUTER = "total +=", 'print(f"epoch'  # the lines that new prints come before
NORM = "sum(p.norm().item() for p in model.parameters())"
PRINT = f'print("probe", {NORM})'
LOG = f'flor.log("probe", {NORM})'
STATE = '{"model": model.state_dict(), "optimizer": optimizer.state_dict()}'
LOAD = """state = torch.load(f"{{{number}}}.pt")
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
"""


@dataclass(frozen=True)
class Peer:
    """A way to keep a training, and to ask it for more."""

    bench: Bench
    source: str
    epochs: int
    steps: int

    def run(self, source: str, *arguments: str) -> Ran:
        (self.bench.folder / PROGRAM).write_text(source)
        return self.bench.plain(PROGRAM, *arguments)

    def clean(self) -> None:
        shutil.rmtree(self.bench.folder)
        self.bench.folder.mkdir()

    def record(self) -> Ran:
        self.clean()
        return self.run(self.source)

    @property
    def kept(self) -> int:
        """Bytes besides the program."""
        return size(self.bench.folder) - (self.bench.folder / PROGRAM).stat().st_size

    def outer(self) -> Ran:
        """A print more in each epoch; a plain program is run again."""
        return self.run(with_line(self.source, OUTER, PRINT))

    def inner(self) -> Ran:
        """A print more in each step of one epoch."""
        return self.run(with_line(self.source, INNER, f"if epoch == {self.epochs // 2}: {PRINT}"))


class Manual(Peer):
    """Keeps model and optimizer of each epoch; what is asked for is a program of its own, which loads them."""

    def record(self) -> Ran:
        self.clean()
        return self.run(f'{self.source}    torch.save({STATE}, f"{{epoch}}.pt")\n')

    def outer(self) -> Ran:
        before = self.source.partition(LOOP)[0]
        return self.run(before + LOOP + textwrap.indent(LOAD.format(number="epoch") + PRINT, "    "))

    def inner(self) -> Ran:
        epoch = self.epochs // 2
        before, _, loop = with_line(self.source, INNER, PRINT).partition(LOOP)
        return self.run(f"{before}{LOAD.format(number=epoch - 1)}for epoch in [{epoch}]:\n{loop}")


class Florhook(Peer):
    def run(self, source: str, *arguments: str) -> Ran:
        (self.bench.folder / PROGRAM).write_text(source)
        return self.bench.hooked(*arguments, PROGRAM)

    def outer(self) -> Ran:
        return self.run(with_line(self.source, OUTER, PRINT), "--mode", "replay")

    def inner(self) -> Ran:
        select = f"epoch={self.epochs // 2}"
        return self.run(with_line(self.source, INNER, PRINT), "--mode", "replay", "--select", select)


class FlorDB(Peer):
    """Its loops lie in `checkpointing`; it keeps what it has in the home folder and commits to git."""

    def rewritten(self, source: str) -> str:
        before, _, loop = source.partition(LOOP)
        before = before.replace("manual_seed(0)", 'manual_seed(flor.arg("seed", 1))')
        loop = LOOP.replace("range(EPOCHS)", 'flor.loop("epoch", range(EPOCHS))') + loop
        loop = loop.replace("range(STEPS)", 'flor.loop("step", range(STEPS))')
        loop = loop.replace('print(f"epoch {epoch} loss {total:.6f}")', 'flor.log("loss", total)')
        head = "with flor.checkpointing(model=model, optimizer=optimizer):\n"
        return f"import flordb as flor\n{before}{head}{textwrap.indent(loop, '    ')}"

    def run(self, source: str, *arguments: str) -> Ran:
        (self.bench.folder / PROGRAM).write_text(self.rewritten(source))
        environ = {"HOME": str(self.bench.folder / "home"), **GIT}
        if not (self.bench.folder / ".git").exists():
            (self.bench.folder / ".gitignore").write_text("home\n")
            for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
                subprocess.run(
                    ["git", *command], cwd=self.bench.folder, env={**os.environ, **environ}, check=True
                )
        return self.bench.plain(PROGRAM, *arguments, python=os.environ[FLORDB], **environ)

    @property
    def kept(self) -> int:
        return size(self.bench.folder / "home")

    def outer(self) -> Ran:
        return self.replay(OUTER, range(self.epochs), range(1))

    def inner(self) -> Ran:
        return self.replay(INNER, range(self.epochs // 2, self.epochs // 2 + 1), range(self.steps))

    def replay(self, before: str, epochs: range, steps: range) -> Ran:
        places = [
            f"{name}={''.join(f'{i},' for i in those)}"
            for name, those in (("epoch", epochs), ("step", steps))
        ]
        return self.run(with_line(self.source, before, LOG), "--replay_flor", "probe", *places)


GIT = {
    f"GIT_{who}_{what}": "bench@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
NAMES: dict[str, type[Peer]] = {"manual": Manual, "florhook": Florhook, "flordb": FlorDB}


def measure(options: Options) -> list[Figure]:
    sizes = QUICK if options.quick else SIZES
    source = (PROGRAMS / PROGRAM).read_text().replace(SIZES, sizes)
    epochs, steps, _ = map(int, sizes.partition(" = ")[2].split(","))
    wanted = options.wanted(NAMES)
    if "flordb" in wanted and not os.environ.get(FLORDB):
        say("FlorDB is not installed")
        wanted.remove("flordb")
    with tempfile.TemporaryDirectory() as name:

        def peer(kind: type[Peer], called: str) -> Peer:
            folder = Path(name) / called
            folder.mkdir()
            return kind(Bench(folder, options.threads), source, epochs, steps)

        plain = peer(Peer, "plain")
        return _figures(plain, {each: peer(NAMES[each], each) for each in wanted}, options.pairs)


def _figures(plain: Peer, peers: dict[str, Peer], pairs: int) -> list[Figure]:
    plain.record()  # warms up
    found: dict[str, list[Ran]] = {}

    def add(name: str, ran: Ran) -> None:
        found.setdefault(name, []).append(ran)

    for _ in range(pairs):
        for called, peer in {"plain": plain, **peers}.items():
            add(f"{called}: recording", peer.record())
        for called, peer in peers.items():
            add(f"{called}: an outer print, later", peer.bench.asked(peer.outer()))
            add(f"{called}: an inner print in one epoch, later", peer.bench.asked(peer.inner()))
    usual: Values = seconds_of(found.pop("plain: recording"))
    figures = []
    for name, runs in found.items():
        unit = "% more" if name.endswith("recording") else "times plain"
        figures.append(compared(name, usual, seconds_of(runs), unit=unit))
    kept = [Figure(f"{called}: kept", (peer.kept / 2**20,), "MiB") for called, peer in peers.items()]
    return sorted([*figures, *kept], key=lambda figure: list(peers).index(figure.name.partition(":")[0]))
