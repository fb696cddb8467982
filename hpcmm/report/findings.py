"""Findings of a sweep: short sentences, each computed from its points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import geometric_mean, median
from typing import Any

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import visits
from hpcmm.devices import DEVICES
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.parallel import ALGORITHMS
from hpcmm.report import formats
from hpcmm.report.ratio import SAME, Ratio
from hpcmm.store import DIMENSIONS

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """A finding of a sweep.

    Parameters
    ----------
    text : str
        About the largest size, or all sizes.
    device : str
        The device that it is about; empty for all.
    at : mapping
        By size, the text about that size alone; without sizes that have no text of their own.
    """

    text: str
    device: str = ""
    at: Mapping[str, str] = field(default_factory=dict)


MOST_SIZES = 16  # sizes of a sweep that the switch of the page offers
SEVERAL_SIZES = 4  # sizes over which a mean says more than each of them


def what_to_see(rows: pd.DataFrame, chapter: str = "") -> list[Finding]:
    """Return the findings of one sweep that answer the question of a chapter; of all of them without one.

    ``rows`` are its points, from ``analysis.measurements``. Of several element types the first is described.
    """
    rows = rows.reset_index(drop=True)
    passed = rows[(rows["result"] == "PASS") & rows["seconds"].notna()]
    answers = ANSWERS.get(chapter, set().union(*ANSWERS.values()))
    found = [Finding(failures(rows)), Finding(disturbances(passed))]
    if algorithms in answers:
        found += [_finding(algorithms, rows[rows["result"] == "PASS"]), _finding(over_library, passed)]
    rungs = passed[passed["algorithm"] == TEXTBOOK]  # an algorithm uses a rung, mostly the library
    # the levels of memory are no steps of a ladder
    if not rungs.empty and not OPERATIONS[rungs["operation"].iloc[0]].cached:
        first = _first_series(rungs)
        for device in DEVICES:
            here = first[first["device"] == device]
            if not here.empty:
                found += [_finding(each, here, device) for each in (best, reach, order) if each in answers]
            if over_sizes in answers:
                found.append(_finding(over_sizes, rungs[rungs["device"] == device], device))
        found += [_finding(each, first) for each in (tiles, remainders, pitch, shapes, host_memory) if each in answers]
    if not passed.empty and ranks in answers:
        found.append(_finding(ranks, passed))
    return [each for each in found if each.text]


def _finding(answer: Callable[[pd.DataFrame], str], rows: pd.DataFrame, device: str = "") -> Finding:
    """Return the text of a function for some rows, and that of each size if it describes only the largest one."""
    text = answer(rows)
    if not text or answer not in OF_ONE_SIZE or not 1 < len(set(analysis.shapes(rows))) <= MOST_SIZES:
        return Finding(text, device)
    at = {}
    for size in analysis.row_dicts(analysis.sizes(rows)):
        at[formats.size(size)] = answer(analysis.at_size(rows, size))
    return Finding(text, device, {size: other for size, other in at.items() if other and other != text})


def _first_series(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the first element type, the fewest ranks and one setting, so that a sentence has one subject."""
    rows = first_type(rows)
    rows = rows[rows["ranks"] == rows["ranks"].min()]
    return rows[rows["setting"] == rows["setting"].iloc[0]]


def first_type(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the points of the first element type of their operation that was measured."""
    dtypes = (*OPERATIONS[rows["operation"].iloc[0]].dtypes, rows["dtype"].iloc[0])
    return rows[rows["dtype"] == next(dtype for dtype in dtypes if (rows["dtype"] == dtype).any())]


def _fastest(rows: pd.DataFrame, by: Sequence[str] = ("variant",)) -> list[dict[str, Any]]:
    """Return the fastest point of each group, in the order of the ladder."""
    return analysis.row_dicts(rows.loc[rows.groupby(list(by))["seconds"].idxmin()].sort_values("place", kind="stable"))


def _listed(parts: Iterable[str]) -> str:
    """Join texts as ``"a, b and c"``."""
    *front, last = list(dict.fromkeys(parts))
    return f"{', '.join(front)} and {last}" if front else last


def algorithms(rows: pd.DataFrame) -> str:
    """Compare algorithms with ``TEXTBOOK`` and the same variant, on the most ranks at the largest size."""
    rows = rows[rows["algorithm"] != TEXTBOOK]
    if rows.empty:
        return ""
    rows = first_type(rows)
    here = analysis.largest(rows[rows["ranks"] == rows["ranks"].max()]).sort_values("place", kind="stable")
    found: dict[str, list[str]] = {"call": [], "kernel": []}
    for row in analysis.row_dicts(here):
        (kind,) = ALGORITHMS[row["algorithm"]].measures
        ratio = row["ratio" if kind == "kernel" else "call_ratio"]
        if ratio > 0:
            found[kind].append(f"{row['label']} {formats.times(ratio)}")
    where = f"({here['dtype'].iloc[0]}, {formats.size(here.iloc[0])}, {formats.ranks(here['ranks'].iloc[0])})"
    compared = {
        "call": f"End-to-end speedup over {TEXTBOOK} with the same variant {where}",
        # the kernel of TEXTBOOK exchanges nothing, so no algorithm is faster for its exchange
        "kernel": f"Speed relative to the local kernels of {TEXTBOOK}, which exchange nothing {where}",
    }
    return " ".join(f"{compared[kind]}: {', '.join(labels)}." for kind, labels in found.items() if labels)


def over_library(rows: pd.DataFrame) -> str:
    """Compare the fastest product of each variant with that of the library, on the most ranks at the largest size."""
    rows = rows[(rows["operation"] == "matmul") & (rows["algorithm"] != TEXTBOOK)]
    foreign = rows["algorithm"].map(lambda name: bool(ALGORITHMS[name].package))
    if not foreign.any():
        return ""
    most = rows.loc[foreign, "ranks"].max()
    texts = []
    at = rows[rows["ranks"] == most]
    at = at[at["flops"] == at[foreign[at.index]].groupby("dtype")["flops"].max().reindex(at["dtype"]).to_numpy()]
    for (dtype, *_), here in at.groupby(["dtype", *dimensions(), "setting"], sort=True):
        library = here[foreign[here.index]]
        ours = here[~foreign[here.index]]
        if not library.empty and not ours.empty:
            (library,) = analysis.row_dicts(library.nsmallest(1, "seconds"))
            speedups = [f"{row['label']} {Ratio.of(row, library)}" for row in _fastest(ours)]
            texts.append(f"{formats.size(library)} in {dtype}: {', '.join(speedups)}")
    name = rows.loc[foreign, "algorithm_library"].iloc[0]
    if not texts:
        return ""
    return f"Speedup over {name} on {formats.ranks(most)}, measured in separate jobs: {'; '.join(texts)}."


def failures(rows: pd.DataFrame) -> str:
    """Name the rungs that are wrong, their sizes, and the first wrong element."""
    failed = rows[rows["result"] == "FAIL"]
    texts = []
    for expected, part in failed.groupby("expected"):
        sizes = _listed(formats.sizes(part))
        labels = _listed(part.sort_values("place")["label"])
        first = part.iloc[0]
        where = f"First wrong element of {first['label']}: {first['where'].partition(': ')[0]}."
        why = ", as expected: without bounds checks the tile must divide the size" if expected else ""
        texts.append(f"FAIL at {sizes}: {labels}{why}. {where}")
    return " ".join(texts)


def disturbances(rows: pd.DataFrame) -> str:
    """Name the sizes whose visits had arrays on different pages, and the points with much steal."""
    texts = []
    pages = rows.groupby([*dimensions(), "dtype", "ranks"])[["huge_pages", "huge_pages_most"]]
    extremes = pages.agg({"huge_pages": "min", "huge_pages_most": "max"})
    apart = extremes[extremes["huge_pages_most"] - extremes["huge_pages"] > visits.NOISY]
    if not apart.empty:
        alike = apart.reset_index()
        low, high = formats.percent(apart["huge_pages"].min()), formats.percent(apart["huge_pages_most"].max())
        texts.append(
            f"Visits differ in the pages of their arrays at {_listed(formats.sizes(alike))}: {low} to {high} of the "
            "bytes are on huge pages. Their times are not comparable."
        )
    stolen = rows[rows["steal"] > visits.NOISY]
    if not stolen.empty:
        worst = stolen.loc[stolen["steal"].idxmax()]
        texts.append(
            f"The hypervisor gave more than {formats.percent(visits.NOISY)} of the CPU time to other guests during "
            f"{len(stolen)} of {len(rows)} points, at most {formats.percent(worst['steal'])} ({worst['label']} at "
            f"{formats.size(worst)})."
        )
    return " ".join(texts)


def best(rows: pd.DataFrame) -> str:
    """Name the fastest rung at the largest size, and also the fastest one in the arithmetic of the element type."""
    here = analysis.largest(rows)
    ours = here[here["role"] == "rung"]
    if ours.empty:
        return ""
    row = ours.loc[ours["seconds"].idxmin()]
    at = f"At {formats.size(row)} in {row['dtype']} the fastest rung of the {formats.device(row['device'])}"
    if ours["variant"].nunique() == 1:
        return f"{at.replace('fastest rung of', 'only rung measured on')} is {_reached(row)}."
    text = f"{at} is {_reached(row)}."
    plain = ours[ours["arithmetic"] == ""]
    if row["arithmetic"] and not plain.empty:
        text += f" In {row['dtype']} arithmetic the fastest rung is {_reached(plain.loc[plain['seconds'].idxmin()])}."
    return text


def _reached(row: pd.Series) -> str:
    """Give a rung with its rate, its ratio to the baseline and its fraction of the limit."""
    return f"{name_of(row)}: {', '.join([formats.rate_text(row), *relative(row)])}"


def relative(row: Row) -> list[str]:
    """Give the ratios to the library and the tuned library, and the fraction of the limit, as far as they are known."""
    found = []
    for ratio, library in (("ratio", row["library"]), ("tuned_ratio", row["tuned_library"])):
        if math.isfinite(row[ratio]):
            found.append(Ratio.to_library(row, ratio).over(library, "95 % CI "))
    if math.isfinite(row["fraction"]):
        found.append(f"{formats.percent(row['fraction'])} of the limit ({row['ceiling']})")
    return found


def name_of(row: Row) -> str:
    """Name a rung, with its arithmetic if its element type has another: ``"tensor_core (three TF32 products)"``."""
    return row["rung"] + (f" ({row['arithmetic']})" if row["arithmetic"] else "")


def over_sizes(rows: pd.DataFrame) -> str:
    """Give the speed of a rung relative to the library over all sizes, for each element type.

    Of the rungs in the arithmetic of the type that were measured at each size, it is the one with the highest geometric
    mean of the speed relative to the faster of the library and the tuned library.
    """
    texts = []
    for dtype in dict.fromkeys(rows["dtype"]):
        here = _first_series(rows[rows["dtype"] == dtype])
        sizes = set(analysis.shapes(here))
        ours = here[(here["role"] == "rung") & (here["arithmetic"] == "") & (here["ratio"] > 0)]
        whole = [own for _, own in ours.groupby("label") if set(analysis.shapes(own)) == sizes]
        if len(sizes) < SEVERAL_SIZES or not whole:
            continue
        own = max(whole, key=lambda own: geometric_mean(own["lead"]))
        of_rung = analysis.row_dicts(own.sort_values("lead", kind="stable"))
        means = [
            f"{formats.times(geometric_mean(own[ratio]))} {own[library].iloc[0]}"
            for ratio, library in (("ratio", "library"), ("tuned_ratio", "tuned_library"))
            if own[ratio].notna().all()
        ]
        several = len(means) > 1
        least, most = (f"{formats.times(row['lead'])} at {formats.size(row)}" for row in (of_rung[0], of_rung[-1]))
        text = f"Over {len(sizes)} sizes in {dtype}, {own['label'].iloc[0]} has {_listed(means)} (geometric mean"
        text += f"{'s). Relative to the faster of both it is' if several else '),'} from {least} to {most}"
        slower = [formats.size(row) for row in of_rung if row["lead_high"] < 1]
        texts.append(f"{text}; significantly slower at {_listed(slower)}." if slower else f"{text}.")
    return " ".join(texts)


def reach(rows: pd.DataFrame) -> str:
    """Give the length at which the fastest rung reaches half of its highest rate, for operations bound by memory."""
    operation = rows["operation"].iloc[0]
    if OPERATIONS[operation].metric != "bytes" or rows["n"].nunique() < 3:
        return ""
    here = analysis.largest(rows)
    ours = here[here["role"] == "rung"]
    if ours.empty:
        return ""
    label = ours.loc[ours["seconds"].idxmin(), "label"]
    own = rows[rows["label"] == label].sort_values("n")
    rates = own[formats.rate_column(operation)]
    enough = (rates >= rates.max() / 2).to_numpy().argmax()
    if enough == len(own) - 1:  # the highest rate itself
        before, last = (formats.size(own.iloc[i]) for i in (-2, -1))
        share = formats.percent(rates.iloc[-2] / rates.iloc[-1])
        return f"At n = {before}, {label} reaches {share} of its rate at {last}."
    return f"{label} reaches half of its highest rate at n = {formats.size(own.iloc[enough])}."


def order(rows: pd.DataFrame) -> str:
    """Count the significantly faster steps of the ladder at the largest size, and name the others."""
    found = _steps(rows)
    if len(found) < 2:
        return ""
    unknown = "no interval"
    slower = "significantly slower"
    kinds: dict[str, list[str]] = {slower: [], SAME: [], unknown: []}
    for _, rung, ratio in found:
        if not ratio.faster:
            kinds[slower if ratio.slower else SAME if ratio.known else unknown].append(rung["rung"])
    place = f"On the {formats.device(found[0][1]['device'])} at {formats.size(found[0][1])},"
    faster = sum(ratio.faster for *_, ratio in found)
    if faster == len(found):
        return f"{place} each of the {len(found) + 1} rungs is significantly faster than the previous one."
    verb = "is" if faster == 1 else "are"
    texts = [f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names]
    return f"{place} {faster} of {len(found)} steps {verb} significantly faster; {'; '.join(texts)}."


def _steps(rows: pd.DataFrame) -> list[tuple[Row, Row, Ratio]]:
    """Return each pair of adjacent rungs at the largest size, with the speedup of the second over the first."""
    here = analysis.largest(rows)
    rungs = _fastest(here[analysis.climbs(here)])
    return [(below, rung, Ratio.of(rung, below)) for below, rung in pairwise(rungs)]


def tiles(rows: pd.DataFrame) -> str:
    """Name the fastest tile of each rung that was measured with several, at the largest size."""
    if not (rows["tile"] > 0).any():
        return ""
    here = analysis.largest(rows)
    texts = []
    for variant, group in here[here["tile"] > 0].sort_values("place").groupby("variant", sort=False):
        ranked = analysis.row_dicts(group.sort_values("seconds"))
        others = [row for row in ranked if row["tile"] != ranked[0]["tile"] and row["memory"] == ranked[0]["memory"]]
        if others:
            speedup = Ratio.of(ranked[0], others[0]).over(f"tile {others[0]['tile']:.0f}")
            texts.append(f"{ranked[0]['tile']:.0f} for {variant}, {speedup}")
    return f"Fastest tile at {formats.size(here.iloc[0])}: {'; '.join(texts)}." if texts else ""


def remainders(rows: pd.DataFrame) -> str:
    """Give the cost of one row and column beyond a multiple of the tile, and how many peaks are at multiples."""
    if not (rows["tile"] > 0).any():
        return ""
    squares = rows[(rows["tile"] > 0) & (rows["m"] == rows["n"]) & (rows["k"] == rows["n"])]
    texts = []
    for label, group in squares.sort_values("place").groupby("label", sort=False):
        at = {int(row["n"]): row for row in analysis.row_dicts(group)}
        tile = int(group["tile"].iloc[0])
        multiples = [n for n in at if n % tile == 0]
        falls = [_rate_ratio(at[n + 1], at[n]) for n in multiples if n + 1 in at]
        if not falls:
            continue
        text = f"{label}: {_spread(falls)}"
        around = {n: range(n - tile // 2, n + tile // 2 + 1) for n in multiples}
        whole = {n: near for n, near in around.items() if all(each in at for each in near)}
        if whole:
            peaks = sum(max(near, key=lambda each: at[each]["flops_per_second"]) == n for n, near in whole.items())
            text += f", fastest within half a tile at {peaks} of {len(whole)} multiples"
        texts.append(text)
    if not texts:
        return ""
    return f"Rate at a multiple of the tile plus one, relative to the multiple: {'; '.join(texts)}."


def _rate_ratio(one: Row, other: Row) -> Ratio:
    """Return the rate of ``one`` divided by that of ``other``; their work may differ."""
    names = ("seconds", "seconds_low", "seconds_high")
    return Ratio.of(*({name: row[name] / row["flops"] for name in names} for row in (one, other)))


def _spread(ratios: Sequence[Ratio]) -> str:
    if len(ratios) == 1:
        return str(ratios[0])
    values = sorted(ratio.value for ratio in ratios)
    ends = f"{formats.number(values[0])} to {formats.number(values[-1])}"
    return f"{formats.times(median(values))} (median of {len(values)}; range {ends})"


def pitch(rows: pd.DataFrame) -> str:
    """Give the speedup of padded rows over the same kernel without padding, and the cost of the copies."""
    pairs = [
        (Ratio(row["gain"], row["gain_low"], row["gain_high"]), row)
        for row in analysis.row_dicts(analysis.pitch_pairs(rows))
    ]
    if not pairs:
        return ""
    highest, where = max(pairs, key=lambda each: each[0].value)
    if len(pairs) == 1:
        text = f"{where['rung']} at {formats.size(where)}: {highest.over(where['plain'])}"
    else:
        faster, slower = sum(ratio.faster for ratio, _ in pairs), sum(ratio.slower for ratio, _ in pairs)
        text = (
            f"{where['variant']} is significantly faster than {where['plain']} at {faster} of {len(pairs)} points and "
            f"significantly slower at {slower}. Largest speedup: {where['rung']} at {formats.size(where)}, {highest}"
        )
    shares = [row["call_pitch"] / row["call_seconds"] for _, row in pairs if math.isfinite(row["call_pitch"])]
    if shares:
        text += f". The copies take {formats.percent(median(shares))} of the end-to-end time"
    return text + "."


def shapes(rows: pd.DataFrame) -> str:
    """Compare the rate of other shapes with that of the square product of equal work."""
    if OPERATIONS[rows["operation"].iloc[0]].dimensions != DIMENSIONS:
        return ""
    texts = []
    for label in _listed_first(rows):
        own = rows[rows["label"] == label]
        square = (own["m"] == own["n"]) & (own["k"] == own["n"])
        found = [
            (_rate_ratio(row, equal), row, equal)
            for row in analysis.row_dicts(own[~square])
            for equal in analysis.row_dicts(own[square])
            if abs(row["flops"] / equal["flops"] - 1) < 0.01
        ]
        if found:
            (low, at_low, square_row), (high, at_high, _) = (
                f(found, key=lambda each: each[0].value) for f in (min, max)
            )
            text = f"{label} {formats.times(low.value)} ({formats.size(at_low)})"
            if len(found) > 1:
                text += f" to {formats.times(high.value)} ({formats.size(at_high)})"
            texts.append((formats.size(square_row), text))
    if not texts:
        return ""
    sizes, rates = _listed(size for size, _ in texts), ", ".join(text for _, text in texts)
    return f"Rate relative to the square product of equal work ({sizes}): {rates}."


def _listed_first(rows: pd.DataFrame) -> list[str]:
    """Return the label of the fastest rung at the largest size and that of the baseline, for each device."""
    labels = []
    for device in DEVICES:
        here = rows[rows["device"] == device]
        if not here.empty:
            labels += [row["label"] for row in _fastest(analysis.largest(here), ("baseline",))]
    return labels


def host_memory(rows: pd.DataFrame) -> str:
    """Give the speedup from page-locked host memory, end to end and of the copies, at the largest size."""
    here = analysis.largest(rows[rows["call_seconds"].notna()]) if rows["call_seconds"].notna().any() else rows[:0]
    kinds = {kind: _fastest(here[here["memory"] == kind], ("rung",)) for kind in ("pinned", "pageable")}
    pageable = {row["rung"]: row for row in kinds["pageable"]}
    both = [
        (row, pageable[row["rung"]]) for row in kinds["pinned"] if row["rung"] in pageable and row["role"] == "rung"
    ]
    if not both:
        return ""
    pinned, other = min(both, key=lambda pair: pair[0]["call_seconds"])
    call, kernel = Ratio.of(pinned, other, "call_seconds"), Ratio.of(pinned, other)
    copies = [
        f"{phase} {formats.times(other['call_' + phase] / pinned['call_' + phase])}"
        for phase in ("upload", "download")
        if math.isfinite(other["call_" + phase] / pinned["call_" + phase])
    ]
    return (
        f"Speedup of pinned over pageable host memory, {pinned['rung']} at {formats.size(pinned)}: "
        f"{', '.join([f'end to end {call}', *copies, f'kernel alone {kernel}'])}."
    )


def ranks(rows: pd.DataFrame) -> str:
    """Give the speedup from more ranks, at the largest size."""
    texts = []
    for device in DEVICES:
        here = rows[rows["device"] == device]
        if here.empty:
            continue
        first = _first_series(here)
        alike = (here["dtype"] == first["dtype"].iloc[0]) & (here["setting"] == first["setting"].iloc[0])
        most = analysis.largest(here[alike])
        one = {row["label"]: row for row in analysis.row_dicts(analysis.at_size(first, most.iloc[0]))}
        last = most[(most["ranks"] == most["ranks"].max()) & (most["role"] == "rung") & most["label"].isin(list(one))]
        if last.empty or last["ranks"].iloc[0] == first["ranks"].iloc[0]:
            continue
        exchanging = last[last["algorithm"] != TEXTBOOK]
        last = last if exchanging.empty else exchanging
        row = last.loc[last["seconds"].idxmin()]
        found = []
        if math.isfinite(row["call_seconds"]):
            found.append(f"end to end {Ratio.of(row, one[row['label']], 'call_seconds')}")
        alone = f"kernel alone {Ratio.of(row, one[row['label']])}"
        found.append(
            alone if not exchanging.empty else f"local kernels without exchange {Ratio.of(row, one[row['label']])}"
        )
        where = f"{row['label']} at {formats.size(row)}"
        texts.append(f"Speedup of {row['ranks']} ranks over {first['ranks'].iloc[0]}, {where}: {', '.join(found)}.")
    return " ".join(texts)


# Which findings answer the question of a chapter
ANSWERS = {
    "ladder": {best, order},
    "sizes": {best, over_sizes, shapes},
    "tiles": {tiles, remainders},
    "reductions": {best, over_sizes, reach, order},
    "memory": {best, reach, pitch},
    "transfers": {host_memory},
    "ranks": {algorithms, ranks},
}
# Findings about the largest size
OF_ONE_SIZE = {best, order, tiles, host_memory, algorithms, over_library, ranks}
