"""Records of a workflow's jobs: one file per job, from before its submission until its end is noticed."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hpcmm.cluster.commands import report
from hpcmm.system import files

FOLDER = Path(".snakemake/hpcmm/jobs")


@dataclass(frozen=True)
class Record:
    token: str  # name of the file, and part of the job's comment in Slurm
    job: str = ""  # Slurm's job number; empty until sbatch returns it
    name: str = ""  # for the user: the rule with its wildcards
    logs: tuple[str, ...] = field(default=())  # paths of the job's logs
    marker: str = ""  # file that marks the job as failed for Snakemake; empty if Snakemake uses a status command
    request: str = ""  # the options of sbatch that ask for resources, for messages


def write(record: Record) -> None:
    content = dataclasses.asdict(record)
    del content["token"]
    with files.replacing(FOLDER / record.token) as temporary:
        temporary.write_text(json.dumps(content))


def remove(record: Record) -> None:
    (FOLDER / record.token).unlink(missing_ok=True)


def read() -> list[Record]:
    """Return the records of this workflow; of a damaged file, its name, which is the token of a job."""
    found = []
    for path in sorted(FOLDER.glob("[!.]*")):
        try:
            content = json.loads(files.text_of(path))
            fields = {field.name: content[field.name] for field in dataclasses.fields(Record)[1:]}  # without the token
            found.append(Record(path.name, **fields | {"logs": tuple(content["logs"])}))
        except FileNotFoundError:  # removed since the folder was listed
            continue
        except (LookupError, TypeError, ValueError, OSError) as error:
            report(f"{path} is not a record of a job ({error}); it is replaced")
            found.append(Record(path.name))
            with contextlib.suppress(IsADirectoryError):
                write(found[-1])
    return found


def explain(record: Record, error: str) -> None:
    """Write why a job did not run into its log, from which the report and the messages to the user take it."""
    with contextlib.suppress(OSError, IndexError):
        Path(record.logs[0]).parent.mkdir(parents=True, exist_ok=True)
        with files.opened(record.logs[0], "a") as log:
            log.write(f"hpcmm: error: {error}\n")


def submitted(record: Record, job: str) -> bool:
    """Store Slurm's job number; return False if another start of the workflow has removed the record."""
    with locked():
        if not (FOLDER / record.token).exists():
            return False
        logs = tuple(log.replace("%j", job) for log in record.logs)
        write(dataclasses.replace(record, job=job, logs=logs))
        return True


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Lock the records: the workflow and each of its sbatch processes write them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with files.opened(FOLDER / ".lock", "w") as file:
        files.lock(file, file.name, wait=True)
        yield
