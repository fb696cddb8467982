"""``python -m hpcmm doctor``: test everything that measuring needs on this machine, and advise on failures."""

import argparse
import dataclasses
import json
import os
import socket
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from hpcmm.backends.cuda import presence
from hpcmm.cli.checks import gpus, machine, mpi, programs
from hpcmm.cli.checks.check import Check, one_line
from hpcmm.system import surroundings


def run(arguments: argparse.Namespace) -> int:
    """Check this machine, or all nodes of a launcher's ranks; rank 0 prints, and all return 1 for an error."""
    comm, local_rank = None, 0
    refused = list(mpi.check_start_of_mpi())
    if not refused:
        if mpi.processes_started() == 1:  # as a measurement on this machine starts
            surroundings.enter(launched=False, local=True)
        from hpcmm.parallel import world

        comm = world.MPI.COMM_WORLD
        local_rank = world.local_rank(comm)
    own = [*refused, *examine(comm, arguments.results, arguments.clean)] if local_rank == 0 else []
    everyone = [(socket.gethostname(), local_rank, own, presence.count(), os.sched_getaffinity(0))]
    if comm is not None:
        everyone = comm.allgather(everyone[0])
    checks = combine([(host, own) for host, rank, own, *_ in everyone if rank == 0])
    if len(everyone) > 1:
        mpi.exchange(comm)
        checks.append(Check("message", "ok", f"1 MB went around all {len(everyone)} ranks"))
        checks.append(mpi.check_ranks([(host, rank, count) for host, rank, _, count, _ in everyone]))
        checks.append(mpi.check_cores([(host, cores) for host, *_, cores in everyone]))
    if comm is None or comm.rank == 0:
        entries = [dataclasses.asdict(check) for check in checks]
        report = {"ranks": len(everyone), "errors": sum(c.state == "error" for c in checks), "checks": entries}
        print(json.dumps(report, indent=1) if arguments.json else as_text(checks), flush=True)
    return int(any(check.state == "error" for check in checks))


def combine(nodes: list[tuple[str, list[Check]]]) -> list[Check]:
    """Combine the checks of several nodes: checks equal on all nodes appear once, others with the node's name."""
    hosts_of: dict[Check, list[str]] = {}
    for host, checks in nodes:
        for check in checks:
            hosts_of.setdefault(check, []).append(host)
    order = {name: i for i, name in enumerate(dict.fromkeys(check.name for _, checks in nodes for check in checks))}
    return [
        check if len(hosts) == len(nodes) else dataclasses.replace(check, found=f"{', '.join(hosts)}: {check.found}")
        for check, hosts in sorted(hosts_of.items(), key=lambda item: order[item[0].name])
    ]


def as_text(checks: list[Check]) -> str:
    """Return the checks as a table with advice, and the number of errors and warnings."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.state:7}  {check.name:{width}}  {check.found}")
        if check.advice:
            lines.append(f"{'':7}  {'':{width}}  -> {check.advice}")
    counts = Counter(check.state for check in checks)
    words = [f"{counts[state]} {state}{'' if counts[state] == 1 else 's'}" for state in ("error", "warning")]
    return "\n".join([*lines, ", ".join(words)])


def examine(comm, results: Path, clean: bool) -> Iterator[Check]:
    """Do all checks of a node; a check that raises does not stop the others."""
    folder = results.absolute()
    while not folder.exists():
        folder = folder.parent
    todo = [machine.check_installation, machine.check_kernels, machine.check_cpu, machine.check_machine]
    todo += [machine.check_surroundings, partial(mpi.check_mpi, comm), gpus.check_gpus, programs.check_slurm]
    todo += [programs.check_programs, programs.check_isolation, machine.check_memory]
    todo += [partial(programs.check_leftovers, clean), partial(programs.check_results, folder)]
    for check in todo:
        try:
            yield from check()
        except Exception as error:
            name = getattr(check, "func", check).__name__.removeprefix("check_")
            found = f"{type(error).__name__}: {one_line(error)}"
            yield Check(name, "error", found, "report this together with all lines above")
