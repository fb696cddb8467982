"""jobs/measure.py, but that rank 1 fails when it places the third point: ``rank_fails.py KIND ARGUMENTS...``.

KIND is the error: RuntimeError, which nobody expected, or HpcmmError, which a user can mend.
"""

import runpy
import sys
from pathlib import Path

from mpi4py import MPI

from hpcmm import measure
from hpcmm.model import HpcmmError

kind = {"RuntimeError": RuntimeError, "HpcmmError": HpcmmError}[sys.argv.pop(1)]
place = measure.Problem.__init__
placed = 0


def fails_at_the_third(self, *arguments):
    global placed
    placed += 1
    if placed == 3 and MPI.COMM_WORLD.rank == 1:
        raise kind("rank 1 lost its way")
    place(self, *arguments)


measure.Problem.__init__ = fails_at_the_third
runpy.run_path(str(Path(__file__).parents[2] / "jobs" / "measure.py"), run_name="__main__")
