"""hpcmm.jobs.measure, but ranks fail where they place size 12: ``rank_fails.py KIND RANKS ARGUMENTS...``.

KIND is the error: RuntimeError, which is unexpected, HpcmmError, which a user can fix, kill, which ends
the process at once, or stuck, which goes on until the test ends it. After the last point: end, which hangs, and only a
second is expected. RANKS is how many ranks fail: 1 is rank 1, otherwise all.
"""

import os
import runpy
import signal
import sys
import time

from mpi4py import MPI

from hpcmm.bench import job, measure
from hpcmm.model import HpcmmError
from hpcmm.parallel import world

kind, ranks = sys.argv.pop(1), int(sys.argv.pop(1))
place = measure.Problem.__init__
rank = MPI.COMM_WORLD.rank


def fails_at_size_12(self, comm, backend, point, *others):
    if point.shape[0] == 12 and kind != "end" and (rank == 1 or ranks > 1):
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "stuck":
            time.sleep(600)
        raise {"RuntimeError": RuntimeError, "HpcmmError": HpcmmError}[kind](f"rank {rank} lost its way")
    place(self, comm, backend, point, *others)


def hangs(self):
    if rank == 1:
        time.sleep(600)


def expected(self, step, seconds, *overdue):
    self.patience, seconds = (0, 1) if step.endswith(": end") else (self.patience, seconds)
    expect(self, step, seconds, *overdue)


if kind == "end":
    expect, world.Watchdog.expect, job.Process.close = world.Watchdog.expect, expected, hangs
if ranks == 1:
    world.PATIENCE_SECONDS = 1  # no other rank fails
measure.Problem.__init__ = fails_at_size_12
runpy.run_module("hpcmm.jobs.measure", run_name="__main__")
