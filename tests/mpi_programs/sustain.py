"""Sustained products of a check on all ranks; one rank may compute a wrong element now and then, or be ended early.

mpiexec -n 2 python sustain.py FOLDER cpu|cuda [wrong|ended]

The clock advances by half a second whenever it is read, so that the intervals do not depend on what else runs.
"""

import dataclasses
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

from mpi4py import MPI

from hpcmm import store
from hpcmm.backends import this_machine
from hpcmm.bench import sustain, sustained
from hpcmm.cli import check
from hpcmm.experiment import plan
from hpcmm.model.devices import DEVICES

COMM, FOLDER, DEVICE, FAULT = MPI.COMM_WORLD, Path(sys.argv[1]), sys.argv[2], "".join(sys.argv[3:])
SIDE = 256  # of small products, on a machine with other work
DEVICES[DEVICE] = dataclasses.replace(DEVICES[DEVICE], product=SIDE)
sustain.time = SimpleNamespace(perf_counter=itertools.count(0, 0.5).__next__)
config = check.config(COMM.size, minutes=0.5) | {"backends": DEVICE, "share_gpu": True}
planned = plan.make(config, this_machine())
(batch,) = planned.sustained
products = itertools.count()


class Wrong(sustain.Product):
    """Every fifth result has a wrong element."""

    def once(self):
        seconds = super().once()
        if next(products) % 5 == 4:
            self.arrays["C"][:1, :1] += 1
        return seconds


def ended(asked=itertools.count()):  # noqa: B008, one count for all calls
    return FAULT == "ended" and COMM.rank == 1 and next(asked) > 2


if FAULT == "wrong" and COMM.rank == 1:
    sustain.Product = Wrong
output = FOLDER / "sustained.h5"
whole = sustain.sustain(COMM, planned, batch, output, ended)
assert whole == (FAULT != "ended")
if COMM.rank == 0:
    assert whole == output.exists()
    parts = [store.read(output) if whole else sustained.so_far(output, batch)]
    store.write_groups(FOLDER / "timings.h5", store.merged(parts))
    assert bool(sustained.lines_of(output)) != whole
