"""Merge the results of all jobs of a plan into one file, with the reasons for points that were not measured."""

import functools
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcmm import store
from hpcmm.bench import done, profiling
from hpcmm.bench.journal import so_far
from hpcmm.experiment import plan
from hpcmm.model import HpcmmError, contender_name
from hpcmm.model.measurement import Batch
from hpcmm.system import files, options
from hpcmm.system.logs import first_errors
from hpcmm.system.text import printable


def main() -> int:
    arguments = options.of_program(__file__, __doc__)
    try:
        failed = collect(plan.read(arguments.results / "plan.json"), arguments.results, arguments.output)
    except HpcmmError as error:
        print(f"hpcmm: error: {error}", file=sys.stderr)
        return 1
    for each in failed:
        print(f"hpcmm: error: {each}", file=sys.stderr)
    return 1 if failed else 0


def collect(planned: plan.Plan, results: Path, target: Path) -> list[str]:
    """Write all finished points of a plan into one file; failed ones go into ``omitted`` with a reason.

    Finished points of a failed job are included. ``done.source`` of the plan is in the file if nothing failed; else the
    next run of the workflow makes it again.

    Return a line for each job that failed; batches that failed for the same reason have one line.
    """
    parts, unmeasured, unprofiled, failed = [], planned.rows_unmeasured(), planned.unprofiled(), []
    incomplete: dict[tuple[str, str], list[tuple[Batch, int]]] = {}
    complete = done.jobs(planned, results)
    job_of = {batch.name: job.name for job in planned.jobs for batch in job.batches}
    for batch in planned.to_measure:
        why = functools.partial(why_it_ended, results, job_of[batch.name], batch.name)
        try:
            groups, reasons, short = so_far(batch.file(results), batch)
            parts.append(groups)
            reasons = reasons_of(batch, reasons, why()) if reasons else {}
        except store.StoreError as error:
            reasons, short = dict.fromkeys(batch.fingerprints, str(error)), 0
        if short and not reasons:
            incomplete.setdefault(("have fewer visits than planned", why()), []).append((batch, short))
        if reasons:
            reason = next(iter(reasons.values())).removeprefix(f"{batch.name}: ")
            incomplete.setdefault(("not measured", reason), []).append((batch, len(reasons)))
        unmeasured += rows_of_failures(batch, reasons)
    for (what, why), batches in incomplete.items():
        points, total = sum(count for _, count in batches), sum(len(batch.points) for batch, _ in batches)
        others = f" and {len(batches) - 1} more" if len(batches) > 1 else ""
        failed.append(f"{batches[0][0].name}{others}: {points} of {total} points {what}: {why}")
    for operation in planned.profiled:
        path, job = done.profile_file(results, operation), done.profile_job(operation)
        if complete[job]:
            parts.append(store.read(path))
        else:
            parts += profiling.finished(path, planned.profile_parts(operation))
            reason = why_it_ended(results, job)
            failed.append(f"profile of {operation}: {reason}")
            unprofiled.append({"operation": operation, "reason": f"failed: {reason}"})
    source = "" if failed else done.source(planned, results)
    store.write_groups(target, store.merged(parts, unmeasured, unprofiled), source=source)
    return failed


def rows_of_failures(batch: Batch, reasons: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of ``omitted`` for the points of a batch that failed, with a reason by fingerprint."""
    counts = Counter(
        (contender_name(point.variant, point.algorithm), f"failed: {reasons[fingerprint]}")
        for point, fingerprint in zip(batch.points, batch.fingerprints, strict=True)
        if fingerprint in reasons
    )
    return [
        {"sweep": batch.sweep, "variant": variant, "ranks": batch.ranks, "reason": reason, "points": count}
        for (variant, reason), count in counts.items()
    ]


def reasons_of(batch: Batch, failed: Mapping[str, str], ending: str) -> dict[str, str]:
    """Return by fingerprint why points failed; those that were not begun failed because the job ended."""
    names = {fingerprint: point.name for fingerprint, point in zip(batch.fingerprints, batch.points, strict=True)}
    return {each: f"{names[each]}: {why}" if why else f"{batch.name}: {ending}" for each, why in failed.items()}


def why_it_ended(results: Path, job: str, name: str = "") -> str:
    """Return the line of a job's logs with the reason why it failed, or why its batch of this name failed."""
    log, started = results / "logs" / f"{job}.log", (results / "plan.json").stat().st_mtime
    parts = log, *log.parent.glob(f"{log.stem}.*.log")
    logs = [path for path in parts if path.is_file() and path.stat().st_mtime >= started]
    errors = first_errors([str(path) for path in logs], name)
    if not errors and log not in logs:
        return "its job did not start"
    if not errors:
        lines = files.text_of(log, errors="replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        said = f"the last line of its log, {log}, is: {printable(last)}" if last else f"its log, {log}, is empty"
        return f"its job ended without an error message; {said}"
    return errors[0].removeprefix("hpcmm: error: ").removeprefix(f"{name}: ").removesuffix(":")  # of a list


if __name__ == "__main__":
    sys.exit(main())
