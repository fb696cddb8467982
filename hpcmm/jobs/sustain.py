"""Repeat products on the devices of all ranks for some minutes, and verify each.

Run as ``mpiexec -n R python -m mpi4py -m hpcmm.jobs.sustain ...``. A job that is ended keeps its measurements.
"""

import signal
import sys

from hpcmm.system import surroundings

INHERITED = surroundings.enter()  # as in hpcmm.jobs.measure

from hpcmm.bench.sustain import sustain
from hpcmm.experiment import plan
from hpcmm.model import HpcmmError
from hpcmm.parallel import world
from hpcmm.system import options
from hpcmm.system.reader import ConfigError


def main() -> None:
    arguments = options.of_program(__file__, __doc__)
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: signals.append(number))
    try:
        comm = world.world()
        if comm.rank == 0:  # what modules of a site set after the workflow started
            surroundings.say(INHERITED)
        planned = plan.read(arguments.plan)
        batch = planned.batch(arguments.batch)
        if comm.size != batch.ranks:
            raise ConfigError(f"batch {batch.name} needs {batch.ranks} ranks, but MPI started {comm.size}")
        with world.Watchdog(comm, arguments.patience) as watchdog:
            whole = sustain(comm, planned, batch, arguments.output, lambda: bool(signals), watchdog.expect)
    except HpcmmError as error:
        world.abort(f"{arguments.batch}: {error}")
    if not whole:
        if signals:
            name = signal.Signals(signals[0]).name
            print(f"hpcmm: error: {arguments.batch}: ended by {name}; finished intervals are kept", file=sys.stderr)
        sys.exit(128 + signals[0] if signals else 1)


if __name__ == "__main__":
    main()
