"""The progress of ``hpcmm run``: one live line and one per finished sweep on a terminal, else one line a minute."""

import os
import re
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from hpcmm.bench.journal import is_complete
from hpcmm.experiment import plan
from hpcmm.experiment.durations import rounded_duration
from hpcmm.model import HpcmmError
from hpcmm.system.text import folded

SECONDS_BETWEEN_LINES = 60  # without a terminal
# Lines of jobs: a visit of a point, and the end of a visit of a batch
POINT = re.compile(
    r"\[ *(?P<done>\d+)/(?P<total>\d+)\] (?P<sweep>[^/\s]+)/\S+ (?P<text>.*) "
    r"\((visit \d+ of \d+, )?(?P<seconds>[\d.]+) s; (?P<left>.*) left\)"
)
BATCH_END = re.compile(r"(?P<sweep>[^/\s]+)/\S+: done in ")


def is_ours(line: str) -> bool:
    """Whether a line is from a job or another program of hpcmm, and not a message of Snakemake."""
    return line.startswith(("hpcmm: ", "profile of ")) or bool(POINT.match(line) or BATCH_END.match(line))


class Lines:
    """Print progress as one line a minute, for files and pipes."""

    def __init__(self, results: Path):
        # begun: whether the run had something to do
        self.results, self.begun = results, False
        self.due = time.monotonic()

    def take(self, line: str) -> None:
        """Show what a line of hpcmm says."""
        if point := POINT.match(line):
            self.point(int(point["done"]), int(point["total"]), point["sweep"], point["left"])
        elif not BATCH_END.match(line):
            self.begun = True
            self.say(line)

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def point(self, done: int, total: int, sweep: str, left: str) -> None:
        self.jobs(f"{done} of {total} points, {sweep}, {left} left to measure")

    def jobs(self, text: str) -> None:
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + SECONDS_BETWEEN_LINES
            self.say(f"hpcmm: {text}")

    def close(self) -> None:
        """End the display."""


class Terminal(Lines):
    """Show progress in one live line, and each sweep that is finished in a line above it."""

    def __init__(self, results: Path):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        super().__init__(results)
        text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        # no refresh by itself: the machine is measured
        self.progress = Progress(BarColumn(bar_width=20), text, console=console, transient=True, auto_refresh=False)
        self.task = self.progress.add_task("starting", total=1)
        self.seconds: dict[str, float] = defaultdict(float)  # by sweep, of its points
        self.wrong: dict[str, set[str]] = defaultdict(set)
        self.progress.start()

    def take(self, line: str) -> None:
        if point := POINT.match(line):
            self.seconds[point["sweep"]] += float(point["seconds"])
            name, wrong, _ = point["text"].partition(" FAIL: ")
            if wrong:
                self.wrong[point["sweep"]].add(name)
        elif end := BATCH_END.match(line):
            self.finished(end["sweep"])
        super().take(line)

    def say(self, line: str) -> None:
        console = self.progress.console
        console.print(folded(line.rstrip("\n"), console.width))

    def point(self, done: int, total: int, sweep: str, left: str) -> None:
        doing = f"{left} left to measure  {sweep}" if done < total else "writing the report"
        self.live(f"{done}/{total}  {doing}", completed=done, total=total)

    def jobs(self, text: str) -> None:
        self.live(text)

    def live(self, text: str, **progress: int) -> None:
        """Update the live line, at most once a second."""
        now = time.monotonic()
        self.progress.update(self.task, description=text, refresh=now >= self.due, **progress)
        if now >= self.due:
            self.due = now + 1

    def finished(self, sweep: str) -> None:
        with suppress(HpcmmError, OSError):
            batches = [each for each in plan.read(self.results / "plan.json").to_measure if each.sweep == sweep]
            if all(is_complete(batch.file(self.results), batch) for batch in batches):
                wrong = len(self.wrong.pop(sweep, ()))
                verdict = f"{wrong} FAIL" if wrong else "no FAIL"
                count = sum(len(batch.points) for batch in batches)
                self.say(f"{sweep}: {count} points in {rounded_duration(self.seconds.pop(sweep, 0.0))}, {verdict}")

    def close(self) -> None:
        self.progress.stop()


def of(results: Path) -> Lines:
    """Return the display for standard error."""
    live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    return Terminal(results) if live else Lines(results)
