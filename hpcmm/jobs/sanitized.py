"""Run the kernel of each point of a plan once, under the sanitizer that ``hpcmm bench --sanitize`` starts."""

import argparse
from pathlib import Path

from hpcmm.backends import open_backend
from hpcmm.bench.measure import run_for_sanitizer
from hpcmm.experiment import plan
from hpcmm.model import HpcmmError
from hpcmm.parallel import world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="plan.json, as the workflow writes it")
    arguments = parser.parse_args()
    try:
        comm = world.world()
        planned = plan.read(arguments.plan)
        backend = open_backend("cuda", world.threads_per_rank(comm), world.local_rank(comm), planned.share_gpu)
        backend.allocate_separately()
        points = [point for batch in planned.to_measure for point in batch.points]
        run_for_sanitizer(comm, backend, points, planned.measuring)
    except HpcmmError as error:
        world.abort(f"under the sanitizer: {error}")


if __name__ == "__main__":
    main()
