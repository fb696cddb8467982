"""Partitions and schedules: the arithmetic of the distributed algorithms, without ranks or devices."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from math import isqrt
from typing import NamedTuple

PANEL_COLUMNS = 2048  # wide enough for a product to fill a GPU
TILE = 2**20  # elements of C: about 128 x 64 for each SM of an H200
MOST_PARTS = 16
CUT, MOST_CUTS = 16384, 256  # elements: a multiple of the tiles of any reduction with a tree
ALIGNMENT = 128  # rows or columns; panels then start at addresses aligned for vector loads


def block_rows(rows: int, ranks: int) -> list[tuple[int, int]]:
    """Divide rows evenly into one block per rank: (first row, number of rows), the longer blocks first.

    >>> block_rows(7, 3)
    [(0, 3), (3, 2), (5, 2)]
    >>> block_rows(1, 2)
    [(0, 1), (1, 0)]
    """
    return [block_row(rows, ranks, rank) for rank in range(ranks)]


def block_row(rows: int, ranks: int, rank: int) -> tuple[int, int]:
    """Return one of ``block_rows``."""
    share, longer = divmod(rows, ranks)
    return rank * share + min(rank, longer), share + (rank < longer)


def block_tree(length: int, ranks: int) -> list[tuple[int, int]]:
    """Divide a vector into one part per rank, cut where groups of 2^j tiles of a tree of combinations begin.

    The cuts are at multiples of ``CUT`` elements or more, of which a vector has at most ``MOST_CUTS``.

    >>> block_tree(2**20 + 5, 3)
    [(0, 360448), (360448, 360448), (720896, 327685)]
    """
    return [part_of_tree(length, ranks, rank) for rank in range(ranks)]


def part_of_tree(length: int, ranks: int, rank: int) -> tuple[int, int]:
    """Return one of ``block_tree``."""
    unit = _unit(length)
    first, count = block_row(-(-length // unit), ranks, rank)
    first = min(first * unit, length)
    return first, min(count * unit, length - first)


def tree_nodes(length: int, first: int, count: int) -> list[tuple[int, int]]:
    """Return the largest aligned groups of a part of ``block_tree``, each as (first element, elements if full).

    >>> tree_nodes(2**20 + 5, 360448, 360448)
    [(360448, 32768), (393216, 131072), (524288, 131072), (655360, 65536)]
    """
    unit, found = _unit(length), []
    at, end = first // unit, -(-(first + count) // unit) if count else 0
    while at < end:
        group = at & -at or 1 << end.bit_length()
        while at + group > end:
            group //= 2
        found.append((at * unit, group * unit))
        at += group
    return found


def _unit(length: int) -> int:
    """Return the elements between two places where ``block_tree`` may cut."""
    unit = CUT
    while -(-length // unit) > MOST_CUTS:
        unit *= 2
    return unit


def arriving(rank: int, size: int) -> list[int]:
    """Return the ranks in the order in which their rows arrive on a rank in an all-gather, its own first.

    If the number of ranks is a power of two, pairs swap; the first 1, 3, 7 ... arrivals then complete a run of adjacent
    rows.

    >>> arriving(2, 4), arriving(2, 3)
    ([2, 3, 0, 1], [2, 0, 1])
    """
    return [source(rank, size, step) for step in range(size)]


def source(rank: int, size: int, step: int) -> int:
    """Return the rank whose rows arrive on a rank in a step of ``arriving``."""
    return rank ^ step if size & (size - 1) == 0 else (rank + step) % size


def divisions(ranks: int) -> list[tuple[int, ...]]:
    """Return ways to divide the ranks' shares, in the order of their arrival, into groups multiplied together.

    A division is a tuple of group lengths. The first is the most promising for large products: the rank's own share,
    then all others. Cuts are at powers of two, between which the shares are adjacent rows.

    >>> divisions(2), divisions(4)
    ([(1, 1), (2,)], [(1, 3), (1, 1, 2), (2, 2), (4,), (1, 1, 1, 1)])
    >>> divisions(8)
    [(1, 7), (1, 3, 4), (1, 1, 6), (1, 1, 2, 4), (2, 6), (8,), (1, 1, 1, 1, 1, 1, 1, 1)]
    """
    powers = [2**power for power in range(1, ranks.bit_length())]
    each_cuts = [(1,), *((1, power) for power in reversed(powers)), (1, *powers), (2,), (), range(1, ranks)]
    ends = [[0, *(cut for cut in cuts if cut < ranks), ranks] for cuts in each_cuts]
    return list(dict.fromkeys(tuple(last - first for first, last in pairwise(cut)) for cut in ends))


def consecutive(ranks: list[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive ranks, each as (first, last).

    >>> consecutive([5, 1, 4, 2])
    [(1, 2), (4, 5)]
    """
    found: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if found and found[-1][1] == rank - 1:
            found[-1] = (found[-1][0], rank)
        else:
            found.append((rank, rank))
    return found


def grid(ranks: int) -> tuple[int, int]:
    """Return the rows and columns of the grid that is most nearly square, with no more rows than columns.

    >>> grid(8), grid(9), grid(5)
    ((2, 4), (3, 3), (1, 5))
    """
    rows = next(rows for rows in range(isqrt(ranks), 0, -1) if ranks % rows == 0)
    return rows, ranks // rows


@dataclass(frozen=True)
class Panel:
    """Consecutive terms of the sum; one grid column owns their part of A, and one grid row their part of B."""

    first: int
    terms: int
    column: int  # of the grid; it owns the part of A
    row: int  # of the grid; it owns the part of B

    def owners(self, row: int, column: int, columns: int) -> dict[str, int]:
        """Return the ranks with the parts of A and of B for the one at a position of a grid of so many columns."""
        return {"A": row * columns + self.column, "B": self.row * columns + column}


def panels(terms: int, rows: int, columns: int) -> list[Panel]:
    """Cut the sum where the owner of A or of B changes, and each part again after its first quarter.

    A rank that starts with a remote part then waits only for this quarter.

    >>> [(panel.first, panel.column, panel.row) for panel in panels(24, 2, 3)]
    [(0, 0, 0), (2, 0, 0), (8, 1, 0), (9, 1, 0), (12, 1, 1), (13, 1, 1), (16, 2, 1), (18, 2, 1)]
    """
    of_a, of_b = block_rows(terms, columns), block_rows(terms, rows)
    parts = pairwise(sorted({first for first, _ in (*of_a, *of_b)} | {terms}))
    shorter = 4 if rows * columns > 1 else 1
    cuts = sorted({cut for first, last in parts for cut in (first, first + (last - first) // shorter, last)})

    def owner(blocks, term: int) -> int:
        return next(i for i, (first, count) in enumerate(blocks) if first <= term < first + count)

    return [Panel(first, last - first, owner(of_a, first), owner(of_b, first)) for first, last in pairwise(cuts)]


def panels_of(cut: list[Panel], rows: int, columns: int, row: int, column: int) -> list[Panel]:
    """Return the panels in the order in which the rank at a grid position multiplies them: cyclic, from its own start.

    The ranks of a grid row start at different parts, and so do the ranks of a grid column. They therefore do not all
    read from one owner.

    >>> [panel.first for panel in panels_of(panels(24, 2, 3), 2, 3, 1, 0)]
    [12, 13, 16, 18, 0, 2, 8, 9]
    """
    owners = [(panel.column, panel.row) for panel in cut]
    starts = [i for i, owner in enumerate(owners) if owner not in owners[:i]]
    count = len(starts)
    start = starts[(row * count // rows + column * count // columns) % count]
    return cut[start:] + cut[:start]


def cuts(length: int, most: int) -> list[tuple[int, int]]:
    """Return the first element and length of at most ``most`` parts of equal length; the last may be shorter.

    >>> cuts(5000, 2), cuts(100, 8)
    ([(0, 2560), (2560, 2440)], [(0, 100)])
    """
    part = -(-length // (most * ALIGNMENT)) * ALIGNMENT
    return [(first, min(part, length - first)) for first in range(0, length, part)]


def column_panels(columns: int, most: int) -> list[tuple[int, int]]:
    """Return the first column and width of at most ``most`` panels, fewer if they would be too narrow."""
    return cuts(columns, min(most, max(1, columns // PANEL_COLUMNS)))


class Tiling(NamedTuple):
    """How a rank's rows of C are cut into tiles, and the order in which parts of A and panels of B arrive."""

    # parts, panels: first row and number of rows of each part; first column and number of columns of each panel
    parts: list[tuple[int, int]]
    panels: list[tuple[int, int]]
    order: str  # one letter per arrival: A, the next part of A's rows; B, the next panel of B's columns

    def arrivals(self) -> Iterator[tuple[str, tuple[int, int], list[tuple[tuple[int, int], tuple[int, int]]]]]:
        """Yield for each arrival its matrix, its part or panel, and the tiles that can be multiplied from then on.

        >>> for arrival in Tiling([(0, 5), (5, 4)], [(0, 7)], "ABA").arrivals():
        ...     print(arrival)
        ('A', (0, 5), [])
        ('B', (0, 7), [((0, 5), (0, 7))])
        ('A', (5, 4), [((5, 4), (0, 7))])
        """
        pending = {"A": iter(self.parts), "B": iter(self.panels)}
        present: dict[str, list[tuple[int, int]]] = {"A": [], "B": []}
        for matrix in self.order:
            arrived = next(pending[matrix])
            present[matrix].append(arrived)
            parts, panels = ([arrived], present["B"]) if matrix == "A" else (present["A"], [arrived])
            yield matrix, arrived, list(product(parts, panels))


def tilings(rows: int, columns: int, ranks: int) -> dict[str, Tiling]:
    """Return tilings for the rank with the most rows, by name, the most promising first.

    There are few panels, because long rows copy faster. There are as many parts as possible with tiles that fill a GPU,
    a half or a quarter of them. A and B arrive so that the part of C that can be computed grows as a square, which
    needs the fewest bytes per tile. With "A first", all of A arrives after the first panel of B, which spreads the
    uploads more evenly.

    >>> names = list(tilings(8192, 8192, 4))
    >>> names[:6]
    ['8 x 2, A first', '4 x 2, A first', '2 x 2, A first', '4 x 4, A first', '2 x 4, A first', '1 x 4, A first']
    >>> names[6:]
    ['8 x 2', '4 x 2', '2 x 2', '4 x 4', '2 x 4']
    >>> {name: tiling.order for name, tiling in tilings(8192, 8192, 4).items() if name.startswith("4 x 2")}
    {'4 x 2, A first': 'BAAAAB', '4 x 2': 'BAABAA'}
    """
    _, most = block_row(rows, ranks, 0)
    found: dict[str, Tiling] = {}
    for a_first, of_columns, coarser in product((True, False), (2, 4), (1, 2, 4)):
        of_rows = min(MOST_PARTS, most * columns // (of_columns * TILE)) // coarser
        if of_rows:
            parts, panels = cuts(most, of_rows), cuts(columns, of_columns)
            tiling = Tiling(parts, panels, growth(rows, columns, len(parts), len(panels), a_first))
            if tiling not in found.values():
                found[f"{len(parts)} x {len(panels)}" + ", A first" * a_first] = tiling
    return found or {"1 x 1": Tiling([(0, most)], [(0, columns)], "BA")}


def growth(rows: int, columns: int, of_rows: int, of_columns: int, a_first: bool) -> str:
    """Return the order of arrivals in which the part of C that can be computed grows as a square, or A first.

    >>> growth(64, 64, 4, 2, False), growth(64, 64, 4, 2, True), growth(64, 256, 4, 4, False)
    ('BAABAA', 'BAAAAB', 'BAAAABBB')
    """
    order = ""
    while len(order) < of_rows + of_columns:
        a, b = order.count("A"), order.count("B")
        counted = b + 1 if a_first and b else b
        of_b = b < of_columns and (a == of_rows or counted * columns * of_rows <= a * rows * of_columns)
        order += "B" if of_b else "A"
    return order
