"""Measure one batch of a plan in one visit of each point.

Run as ``mpiexec -n R python -m mpi4py -m hpcmm.jobs.measure ...``, once a visit: the last one writes the output.
"""

import argparse
import dataclasses
import os
import signal
import sys
from pathlib import Path

# The variant and the baseline take turns in one process. Idle OpenMP threads must sleep at once instead of spinning on
# the cores that the other is measured on. OpenMP reads this when it is loaded. OpenBLAS keeps its default timeout: with
# a short one its threads sleep within a call, and times become bimodal.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from hpcmm.bench import status
from hpcmm.bench.job import measure_batch
from hpcmm.experiment import plan
from hpcmm.experiment.config import ConfigError
from hpcmm.model import HpcmmError
from hpcmm.parallel import world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="plan.json, as the workflow writes it")
    parser.add_argument("--batch", required=True, help="name of the batch: <sweep>/<device>-r<ranks>-<part>")
    parser.add_argument("--output", type=Path, required=True, help="HDF5 file to write")
    parser.add_argument(
        "--patience",
        metavar="SECONDS",
        type=float,
        default=300,
        help="time that a point may exceed its expected time before all ranks are ended (default: 300)",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="count the points of all jobs of the plan; no other job runs at the same time",
    )
    arguments = parser.parse_args()
    try:
        comm = world.world()
        # Slurm sends SIGTERM before SIGKILL: rank 0 records it in the journal and ends the other ranks
        signal.signal(signal.SIGTERM, signal.SIG_IGN if comm.rank else lambda *_: sys.exit(143))
        planned = plan.read(arguments.plan)
        batch = planned.batch(arguments.batch)
        if comm.size != batch.ranks:
            raise ConfigError(f"batch {batch.name} needs {batch.ranks} ranks, but MPI started {comm.size}")
        results = arguments.plan.parent
        counted = arguments.whole and comm.rank == 0
        elsewhere = status.elsewhere(results, planned, batch) if counted else None
        with world.Watchdog(comm, arguments.patience) as watchdog:
            missing = measure_batch(
                comm,
                batch,
                dataclasses.replace(planned.measuring, accuracy=batch.accuracy),
                planned.share_gpu,
                planned.config,
                arguments.output,
                planned.transport,
                watchdog.expect,
                elsewhere,
                results,
            )
    except HpcmmError as error:
        world.abort(f"{arguments.batch}: {error}")
    if missing:
        if comm.rank == 0:
            points = "\n  ".join(missing)
            print(
                f"hpcmm: error: {batch.name}: {len(missing)} of {len(batch.points)} points could not be measured:\n"
                f"  {points}\nThe other points are kept; run again to retry these.",
                file=sys.stderr,
            )
        sys.exit(1)


if __name__ == "__main__":
    main()
