"""Each rank solves a problem of its own at the same time: nothing is exchanged, and nothing grows with the ranks."""

from hpcmm.model import ALONE as NAME
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.collectives import mpi
from hpcmm.parallel.links import is_exchange
from hpcmm.parallel.scatter import Scatter, is_divisible, need


class Alone(Scatter):
    """The textbook's arrays and calls on one rank, on every rank. The ranks start each repetition together."""

    @property
    def group(self):
        return mpi().COMM_SELF


ALONE = Algorithm(
    NAME,
    "no algorithm: each rank draws, computes and verifies a problem of its own, of the given size",
    distribution=Alone,
    suits=lambda operation: is_divisible(operation) and not is_exchange(operation),
    need=lambda operation, shape, ranks, rank: need(operation, shape, 1, 0),  # that of the textbook on one rank
    measures=("kernel",),
    part=lambda shape, ranks, rank: tuple(shape),
    transport=None,
    baseline=False,
)
