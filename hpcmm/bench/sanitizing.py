"""Read the findings of compute-sanitizer.

It runs ``hpcmm.jobs.watched``, which launches the kernel of each point once, after a line with the name of the point.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcmm.bench import tools

PROGRAM = "compute-sanitizer"
NOT_INSTALLED = tools.not_installed("Compute Sanitizer", PROGRAM)
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OF_RACES = ("racecheck", "synccheck")
# racecheck does not follow asynchronous copies and their barriers, and may report right kernels with them.
ASYNCHRONOUS = re.compile(r"mbarrier|cp\.async|memcpy_async|cuda(::|/)(barrier|pipeline)")
MARK_OF_POINT = "point: "  # before the name of a point that runs
LINE = re.compile(r"^========= ?(.*)")
# Lines that do not begin a finding: titles, sums, and consequences of a finding.
OTHERS = ("COMPUTE-SANITIZER", "LEAK SUMMARY", "Target application", "Program hit")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (.*)")
ADDRESS = re.compile(r"\bat \S+\+0x[0-9a-f]+ ")  # of the instruction; the line of the source follows
PLACE = re.compile(r"\bin (\S+):(\d+)\b")


@dataclass(frozen=True)
class Report:
    tool: str
    summary: str  # its summary, such as ``"4 errors"``; empty if the tool printed none
    what: str = ""  # the first finding on one line, or the reason why there is no verdict; empty without a finding
    file: str = ""
    line: int = 0  # place of the finding in a source; empty and 0 if unknown
    point: str = ""  # name of the point that ran


def command(program: str, tool: str, watched: Sequence[str | Path]) -> list[str]:
    return [program, "--tool", tool, "--show-backtrace", "no", "--print-limit", "10", *map(str, watched)]


def read(tool: str, output: str, late: str = "") -> Report:
    """Read a program's output under a tool; without a summary of the tool, ``late`` is why, if it is given."""
    point = where = summary = last = ""
    reports: list[str] = []  # the lines of the first finding
    taking = False
    for line in output.splitlines():
        last = line.strip() or last
        if line.startswith(MARK_OF_POINT):
            point = line.removeprefix(MARK_OF_POINT)
        elif text := LINE.match(line):
            taking = taking and text[1].startswith(" ")
            if taking:
                reports.append(text[1].strip())
            elif total := SUMMARY.match(text[1]):
                summary = summary or total[1]
            elif text[1].strip() and not text[1].startswith((" ", *OTHERS)) and not reports:
                taking, reports, where = True, [text[1]], point
    if not reports:
        why = late or f"did not finish; its last line is: {last}"
        return Report(tool, summary, "" if summary else why, point="" if summary else point)
    more = [each for each in reports[1:] if not each.startswith(("Saved host", "Host Frame"))]
    race = more and more[0].startswith("and ")  # of a race, the first of many pairs
    what = f"{reports[0]} {more[0]}" if race else ", ".join([reports[0].rstrip("."), *more])
    what = ADDRESS.sub("", what)
    place = PLACE.search(what)
    return Report(tool, summary, what, place[1] if place else "", int(place[2]) if place else 0, where)
