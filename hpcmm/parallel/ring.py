"""The product on a ring: block rows of B travel around the ranks while they are multiplied; no rank holds all of B.

Each rank has buffers for its own rows of B and for two more blocks: one block is multiplied while the next arrives.
Two-sided transports forward the block that arrived last to the neighbour, so that each block of B enters a node once.
A one-sided transport reads each block from its owner, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpcmm.model import Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.cost import Machine
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.product import RowsInPlace, is_product, local_rows
from hpcmm.parallel.schedules import block_rows
from hpcmm.parallel.transports.base import Arrival


class Ring(RowsInPlace):
    """A, B and C by block rows, and two buffers for block rows of B."""

    def load_b(self) -> None:
        _, n, _ = self.shape
        self.b = self.backend.shared_empty((self.terms.rows, n), self.dtype)
        self.scatter_rows("B", self.terms, self.b)
        self.share(B=self.b)
        largest = self.terms.blocks[0][1]
        room = 2 if self.comm.size > 2 else self.comm.size - 1
        self.buffers = [self.backend.empty((largest, n), self.dtype) for _ in range(room)]

    def receive_buffers(self) -> list:
        return self.buffers

    def schedules(self) -> dict[str, int]:
        _, n, _ = self.shape
        return self.column_schedules(n)

    def prepare_schedule(self, schedule: int, task: Task) -> Run:
        rank, size = self.comm.rank, self.comm.size
        blocks, products, first = [], [], True  # blocks of B in the order of multiplication
        for step in range(size):
            start, count = self.terms.blocks[(rank + step) % size]
            blocks.append(self.b if step == 0 else self.buffers[step % len(self.buffers)][:count])
            a = self.a[:, start : start + count]
            products.append(self.local_product(task, a, blocks[-1], self.c, first, schedule))
            first = first and count == 0
        exchanges = []
        for step in range(1, size):
            source = (rank + (step if self.transport.one_sided else 1)) % size
            arrival = Arrival(source, "B", slice(None), blocks[step])
            exchanges.append(([arrival], [((rank - 1) % size, blocks[step - 1])]))

        def once() -> None:
            ticket = None
            for step, product in enumerate(products):
                if step:
                    self.transport.wait(ticket)
                if step < size - 1:
                    # after the product that reads the receive buffer; it is already in the main stream
                    ticket = self.transport.start(*exchanges[step], self.backend.mark())
                product()

        return Run(once)


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: its rows of B and up to two buffers as large as the largest block, and C twice."""
    _, n, k = shape
    rows, terms = local_rows(shape, ranks, rank)
    _, largest = local_rows(shape, ranks, 0)
    device = rows * k + terms * n + 2 * rows * n + min(2, ranks - 1) * largest * n
    return Need(device, max(rows * k, terms * n, rows * n), whole_elements(operation, shape, rank))


def predict(operation: Operation, shape: Sequence[int], itemsize: int, ranks: int, machine: Machine) -> float:
    """Predict the steps: in each except the first, a block arrives while the previous one is multiplied."""
    m, n, k = shape
    (_, rows), (_, terms) = block_rows(m, ranks)[0], block_rows(k, ranks)[0]
    step = machine.local(2 * rows * n * terms)
    return step + (ranks - 1) * max(step, machine.exchange(terms * n * itemsize))


RING = Algorithm(
    "ring",
    "no rank holds all of B: its block rows travel around the ring while they are multiplied",
    distribution=Ring,
    suits=is_product,
    need=need,
    predict=predict,
    measures=("kernel",),
    own_sums=True,
)
