"""Grade folders: one submission, or a folder of many."""

import csv
import dataclasses
import datetime
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcmm.grading import exercise
from hpcmm.grading.exercise import Grade
from hpcmm.grading.rubric import Rubric
from hpcmm.grading.sandbox import Sandbox
from hpcmm.model import HpcmmError
from hpcmm.system.text import csv_cell, printable

UNISOLATED = (
    "without isolation, which does not work on this machine (--trust): submitted code could read and change all files "
    "of this account, and its own grade"
)


def found_in(folder: Path, rubric: Rubric) -> dict[str, Path]:
    """Return the submission in a folder, or those in its subfolders, by name."""
    files = [each.file for each in rubric.exercises]
    if not folder.is_dir():
        wrong = "a file; allowed: the folder with the files of a submission" if folder.exists() else "no such folder"
        raise HpcmmError(f"{folder}: {wrong}")
    if any((folder / file).exists() for file in files):
        return {folder.resolve().name: folder}
    folders = (inside for inside in folder.iterdir() if inside.is_dir() and not inside.is_symlink())
    inner = sorted(inside for inside in folders if not inside.name.startswith("."))
    if not any((inside / file).exists() for inside in inner for file in files):
        raise HpcmmError(
            f"{folder}: neither it nor a folder in it has a file of the rubric, such as {', '.join(files[:3])}"
        )
    return {inside.name: inside for inside in inner}


def graded(folders: Mapping[str, Path], rubric: Rubric, isolation: Sandbox, seed: int) -> Iterator[tuple[str, Grade]]:
    """Grade all exercises of all submissions, one after the other, with the same inputs for each seed."""
    for name, folder in folders.items():
        for i, each in enumerate(rubric.exercises):
            rng = np.random.default_rng([seed, i])
            yield name, exercise.grade(folder / each.file, each, rng, isolation)


def result(rubric: Rubric, grades: Sequence[tuple[str, Grade]], isolation: Sandbox, seed: int) -> dict[str, Any]:
    """Return the grades as values of JSON: numbers that do not exist are null."""
    submissions = []
    for name in dict.fromkeys(of for of, _ in grades):
        own = [grade for of, grade in grades if of == name]
        totals = {key: sum(getattr(grade, key) for grade in own) for key in ("points", "passed")}
        submissions.append({"name": name, **totals, "exercises": [values(grade) for grade in own]})
    return {
        "title": rubric.title,
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "of": sum(part.of for part in rubric.exercises),
        "ungraded": sum({grade.exercise: grade.ungraded for _, grade in grades}.values()),
        "unisolated": "" if isolation.program else UNISOLATED,
        "exercises": [part.name for part in rubric.exercises],
        "submissions": submissions,
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the points as CSV for a grade book: one row per submission, with a column per exercise.

    >>> grade = {"exercise": "1", "points": 5, "handed_in": True}
    >>> table({"of": 5, "exercises": ["1"], "submissions": [{"name": "=x", "points": 5, "exercises": [grade]}]})
    "submission,1,points,of,not handed in\\n'=x,5,5,5,\\n"
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    texts = map(csv_cell, map(printable, ["submission", *result["exercises"]]))
    rows.writerow([*texts, "points", "of", exercise.NOT_HANDED_IN])
    for submission in result["submissions"]:
        unsent = [grade["exercise"] for grade in submission["exercises"] if not grade["handed_in"]]
        points = [f"{grade['points']:g}" for grade in submission["exercises"]]
        points += [""] * (len(result["exercises"]) - len(points))  # that are not graded yet
        name, unsent = (csv_cell(printable(text)) for text in (submission["name"], " ".join(unsent)))
        rows.writerow([name, *points, f"{submission['points']:g}", f"{result['of']:g}", unsent])
    return text.getvalue()


def values(grade: Grade) -> dict[str, Any]:
    """Return a grade as values of JSON.

    >>> values(Grade("1", "1.c", "cpu", False, "is missing", 0, 5))["ratio"] is None
    True
    """
    return {"handed_in": grade.why != exercise.NOT_HANDED_IN} | {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in dataclasses.asdict(grade).items()
    }
