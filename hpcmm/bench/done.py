"""What of a plan is done, from the content of the files alone: a copy or a kill changes dates, but no contents."""

import os
import time
from contextlib import suppress
from pathlib import Path

from hpcmm import store
from hpcmm.bench.journal import is_complete
from hpcmm.experiment.fingerprint import digest
from hpcmm.experiment.plan import Plan, read, turns
from hpcmm.model import HpcmmError
from hpcmm.model.measurement import PAGE, TIMINGS
from hpcmm.system import files

HEAD_BYTES = 4096  # of a page, with ``store.page_source``
LONG_AGO = 946_684_800  # the year 2000; Snakemake takes 0 for no date, and packs nothing from before 1980


def jobs(planned: Plan, results: Path) -> dict[str, bool]:
    """Return whether each job of a plan is done, by its name. The turns of a job are done with its last one."""
    found = {}
    for job in planned.jobs:
        whole = all(is_complete(batch.file(results), batch) for batch in job.batches)
        found |= dict.fromkeys(turns(job, planned.measuring), whole)
    for operation in planned.profiled:
        parts = digest(list(planned.profile_parts(operation)))
        found[profile_job(operation)] = store.source(profile_file(results, operation)) == parts
    return found


def profile_job(operation: str) -> str:
    return f"profiles/{operation}"


def profile_file(results: Path, operation: str) -> Path:
    return results / "profiles" / f"{operation}.h5"


def source(planned: Plan, results: Path) -> str:
    """Return the digest of what the timings file of a plan is made from: the plan, and the files of its jobs."""
    files = [batch.file(results) for batch in planned.to_measure]
    files += [profile_file(results, operation) for operation in planned.profiled]
    return digest([planned.fingerprint, *map(store.checksum, files)])


def products(planned: Plan, results: Path, whole: bool) -> dict[str, bool]:
    """Return whether the timings file and the page show the plan, whose jobs are all done if it is ``whole``."""
    timings, collected = results / TIMINGS, False
    with suppress(HpcmmError):  # also of a plan with kernels that are gone, as of a copied folder
        written = read(results / "plan.json").fingerprint == planned.fingerprint
        collected = whole and written and store.source(timings) == source(planned, results)
    return {TIMINGS: collected, PAGE: collected and is_shown(results)}


def is_shown(results: Path) -> bool:
    """Return whether the page is made from the timings file."""
    with suppress(OSError), files.opened(results / PAGE, "r", encoding="utf-8", errors="replace") as file:
        return store.page_source(results / TIMINGS) in file.read(HEAD_BYTES)
    return False


def is_done(planned: Plan, results: Path) -> bool:
    return products(planned, results, all(jobs(planned, results).values()))[PAGE]


def mark(planned: Plan, results: Path, folder: Path) -> None:
    """Write a file ``done/JOB`` for each finished job, and a new ``stale/PRODUCT`` for each outdated product."""
    before = set((folder / "done").rglob("*"))  # jobs of a run beside this process may end while their files are read
    done = jobs(planned, results)
    for name, whole in done.items():
        path = folder / "done" / name
        if not whole and path in before:
            path.unlink(missing_ok=True)
        elif whole and not path.exists():
            write_old(path)
    for name, is_current in products(planned, results, all(done.values())).items():
        path = folder / "stale" / name
        if not is_current:
            write_old(path, str(time.time_ns()), LONG_AGO + 1)  # Snakemake ignores a newer file with the same text
            try:
                os.utime(results / name, (LONG_AGO, LONG_AGO))
            except FileNotFoundError:
                pass
            except OSError:  # of another owner
                os.utime(path)
        elif not path.exists():
            write_old(path)


def write_old(path: Path, text: str = "", date: float = LONG_AGO) -> None:
    """Write a mark that is older than every product, also if the clock is set back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (date, date))
