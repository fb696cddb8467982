"""Measure batches with several algorithms in one process, and count the transports that it opens and closes.

mpiexec -n 2 python connections.py FOLDER cpu|cuda

All ranks fail at the first point of the second batch, with a message of wrong values underway to each rank. The
transports are opened once before it and once after it, and no later point receives that message. Exchanges alone have
no baseline, products have one.
"""

import collections
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpcmm.backends import this_machine
from hpcmm.bench import measure
from hpcmm.bench.job import Process, measure_batch
from hpcmm.bench.journal import kept_in, so_far
from hpcmm.experiment import plan
from hpcmm.parallel.collectives import message
from hpcmm.parallel.transports import choice

COMM, FOLDER, DEVICE = MPI.COMM_WORLD, Path(sys.argv[1]), sys.argv[2]
SIZE = 24  # of the first point that fails
opened, closed, abandoned, timed = [], [], [], []
sent = []  # buffers and requests of the messages that must not be received


def counted(kind):
    class Counted(kind):
        def __init__(self, *arguments):
            opened.append(kind.name)
            super().__init__(*arguments)

        def abandon(self):
            abandoned.append(kind.name)
            super().abandon()

        def close(self):
            closed.append(kind.name)
            super().close()

    return Counted


def timing(transport, right=choice.exchange_times):
    timed.append(transport.name)
    return right(transport)


def fails(self, comm, backend, point, *others, right=measure.Problem.__init__):
    right(self, comm, backend, point, *others)
    if point.shape[0] == SIZE and not sent:
        wrong = np.full(10 * SIZE, -1, np.float32)
        sent.append((wrong, [comm.Isend(message(wrong), rank) for rank in range(comm.size) if rank != comm.rank]))
        raise RuntimeError("the message is underway")


choice.TRANSPORTS = tuple(map(counted, choice.TRANSPORTS))
choice.exchange_times = timing
choice.MESSAGE_BYTES = choice.MESSAGE_BYTES[:2]
measure.Problem.__init__ = fails

carriers = {"cpu": ["mpi", "mpi_rma"], "cuda": ["peer", "nccl"]}[DEVICE]
library = {"cpu": "numpy", "cuda": "cublas"}[DEVICE]
links = [f"{pattern}_{carrier}" for carrier in carriers for pattern in ("neighbours", "all_to_all")]
links += [f"all_reduce_{carrier}" for carrier in carriers if carrier in ("mpi", "nccl")]
exchange = {"operation": "links", "algorithms": links, "dtypes": ["float32"], "ranks": [COMM.size]}
product = {"operation": "matmul", "variants": [library], "sizes": [SIZE], "dtypes": ["float32"], "ranks": [COMM.size]}
sweeps = {
    "first": exchange | {"sizes": [2 * SIZE]},
    "second": exchange | {"sizes": [SIZE, 2 * SIZE, 1000]},
    "third": product | {"algorithms": ["ring"]},
    "fourth": product | {"algorithms": ["resident", "summa"]},
}
config = {"backends": DEVICE, "measuring": {"visits": 2, "max_seconds": 0.02, "cache": "hot"}, "sweeps": sweeps}
planned = plan.make(config, this_machine())
process = Process(COMM, DEVICE, False)
files = {batch: FOLDER / f"{batch.sweep}.h5" for batch in planned.to_measure}
for visit in range(planned.measuring.visits):
    for batch, output in files.items():
        missing = measure_batch(process, batch, planned.measuring, kept_in(output, planned.config))
        assert len(missing) == (batch.sweep == "second" and not visit), missing
process.close()

assert collections.Counter(opened) == dict.fromkeys(carriers, 2), opened
assert collections.Counter(closed) == dict.fromkeys(carriers, 1), closed  # abandoned transports are not closed
assert abandoned == carriers, abandoned
assert COMM.allgather(closed) == [closed] * COMM.size
assert timed == [carriers[0]], timed
if COMM.rank == 0:
    for batch, output in files.items():
        finished, failed, _ = so_far(output, batch)
        assert not failed, (batch.name, failed)
        passed, baselines = finished["measurements"]["passed"], batch.operation != "links"
        assert list(passed) == [1] * len(batch.points) * (1 + baselines), (batch.name, passed)
    print(f"{', '.join(opened)} opened for {sum(len(batch.points) for batch in files)} points", flush=True)
