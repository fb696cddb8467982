"""What a chapter of the page is: a question, the figures, sentences and tables that answer it, and their CSV files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pandas as pd

from hpcmm.analysis import Series, why
from hpcmm.analysis.views import Row
from hpcmm.model.records import beside
from hpcmm.report.markup import Table
from hpcmm.report.vega import Figure

TEXTS = beside(__file__)


class Answer(NamedTuple):
    """A function that answers the question in a sentence, from points of a sweep that passed.

    ``of`` names the points: ``"timed"``; ``"rungs"``, not distributed by an algorithm; ``"series"``, of one type and
    setting. ``each_device`` asks it for each device.
    """

    sentence: Callable[[Sequence[Row]], str]
    of: Literal["timed", "rungs", "series"] = "series"
    each_device: bool = False


@dataclass(frozen=True)
class Experiment:
    """The results over all sweeps, from ``analysis``, ``why`` and ``scaling``."""

    activities: Mapping[tuple, Sequence[Row]]  # by ``Series.key``
    known: why.Known
    resources: pd.DataFrame
    scaling: pd.DataFrame
    predictions: pd.DataFrame
    profiles: pd.DataFrame


class Tabulated(NamedTuple):
    """A table of each series that has rows, or None; ``kind`` is a key of ``csv_files.COLUMNS``."""

    kind: str
    rows: Callable[[Series, Experiment], Sequence[Row]]
    table: Callable[[Series, Sequence[Row]], Table | None]


Draw = Callable[[Series], Iterator[Figure]]


@dataclass(frozen=True)
class Chapter:
    """A chapter: its anchor, its heading, its question, and what answers it.

    Of ``figures``, the first function that draws a series is used. ``about`` is HTML below the question.
    """

    id: str
    title: str
    question: str
    figures: Sequence[Draw] = ()
    answers: Sequence[Answer] = ()
    tables: Sequence[Tabulated] = ()
    about: str = ""


def chapter(identity: str, **answering: Sequence) -> Chapter:
    """Return a chapter with its texts."""
    return Chapter(identity, **TEXTS["chapters"][identity], **answering)
