"""The figures of the report, as Vega-Lite specifications over columns of values: one module for each chapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.operations.memory import LATENCY
from hpcmm.report.figures.energy import clocks, efficiencies
from hpcmm.report.figures.ladder import ladders
from hpcmm.report.figures.memory import pitch_gain
from hpcmm.report.figures.ranks import PREDICTED, predictions, scalings
from hpcmm.report.figures.sizes import rate_against_size
from hpcmm.report.figures.tiles import tile_map
from hpcmm.report.figures.transfers import calls
from hpcmm.report.figures.why import rooflines
from hpcmm.report.vega import Figure, Style

__all__ = [
    *("PREDICTED", "calls", "clocks", "efficiencies", "ladders", "of_series", "pitch_gain", "predictions"),
    *("rate_against_size", "rooflines", "scalings", "tile_map"),
]


def of_series(series: Series, style: Mapping[str, Style], chapter: str) -> list[Figure]:
    """Return the figures of one series that answer the question of a chapter of the page; see ``chapters``."""
    several = len(set(analysis.shapes(series.points))) > 1
    if series.operation == LATENCY.name or (OPERATIONS[series.operation].cached and several):
        return []  # a latency is not a rate, and each size is one level of memory: their table shows them
    first: Sequence[Callable[[], Iterable[Figure]]]
    rates, bars = (lambda: rate_against_size(series, style)), (lambda: ladders(series))
    if chapter in ("ladder", "ranks"):
        first = [bars]
    elif chapter == "tiles":
        first = [lambda: tile_map(series), rates, bars]
    elif chapter == "memory":
        first = [lambda: pitch_gain(series, style), rates, bars]
    elif chapter == "transfers":
        first = [lambda: calls(series), rates, bars]
    else:
        first = [rates, bars]
    return next(filter(None, (list(draw()) for draw in first)), [])
