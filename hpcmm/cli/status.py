"""``python -m hpcmm status``: the progress of a run."""

import argparse

from hpcmm.bench import done, status
from hpcmm.experiment import plan


def run(arguments: argparse.Namespace) -> int:
    planned = plan.read(arguments.results / "plan.json")
    print(status.text(arguments.results))
    if edited := planned.outdated(arguments.results):
        print(f"edited since this plan: {edited}; run again")
    return 0 if not edited and done.is_done(planned, arguments.results) else 1
