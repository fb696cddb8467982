"""The answer of a timings file in a few lines of text, and its points as a table."""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Columns, Series, Summary, views, visits
from hpcmm.analysis.tidy import MISSING
from hpcmm.model import TEXTBOOK, HpcmmError
from hpcmm.operations import OPERATIONS
from hpcmm.report import chapters, findings, formats, tables
from hpcmm.report.headlines import at_told_sizes, machines_in_order
from hpcmm.report.markup import Cell, Table, words
from hpcmm.report.ratio import LIBRARIES, Ratio, is_itself
from hpcmm.system.text import choices, number, plural, printable

MOST_TYPES = 4  # lines about types; one that has more of them shares the last line
# Choices of points by their speed relative to the library or by their result
ONLY: Mapping[str, Callable[[Mapping], bool]] = {
    "slower": lambda row: row["result"] == "PASS" and row["ratio_high"] < 1,
    "faster": lambda row: row["result"] == "PASS" and row["ratio_low"] > 1,
    "wrong": lambda row: row["result"] == "FAIL",
}


def answer(columns: Columns, frame: pd.DataFrame) -> list[str]:
    """Return three to six lines: the fastest rungs, whether to believe them, and what was not measured.

    The first lines are about the machine with which the page begins, as ``machines_in_order`` says.
    """
    summary, rows, machines = analysis.summary(columns, frame), findings.timed_rungs(frame), frame["machine"].unique()
    measured = [each.name for each in OPERATIONS.values() if not each.cached and (rows["operation"] == each.name).any()]
    rows = rows[rows["operation"].isin(measured[:1])]
    shown = machines_in_order(rows)[:1] or machines
    lines = _fastest(rows[rows["machine"].isin(shown)])
    lines += [_noise(frame[frame["machine"].isin(shown)])] if summary.passed else []
    more = ""
    if len(shown) < len(machines):
        others = plural(len(machines) - 1, "other machine")
        more = f" These lines are about the {formats.machines(machines)[shown[0]]}. The report also has {others}."
    return [*lines, _counts(summary) + more]


def _fastest(rows: pd.DataFrame) -> list[str]:
    """Return a line on the fastest rung of each type at the largest size: on an accelerator if there is one."""
    if rows.empty:
        return []
    known = findings.on_fewest_ranks(analysis.row_dicts(analysis.pooled(findings.on_accelerators(rows))))
    dtypes = OPERATIONS[known[0]["operation"]].dtypes
    of_types = ([row for row in known if row["dtype"] == dtype] for dtype in dtypes)
    found = [findings.quickest(at_told_sizes(findings.in_own_arithmetic(own))[-1]) for own in of_types if own]
    single = found if len(found) <= MOST_TYPES else found[: MOST_TYPES - 1]
    lines = [", ".join([_rung(row), *_compared(row)]) for row in single]
    if rest := found[len(lines) :]:
        several = rows["gpu"].nunique() > 1
        lines.append("; ".join(", ".join([_rung(row, several), *_compared(row, interval=False)]) for row in rest))
    return lines


def _rung(row: Mapping, placed: bool = True) -> str:
    place = f" on the {row['gpu'] or formats.device(row['device'])}" if placed else ""
    return f"{row['dtype']} at {formats.at(row)}{place}: {findings.name_of(row)} {formats.rate_text(row)}"


def _compared(row: Mapping, interval: bool = True) -> Iterator[str]:
    """Give the ratios to the library and to the tuned library, with their intervals unless many types share a line."""
    for column, name in LIBRARIES.items():
        ratio, kind, library = Ratio.to_library(row, column), "tuned " if column == "tuned_ratio" else "", row[name]
        if math.isfinite(ratio.value):
            ends = f" ({ratio.ends or 'no interval'})" if interval else ""
            yield f"{formats.times(ratio.value)} {kind}{library}{ends}"
        elif library:
            yield f"{kind}{library} not measured" if kind else f"ratio to {library} unknown"


def _noise(frame: pd.DataFrame) -> str:
    """Say whether the machine was quiet enough for the ratios to be believed."""
    spreads, throttled = analysis.noises(frame)["spread"].dropna(), int(analysis.points(frame)["throttled"].sum())
    known = [(formats.device(device), spread) for (_, device), spread in spreads.items()]
    if not known:
        return "Noise unknown: no job visited a point twice. Measure again with measuring.visits of 3 or more."
    listed = ", ".join(f"{formats.beyond(spread, visits.NOISY)} on the {title}" for title, spread in known)
    found = f"visits of a point differ by {listed} (limit {100 * visits.NOISY:.0f} %)"
    found += f"; {plural(throttled, 'point')} throttled" if throttled else ""
    noisy = [title for title, spread in known if spread > visits.NOISY]
    if not noisy:
        return f"Quiet enough to believe: {found}."
    quiet = " and the ".join(title for title, _ in known if title not in noisy)
    where = f" on the {' and the '.join(noisy)}, quiet enough on the {quiet}" if quiet else ""
    return f"Too noisy to believe{where}: {found}. End other processes and measure again."


def _counts(summary: Summary) -> str:
    labels = list(dict.fromkeys(summary.alarms["label"]))
    names = f" ({', '.join(labels[:2])}{f' and {len(labels) - 2} more' if len(labels) > 2 else ''})" if labels else ""
    wrong = [f"{summary.failed} FAIL{names or ' as expected'}"] if summary.failed else []
    text = f"{plural(summary.points, 'point')}: {', '.join([f'{summary.passed} PASS', *wrong])}"
    if summary.unmeasured:
        counts = pd.concat([summary.missing["where"], summary.of_failed_jobs["reason"]]).value_counts()
        text += f", {summary.unmeasured} not measured: {_reasons(counts)}"
    text = text.rstrip(".") + "."
    if len(summary.unplanned):
        reasons = _reasons(summary.unplanned["reason"].value_counts())
        text += f" {plural(len(summary.unplanned), 'variant')} of sweeps not measured: {reasons}."
    return text


def _reasons(counts: pd.Series) -> str:
    more = f" ({plural(len(counts) - 1, 'more reason')})" if len(counts) > 1 else ""
    reason = printable(str(counts.index[0])).removeprefix(MISSING).lstrip(":, ")
    return textwrap.shorten(reason, 200, placeholder=" ...") + more  # not a compiler's whole message


OTHERS = {each.kind: each for each in chapters.TABLES if each.kind != "activities"}


def tables_of(frame: pd.DataFrame, name: str, only: str = "") -> list[Table]:
    """Return the tables of a name: the points of a sweep, of all for an empty name, or ``sweep.ladder`` and so on.

    Raise HpcmmError if there is no such sweep or table.
    """
    sweep, _, kind = name.partition(".")
    if sweep:
        views.require_sweep(sweep, frame["sweep"])
    if kind and kind not in OTHERS:
        raise HpcmmError(f"table {kind!r} is not allowed; allowed: {choices(kind, OTHERS)}")
    rows = frame[frame["sweep"] == sweep] if sweep else frame
    found = []
    for series in analysis.series(analysis.split_by_machine(rows)):
        if not kind:
            found.append(point_table(series, only))
        elif points := OTHERS[kind].rows(series, None):
            found.append(OTHERS[kind].table(series, points))
    if kind and not any(found):
        raise HpcmmError(f"sweep {sweep!r} has no points for table {kind!r}")
    return list(filter(None, found))


def point_table(series: Series, only: str = "") -> Table | None:
    """Make the table of the points of a series, one per line; None if ``only`` selects none."""
    points = [row for row in series.rows if not only or ONLY[only](row)]
    if not points:
        return None
    unit = formats.rate_unit_of(series.rows)

    def ratio(column: str, form: Callable[[Mapping], str]) -> Callable[[Mapping], Cell]:
        return lambda row: Cell("" if row["result"] != "PASS" or is_itself(row, column) else form(row))

    columns = {
        formats.size_title(points): tables.of_size,
        "Rung": tables.text("label"),
        unit.name: lambda row: Cell(formats.rate(row, "" if math.isfinite(row["seconds"]) else "call_", unit)),
        "Library": ratio("ratio", lambda row: formats.times(row["ratio"])),
        "95 % CI": ratio("ratio", lambda row: formats.ends(row, "ratio", number)),
    }
    columns["Tuned"] = ratio("tuned_ratio", lambda row: formats.times(row["tuned_ratio"]))
    passed = all(row["result"] == "PASS" for row in points)
    if not passed:
        columns["Result"] = lambda row: words(
            row["where"] if row["where"].startswith(MISSING) else f"{row['result']} {row['where']}".rstrip()
        )
    title = f"{series.sweep}: {formats.conditions(series)}"
    compared = dict.fromkeys(row["algorithm"] for row in points if row["ratio"] > 0 and row["algorithm"] != TEXTBOOK)
    others = f"{', '.join(compared)}: relative to {TEXTBOOK} with the same rung" if compared else ""
    captions = filter(None, (title, tables.libraries(series.rows), others, "all PASS" if passed else ""))
    return tables.table("; ".join(captions), points, columns, leading=1)
