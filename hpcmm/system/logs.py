"""The first error in the log of a job."""

import re
from collections.abc import Sequence
from contextlib import suppress

from hpcmm.system import files

ERROR = re.compile(
    r"hpcmm: error:|[\w.]*(Error|Exception|Interrupt)(:|$)|\S+: line \d+: |ERROR:|YOUR APPLICATION TERMINATED|"
    r"srun: error|slurmstepd\S*: error"
)


def first_error(lines: Sequence[str], batch: str = "") -> str:
    """Return the first line that reports an error: ours, Python's, the launcher's or Slurm's; empty without one.

    If one is about ``batch``, that one.

    >>> first_error(["Building DAG", "jobs/with_modules: line 7: module: command not found", "RuleException:"])
    'jobs/with_modules: line 7: module: command not found'
    """
    errors = [line.strip() for line in lines if ERROR.match(line)]
    about = [line for line in errors if batch and line.startswith(f"hpcmm: error: {batch}: ")]
    return next(iter(about or errors), "")


def first_errors(logs: Sequence[str], batch: str = "") -> list[str]:
    found: dict[str, None] = {}
    for log in logs:
        with suppress(OSError):
            found[first_error(files.text_of(log, errors="replace").splitlines(), batch)] = None
    return list(filter(None, found))
