"""Standard streams that take any text; lines and tables that fit a terminal."""

import io
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO

from hpcmm.system.text import folded

LEAST_OF_TEXT = 12  # columns of a terminal for a text in a table, which is folded


class Output(io.FileIO):
    """A standard stream whose errors name it, as the errors of a file name the file."""

    NAME = "standard output"

    def write(self, data: bytes) -> int | None:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.NAME
            raise


class Stream(io.TextIOWrapper):
    """Fold the lines that are longer than the terminal is wide; a line is written when it is whole, or at a flush."""

    def __init__(self, before: io.TextIOWrapper):
        lines = before.line_buffering or before.write_through
        buffer = io.BufferedWriter(Output(before.fileno(), "w", closefd=False))
        super().__init__(buffer, before.encoding, "spelled", line_buffering=lines)
        self.begun, self.is_terminal = "", before.isatty()

    def write(self, text: str) -> int:
        if not self.is_terminal:
            return super().write(text)
        whole, end, self.begun = (self.begun + text).rpartition("\n")
        if end:
            columns = width(self)
            super().write("".join(f"{folded(line, columns)}\n" for line in whole.split("\n")))
        return len(text)

    def flush(self) -> None:
        if not self.closed and getattr(self, "begun", ""):
            begun, self.begun = self.begun, ""
            super().write(begun)
        super().flush()


def width(stream: TextIO | None = None) -> int:
    """Return the number of columns of a stream's terminal, by default of standard output; 0 without a terminal."""
    stream = stream or sys.stdout
    if not stream.isatty():
        return 0
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isdecimal() else os.get_terminal_size(stream.fileno()).columns


def tabulated(head: Sequence[str], rows: Sequence[Sequence[object]], names: int, is_text: Sequence[bool]) -> str:
    """Format a table. Columns beyond the width of the terminal follow below, beside the first columns again.

    Columns of text are flush left, others right. The first columns, ``names`` of them, name the row. A long
    text is folded.
    """
    from tabulate import tabulate  # takes a while to import

    most = width()
    columns = [[title, *map(str, texts)] for title, *texts in zip(head, *rows, strict=True)]
    widths = [max([len(title) + 2, *map(len, texts)]) + 2 for title, *texts in columns]  # as tabulate pads them
    first = list(range(names))
    widest = max((widths[i] for i in range(len(first), len(columns))), default=0)
    while most and len(first) > 1 and sum(widths[i] for i in first) + widest > most + 2:
        first.pop(-2)  # the last one is the name
    parts: list[list[int]] = [[]]
    for i in range(len(columns)):
        if most and len(parts[-1]) > len(first) and sum(widths[j] for j in parts[-1]) + widths[i] > most + 2:
            parts.append(first.copy())
        parts[-1].append(i)
    for part in parts:
        text = max((i for i in part if is_text[i]), key=widths.__getitem__, default=None)
        room = most + 2 - sum(widths[i] for i in part if i != text) - 2
        if most and text is not None and LEAST_OF_TEXT <= room < widths[text] - 2:
            columns[text][1:] = [textwrap.fill(each, room, break_on_hyphens=False) for each in columns[text][1:]]
    shown = []
    for part in parts:
        lines, sides = (
            zip(*(columns[i][1:] for i in part), strict=True),
            ["left" if is_text[i] else "right" for i in part],
        )
        shown.append(tabulate(lines, [head[i] for i in part], disable_numparse=True, colalign=sides))
    return "\n\n".join(shown)


def open_streams() -> None:
    """Make the standard streams accept any text.

    A closed stream is opened on the null device; otherwise a file of the command would get its descriptor. Characters
    outside the encoding are written in similar ones, or as escapes.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    for name in ("stdout", "stderr"):
        before = getattr(sys, name)
        if before is getattr(sys, f"__{name}__") and isinstance(before, io.TextIOWrapper):
            before.flush()
            setattr(sys, name, Stream(before))


def drop_output() -> None:
    """Discard the unwritten standard output and all further output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
