"""The grades of submissions as a page."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hpcmm import store
from hpcmm.report import sheet
from hpcmm.report.formats import duration, times
from hpcmm.report.markup import EMPTY, Cell, Table, words
from hpcmm.report.tables import Column, table, text
from hpcmm.system.text import printable


def grades_table(result: Mapping[str, Any]) -> Table:
    """Make the table of the points of many submissions; ``result`` is from ``grading.submissions``."""
    rows = []
    for submission in result["submissions"]:
        cells = [Cell(f"{grade['points']:g}") for grade in submission["exercises"]]
        rows.append([words(printable(submission["name"])), Cell(f"{submission['points']:g}"), *cells])
    return Table("Points", ["Submission", f"of {result['of']:g}", *result["exercises"]], rows)


def exercises_table(submission: Mapping[str, Any]) -> Table:
    """Make the table of the exercises of one submission; of a message of several lines, it has the first."""

    def verdict(grade: Mapping[str, Any]) -> Cell:
        why = printable(grade["why"].partition("\n")[0])
        return words("PASS") if grade["passed"] else words(why) if not grade["handed_in"] else Cell("FAIL", why, "fail")

    def shown(name: str, form: Callable[[float], str]) -> Column:
        return lambda grade: EMPTY if grade[name] is None else Cell(form(grade[name]))

    columns = {"Exercise": text("exercise"), "Verdict": verdict, "Points": shown("points", "{:g}".format)}
    columns |= {"Of": shown("of", "{:g}".format), "Device": text("device"), "Speedup": shown("ratio", times)}
    columns |= {"Over": text("against"), "Time": shown("seconds", duration)}
    columns |= {"Time of the other": shown("seconds_against", duration)}
    return table(f"Exercises of {printable(submission['name'])}", submission["exercises"], columns)


def build(result: Mapping[str, Any], target: Path) -> None:
    """Write the page of the grades of submissions; ``result`` is from ``grading.submissions``."""
    submissions = result["submissions"]
    one = len(submissions) == 1
    counts = [("exercises", len(result["exercises"]), "")]
    counts += [] if one else [("submissions", len(submissions), "")]
    counts.append(("points", f"{submissions[0]['points']:g} of {result['of']:g}" if one else f"{result['of']:g}", ""))
    notes = []
    if missed := result["ungraded"]:
        notes.append(
            f"{missed:g} points for speed were not given: this machine has no GPU; {result['of'] - missed:g} of "
            f"{result['of']:g} can be reached here."
        )
    if result["unisolated"]:
        notes.append(f"Graded {result['unisolated']}.")
    sections = [] if one else [sheet.Section("Points", tables=[grades_table(result)])]
    for submission in submissions:
        lines = {grade["exercise"]: grade["why"].splitlines() for grade in submission["exercises"]}
        errors = {name: "\n".join(map(printable, why)) for name, why in lines.items() if len(why) > 1}
        states = [("pass" if submission["points"] == result["of"] else "", f"{submission['points']:g}")]
        table = exercises_table(submission)
        sections.append(sheet.Section(printable(submission["name"]), tables=[table], errors=errors, states=states))
    about = f"Graded on {result['utc'][:16].replace('T', ' ')} UTC"
    store.write_text(target, sheet.render(result["title"], about, counts, notes, sections))
