"""Measure one visit of each point of some batches.

Run as ``mpiexec -n R python -m mpi4py -m hpcmm.jobs.measure ...``, once a visit: the last one writes the files.
"""

import argparse
import dataclasses
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcmm.system import surroundings

INHERITED = surroundings.enter()  # before NumPy and the kernels load OpenBLAS and OpenMP

from hpcmm import store
from hpcmm.bench import status
from hpcmm.bench.job import measure_batch, process_of
from hpcmm.bench.journal import is_visited, kept_in
from hpcmm.experiment import plan
from hpcmm.experiment.durations import STARTUP_SECONDS
from hpcmm.model import ENDED, HpcmmError
from hpcmm.model.measurement import Batch
from hpcmm.parallel import world
from hpcmm.system import files, options
from hpcmm.system.reader import ConfigError

PLANNING_SECONDS = 10  # from reading the sources to writing the plan, at most


def main() -> None:
    arguments = options.of_program(__file__, __doc__)
    name = arguments.batches[0]
    try:
        comm = world.world()
        if comm.rank == 0:  # what modules of a site set after the workflow started
            surroundings.say(INHERITED)
        # Slurm sends SIGTERM before SIGKILL: rank 0 records it in the journal and ends the other ranks
        signal.signal(signal.SIGTERM, signal.SIG_IGN if comm.rank else lambda *_: sys.exit(ENDED))
        status = measure(comm, arguments)
    except HpcmmError as error:
        world.abort(f"{name}: {error}")
    sys.exit(status)


def measure(comm, arguments: argparse.Namespace) -> int:
    """Measure the batches that have not failed and need a visit; return the exit status."""
    planned = plan.read(arguments.results / "plan.json")
    batches = [(each := planned.batch(name), each.file(arguments.results)) for name in arguments.batches]
    first, _ = batches[0]
    if comm.size != first.ranks:
        raise ConfigError(f"batch {first.name} needs {first.ranks} ranks, but MPI started {comm.size}")
    measuring = planned.measuring
    visits = min(arguments.visits or measuring.visits, measuring.visits)
    share = visits / measuring.visits
    failed: list[str] = []
    if comm.rank == 0 and arguments.failed and arguments.failed.is_file():
        failed = files.text_of(arguments.failed, errors="replace").splitlines()
    complete = [batch.name for batch, output in batches if comm.rank == 0 and is_visited(output, batch, share)]
    left = [batch for batch, _ in batches if comm.rank == 0 and batch.name not in (*failed, *complete)]
    failed, complete, edited = comm.bcast((failed, complete, refused(planned, left, arguments.results)), root=0)
    before = len(failed)
    failed = [*failed, *edited]
    write_names(comm, arguments.failed, failed)
    waiting = [(batch, output) for batch, output in batches if batch.name not in (*failed, *complete)]
    if measuring.job_of(visits - 1) % 2:
        waiting.reverse()  # as the points of each batch
    others = status.Others(arguments.results, planned) if arguments.whole and comm.rank == 0 else None
    with world.Watchdog(comm, arguments.patience) as watchdog:
        watchdog.expect(f"{first.name}: start-up", STARTUP_SECONDS)
        process = process_of(comm, planned, [batch for batch, _ in waiting], watchdog.expect) if waiting else None
        for batch, output in waiting:
            write_names(comm, arguments.failed, [*failed, batch.name])  # until it has ended well
            limits = dataclasses.replace(measuring, accuracy=batch.accuracy, same_bits=batch.same_bits)
            elsewhere = others.than(batch) if others else None
            opened = kept_in(output, planned.config)
            try:
                unmeasured = measure_batch(process, batch, limits, opened, elsewhere, arguments.results)
            except HpcmmError as error:
                world.abort(f"{batch.name}: {error}")
            if unmeasured:
                failed.append(batch.name)
                report(comm, batch, unmeasured)
            write_names(comm, arguments.failed, failed)
        if process:
            watchdog.expect(f"{batch.name}: end", STARTUP_SECONDS)
            process.close()
        if comm.rank == 0 and arguments.done and all(is_visited(output, batch, share) for batch, output in batches):
            store.make_folder(arguments.done.parent)
            arguments.done.touch()
    # without work only the batches that failed before are left
    return 1 if len(failed) > before or (failed and process is None) else 0


def refused(planned: plan.Plan, batches: Sequence[Batch], results: Path) -> list[str]:
    """Report the batches whose sources were edited since they were planned, as their visits would mix two programs."""
    if not batches:
        return []
    found = planned.edited(batches, (results / "plan.json").stat().st_ctime - PLANNING_SECONDS)
    for name, sources in found.items():
        others = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        edited = f"edited during the run: {sources[0]}{others}; run again"
        print(f"hpcmm: error: {name}: {edited}", file=sys.stderr, flush=True)
    return [*found]


def write_names(comm, path: Path | None, names: Sequence[str]) -> None:
    """Write the names of failed batches on rank 0, one per line."""
    if path and comm.rank == 0:
        store.write_text(path, "".join(f"{name}\n" for name in names))


def report(comm, batch: Batch, unmeasured: Sequence[str]) -> None:
    count, kept = f"{len(unmeasured)} of {len(batch.points)}", "The other points are kept; run again to retry these."
    if comm.rank == 0:
        lines = [f"hpcmm: error: {batch.name}: {count} points could not be measured:", *unmeasured]
        print("\n  ".join(lines), kept, sep="\n", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
