"""Make one visit of the points of batches that arrive on standard input, and send what happens to the process before.

``jobs.trial`` starts it for ``hpcmm bench`` and ``hpcmm.bench``: it writes no files. What the workflow's jobs write
into journals is sent through a pipe, one JSON line for each event.
"""

import dataclasses
import functools
import json
import os
import sys

from hpcmm.system import surroundings

surroundings.enter()  # before NumPy and the kernels load OpenBLAS and OpenMP

from hpcmm.bench.job import measure_batch, process_of
from hpcmm.bench.journal import Sent
from hpcmm.experiment import plan
from hpcmm.experiment.durations import STARTUP_SECONDS
from hpcmm.model import HpcmmError
from hpcmm.parallel import world
from hpcmm.system import options

STARTED: dict = {}  # the first event


def main() -> None:
    arguments = options.of_program(__file__, __doc__)
    comm = world.world()
    line = sys.stdin.readline()
    if not line:
        return  # nothing is left to measure
    request = json.loads(line)
    os.environ["HPCMM_JOB"] = request["job"]
    name = "bench"
    try:
        planned = plan.from_json(request["plan"])
        with os.fdopen(arguments.events, "w") as events, world.Watchdog(comm, arguments.patience) as watchdog:
            print(json.dumps(STARTED), file=events, flush=True)
            watchdog.expect("start-up", STARTUP_SECONDS)
            batches = [planned.batch(name) for name in request["entries"]]
            process = process_of(comm, planned, batches, watchdog.expect)
            for batch in batches:
                name, entries = batch.name, request["entries"][batch.name]
                limits = dataclasses.replace(planned.measuring, accuracy=batch.accuracy, same_bits=batch.same_bits)
                sent = functools.partial(Sent, entries=entries, config=planned.config, file=events)
                measure_batch(process, batch, limits, sent)
            process.close()
    except HpcmmError as error:
        world.abort(f"{name}: {error}")


if __name__ == "__main__":
    main()
