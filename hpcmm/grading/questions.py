"""Sheets of questions that are answered by hand, as numbers in a file.

The answers are computed here, so neither a rubric nor the files of a course have them. A file has a line
``NAME: NUMBER`` for each question; ``#`` begins a comment.
"""

import functools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from hpcmm.model.capabilities import block_limits, block_on, capability
from hpcmm.model.records import beside

SUFFIX = ".txt"
MOST_BYTES = 1 << 16
TOLERANCE = 0.02  # of answers that are no whole numbers
LINE = re.compile(r"(\w+)\s*:\s*(\S*)")

SHEETS = beside(__file__)
NAMES = {  # in the expressions of sheets
    "FLOAT": 4,  # bytes
    "LINK": 55e9,  # bytes per second between host and GPU
    "RATE": 50e12,  # operations per second of the kernel
    "PITCH": 512,  # bytes; rows that cudaMallocPitch allocates begin at multiples of it
    **{each.__name__: each for each in (block_limits, block_on, capability, math.ceil)},
    "float32": functools.partial(np.array, dtype=np.float32),
    "spacing": np.spacing,
    "sums": lambda terms: functools.reduce(np.add, terms),  # NumPy's sum has an order of its own
    # the sectors of 32 bytes that a warp touches from an offset on, one element of 4 bytes per lane
    "sectors": lambda begin: (begin + 127) // 32 - begin // 32 + 1,
}


def near(given: float, answer: float) -> bool:
    """Return whether two numbers are the same: whole ones exactly, others nearly.

    >>> near(6, 6), near(6.01, 6), near(0.335, 1 / 3)
    (True, False, True)
    """
    return given == answer if float(answer).is_integer() else math.isclose(given, answer, rel_tol=TOLERANCE)


def fault(path: Path, sheet: str) -> str:
    """Return the first fault of a file of answers; empty if all are right."""
    questions = asked(sheet)
    with path.open("rb") as file:
        text = file.read(MOST_BYTES).decode(errors="replace")
    answers: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        match = LINE.fullmatch(content)
        if not match or match[1] not in questions:
            return f"line {number}: {content[:80]!r} is not allowed; allowed: NAME: NUMBER, with a name of the sheet"
        if not match[2]:
            continue
        try:
            answers[match[1]] = float(match[2])
        except ValueError:
            return f"line {number}: {match[1]}: {match[2][:80]!r} is not allowed; allowed: a number"
    for name, (answer, way, mistakes) in questions.items():
        if name not in answers:
            return f"{name}: is not answered"
        given = answers[name]
        if not near(given, answer):
            why = next((why for value, why in mistakes.items() if near(given, value)), way)
            return f"{name}: {given:g} is wrong. {why}"
    return ""


def asked(sheet: str) -> dict[str, tuple[float, str, dict[float, str]]]:
    """Return the questions of a sheet by their names: answer, how it is found, and why wrong numbers are wrong."""
    found = {}
    for part in SHEETS[sheet]:
        for values in part.get("each", [{}]):
            names = NAMES | values

            def value(expression: object, names: dict[str, Any] = names) -> Any:
                return eval(str(expression), names)  # of a file of this package

            for name, expression in part.get("let", {}).items():
                names[name] = value(expression)
            for name, given in part["questions"].items():
                mistakes = {value(wrong): why.format_map(names) for wrong, why in given.get("mistakes", {}).items()}
                found[name.format_map(names)] = value(given["answer"]), given["way"], mistakes
    return found
