"""Tables of formatted cells, and their Markdown and plain text."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hpcmm.system.streams import tabulated


@dataclass(frozen=True)
class Cell:
    """One cell of a table: its text, and a note in small print below it.

    ``kind`` is ``"text"``, ``"number"``, ``"fail"`` or ``"again"``. The last one repeats the text of the row above;
    the page shows it when the table is sorted or filtered.
    """

    text: str = ""
    note: str = ""
    kind: str = "number"


EMPTY = Cell()


def words(text: str, note: str = "") -> Cell:
    return Cell(text, note, "text")


@dataclass(frozen=True)
class Table:
    """A table: caption, column heads, rows of cells.

    ``of_rows`` has device and element type of each row, and ``of_columns`` the device of each column, where they have
    one. The page shows those of a device or type alone.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    of_rows: Sequence[tuple[str, str]] = ()
    of_columns: Sequence[str] = ()

    @property
    def is_text(self) -> tuple[bool, ...]:
        """For each column, whether it has no number; such a column is set flush left."""
        number = [[cell.kind == "number" and bool(cell.text) for cell in row] for row in self.rows]
        return tuple(not any(row[i] for row in number) for i in range(len(self.head)))

    @property
    def shared(self) -> tuple[list[str], ...]:
        """The distinct devices and element types of the rows."""
        each = zip(*self.of_rows, strict=True) if self.of_rows else ((), ())
        return tuple(list(dict.fromkeys(values)) for values in each)

    @property
    def texts(self) -> list[list[str]]:
        """The text of each cell on one line, with its note; empty if it repeats the cell above."""

        def shown(cell: Cell) -> str:
            return "" if cell.kind == "again" else " ".join(f"{cell.text} {cell.note and f'({cell.note})'}".split())

        return [list(map(shown, row)) for row in self.rows]


def grouped(rows: Sequence[Sequence[Cell]], leading: int) -> list[list[Cell]]:
    """Mark the cells among the first ``leading`` of each row that repeat the row above as ``"again"``."""
    found, above = [], [""] * leading
    for row in rows:
        texts = [cell.text for cell in row[:leading]]
        same = [texts[: i + 1] == above[: i + 1] for i in range(leading)]
        marked = [Cell(text, kind="again") if again else words(text) for text, again in zip(texts, same, strict=True)]
        found.append([*marked, *row[leading:]])
        above = texts
    return found


def plain(table: Table) -> str:
    """Format a table for a terminal."""
    names = len(list(itertools.takewhile(bool, table.is_text)))
    return tabulated(table.head, table.texts, names, table.is_text)


def markdown(tables: Sequence[Table]) -> str:
    """Format tables as Markdown pipe tables, each under its caption; markup in texts is escaped."""
    from tabulate import tabulate  # takes a while to import

    parts = []
    for table in tables:
        head, *rows = [[_escaped(text) for text in line] for line in (table.head, *table.texts)]
        sides = ["left" if is_text else "right" for is_text in table.is_text]
        text = tabulate(rows, head, "pipe", disable_numparse=True, colalign=sides)
        parts.append(f"**{_escaped(table.caption)}**\n\n{text}\n")
    return "\n".join(parts)


def _escaped(text: str) -> str:
    for character in "\\`*_<>[]|":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())
