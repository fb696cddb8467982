"""The chapters of the page in reading order, and what each shows of a sweep."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.analysis.why import COUNTED
from hpcmm.model import TEXTBOOK
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS
from hpcmm.operations.memory import LATENCY
from hpcmm.parallel.all_reduce import is_reduction
from hpcmm.report import formats
from hpcmm.report.chapters import (
    accuracy,
    courses,
    energy,
    ladder,
    memory,
    ranks,
    reductions,
    same_bits,
    sizes,
    tiles,
    transfers,
    why,
)
from hpcmm.report.chapters.chapter import Answer, Chapter
from hpcmm.report.findings import MOST_SIZES, Finding, disturbances, failures, first_series
from hpcmm.report.vega import Figure, Style

CHAPTERS = {
    module.CHAPTER.id: module.CHAPTER
    for module in (ladder, why, sizes, tiles, reductions, memory, transfers, ranks, same_bits, energy, courses)
}
ANSWERS = list(dict.fromkeys(answer for chapter in CHAPTERS.values() for answer in chapter.answers))
TABLES = (*(table for chapter in CHAPTERS.values() for table in chapter.tables), accuracy.TABLE)
DENSE = 24  # sizes of a sweep that shows the effect of tiles, such as every size from 1000 to 1100

FEW = 6  # a sweep with as many variants is about their ladder


def chapter_of(points: pd.DataFrame) -> str:
    """Return the id of the chapter of a sweep, from what its points vary.

    Parameters
    ----------
    points : DataFrame
        All points of one sweep, from ``analysis.measurements``.
    """
    operation = OPERATIONS[points["operation"].iloc[0]]
    sizes = len(set(analysis.shapes(points)))
    if (points["algorithm"] != TEXTBOOK).any():
        return "ranks"
    if is_reduction(operation):
        return "reductions"
    variants = set(points["variant"])
    pitched = variants & {variant.name for variant in operation.ladder if variant.pitched}
    if operation.metric == "bytes" or (pitched and len(variants) < FEW):
        return "memory"
    if points["memory"].nunique() > 1:
        return "transfers"
    tiles = points[points["tile"] > 0].groupby("variant")["tile"].nunique()
    dense = sizes >= DENSE and not tiles.empty
    if points["expected"].any() or dense or (sizes > 1 and (tiles > 1).any()):
        return "tiles"
    return "ladder" if sizes == 1 else "sizes"


def title_of(name: str, points: pd.DataFrame) -> str:
    """Return the name of a sweep in the config: without the machine that ``analysis.split_by_machine`` adds."""
    return name.removesuffix(f" ({points['machine'].iloc[0]})")


def in_order(sweeps: Mapping[str, Sequence[Series]], counted: Collection[tuple] = ()) -> dict[str, Sequence[Series]]:
    """Sort sweeps by their place, with the sweeps of one title, from several machines, one after another.

    ``counted`` are the rungs with counters, keys of ``Known.counters``.
    """
    places = {name: place(members, counted) for name, members in sweeps.items()}
    titles = {name: title_of(name, members[0].points) for name, members in sweeps.items()}
    first: dict[str, tuple] = {}  # of each title; titles at the same place keep their order
    for name in sorted(sweeps, key=places.__getitem__):
        first.setdefault(titles[name], (places[name], len(first)))
    return {name: sweeps[name] for name in sorted(sweeps, key=lambda name: (first[titles[name]], places[name]))}


def place(series: Sequence[Series], counted: Collection[tuple]) -> tuple:
    """Return the place of a sweep within its chapter, for the view that is shown first.

    Deliberate failures are last. GPUs come first, algorithms over ranks before rungs on several ranks, several visits
    before one, rungs with counters before others, ladders of one rank and one size before others.
    """
    points = pd.concat([each.points for each in series])
    sizes = len(set(analysis.shapes(points)))
    ranks, distributed = points["ranks"].nunique(), bool((points["algorithm"] != TEXTBOOK).any())
    rungs = list(zip(*(points[name] for name in COUNTED), strict=True))
    return (
        bool(points["expected"].any()),
        list(OPERATIONS).index(series[0].operation),
        not analysis.on_accelerator(points).any(),
        -ranks if distributed else 0,
        not points["visits"].median() > 1,
        2 * sum(each in counted for each in rungs) < len(rungs),
        points["ranks"].min() > 1,
        ranks,
        sizes > 1,
        -points["label"].nunique(),
        sizes,
    )


def figures_of(series: Series, style: Mapping[str, Style], chapter: str) -> list[Figure]:
    """Return the figures of one series that answer the question of a chapter."""
    several = len(set(analysis.shapes(series.points))) > 1
    if series.operation == LATENCY.name or (OPERATIONS[series.operation].cached and several):
        return []  # a latency is not a rate, and each size is one level of memory: their table shows them
    drawn = (list(draw(series, style)) for draw in CHAPTERS[chapter].figures)
    return next(filter(None, drawn), [])


def what_to_see(rows: pd.DataFrame, chapter: str = "") -> list[Finding]:
    """Return the findings of one sweep that answer the question of a chapter; of all of them without one.

    ``rows`` are its points, from ``analysis.measurements``. Of several element types the first is described.
    """
    rows = rows.reset_index(drop=True)
    right = rows[rows["result"] == "PASS"]
    timed = right[right["seconds"].notna()]
    rungs = timed[timed["algorithm"] == TEXTBOOK]  # an algorithm uses a rung, mostly the library
    if not rungs.empty and OPERATIONS[rungs["operation"].iloc[0]].cached:
        rungs = rungs[:0]  # the levels of memory are no steps of a ladder
    points = {"right": right, "timed": timed, "rungs": rungs, "series": rungs if rungs.empty else first_series(rungs)}
    found = [Finding(failures(rows)), Finding(disturbances(timed))]
    for answer in CHAPTERS[chapter].answers if chapter else ANSWERS:
        of = points[answer.of]
        for device in DEVICES if answer.each_device else [""]:
            here = of[of["device"] == device] if device else of
            if not here.empty:
                found.append(_finding(answer, here, device))
    return [each for each in found if each.text]


def _finding(answer: Answer, rows: pd.DataFrame, device: str) -> Finding:
    """Return the sentence about some rows, and that about each size if it describes only the largest one."""
    text = answer.sentence(rows)
    if not text or not answer.each_size or not 1 < len(set(analysis.shapes(rows))) <= MOST_SIZES:
        return Finding(text, device)
    at = {}
    for size in analysis.row_dicts(analysis.sizes(rows)):
        at[formats.size(size)] = answer.sentence(analysis.at_size(rows, size))
    return Finding(text, device, {size: other for size, other in at.items() if other and other != text})
