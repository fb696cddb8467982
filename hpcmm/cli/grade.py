"""``hpcmm grade``: grade submitted kernels."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hpcmm.cli.arguments import command
from hpcmm.grading import rubric, sandbox, submissions
from hpcmm.grading.exercise import Grade
from hpcmm.system import surroundings
from hpcmm.system.text import printable

NOT_RIGHT = 3  # exit status


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "grade",
        run,
        "Grade kernels by a rubric: each in an isolated process, on random shapes and inputs.",
        "DIR has the files of one submission, or one folder per submission. Points are for a correct kernel, and for "
        "its speed as a ratio to a rung or the library. Without a GPU, CUDA kernels are emulated on the CPU and get no "
        "points for speed.",
        {
            0: "every exercise is correct",
            1: "a rubric with errors, or another error",
            NOT_RIGHT: "an exercise is not correct",
        },
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of a submission, or of folders of submissions")
    parser.add_argument(
        "--rubric", metavar="FILE", type=Path, required=True, help="exercises and their points, in YAML"
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="also write the grades as JSON, anew after each exercise"
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="also write the grades as a page")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="grade also where isolation does not work: submitted code then has the rights of your account",
    )


def run(arguments: argparse.Namespace) -> int:
    asked = rubric.read(arguments.rubric)
    found = submissions.found_in(arguments.folder, asked)
    isolation = sandbox.chosen(arguments.trust)
    surroundings.say()
    grades, result = [], {}
    for submission, grade in submissions.graded(found, asked, isolation):
        if not grades or grades[-1][0] != submission:
            print(printable(submission.name), flush=True)
        grades.append((submission, grade))
        print(f"  {line(grade)}", flush=True)
        for each in printable_lines(grade.why):
            print(f"      {each}", flush=True)
        result = submissions.result(asked, grades, isolation)
        if arguments.json:
            write(arguments.json, result)
    print(*summary(result), sep="\n")
    if arguments.json:
        print(arguments.json)
    if arguments.html:
        from hpcmm import report  # takes a while to import

        report.build_grades(result, arguments.html)
        print(arguments.html)
    return 0 if all(grade.passed for _, grade in grades) else NOT_RIGHT


def line(grade: Grade) -> str:
    """Return exercise, verdict, points and speed on one line."""
    verdict = "PASS" if grade.passed else "FAIL"
    speed = f", {grade.ratio:.3g}x {grade.against}" if grade.against else ""
    emulated = ", emulated" if "emulated" in grade.device else ""
    return f"{grade.exercise}: {verdict} {grade.points:g} of {grade.of:g}{speed}{emulated}"


def printable_lines(text: str) -> list[str]:
    return [printable(each) for each in text.splitlines()]


def summary(result: dict[str, Any]) -> list[str]:
    """Return the sums of points, and why points are missing."""
    lines = [
        f"{printable(each['name'])}: {each['points']:g} of {result['of']:g} points, "
        f"{each['passed']} of {len(result['exercises'])} exercises correct"
        for each in result["submissions"]
    ]
    if result["ungraded"]:
        lines.append(f"{result['ungraded']:g} points for speed were not given: this machine has no GPU")
    if result["unisolated"]:
        lines.append(f"graded {result['unisolated']}")
    return lines


def write(path: Path, result: dict[str, Any]) -> None:
    """Write grades as JSON."""
    from hpcmm import report  # takes a while to import

    report.Folder(path.parent).write(path.name, json.dumps(result, indent=2, allow_nan=False) + "\n")
