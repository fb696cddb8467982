"""Products by row blocks of A and column blocks of B: a local product has the whole sums of its elements of C."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from hpcmm.model import Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.cost import Machine
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.product import ProductInPlace
from hpcmm.parallel.schedules import block_row, block_rows

Grid = Callable[[int], tuple[int, int]]  # rows and columns of the grid of some ranks


class WholeSums(ProductInPlace):
    """Each rank owns a row block of A and a column block of B, and computes a block of C on a grid of ranks.

    It gathers the row blocks of its grid row and the column blocks of its grid column while it multiplies those that
    have arrived. B is stored as one matrix for each column block, one after the other.
    """

    def __init__(self, *arguments, grid: Grid, **options):
        self.grid_of = grid
        super().__init__(*arguments, **options)

    def load(self) -> None:
        m, n, k = self.shape
        size, rank = self.comm.size, self.comm.rank
        self.grid = of_rows, of_columns = self.grid_of(size)
        self.row, self.column = divmod(rank, of_columns)
        self.rows = block_rows(m, size)
        # the column blocks of a grid column are adjacent, and so are the row blocks of a grid row
        self.columns = [block_row(n, size, column_of(rank, self.grid)) for rank in range(size)]
        places = [divmod(rank, of_columns) for rank in range(size)]
        c_rows = [extent([self.rows[i * of_columns + j] for j in range(of_columns)]) for i in range(of_rows)]
        c_columns = [extent([self.columns[i * of_columns + j] for i in range(of_rows)]) for j in range(of_columns)]
        self.c_blocks = [(c_rows[i], c_columns[j]) for i, j in places]
        (self.first_row, rows), (self.first_column, columns) = self.c_blocks[rank]

        self.a = self.backend.shared_empty((rows, k), self.dtype)
        self.b = self.backend.shared_empty((k * columns,), self.dtype)
        self.load_block("A", self.block_rows(m, k), self._rows_of_a(rank))
        self.load_block("B", [((0, k), block) for block in self.columns], self._block_of_b(rank))
        self.share(A=self.a, B=self.b)
        asked = [each for step in range(1, max(self.grid)) for each in self.asked(rank, step)]
        self.received = [self.shares[name][part] for _, name, part in asked]

    def _place_of_a(self, rank: int) -> slice:
        """Return the rows of a rank's row block in the A of each rank of its grid row."""
        first, count = self.rows[rank]
        return slice(first - self.first_row, first - self.first_row + count)

    def _rows_of_a(self, rank: int):
        return self.a[self._place_of_a(rank)]

    def _place_of_b(self, rank: int) -> slice:
        """Return the elements of a rank's column block in the B of each rank of its grid column."""
        _, _, k = self.shape
        first, count = self.columns[rank]
        return slice(k * (first - self.first_column), k * (first - self.first_column + count))

    def _block_of_b(self, rank: int):
        return self.b[self._place_of_b(rank)].reshape(self.shape[2], self.columns[rank][1])

    def asked(self, rank: int, step: int) -> list[tuple[int, str, slice]]:
        """Return what arrives on a rank; of ranks in other lines of the grid, only the sources are right."""
        (of_rows, of_columns), found = self.grid, []
        row, column = divmod(rank, of_columns)
        if step < of_columns:
            source = row * of_columns + (column + step) % of_columns
            found.append((source, "A", self._place_of_a(source)))
        if step < of_rows:
            source = (row + step) % of_rows * of_columns + column
            found.append((source, "B", self._place_of_b(source)))
        return found

    def schedules(self) -> dict[str, int]:
        return {"whole sums": 1}

    def prepare_schedule(self, schedule: int, task: Task) -> Run:
        rank = self.comm.rank

        def products(of_a: Sequence[int], of_b: Sequence[int]) -> list[Callable[[], None]]:
            steps = []
            for one, other in product(of_a, of_b):
                first, count = self.columns[other]
                columns = slice(first - self.first_column, first - self.first_column + count)
                c = self.c[self._place_of_a(one), columns]
                steps.append(self.local_product(task, self._rows_of_a(one), self._block_of_b(other), c, True, schedule))
            return steps

        exchanges, work, have_a, have_b = [], [products([rank], [rank])], [rank], [rank]
        for step in range(1, max(self.grid)):
            # the place of a rank's own block is the same on all ranks of its line
            exchanges.append(self.exchange_of(step))
            new_a, new_b = ([source for source, of, _ in self.asked(rank, step) if of == name] for name in "AB")
            work.append(products(new_a, have_b) + products([*have_a, *new_a], new_b))
            have_a, have_b = have_a + new_a, have_b + new_b
        return Run(partial(self.as_they_arrive, exchanges, work))


def column_of(rank: int, grid: tuple[int, int]) -> int:
    """Return the number of a rank's column block: those of a grid column are adjacent.

    >>> [column_of(rank, (2, 2)) for rank in range(4)]
    [0, 2, 1, 3]
    """
    of_rows, of_columns = grid
    row, column = divmod(rank, of_columns)
    return column * of_rows + row


def extent(blocks: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return blocks[0][0], sum(count for _, count in blocks)


def form_of(algorithm: Algorithm, grid: Grid) -> Algorithm:
    parts = {"need": partial(need, grid), "predict": partial(predict, grid)}
    return replace(algorithm, distribution=partial(WholeSums, grid=grid), **parts)


def need(grid: Grid, operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: its grid row of A, its grid column of B, and its block of C twice."""
    m, n, k = shape
    of_rows, of_columns = grid(ranks)
    i, j = divmod(rank, of_columns)
    rows = sum(block_row(m, ranks, i * of_columns + other)[1] for other in range(of_columns))
    columns = sum(block_row(n, ranks, j * of_rows + other)[1] for other in range(of_rows))
    own = block_row(m, ranks, rank)[1], block_row(n, ranks, column_of(rank, (of_rows, of_columns)))[1]
    device = rows * k + k * columns + 2 * rows * columns
    return Need(device, max(own[0] * k, k * own[1], rows * columns), whole_elements(operation, shape, rank))


def predict(grid: Grid, of: Operation, shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """Predict the steps: blocks arrive one after the other, and are multiplied with all that arrived before."""
    m, n, k = shape
    of_rows, of_columns = grid(ranks)
    (_, rows), (_, columns) = block_row(m, ranks, 0), block_row(n, ranks, 0)
    end = machine.local(2 * rows * columns * k)
    arrived, have_a, have_b = 0.0, 1, 1
    for step in range(1, max(of_rows, of_columns)):
        new_a, new_b = int(step < of_columns), int(step < of_rows)
        arrived += machine.exchange(new_a * rows * k * itemsize) + machine.exchange(new_b * k * columns * itemsize)
        count = new_a * have_b + (have_a + new_a) * new_b
        have_a, have_b = have_a + new_a, have_b + new_b
        end = max(end, arrived) + count * machine.local(2 * rows * columns * k)
    return end
