"""The measurements of a check on two ranks, each on a core of its own; loops keep the core of rank 1 busy.

mpiexec -n 2 python check.py FOLDER
"""

import os
import subprocess
import sys
from pathlib import Path

from mpi4py import MPI

from hpcmm.backends import this_machine
from hpcmm.bench.job import measure_batch
from hpcmm.cli import check
from hpcmm.experiment import plan

COMM, FOLDER = MPI.COMM_WORLD, Path(sys.argv[1])
os.environ["SLURMD_NODENAME"] = f"node{COMM.rank}"
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[COMM.rank]})
loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6 * COMM.rank)]  # the same core
try:
    config = check.config(COMM.size) | {"backends": "cpu"}
    config["measuring"] |= {"max_seconds": 0.06, "min_repetitions": 6}
    del config["sweeps"]["cpu_links"]  # both ends of a link wait for the slower one
    planned = plan.make(config, this_machine())
    for batch in planned.to_measure:
        for _ in range(planned.measuring.visits):
            output = FOLDER / f"{batch.name.replace('/', '-')}.h5"
            missing = measure_batch(COMM, batch, planned.measuring, False, planned.config, output)
            assert missing == []
finally:
    for loop in loops:
        loop.kill()
        loop.wait()
