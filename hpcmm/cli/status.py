"""``python -m hpcmm status``: the progress of a run."""

import argparse

from hpcmm.bench import done, status
from hpcmm.experiment import plan


def run(arguments: argparse.Namespace) -> int:
    print(status.text(arguments.results))
    return 0 if done.is_done(plan.read(arguments.results / "plan.json"), arguments.results) else 1
