"""Records of the jobs of a workflow: a file for each job from before its submission until its end was seen."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hpcmm.cluster.commands import tell

FOLDER = Path(".snakemake/hpcmm/jobs")
DAMAGED = Path(".snakemake/hpcmm/damaged")


@dataclass(frozen=True)
class Record:
    """One submission.

    Parameters
    ----------
    token : str
        Name of the file, and part of the job's comment in Slurm.
    job : str
        Slurm's number; empty until sbatch returned it.
    name : str
        For the user: the rule with its wildcards.
    logs : tuple of str
        Paths of the job's logs.
    marker : str
        File by which Snakemake knows that the job failed; empty if Snakemake asks a status command.
    """

    token: str
    job: str = ""
    name: str = ""
    logs: tuple[str, ...] = field(default=())
    marker: str = ""


def new_token() -> str:
    return uuid.uuid4().hex[:16]


def write(record: Record) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    temporary = FOLDER / f".{record.token}"
    content = dataclasses.asdict(record)
    del content["token"]
    temporary.write_text(json.dumps(content))
    temporary.replace(FOLDER / record.token)


def remove(record: Record) -> None:
    (FOLDER / record.token).unlink(missing_ok=True)


def read() -> list[Record]:
    """Return the records of this workflow.

    A file that is no record is moved to ``DAMAGED`` with a message. Its name is still the token of a job, or
    Slurm's number in folders of earlier versions, so a record with that alone takes its place.
    """
    found = []
    for path in sorted(FOLDER.glob("[!.]*")):
        try:
            found.append(parse(path))
        except FileNotFoundError:  # removed meanwhile
            continue
        except (ValueError, IsADirectoryError) as error:
            DAMAGED.mkdir(parents=True, exist_ok=True)
            path.replace(DAMAGED / path.name)
            tell(f"{path} is not a record of a job ({error}); moved to {DAMAGED / path.name}")
            found.append(Record(path.name, job=path.name if path.name.isdecimal() else ""))
            write(found[-1])
    return found


def parse(path: Path) -> Record:
    """Read one record.

    Raises
    ------
    ValueError
        If the file is damaged.
    """
    text = path.read_text(encoding="utf-8")
    if not text:
        raise ValueError("empty file")
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"{type(content).__name__} instead of an object")
    texts = [content.get(name) for name in ("job", "name", "marker")]
    logs = content.get("logs")
    if not isinstance(logs, list) or not all(isinstance(each, str) for each in [*texts, *logs]):
        raise ValueError("job, name, marker and a list of logs are expected, all texts")
    job, name, marker = texts
    return Record(path.name, job, name, tuple(logs), marker)


def submitted(record: Record, job: str) -> bool:
    """Note Slurm's number of a job; return False if its record is gone, as another start gave it up."""
    with locked():
        if not (FOLDER / record.token).exists():
            return False
        logs = tuple(log.replace("%j", job) for log in record.logs)
        write(dataclasses.replace(record, job=job, logs=logs))
        return True


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Keep other processes from changing records: the workflow and each sbatch of it write them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
