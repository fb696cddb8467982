"""Launch the kernels of each point of a part once, under the profiler that ``hpcmm.jobs.profile`` starts."""

import argparse
import dataclasses
import json
from pathlib import Path

from hpcmm import store
from hpcmm.backends import open_backend
from hpcmm.bench.job import describe_ranks
from hpcmm.bench.measure import run_for_profiler
from hpcmm.experiment import plan
from hpcmm.model import HpcmmError
from hpcmm.parallel import world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="plan.json, as the workflow writes it")
    parser.add_argument("--operation", required=True, help="operation whose GPU variants are profiled")
    parser.add_argument("--part", required=True, help="name of a part of the points to profile")
    parser.add_argument("output", type=Path, help="JSON file to write: provenance and verdicts")
    arguments = parser.parse_args()
    try:
        comm = world.world()
        planned = plan.read(arguments.plan)
        points = planned.profile_parts(arguments.operation)[arguments.part]
        backend = open_backend("cuda", world.threads_per_rank(comm), world.local_rank(comm), planned.share_gpu)
        provenance = describe_ranks(comm, backend) | {"config": dict(planned.config)}
        verdicts = run_for_profiler(comm, backend, points, planned.measuring)
        record = {"provenance": provenance, "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts]}
        store.write_text(arguments.output, json.dumps(record))
    except HpcmmError as error:
        world.abort(f"profile of {arguments.operation}: {error}")


if __name__ == "__main__":
    main()
