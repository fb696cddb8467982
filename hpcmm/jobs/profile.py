"""Profile each GPU variant of an operation once with Nsight Compute; or record why it was not profiled."""

import argparse
import sys
from pathlib import Path

from hpcmm.bench import profiling
from hpcmm.experiment import plan
from hpcmm.model import HpcmmError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="plan.json, as the workflow writes it")
    parser.add_argument("--operation", required=True, help="operation whose GPU variants are profiled")
    parser.add_argument("--output", type=Path, required=True, help="HDF5 file to write")
    arguments = parser.parse_args()
    watched = [sys.executable, "-m", "mpi4py", "-m", "hpcmm.jobs.watched"]
    watched += ["--plan", arguments.plan, "--profile", arguments.operation]
    try:
        planned = plan.read(arguments.plan)
        parts = planned.profile_parts(arguments.operation)
        cold = planned.measuring.cache == "cold"
        reason = profiling.profile(arguments.operation, parts, cold, watched, arguments.output)
    except HpcmmError as error:
        print(f"hpcmm: error: {error}", file=sys.stderr)
        return 1
    print(f"profile of {arguments.operation}: {reason or f'{sum(map(len, parts.values()))} points'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
