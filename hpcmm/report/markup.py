"""Tables as a reader sees them, and the same as Markdown, LaTeX and plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from hpcmm.report.formats import RAISED


@dataclass(frozen=True)
class Cell:
    """What a reader sees in one place of a table.

    ``kind`` is ``"text"``, ``"number"``, ``"fail"``, or ``"again"`` for a text that the row above has
    too: it is shown once a reader sorts or filters; ``note`` is the small print under it.
    """

    text: str = ""
    note: str = ""
    kind: str = "number"


EMPTY = Cell()


def words(text: str, note: str = "") -> Cell:
    """A cell that is no number."""
    return Cell(text, note, "text")


@dataclass(frozen=True)
class Table:
    """A table as a reader sees it: caption, column heads, rows of cells."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    @property
    def is_text(self) -> tuple[bool, ...]:
        """Which columns have no number in them and are set flush left."""
        return tuple(
            not any(row[i].kind == "number" and row[i].text for row in self.rows) for i in range(len(self.head))
        )

    @property
    def texts(self) -> list[list[str]]:
        """The texts of the cells, each with its note, on a line of their own; nothing for what is there above."""
        return [
            [
                "" if cell.kind == "again" else " ".join(f"{cell.text} {cell.note and f'({cell.note})'}".split())
                for cell in row
            ]
            for row in self.rows
        ]


def grouped(rows: Sequence[Sequence[Cell]], leading: int) -> list[list[Cell]]:
    """The rows; of their first ``leading`` cells those that the row above has too are ``"again"``."""
    found, above = [], [""] * leading
    for row in rows:
        texts = [cell.text for cell in row[:leading]]
        same = [texts[: i + 1] == above[: i + 1] for i in range(leading)]
        marked = [Cell(text, kind="again") if again else words(text) for text, again in zip(texts, same, strict=True)]
        found.append([*marked, *row[leading:]])
        above = texts
    return found


def plain(table: Table) -> str:
    """A table for a terminal."""
    sides = ["left" if is_text else "right" for is_text in table.is_text]
    return tabulate(table.texts, table.head, disable_numparse=True, colalign=sides)


def markdown(tables: Sequence[Table]) -> str:
    """Pipe tables, each under its caption; text from a file stays text."""
    parts = []
    for table in tables:
        lines = [[_escaped(text) for text in line] for line in (table.head, *table.texts)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        flush = [str.ljust if is_text else str.rjust for is_text in table.is_text]
        rule = [
            ":" + "-" * (width + 1) if is_text else "-" * (width + 1) + ":"
            for width, is_text in zip(widths, table.is_text, strict=True)
        ]
        padded = [
            "| " + " | ".join(side(text, width) for side, text, width in zip(flush, line, widths, strict=True)) + " |"
            for line in lines
        ]
        text = "\n".join([padded[0], "|" + "|".join(rule) + "|", *padded[1:]])
        parts.append(f"**{_escaped(table.caption)}**\n\n{text}\n")
    return "\n".join(parts)


def _escaped(text: str) -> str:
    for character in "\\`*_<>[]|":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())


def csv_cell(value: object) -> object:
    """Return what a CSV cell holds: a text that a spreadsheet would run as a formula gets an apostrophe ahead.

    >>> csv_cell("=HYPERLINK(1)"), csv_cell("naive"), csv_cell(-1.5)
    ("'=HYPERLINK(1)", 'naive', -1.5)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {character: "\\" + character for character in "&%$#_{}"}
    | {raised: rf"\textsuperscript{{{digit}}}" for digit, raised in enumerate(RAISED)}  # pdflatex knows only three
)


def latex(tables: Sequence[Table]) -> str:
    """Tables for the package booktabs, each with its caption; text from a file stays text."""
    parts = []
    for table in tables:
        sides = "".join("l" if is_text else "r" for is_text in table.is_text)
        head, *rows = [
            " & ".join(text.translate(LATEX) for text in line) + r" \\" for line in (table.head, *table.texts)
        ]
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{table.caption.translate(LATEX)}}}"]
        lines += [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        lines += [r"\end{tabular}", r"\end{table}", ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)
