"""``python -m hpcmm plan``: the points and jobs of a run."""

import argparse
import itertools
import operator
from collections.abc import Sequence

from hpcmm import backends
from hpcmm.bench.pace import Pace, learned
from hpcmm.cli import init
from hpcmm.cluster import site
from hpcmm.experiment import plan
from hpcmm.experiment.config import changes_of, read_config
from hpcmm.experiment.durations import estimate
from hpcmm.model.devices import DEVICES
from hpcmm.model.measurement import Batch
from hpcmm.system.reader import naming
from hpcmm.system.streams import tabulated


def run(arguments: argparse.Namespace) -> int:
    path = arguments.configfile or init.config()
    config = read_config(path, changes=changes_of(arguments.config))
    machine = site.of_folder().machine() if arguments.cluster else backends.this_machine()
    with naming(path):
        planned = plan.make(config, machine)
    rows, records = [], learned(arguments.results)
    pace = Pace(records)
    bounds = {batch.name: bound for job in planned.jobs for batch, bound in zip(job.batches, job.bounds, strict=True)}
    for (sweep, device, ranks), group in itertools.groupby(planned.to_measure, lambda b: (b.sweep, b.device, b.ranks)):
        batches = list(group)
        time = estimate(expected(batches, pace), sum(bounds[batch.name] for batch in batches))
        rows.append([sweep, device, ranks, ranks if DEVICES[device].accelerator else 0, points_of(batches), time])
    times = [(expected(job.batches, pace), job.seconds) for job in planned.jobs]
    rows.append(["all", "", "", "", points_of(planned.to_measure), estimate(*map(sum, zip(*times, strict=True)))])
    head = ["sweep", "device", "ranks", "GPUs", "points", "time"]
    print(tabulated(head, rows, 2, [True] * 2 + [False] * 4))
    longest = estimate(*max(times, key=lambda time: time[1]))
    print(f"\n{len(times)} job{'s' * (len(times) > 1)}; the longest takes {longest}.")
    on_gpus = sum(job.ranks * job.seconds for job in planned.jobs if DEVICES[job.device].accelerator)
    basis = f"the finished jobs in {arguments.results}" if records else "the usual shares of the upper bounds"
    print(f"Expected times follow from {basis}." + (f" {on_gpus / 3600:.1f} GPU hours at most." if on_gpus else ""))
    if planned.unmeasured:
        print("\nNot measured:")
        by_reason = operator.itemgetter("sweep", "reason")
        for (sweep, reason), group in itertools.groupby(planned.rows_unmeasured(), by_reason):
            members = list(group)
            variants = ", ".join(dict.fromkeys(row["variant"] for row in members))
            ranks = ", ".join(str(ranks) for ranks in dict.fromkeys(row["ranks"] for row in members))
            print(f"  {sweep}, ranks {ranks}: {variants}: {reason}")
    if large := plan.too_large(planned, machine):
        print("\nToo large for this machine; counted above, but not measured:")
        for reason, group in itertools.groupby(large, large.get):
            points = list(group)
            others = f" and {len(points) - 1} more" if len(points) > 1 else ""
            print(f"  {points[0].operation} {points[0].name} on {points[0].ranks}{others}: {reason}")
    return 0


def expected(batches: Sequence[Batch], pace: Pace) -> float:
    return sum(pace.seconds(batch) for batch in batches)


def points_of(batches: Sequence[Batch]) -> int:
    return sum(len(batch.points) for batch in batches)
