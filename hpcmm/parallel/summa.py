"""The product on a grid of ranks: panels of A move along its rows, panels of B along its columns.

A, B and C are dealt out by the blocks of one grid, so that with P ranks each sends and receives about
2 n^2 / sqrt(P) elements, where block rows make it n^2. In van de Geijn and Watts' SUMMA all ranks work on the
same panel at a time, and its owner broadcasts it. Here each rank begins at a panel of its own and goes round,
as in Cannon's algorithm, so that different owners are asked at a time, and panels travel from one rank to another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hpcmm.model import Variant
from hpcmm.parallel.block_rows import collect, deal
from hpcmm.parallel.distribution import ProductInPlace
from hpcmm.parallel.schedules import Panel, block_rows, grid, panels, panels_of
from hpcmm.parallel.transports import Arrival


class Summa(ProductInPlace):
    """Blocks of A, B and C on a grid, and two buffers for panels of A and of B each.

    A's block is stored panel by panel, each a matrix of its own: then a panel is one run of memory, and
    what the transports see is an array with a row for each term of the sum.
    """

    def place(self) -> None:
        m, n, k = self.shape
        self.grid = grid(self.comm.size)
        self.row, self.column = divmod(self.comm.rank, self.grid[1])
        self.panels = panels(k, *self.grid)
        rows, columns = block_rows(m, self.grid[0]), block_rows(n, self.grid[1])
        (_, self.m), (_, self.n) = rows[self.row], columns[self.column]
        of_a, of_b = block_rows(k, self.grid[1]), block_rows(k, self.grid[0])
        self.first_of_a, self.first_of_b = [first for first, _ in of_a], [first for first, _ in of_b]
        places = [divmod(rank, self.grid[1]) for rank in range(self.comm.size)]

        self.a = self.backend.shared_empty((of_a[self.column][1], self.m), self.dtype)
        for panel in self.panels:
            blocks = [(rows[i], (panel.first, panel.terms if j == panel.column else 0)) for i, j in places]
            mine = panel.column == self.column
            self._placed("A", blocks, self._of_a(self.a[self._rows_of_a(panel)], panel) if mine else None)
        self.b = self.backend.shared_empty((of_b[self.row][1], self.n), self.dtype)
        self._placed("B", [(of_b[i], columns[j]) for i, j in places], self.b)
        self.c_blocks = [(rows[i], columns[j]) for i, j in places]
        self.kept_c = self.backend.empty((self.m, self.n), self.dtype)
        self._placed("C", self.c_blocks, self.kept_c)
        self.c = self.backend.empty((self.m, self.n), self.dtype)
        self.transport.share("A", self.a)
        self.transport.share("B", self.b)
        widest = max(panel.terms for panel in self.panels)
        room = min(2, len(self.panels))
        self.buffers = [
            (self.backend.empty((widest, self.m), self.dtype), self.backend.empty((widest, self.n), self.dtype))
            for _ in range(room if self.comm.size > 1 else 0)
        ]

    def _placed(self, name: str, blocks, target) -> None:
        part = np.empty((0, 0) if target is None else target.shape, self.dtype)
        deal(self.comm, self.inputs.get(name), part, blocks)
        if part.size:
            self.backend.copy(part, target)

    def _of_a(self, stored, panel: Panel):
        """A panel of A as the matrix that it is."""
        return stored.reshape(self.m, panel.terms)

    def _rows_of_a(self, panel: Panel) -> slice:
        """Where its owner has a panel of A."""
        start = panel.first - self.first_of_a[panel.column]
        return slice(start, start + panel.terms)

    def _rows_of_b(self, panel: Panel) -> slice:
        start = panel.first - self.first_of_b[panel.row]
        return slice(start, start + panel.terms)

    @property
    def arrays(self) -> dict[str, Any]:
        return {"A": self.a, "B": self.b, "C": self.c}

    def received(self) -> list:
        return [array for pair in self.buffers for array in pair]

    def panel_at(self, step: int, row: int, column: int) -> Panel:
        """What the rank at a place of the grid multiplies in a step."""
        return panels_of(self.panels, *self.grid, row, column)[step]

    def _exchange(self, step: int) -> tuple[list[Arrival], list[tuple[int, Any]], Any, Any]:
        """What arrives at this rank for a step and what leaves it; A's and B's panel of the step."""
        rows, columns = self.grid
        panel = self.panel_at(step, self.row, self.column)
        rows_of_a, rows_of_b = self._rows_of_a(panel), self._rows_of_b(panel)
        arrivals, departures = [], []
        if panel.column == self.column:
            a = self.a[rows_of_a]
        else:
            a = self.buffers[step % len(self.buffers)][0][: panel.terms]
            arrivals.append(Arrival(self.row * columns + panel.column, "A", rows_of_a, a))
        if panel.row == self.row:
            b = self.b[rows_of_b]
        else:
            b = self.buffers[step % len(self.buffers)][1][: panel.terms]
            arrivals.append(Arrival(panel.row * columns + self.column, "B", rows_of_b, b))
        for column in range(columns):
            theirs = self.panel_at(step, self.row, column)
            if column != self.column and theirs.column == self.column:
                departures.append((self.row * columns + column, self.a[self._rows_of_a(theirs)]))
        for row in range(rows):
            theirs = self.panel_at(step, row, self.column)
            if row != self.row and theirs.row == self.row:
                departures.append((row * columns + self.column, self.b[self._rows_of_b(theirs)]))
        return arrivals, departures, self._of_a(a, panel), b

    def schedules(self) -> dict[str, int]:
        _, n, _ = self.shape
        _, widest = block_rows(n, self.grid[1])[0]
        return self.panels_of_columns(widest)

    def follow(self, schedule: int, variant: Variant, parameters: Mapping[str, float]) -> Callable[[], None]:
        steps = []
        for step in range(len(self.panels)):
            arrivals, departures, a, b = self._exchange(step)
            steps.append((arrivals, departures, self.local(variant, parameters, a, b, self.c, step == 0, schedule)))

        def run() -> None:
            start = self.transport.start
            ticket = start(*steps[0][:2], self.backend.mark())
            for step, (_, _, product) in enumerate(steps):
                self.transport.wait(ticket)
                if step + 1 < len(steps):
                    # not before the product that read the buffers, which the main stream was given
                    ticket = start(*steps[step + 1][:2], self.backend.mark())
                product()

        return run

    def fetch(self) -> None:
        part = np.empty(self.c.shape, self.dtype)
        if part.size:
            self.backend.copy(self.c, part)
        collect(self.comm, part, self.result.get("C"), self.c_blocks)
