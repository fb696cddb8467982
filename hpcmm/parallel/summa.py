"""The product on a grid of ranks: panels of A move along its rows, panels of B along its columns."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from hpcmm.model import Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel import whole_sums
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.cost import Machine
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.product import ProductInPlace, is_product
from hpcmm.parallel.schedules import Panel, block_row, block_rows, grid, panels, panels_of


class Summa(ProductInPlace):
    """Blocks of A, B and C on a grid, and two receive buffers each for panels of A and of B.

    A's block is stored panel by panel, each a matrix of its own. A panel is then contiguous in memory, and the
    transports see an array with one row for each term of the sum.
    """

    def load(self) -> None:
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
            self.load_block("A", blocks, self._of_a(self.a[self._parts(panel)["A"]], panel) if mine else None)
        self.b = self.backend.shared_empty((of_b[self.row][1], self.n), self.dtype)
        self.load_block("B", [(of_b[i], columns[j]) for i, j in places], self.b)
        self.c_blocks = [(rows[i], columns[j]) for i, j in places]
        self.share(A=self.a, B=self.b)
        widest = max(panel.terms for panel in self.panels)
        room = min(2, len(self.panels))
        self.buffers = [
            {name: self.backend.empty((widest, side), self.dtype) for name, side in (("A", self.m), ("B", self.n))}
            for _ in range(room if self.comm.size > 1 else 0)
        ]
        self.received = [array for pair in self.buffers for array in pair.values()]

    def _of_a(self, stored, panel: Panel):
        return stored.reshape(self.m, panel.terms)

    def _parts(self, panel: Panel) -> dict[str, slice]:
        """Return the rows of a panel in the A and in the B of the ranks that own them."""
        starts = {"A": panel.first - self.first_of_a[panel.column], "B": panel.first - self.first_of_b[panel.row]}
        return {name: slice(start, start + panel.terms) for name, start in starts.items()}

    def asked(self, rank: int, step: int) -> list[tuple[int, str, slice]]:
        place = divmod(rank, self.grid[1])
        panel = panels_of(self.panels, *self.grid, *place)[step]
        owners, parts = panel.owners(*place, self.grid[1]), self._parts(panel)
        return [(owner, name, parts[name]) for name, owner in owners.items() if owner != rank]

    def schedules(self) -> dict[str, int]:
        _, n, _ = self.shape
        _, widest = block_row(n, self.grid[1], 0)
        return self.column_schedules(widest)

    def prepare_schedule(self, schedule: int, task: Task) -> Run:
        exchanges, products = [], []
        for step, panel in enumerate(panels_of(self.panels, *self.grid, self.row, self.column)):
            factors = {name: self.shares[name][part] for name, part in self._parts(panel).items()}
            for _, name, _ in self.asked(self.comm.rank, step):
                factors[name] = self.buffers[step % len(self.buffers)][name][: panel.terms]
            exchanges.append(self.exchange_of(step, factors))
            a = self._of_a(factors["A"], panel)
            products.append(self.local_product(task, a, factors["B"], self.c, step == 0, schedule))
        return Run(partial(self.in_turns, exchanges, products))


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: its blocks of A and B, C twice, and the receive buffers."""
    m, n, k = shape
    of_rows, of_columns = grid(ranks)
    i, j = divmod(rank, of_columns)
    rows, columns = block_row(m, of_rows, i)[1], block_row(n, of_columns, j)[1]
    a, b = rows * block_row(k, of_columns, j)[1], block_row(k, of_rows, i)[1] * columns
    cut = panels(k, of_rows, of_columns)
    buffers = min(2, len(cut)) * max(panel.terms for panel in cut) * (rows + columns) if ranks > 1 else 0
    device = a + b + 2 * rows * columns + buffers
    return Need(device, max(a, b, rows * columns), whole_elements(operation, shape, rank))


def predict(operation: Operation, shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """Predict the slowest rank of the grid's first row: a product starts once its panels have arrived."""
    m, n, k = shape
    of_rows, of_columns = grid(ranks)
    rows, columns = block_row(m, of_rows, 0)[1], block_row(n, of_columns, 0)[1]
    cut, slowest = panels(k, of_rows, of_columns), 0.0
    for column in range(of_columns):
        done = before = arrived = 0.0
        for panel in panels_of(cut, of_rows, of_columns, 0, column):
            away = (panel.column != column) * rows + (panel.row != 0) * columns
            # of two buffers, this one is free once the product before the last is done
            arrived = max(arrived, before) + machine.exchange(panel.terms * away * itemsize)
            before, done = done, max(done, arrived) + machine.local(2 * rows * columns * panel.terms)
        slowest = max(slowest, done)
    return slowest


SUMMA = Algorithm(
    "summa",
    "a grid of ranks: panels of A move along its rows, panels of B along its columns",
    distribution=Summa,
    suits=is_product,
    need=need,
    predict=predict,
    source="van de Geijn and Watts 1997",
    measures=("kernel",),
)
SUMMA = replace(SUMMA, whole_sums=whole_sums.form_of(SUMMA, grid))
