"""How far a replay has come, and about how long it still takes. Pure; drawn by rich where that is installed."""

from __future__ import annotations

import io

from ..dataclass import dataclass, field

BAR = 24  # characters
ENOUGH = 2  # iterations, whose pace says more than the estimate


@dataclass
class Progress:
    """Of one attempt. Times are seconds of one clock.

    `planned` are the iterations of the main loops that are to run, by all workers together (0: not known), `estimate`
    is how long the whole takes by the times of the run (None: not known).
    """

    began: float
    workers: int = 1
    planned: int = 0
    estimate: float | None = None
    by_worker: dict[int, int] = field(default_factory=dict)
    first: tuple[float, int] | None = None  # when iterations were first told, and how many

    @property
    def done(self) -> int:
        """Iterations that have run."""
        return sum(self.by_worker.values())

    def ran(self, worker: int, count: int, now: float) -> None:
        """A worker has run so many in all."""
        self.by_worker[worker] = count
        if self.first is None:
            self.first = now, self.done

    def left(self, now: float) -> float | None:
        """Seconds, by the pace since the first iteration; until there is one, by the estimate."""
        since, before = self.first or (now, self.done)
        if self.planned and self.done >= before + ENOUGH:
            return (now - since) / (self.done - before) * max(0, self.planned - self.done)
        return None if self.estimate is None else max(0.0, self.estimate - (now - self.began))

    def text(self, now: float) -> str:
        """For a line."""
        of = f" of {max(self.planned, self.done)}" if self.planned else ""
        words = [f"{self.done}{of} iterations"]
        if self.workers > 1:
            words.append(f"{self.workers} workers")
        left = self.left(now)
        if left is not None:
            words.append(f"about {duration(left)} left")
        return ", ".join(words)

    @property
    def share(self) -> float:
        """Of what is planned, 0 to 1."""
        return min(1.0, self.done / self.planned) if self.planned else 0.0

    def plain(self, now: float, width: int) -> str:
        """One line of at most so many characters."""
        full = round(BAR * self.share)
        return f"florhook: replay [{'#' * full}{' ' * (BAR - full)}] {self.text(now)}"[:width]

    def rich(self, now: float, width: int) -> str:
        """The same in colours, with escape sequences; ImportError where rich is not installed."""
        from rich.console import Console
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        line = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=1.0, completed=self.share, width=BAR)
        line.add_row("florhook: replay", bar, self.text(now))
        console = Console(file=io.StringIO(), force_terminal=True, width=max(width, 1))
        with console.capture() as captured:
            console.print(line, no_wrap=True, overflow="crop", crop=True)
        return str(captured.get()).partition("\n")[0]


def duration(seconds: float) -> str:
    """As a person reads it: 12 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
