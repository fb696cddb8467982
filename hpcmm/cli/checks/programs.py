"""Checks of Slurm, of other programs, and of the folders that runs use."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hpcmm.bench import journal
from hpcmm.cli.checks.check import Check, attempt, one_line
from hpcmm.cluster import leftovers
from hpcmm.grading import sandbox
from hpcmm.kernels import modules
from hpcmm.store import StoreError, require_writable
from hpcmm.system import text

ENOUGH_DISK = 1 << 30
MAKE_ROOM = "make room, or write elsewhere: hpcmm run --directory"


def check_slurm() -> Iterator[Check]:
    if not shutil.which("sbatch"):
        yield Check("Slurm", "ok", "not installed; jobs run on this machine")
        return
    tried = attempt("sinfo", "--noheader", "--format", "%P|%D|%c|%G|%l|%a")
    if tried.returncode:
        # Without --cluster a run needs no Slurm. A process of a Slurm job does.
        state = "error" if "SLURM_JOB_ID" in os.environ else "warning"
        hint = "only runs on a cluster need it; check the controller: scontrol ping"
        why = tried.stderr.strip().rpartition("\n")[2]  # the lines before it are about ways to find the controller
        yield Check("Slurm", state, f"installed, but it does not answer: {one_line(why)}", hint)
        return
    version = attempt("sinfo", "--version").stdout.strip()
    rows = [line.split("|") for line in tried.stdout.splitlines()]
    types = sorted({gres.partition("(")[0] for row in rows for gres in row[3].split(",") if gres.startswith("gpu")})
    job = f"; this is job {os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    yield Check("Slurm", "ok", f"{version}, partitions {', '.join(sorted({row[0] for row in rows}))}{job}")
    yield Check("Slurm GPUs", "ok", ", ".join(types) or "no partition has GPUs")


def check_programs() -> Iterator[Check]:
    command, about = modules.compiler()
    state, use = ("ok", "") if command else ("warning", "required for C kernels of your own, and to install hpcmm")
    yield Check("C compiler", state, f"{command}: {about}" if command else about, use)
    if compiler := shutil.which("g++"):
        version, *_ = attempt(compiler, "--version").stdout.splitlines() or ["version unknown"]
        yield Check("C++ compiler", "ok", f"{compiler}: {version}")
    else:
        use = "required for hpcmm bench --on-host and hpcmm grade of CUDA kernels: install g++"
        yield Check("C++ compiler", "warning", "no g++", use)
    found, advice = text.version("snakemake"), "required to start runs: pip install 'hpcmm[workflow]'"
    yield Check.of("Snakemake", bool(found), found or "not installed", advice)


def check_isolation() -> Iterator[Check]:
    """Check what `hpcmm grade` needs; nothing else does."""
    fault = sandbox.fault()
    found = f"does not work, hpcmm grade refuses native code: {fault}" if fault else f"by {sandbox.program()}"
    yield Check.of("isolation", not fault, found, sandbox.INSTALL)


def check_leftovers(clean: bool) -> Iterator[Check]:
    """Report the files of killed ranks; delete them only if told so."""
    removed = leftovers.remove() if clean else ""
    if left := leftovers.find():
        advice = "they take memory: hpcmm doctor --clean deletes them, and so does the next run"
        yield Check("leftovers", "warning", f"files of killed ranks: {leftovers.listed(left)}", advice)
    else:
        yield Check("leftovers", "ok", removed or "no files of killed ranks in /dev/shm and /tmp")


def check_results(folder: Path) -> Iterator[Check]:
    free = shutil.disk_usage(folder).free
    found = f"{free / 2**30:.1f} GiB free at {folder}"
    yield Check.of("disk", free >= ENOUGH_DISK, found, MAKE_ROOM)
    try:
        require_writable(folder)
        journal.rehearse(folder)
    except (OSError, StoreError) as error:
        found = one_line(error)
        yield Check("files", "error", found if str(folder) in found else f"{folder}: {found}", advice_on(error))
    else:
        yield Check("files", "ok", "journals and HDF5 files can be locked, written and read there")


def advice_on(error: Exception) -> str:
    """Return advice for a folder that cannot be used, by the system's error number."""
    cause = error.__cause__ if isinstance(error, StoreError) else error
    number = getattr(cause, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return MAKE_ROOM
    if number in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
        return "journals need file locks: choose a folder on another file system"
    return "choose a folder that you may write to: hpcmm run --directory"
