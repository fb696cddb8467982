"""``hpcmm grade``: grade submitted kernels."""

import argparse
import json
import secrets
from typing import Any

from hpcmm import store
from hpcmm.grading import rubric, sandbox, submissions
from hpcmm.grading.exercise import NOT_HANDED_IN, Grade
from hpcmm.system import surroundings
from hpcmm.system.text import printable

NOT_RIGHT = 3  # exit status
MOST_LINES = 20  # of a reason


def run(arguments: argparse.Namespace) -> int:
    asked = rubric.read(arguments.rubric)
    handed_in = submissions.found_in(arguments.folder, asked)
    isolation = sandbox.chosen(arguments.trust)
    surroundings.say()
    grades, result = [], {}
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    for submission, grade in submissions.graded(handed_in, asked, isolation, seed):
        if not grades or grades[-1][0] != submission:
            print(printable(submission), flush=True)
        grades.append((submission, grade))
        print(f"  {line(grade)}", flush=True)
        for text in shortened(grade.why):
            print(f"      {text}", flush=True)
        result = submissions.result(asked, grades, isolation, seed)
        if arguments.json:
            store.write_text(arguments.json, json.dumps(result, indent=2, allow_nan=False) + "\n")
        if arguments.csv:
            store.write_text(arguments.csv, submissions.table(result))
    print(*summary(result), sep="\n")
    if arguments.html or arguments.sheets:
        from hpcmm.report import grades as page  # takes a while to import

        if arguments.html:
            page.build(result, arguments.html)
        if arguments.sheets:
            for each in result["submissions"]:  # a page of each alone, named like its folder
                page.build({**result, "submissions": [each]}, arguments.sheets / f"{each['name']}.html")
    for path in filter(None, (arguments.json, arguments.csv, arguments.html, arguments.sheets)):
        print(path)
    return 0 if all(grade.passed for _, grade in grades) else NOT_RIGHT


def line(grade: Grade) -> str:
    """Return exercise, verdict, points and speed on one line."""
    verdict = "PASS" if grade.passed else NOT_HANDED_IN + "," if grade.why == NOT_HANDED_IN else "FAIL"
    speed = f", {grade.ratio:.3g}x {grade.against}" if grade.against else ""
    emulated = ", emulated" if "emulated" in grade.device else ""
    return f"{grade.exercise}: {verdict} {grade.points:g} of {grade.of:g}{speed}{emulated}"


def shortened(why: str) -> list[str]:
    """Return the lines of a reason for the terminal; of a long one, the first lines, and the hint at its end.

    >>> shortened("a\\n" * 40 + "hint: b")[-3:]
    ['a', '... 20 more lines: --html and --json have all', 'hint: b']
    """
    if why == NOT_HANDED_IN:
        return []
    lines = [printable(text) for text in why.splitlines()]
    hint = lines[-1:] if lines and lines[-1].startswith("hint: ") else []
    rest = lines[: len(lines) - len(hint)]
    more = len(rest) - MOST_LINES
    return [*rest[:MOST_LINES], *([f"... {more} more lines: --html and --json have all"] if more > 0 else []), *hint]


def summary(result: dict[str, Any]) -> list[str]:
    """Return the sums of points, and why points are missing."""
    lines = []
    for each in result["submissions"]:
        points, count = f"{each['points']:g} of {result['of']:g}", f"{each['passed']} of {len(result['exercises'])}"
        lines.append(f"{printable(each['name'])}: {points} points, {count} exercises correct")
    if result["ungraded"]:
        reached = f"{result['of'] - result['ungraded']:g} of {result['of']:g} can be reached here"
        lines.append(f"{result['ungraded']:g} points for speed were not given: this machine has no GPU; {reached}")
    if result["unisolated"]:
        lines.append(f"graded {result['unisolated']}")
    return lines
