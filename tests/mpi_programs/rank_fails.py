"""hpcmm.jobs.measure, but ranks fail at size 12: ``rank_fails.py KIND[@PHASE] RANKS ARGUMENTS...``.

KIND is the error: RuntimeError, which is unexpected, HpcmmError, which a user can fix, wrong, which is a verdict, kill,
which ends the process at once, or stuck, which goes on until the test ends it. PHASE is one of ``PHASES``. After the
last point: end, which hangs, and only a second is expected. RANKS is how many ranks fail: 1 is rank 1, otherwise all.
If rank 1 fails alone, its interpreter would not end by itself, as if a library waited for the other ranks.
"""

import atexit
import dataclasses
import os
import runpy
import signal
import sys
import time

from mpi4py import MPI

from hpcmm.bench import job, measure
from hpcmm.model import HpcmmError
from hpcmm.parallel import world

PHASES = {
    "place": (measure.Problem, "__init__"),
    "open": (measure.Problem, "distributions"),
    "run": (measure.Contender, "first_run"),
    "verify": (measure.Contender, "verify"),
    "close": (measure.Problem, "close"),
}
kind, _, phase = sys.argv.pop(1).partition("@")
ranks = int(sys.argv.pop(1))
rank = MPI.COMM_WORLD.rank
of, name = PHASES[phase or "place"]
right = getattr(of, name)


def fails_at_size_12(self, *arguments, **options):
    shape = (arguments[2] if name == "__init__" else self.point if of is measure.Contender else self.task).shape
    if shape[0] != 12 or not (rank == 1 or ranks > 1) or kind == "end":
        return right(self, *arguments, **options)
    if kind == "wrong":
        judge = arguments[0] and (lambda result: dataclasses.replace(arguments[0](result), passed=False))
        return right(self, judge, **options)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "stuck":
        time.sleep(600)
    raise {"RuntimeError": RuntimeError, "HpcmmError": HpcmmError}[kind](f"rank {rank} lost its way")


def hangs(self):
    if rank == 1:
        time.sleep(600)


def expected(self, step, seconds, *overdue):
    self.patience, seconds = (0, 1) if step.endswith(": end") else (self.patience, seconds)
    expect(self, step, seconds, *overdue)


if kind == "end":
    expect, world.Watchdog.expect, job.Process.close = world.Watchdog.expect, expected, hangs
elif ranks == 1:
    world.PATIENCE_SECONDS, world.SECONDS_TO_END = 1, 600  # no other rank fails
    atexit.register(lambda: time.sleep(600) if rank == 1 else None)
setattr(of, name, fails_at_size_12)
runpy.run_module("hpcmm.jobs.measure", run_name="__main__")
