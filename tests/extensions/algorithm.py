"""A distributed algorithm: block rows of A and C, and B on every rank before the product starts."""

from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.collectives import broadcast
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.product import ProductInPlace, is_product, local_rows


class Replicated(ProductInPlace):
    """No rank waits for another during the product."""

    def load(self):
        import numpy as np

        m, n, k = self.shape
        self.a = self.placed("A", self.block_rows(m, k))
        whole = self.inputs["B"].copy() if self.comm.rank == 0 else np.empty((k, n), self.dtype)
        broadcast(self.comm, whole)
        self.b = self.backend.empty((k, n), self.dtype)
        self.backend.copy(whole, self.b)

    def schedules(self):
        return self.column_schedules(self.shape[1])

    def prepare_schedule(self, schedule, task):
        return self.local_product(task, self.a, self.b, self.c, True, schedule)


def need(operation, shape, ranks, rank):
    _, n, k = shape
    rows, _ = local_rows(shape, ranks, rank)
    return Need(rows * k + k * n + 2 * rows * n, k * n, whole_elements(operation, shape, rank))


def predict(operation, shape, itemsize, ranks, machine):
    _, n, k = shape
    return machine.local(2 * local_rows(shape, ranks, 0)[0] * n * k)


ALGORITHMS = (
    Algorithm("replicated", "B on every rank beforehand", Replicated, is_product, need, predict, measures=("kernel",)),
)
