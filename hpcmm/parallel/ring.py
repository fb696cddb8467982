"""The product on a ring: blocks of columns of B travel around the ranks while they are multiplied."""

from collections.abc import Sequence
from functools import partial

from hpcmm.model import Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.cost import Machine
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.product import ProductInPlace, is_product
from hpcmm.parallel.schedules import block_row, block_rows
from hpcmm.parallel.transports.base import Arrival


class Ring(ProductInPlace):
    """A and C by block rows, B by blocks of columns, and two buffers for such blocks."""

    def load(self) -> None:
        m, n, k = self.shape
        self.a = self.placed("A", self.block_rows(m, k))
        self.columns = block_rows(n, self.comm.size)
        (_, own), (_, most) = self.columns[self.comm.rank], self.columns[0]
        self.b = self.backend.shared_empty((k * own,), self.dtype)
        self.load_block("B", [((0, k), columns) for columns in self.columns], self.b.reshape(k, own))
        self.share(B=self.b)
        room = 2 if self.comm.size > 2 else self.comm.size - 1
        self.received = [self.backend.empty((k * most,), self.dtype) for _ in range(room)]

    def schedules(self) -> dict[str, int]:
        return self.column_schedules(self.columns[0][1])

    def prepare_schedule(self, schedule: int, task: Task) -> Run:
        _, _, k = self.shape
        rank, size = self.comm.rank, self.comm.size
        blocks, products = [], []  # blocks of B in the order of multiplication
        for step in range(size):
            first, count = self.columns[(rank + step) % size]
            blocks.append(self.b if step == 0 else self.received[step % len(self.received)][: k * count])
            b, c = blocks[-1].reshape(k, count), self.c[:, first : first + count]
            products.append(self.local_product(task, self.a, b, c, True, schedule))
        exchanges = []
        for step in range(1, size):
            source = (rank + (step if self.transport.one_sided else 1)) % size
            arrival = Arrival(source, "B", slice(None), blocks[step])
            exchanges.append(([arrival], [((rank - 1) % size, blocks[step - 1])]))

        return Run(partial(self.in_turns, [None, *exchanges], products))


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: its columns of B, up to two buffers as large as the largest block, and C twice."""
    m, n, k = shape
    _, rows = block_row(m, ranks, rank)
    (_, columns), (_, largest) = block_row(n, ranks, rank), block_row(n, ranks, 0)
    device = rows * k + k * columns + 2 * rows * n + min(2, ranks - 1) * k * largest
    return Need(device, max(rows * k, k * columns, rows * n), whole_elements(operation, shape, rank))


def predict(operation: Operation, shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """Predict the steps: in each except the first, a block arrives while the previous one is multiplied."""
    m, n, k = shape
    (_, rows), (_, columns) = block_row(m, ranks, 0), block_row(n, ranks, 0)
    step = machine.local(2 * rows * columns * k)
    return step + (ranks - 1) * max(step, machine.exchange(k * columns * itemsize))


RING = Algorithm(
    "ring",
    "no rank holds all of B: blocks of its columns travel around the ring while they are multiplied",
    distribution=Ring,
    suits=is_product,
    need=need,
    predict=predict,
    measures=("kernel",),
)
