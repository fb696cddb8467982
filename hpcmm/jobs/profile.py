"""Profile each GPU variant of an operation once with Nsight Compute; or record why it was not profiled."""

import sys

from hpcmm.bench import profiling
from hpcmm.experiment import plan
from hpcmm.model import HpcmmError
from hpcmm.system import options


def main() -> int:
    arguments = options.of_program(__file__, __doc__)
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
