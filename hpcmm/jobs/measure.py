"""Measure one visit of each point of some batches.

Run as ``mpiexec -n R python -m mpi4py -m hpcmm.jobs.measure ...``, once a visit: the last one writes the files.
"""

import argparse
import dataclasses
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcmm import surroundings

INHERITED = surroundings.enter()  # before NumPy and the kernels load OpenBLAS and OpenMP

from hpcmm import files, store
from hpcmm.bench import status
from hpcmm.bench.job import Process, measure_batch
from hpcmm.bench.journal import is_visited
from hpcmm.experiment import plan
from hpcmm.experiment.durations import STARTUP_SECONDS
from hpcmm.measurement import Batch
from hpcmm.model import HpcmmError
from hpcmm.parallel import world
from hpcmm.reader import ConfigError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, required=True, help="folder with plan.json; batches are files in raw/")
    parser.add_argument(
        "--batch",
        dest="batches",
        nargs="+",
        required=True,
        metavar="NAME",
        help="batches on one device with one number of ranks: <sweep>/<device>-r<ranks>-<part>",
    )
    parser.add_argument(
        "--visits", type=int, help="number of visits of each point after which this job is done (default: all)"
    )
    parser.add_argument("--done", type=Path, help="file to write when all batches have these visits")
    parser.add_argument(
        "--failed",
        type=Path,
        help="file with the batches that failed, one per line; they are left out, and further ones are added",
    )
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
        help="count the points of all batches of the plan; no other job runs at the same time",
    )
    arguments = parser.parse_args()
    results, name = arguments.results, arguments.batches[0]
    try:
        comm = world.world()
        if comm.rank == 0:  # what modules of a site set after the workflow started
            surroundings.say(INHERITED)
        # Slurm sends SIGTERM before SIGKILL: rank 0 records it in the journal and ends the other ranks
        signal.signal(signal.SIGTERM, signal.SIG_IGN if comm.rank else lambda *_: sys.exit(143))
        planned = plan.read(results / "plan.json")
        batches = [(each := planned.batch(name), each.file(results)) for name in arguments.batches]
        first, _ = batches[0]
        if comm.size != first.ranks:
            raise ConfigError(f"batch {first.name} needs {first.ranks} ranks, but MPI started {comm.size}")
        measuring = planned.measuring
        visits = min(arguments.visits or measuring.visits, measuring.visits)
        share = visits / measuring.visits
        found = so_far(arguments.failed, batches, share) if comm.rank == 0 else None
        failed, complete = comm.bcast(found, root=0)
        process, before = None, len(failed)
        waiting = [(batch, output) for batch, output in batches if batch.name not in (*failed, *complete)]
        if measuring.job_of(visits - 1) % 2:
            waiting.reverse()  # as the points of each batch
        points = [point for batch, _ in waiting for point in batch.points]
        others = status.Others(results, planned) if arguments.whole and comm.rank == 0 else None
        with world.Watchdog(comm, arguments.patience) as watchdog:
            watchdog.expect(f"{name}: start-up", STARTUP_SECONDS)
            for batch, output in waiting:
                name = batch.name
                write_names(comm, arguments.failed, [*failed, name])  # until it has ended well
                process = process or Process(comm, batch.device, planned.share_gpu, points, planned.transport)
                missing = measure_batch(
                    process,
                    batch,
                    dataclasses.replace(measuring, accuracy=batch.accuracy, same_bits=batch.same_bits),
                    planned.config,
                    output,
                    watchdog.expect,
                    others.than(batch) if others else None,
                    results,
                )
                if missing:
                    failed.append(name)
                    report(comm, batch, missing)
                write_names(comm, arguments.failed, failed)
            if process:
                watchdog.expect(f"{name}: end", STARTUP_SECONDS)
                process.close()
            if comm.rank == 0 and arguments.done and all(is_visited(output, batch, share) for batch, output in batches):
                store.make_folder(arguments.done.parent)
                arguments.done.touch()
    except HpcmmError as error:
        world.abort(f"{name}: {error}")
    # without work only the batches that failed before are left
    sys.exit(1 if len(failed) > before or (failed and process is None) else 0)


def so_far(failed: Path | None, batches: Sequence[tuple[Batch, Path]], share: float) -> tuple[list[str], list[str]]:
    """Return the names of the failed batches, and of those whose points have this share of their visits."""
    names = files.text_of(failed, errors="replace").splitlines() if failed and failed.is_file() else []
    return names, [batch.name for batch, output in batches if is_visited(output, batch, share)]


def write_names(comm, path: Path | None, names: Sequence[str]) -> None:
    """Write the names of failed batches on rank 0, one per line."""
    if path and comm.rank == 0:
        with store.replacing(path) as temporary:
            temporary.write_text("".join(f"{name}\n" for name in names))


def report(comm, batch: Batch, missing: Sequence[str]) -> None:
    """Print the points of a batch that could not be measured, on rank 0."""
    points = "\n  ".join(missing)
    if comm.rank == 0:
        print(
            f"hpcmm: error: {batch.name}: {len(missing)} of {len(batch.points)} points could not be measured:\n"
            f"  {points}\nThe other points are kept; run again to retry these.",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    main()
