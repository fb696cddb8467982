"""The first screen of the page: the fastest rung in sentences, beside the library over sizes, and over ranks."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series, visits
from hpcmm.analysis.scaling import base_columns
from hpcmm.analysis.tidy import MISSING
from hpcmm.analysis.why import Known, limit
from hpcmm.model import TEXTBOOK
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS
from hpcmm.report import findings, formats
from hpcmm.report.chapters import ranks
from hpcmm.report.chapters.sizes import ratio_against_size
from hpcmm.report.headlines import Headline, by_size, headlines, machines_in_order
from hpcmm.report.vega import Figure
from hpcmm.system.text import percent

HEIGHT = 190  # of a figure; two of them, each with a sentence, fit on one screen beside the first answer


@dataclass(frozen=True)
class Opening:
    """One question of the first screen: figures of which the page shows one, each with a headline, or headlines."""

    title: str
    figures: Sequence[Figure]
    headlines: Sequence[Headline | None]


def panels(frame: pd.DataFrame, series: Sequence[Series], scaling: pd.DataFrame, known: Known) -> list[Opening]:
    """Return the panels that the measurements allow."""
    noise = analysis.noises(frame)["spread"]

    def told(name: str, **about: str) -> Headline | None:
        return next(iter(headlines(frame, scaling, name, **about)), None)

    answers = list(_answers(frame, known, told, noise))
    over_sizes = list(zip(*_over_sizes(series, noise), strict=True)) or [[], []]
    over_ranks = [
        (figure, told("Scaling", machine=figure.machine, device=figure.device, dtype=figure.dtype))
        for figure in _over_ranks(scaling)
    ]
    scaled = zip(*over_ranks, strict=True) if over_ranks else ([], [told("Scaling")])
    found = [Opening("Fastest rung", [], answers), Opening("Speed over size", *over_sizes)]
    found.append(Opening("Scaling over ranks", *scaled))
    if not answers and not over_sizes[0]:  # a file without products
        found.append(Opening("Fastest sum", [], [told("Fastest sum")]))
    return [each for each in found if each.figures or any(each.headlines)]


def _answers(
    frame: pd.DataFrame, known: Known, told: Callable[..., Headline | None], noise: pd.Series
) -> Iterator[Headline]:
    """Yield, by machine, device and type, a headline on the fastest product, its cause and its reliability."""
    rows = findings.timed_rungs(frame)
    rows = rows[rows["operation"] == "matmul"]
    machines, dtypes = machines_in_order(rows), OPERATIONS["matmul"].dtypes

    def place(values: tuple) -> tuple:
        machine, device, dtype = values
        return machines.index(machine), not DEVICES[device].accelerator, dtypes.index(dtype)

    places = rows[["machine", "device", "dtype"]].drop_duplicates().itertuples(index=False, name=None)
    for machine, device, dtype in sorted(places, key=place):
        if headline := told("Fastest product", machine=machine, device=device, dtype=dtype):
            reason = f"Why: {limit(headline.row, known.facts(headline.row))}."
            here = frame[(frame["machine"] == machine) & (frame["device"] == device)]
            yield replace(headline, more=[*headline.more, reason, _belief(here, noise[machine, device])])


def _belief(rows: pd.DataFrame, noise: float) -> str:
    rows = analysis.points(rows[rows["result"] != MISSING])
    wrong = int(((rows["result"] == "FAIL") & ~rows["expected"]).sum())
    results = f"{wrong or 'no'} unexpected wrong result{'' if wrong == 1 else 's'}"
    counted = f"{len(rows):,} points have" if len(rows) != 1 else "1 point has"
    text = f"{counted} {results}."
    if not noise > visits.NOISY:  # else the headline is withheld, and says why
        known = f"Visits of a point differ by {percent(noise)}"
        text = f"{'The spread between visits is unknown' if math.isnan(noise) else known}. {text}"
    if throttled := int(rows["throttled"].sum()):
        text += f" At {throttled:,} of them the device lowered its clock, so their rates are lower."
    return text


def _over_sizes(series: Sequence[Series], noise: pd.Series) -> Iterator[tuple[Figure, Headline]]:
    """Draw the fastest rung of each arithmetic and the library by size, for each type; GPUs first."""
    known = set()
    dtypes = OPERATIONS["matmul"].dtypes
    alone = [each for each in series if each.operation == "matmul" and each.ranks == 1]
    alone = [each for each in alone if formats.size_is_one_number(each.rows)]

    def rank(each: Series) -> tuple:
        """Accelerators first, types in their order, the most sizes first."""
        points = each.points
        return not analysis.on_accelerator(points).any(), dtypes.index(each.dtype), -points["n"].nunique()

    for each in sorted(alone, key=rank):
        points = each.points
        shown = (points["algorithm"] == TEXTBOOK) & (points["result"] == "PASS") & (points["tile"] == 0)
        devices = analysis.pooled(points[shown]).groupby("device")
        for device, here in sorted(devices, key=lambda group: not DEVICES[group[0]].accelerator):
            rows = analysis.row_dicts(here)
            compared = {row["n"] for row in rows if row["role"] == "rung" and row["ratio"] > 0}
            machine, library = rows[0]["machine"], rows[0]["library"]
            if len(compared) < 3 or (each.dtype, device, machine) in known:
                continue
            rungs = (row for row in analysis.largest(rows) if row["role"] == "rung")
            best = [row["label"] for row in findings.fastest_of(rungs, "arithmetic")]
            shown = here[here["label"].isin(best) | (here["role"] != "rung")].reset_index(drop=True)
            own = replace(each, points=shown.assign(fraction=np.nan))  # the first screen has no room for limits
            for figure in ratio_against_size(own, HEIGHT):
                known.add((each.dtype, device, machine))
                caption = f"{each.dtype} on the {formats.device(device)}, relative to {library}"
                caption += "".join(figure.caption.partition(";")[1:])
                name = f"over-sizes-{device}-{each.dtype}"
                drawn = replace(figure, name=name, caption=caption, device=device, machine=machine, group="over-sizes")
                yield drawn, by_size(rows, noise[machine, device])


def _over_ranks(scaling: pd.DataFrame) -> Iterator[Figure]:
    """Draw the efficiency over ranks for each type, of the sweep with the most of them; GPUs first."""
    rows = scaling[(scaling["operation"] == "matmul") & (scaling["kind"] == "strong")]
    for _, here in sorted(
        rows.groupby(["device", "dtype"], sort=False), key=lambda group: not analysis.on_accelerator(group[1]).any()
    ):
        alike = (own for _, own in here.groupby(["machine", *base_columns(), "sweep"], sort=False))
        most = max(alike, key=lambda own: (own["ranks"].nunique(), own["algorithm"].nunique(), own["flops"].max()))
        row = most.iloc[0]
        for figure in ranks.scalings(most, HEIGHT):
            on = row["gpu"] or f"{formats.device(figure.device)}s"
            caption = f"{figure.dtype}, size {formats.size(row)} on {on}: scaling efficiency"
            name = f"over-ranks-{figure.device}-{figure.dtype}"
            yield replace(figure, name=name, caption=caption, machine=row["machine"], group="over-ranks")
