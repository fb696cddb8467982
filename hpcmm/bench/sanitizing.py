"""Read what compute-sanitizer found of kernels.

It runs ``hpcmm.jobs.sanitized``, which launches the kernel of each point once, after a line with the name of the point.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcmm.bench import tools

PROGRAM = "compute-sanitizer"
NOT_INSTALLED = tools.not_installed("Compute Sanitizer", PROGRAM)
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
MARK_OF_POINT = "point: "  # before the name of a point that runs
LINE = re.compile(r"^========= ?(.*)")
# Lines that no finding begins with: titles, sums, and what follows from a finding.
OTHERS = (
    "COMPUTE-SANITIZER",
    "ERROR SUMMARY",
    "RACECHECK SUMMARY",
    "LEAK SUMMARY",
    "Target application",
    "Program hit",
)
PLACE = re.compile(r" in (\S.*?):(\d+)(?: |$)")
SUM = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (.*)")


@dataclass(frozen=True)
class Report:
    """What a tool said of a program.

    Parameters
    ----------
    tool : str
    summary : str
        Its last line, such as ``"4 errors"``; empty if it did not come so far.
    what : str
        The first finding on one line, or why there is no verdict; empty if the program is right.
    file : str
    line : int
        Place of the finding in a source; empty and 0 if unknown.
    point : str
        Name of the point that ran.
    """

    tool: str
    summary: str
    what: str = ""
    file: str = ""
    line: int = 0
    point: str = ""


def command(program: str, tool: str, watched: Sequence[str | Path]) -> list[str]:
    """Return the command that runs a program under a tool."""
    return [program, "--tool", tool, *map(str, watched)]


def read(tool: str, output: str) -> Report:
    """Read the output of a program under a tool, with its own lines among the tool's."""
    point, found, summary, where = "", [], "", ""
    for line in output.splitlines():
        if line.startswith(MARK_OF_POINT):
            point = line.removeprefix(MARK_OF_POINT)
        elif of_tool := LINE.match(line):
            text = of_tool[1]
            if total := SUM.match(text):
                summary = total[1]
            elif text.startswith(OTHERS):
                continue
            elif text and not text.startswith(" ") and not found:
                found, where = [text], point
            elif text.startswith(" ") and found and not text.strip().startswith(("Saved host", "Host Frame")):
                found.append(text.strip())
            elif found and not text:
                found.append("")  # the end of the first finding
        if found and found[-1] == "":
            break
    first = " ".join(filter(None, found))
    place = PLACE.search(first)
    return Report(tool, summary, first, place[1] if place else "", int(place[2]) if place else 0, where)
