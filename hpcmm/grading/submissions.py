"""Grade folders: one submission, or a folder of many."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcmm.grading import exercise
from hpcmm.grading.exercise import Grade
from hpcmm.grading.rubric import Rubric
from hpcmm.grading.sandbox import Sandbox
from hpcmm.model import HpcmmError

UNISOLATED = (
    "without isolation, which does not work on this machine (--trust): submitted code could read and change all files "
    "of this account, and its own grade"
)


@dataclass(frozen=True)
class Submission:
    """A folder with files of exercises, and its name."""

    name: str
    folder: Path


def found_in(folder: Path, rubric: Rubric) -> list[Submission]:
    """Return the submission in a folder, or those in its subfolders.

    Raises
    ------
    HpcmmError
        If there is none.
    """
    files = [each.file for each in rubric.exercises]
    if not folder.is_dir():
        raise HpcmmError(f"{folder}: no such folder")
    if any((folder / file).exists() for file in files):
        return [Submission(folder.resolve().name, folder)]
    folders = (each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    inner = sorted(each for each in folders if not each.name.startswith("."))
    if not any((each / file).exists() for each in inner for file in files):
        raise HpcmmError(f"{folder}: neither it nor a folder in it has a file of the rubric: {', '.join(files)}")
    return [Submission(each.name, each) for each in inner]


def graded(submissions: Sequence[Submission], rubric: Rubric, isolation: Sandbox) -> Iterator[tuple[Submission, Grade]]:
    """Grade all exercises of all submissions, one after the other: a kernel that runs beside another is slower."""
    for submission in submissions:
        for each in rubric.exercises:
            yield submission, exercise.grade(submission.folder / each.file, each, np.random.default_rng(), isolation)


def result(rubric: Rubric, grades: Sequence[tuple[Submission, Grade]], isolation: Sandbox) -> dict[str, Any]:
    """Return the grades as values of JSON: numbers that do not exist are null."""
    submissions = []
    for submission in dict.fromkeys(each for each, _ in grades):
        own = [grade for each, grade in grades if each == submission]
        submissions.append(
            {
                "name": submission.name,
                "points": sum(each.points for each in own),
                "passed": sum(each.passed for each in own),
                "exercises": [values(each) for each in own],
            }
        )
    return {
        "title": rubric.title,
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "of": sum(each.of for each in rubric.exercises),
        "ungraded": sum({grade.exercise: grade.ungraded for _, grade in grades}.values()),
        "unisolated": "" if isolation.program else UNISOLATED,
        "exercises": [each.name for each in rubric.exercises],
        "submissions": submissions,
    }


def values(grade: Grade) -> dict[str, Any]:
    """Return a grade as values of JSON.

    >>> values(Grade("1", "1.c", "cpu", False, "is missing", 0, 5))["ratio"] is None
    True
    """
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in dataclasses.asdict(grade).items()
    }
