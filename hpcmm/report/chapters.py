"""The chapters of the page in reading order, and the chapter that each sweep belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS
from hpcmm.parallel.all_reduce import is_reduction

DENSE = 24  # sizes of a sweep that shows the effect of tiles, such as every size from 1000 to 1100

FEW = 6  # a sweep with as many variants is about their ladder


@dataclass(frozen=True)
class Chapter:
    """A chapter of the page: its anchor, its heading, and the question that its figures answer."""

    id: str
    title: str
    question: str


CHAPTERS = (
    Chapter("ladder", "Ladder", "How fast is each rung, compared with the library at the same size?"),
    Chapter("why", "Why", "Why is each rung faster or slower than the previous one, and what limits it?"),
    Chapter("sizes", "Sizes and shapes", "At which sizes and shapes is which rung the fastest?"),
    Chapter("tiles", "Tiles", "What does the width of the tile cost or gain, and a size that it does not divide?"),
    Chapter("reductions", "Reductions", "How much of the memory bandwidth does a sum, a minimum or a maximum reach?"),
    Chapter("memory", "Memory", "How fast is memory read and written, and do padded rows help?"),
    Chapter("transfers", "Transfers", "What does a call cost end to end, with its copies?"),
    Chapter("ranks", "Several ranks", "What do several ranks gain, and which algorithm uses them best?"),
)


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


def in_order(sweeps: Mapping[str, Sequence[Series]]) -> dict[str, Sequence[Series]]:
    """Sort sweeps by their place; those of one title, on several machines, follow each other."""
    places = {name: place(members) for name, members in sweeps.items()}
    titles = {name: title_of(name, members[0].points) for name, members in sweeps.items()}
    first: dict[str, tuple] = {}  # of each title; titles at the same place keep their order
    for name in sorted(sweeps, key=places.__getitem__):
        first.setdefault(titles[name], (places[name], len(first)))
    return {name: sweeps[name] for name in sorted(sweeps, key=lambda name: (first[titles[name]], places[name]))}


def place(series: Sequence[Series]) -> tuple:
    """Return the place of a sweep within its chapter: ladders of GPUs first, deliberate failures last."""
    points = pd.concat([each.points for each in series])
    sizes = len(set(analysis.shapes(points)))
    fails, accelerated = bool(points["expected"].any()), bool(analysis.on_accelerator(points).any())
    return (
        fails,
        list(OPERATIONS).index(series[0].operation),
        not accelerated,
        -points["ranks"].nunique(),
        sizes > 1,
        sizes,
    )
