"""The chapters of the page in reading order, and what each shows of a sweep."""

import math
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from statistics import median
from typing import Any

from hpcmm import analysis
from hpcmm.analysis.why import COUNTED
from hpcmm.model import TEXTBOOK
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS
from hpcmm.operations.memory import LATENCY
from hpcmm.parallel.all_reduce import is_reduction
from hpcmm.report import formats
from hpcmm.report.chapters import accuracy
from hpcmm.report.chapters.chapter import Chapter
from hpcmm.report.findings import Finding, disturbances, failures, first_series
from hpcmm.report.vega import Figure

MODULES = ("ladder", "why", "sizes", "tiles", "reductions", "memory", "transfers", "ranks")
MODULES += ("same_bits", "energy", "courses")
CHAPTERS = {each.id: each for each in (import_module(f"{__name__}.{name}").CHAPTER for name in MODULES)}
ANSWERS = list(dict.fromkeys(answer for chapter in CHAPTERS.values() for answer in chapter.answers))
TABLES = (*(table for chapter in CHAPTERS.values() for table in chapter.tables), accuracy.TABLE)
DENSE = 24  # sizes of a sweep that shows the effect of tiles, such as every size from 1000 to 1100

FEW = 6  # a sweep with as many variants is about their ladder


def chapter_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the id of the chapter of a sweep, from what its points vary; ``rows`` are of ``analysis.measurements``."""
    operation = OPERATIONS[rows[0]["operation"]]
    sizes = len(analysis.by_size(rows))
    if any(row["algorithm"] != TEXTBOOK for row in rows):
        return "ranks"
    if is_reduction(operation):
        return "reductions"
    variants = {row["variant"] for row in rows}
    pitched = variants & {variant.name for variant in operation.ladder if variant.pitched}
    if operation.metric == "bytes" or (pitched and len(variants) < FEW):
        return "memory"
    if len({row["memory"] for row in rows}) > 1:
        return "transfers"
    tiles = {(row["variant"], row["tile"]) for row in rows if row["tile"]}
    several = len(tiles) > len({variant for variant, _ in tiles})
    if any(row["expected"] for row in rows) or (sizes >= DENSE and tiles) or (sizes > 1 and several):
        return "tiles"
    return "ladder" if sizes == 1 else "sizes"


def title_of(name: str, row: Mapping[str, Any]) -> str:
    """Return the name of a sweep in the config: without the machine that ``analysis.split_by_machine`` adds."""
    return name.removesuffix(f" ({row['machine']})")


def in_order(
    sweeps: Mapping[str, Sequence[analysis.Series]], counted: Collection[tuple] = ()
) -> dict[str, Sequence[analysis.Series]]:
    """Sort sweeps by their place, with the sweeps of one title, from several machines, one after another.

    ``counted`` are the rungs with counters, keys of ``Known.counters``.
    """
    places = {name: place(members, counted) for name, members in sweeps.items()}
    titles = {name: title_of(name, members[0].rows[0]) for name, members in sweeps.items()}
    first: dict[str, tuple] = {}  # of each title; titles at the same place keep their order
    for name in sorted(sweeps, key=places.__getitem__):
        first.setdefault(titles[name], (places[name], len(first)))
    return {name: sweeps[name] for name in sorted(sweeps, key=lambda name: (first[titles[name]], places[name]))}


def place(series: Sequence[analysis.Series], counted: Collection[tuple]) -> tuple:
    """Return the place of a sweep within its chapter, for the view that is shown first.

    Deliberate failures are last. GPUs come first, algorithms over ranks before rungs on several ranks, sweeps of times
    before those that compare bits, several visits before one, rungs with counters before others, ladders of one rank
    and one size before others.
    """
    every = [row for each in series for row in each.rows]  # the page shows GPUs first: CPUs in a sweep do not count
    rows = [row for row in every if DEVICES[row["device"]].accelerator] or every
    sizes, ranks = len(analysis.by_size(rows)), {row["ranks"] for row in rows}
    distributed = any(row["algorithm"] != TEXTBOOK for row in rows)
    with_counters = sum(analysis.values(row, COUNTED) in counted for row in rows)
    return (
        any(row["expected"] for row in every),
        list(OPERATIONS).index(series[0].operation),
        not any(DEVICES[row["device"]].accelerator for row in rows),
        -len(ranks) if distributed else 0,
        any(not math.isnan(row["first_run"]) for row in rows),
        not median(row["visits"] for row in rows) > 1,
        2 * with_counters < len(rows),
        min(ranks) > 1,
        len(ranks),
        sizes > 1,
        -len({row["label"] for row in rows}),
        sizes,
    )


def figures_of(series: analysis.Series, chapter: str) -> list[Figure]:
    """Return the figures of one series that answer the question of a chapter."""
    several = len(analysis.by_size(series.rows)) > 1
    if series.operation == LATENCY.name or (OPERATIONS[series.operation].cached and several):
        return []  # a latency is not a rate, and each size is one level of memory: their table shows them
    drawn = (list(draw(series)) for draw in CHAPTERS[chapter].figures)
    return next(filter(None, drawn), [])


def what_to_see(rows: Sequence[Mapping[str, Any]], chapter: str = "") -> list[Finding]:
    """Return the findings of one sweep that answer the question of a chapter; of all of them without one.

    ``rows`` are its points, from ``analysis.measurements``. Of several element types the first is described.
    """
    timed = [row for row in rows if row["result"] == "PASS" and row["seconds"] > 0]
    rungs = [row for row in timed if row["algorithm"] == TEXTBOOK]  # an algorithm uses a rung, mostly the library
    if rungs and OPERATIONS[rungs[0]["operation"]].cached:
        rungs = []  # the levels of memory are no steps of a ladder
    points = {"timed": timed, "rungs": rungs, "series": first_series(rungs)}
    found = [Finding(failures(rows))]
    for answer in CHAPTERS[chapter].answers if chapter else ANSWERS:
        for device in DEVICES if answer.each_device else [""]:
            here = [row for row in points[answer.of] if device in ("", row["device"])]
            if here:
                found.append(Finding(answer.sentence(here), device))
    found.append(Finding(disturbances(timed)))
    return [each for each in found if each.text]
