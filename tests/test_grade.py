"""Grading: cheats, the processes of submissions, rubrics, the course, the commands."""

import re
from pathlib import Path

import numpy as np
import pytest

from hpcmm.grading import exercise, rubric, session, sources

CHEATS = Path(__file__).with_name("cheats")
FILES = sorted(path for suffix in ("c", "cu") for path in CHEATS.rglob(f"*.{suffix}"))
UNLISTED = [path for path in FILES if path.parent.name == "unlisted"]


def exercise_of(file: str, **more) -> rubric.Exercise:
    entry = {"file": file, "operation": "matmul", "points": 6, "shapes": 3, "most": 40, "seconds": 2} | more
    (found,) = rubric.checked({"exercises": {"one": entry}, "memory_mb": 1024}).exercises
    return found


def graded(path: Path, **more) -> exercise.Grade:
    with session.unreadable():
        return exercise.grade(path, exercise_of(path.name, **more), np.random.default_rng())


def expected(path: Path) -> str:
    return re.match(r"/[/*] expected: (.*?)(?: \*/|$)", path.read_text(), re.MULTILINE)[1]


def name(path: Path) -> str:
    return str(path.relative_to(CHEATS))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_cheat_passes(path, tmp_path):
    if path in UNLISTED:
        path = copied(path, tmp_path)
        wanted = "calls .*; allowed: memory and mathematical functions, POSIX threads, OpenMP"
    else:
        wanted = expected(path)
    grade = graded(path)
    assert not grade.passed
    assert grade.points == 0
    assert re.search(wanted, grade.why)


def copied(path: Path, folder: Path) -> Path:
    """Copy a file beside the header that it includes."""
    for source in (path, CHEATS / "product.h"):
        (folder / source.name).write_text(source.read_text())
    return folder / path.name


@pytest.mark.parametrize("path", UNLISTED, ids=name)
def test_the_process_of_a_cheat_holds_without_the_list_of_functions(path, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "FUNCTIONS", re.compile(".*", re.DOTALL))
    grade = graded(copied(path, tmp_path))
    assert not grade.passed
    assert re.search(expected(path), grade.why)
