"""Tables of times of builds, by GPU: the files of ``hpcmm/tiles``, and the user's own; see ``docs/ladder.md``."""

import contextlib
import functools
import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from yaml import YAMLError

from hpcmm.model import HpcmmError, Task
from hpcmm.model.records import trusted
from hpcmm.system import files

FOLDER = Path(__file__).parents[1] / "tiles"
SLOW = 2.0  # a build that takes this many times the least time is not in a table
DIGITS = 3  # of times, significant


class Entry(NamedTuple):
    """Seconds of builds, by name, at a shape, with beta or without; and builds that are slow or cannot run there."""

    shape: tuple[int, ...]
    beta: float
    seconds: Mapping[str, float]
    slow: Collection[str] = ()

    @property
    def least(self) -> float:
        return min(self.seconds.values())

    def knows(self, name: str) -> bool:
        """Return whether the time of a build is known, or that it need not be tried."""
        return name in self.seconds or name in self.slow


class Key(NamedTuple):
    """What a trial decides on: a variant at a shape and a type, with beta or without."""

    dtype: str
    variant: str
    shape: tuple[int, ...]
    reads_c: bool


class Trial(NamedTuple):
    """The result of a trial: the fastest build, the number of builds that were tried, and of all builds.

    ``kept`` is whether other processes get it.
    """

    name: str
    tried: int
    of: int
    kept: bool = True


class Gpu(NamedTuple):
    name: str
    multiprocessors: int


# GPUs whose tables correct the model, in this order, where the tables of a GPU have no times of a build: with their
# largest SM clock [Hz] and the bandwidth of their memory [B/s]
REFERENCES = (
    (Gpu("NVIDIA H200", 132), 1.98e9, 4.81e12),
    (Gpu("NVIDIA H100 80GB HBM3", 132), Task.clock, Task.bandwidth),
)
Table = dict[str, list[Entry]]  # by element type
HEADER = "gpu", "multiprocessors", "trials"  # keys of a file that are no element type; the last one of earlier versions
TRIAL = "by trial of"  # begins the words for a pick


def file_of(gpu: str) -> str:
    """Return the name of a GPU's file.

    >>> file_of("NVIDIA H100 80GB HBM3")
    'nvidia-h100-80gb-hbm3.yaml'
    """
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") + ".yaml"


def of_user(gpu: str) -> Path:
    return files.user_cache() / "hpcmm" / "tiles" / file_of(gpu)


def files_of(gpu: str) -> list[Path]:
    return [path for path in (of_user(gpu), FOLDER / file_of(gpu)) if gpu and path.is_file()]


def version(gpu: str) -> tuple:
    """Return a value that changes when a table of a GPU changes."""
    return tuple((path, path.stat().st_mtime_ns) for path in files_of(gpu))


def tables(gpu: str, multiprocessors: int) -> list[Table]:
    """Return the tables of a GPU with all its SMs, the user's own first; none for a part of its SMs."""
    found = [_read(*each) for each in version(gpu)]
    return [content.table for content in found if content.multiprocessors == multiprocessors]


def digest(dtypes: Collection[str]) -> list:
    """Return what decides on builds of some types, without trials, in all files; values of JSON types."""
    paths = sorted({*FOLDER.glob("*.yaml"), *of_user("").parent.glob("*.yaml")})
    found = [(path.name, _read(path, path.stat().st_mtime_ns)) for path in paths]
    rows = [[name, each.multiprocessors, *(each.hashes.get(dtype, "") for dtype in dtypes)] for name, each in found]
    return [row for row in rows if any(row[2:])]


def read(path: Path) -> Table:
    return _read(path, path.stat().st_mtime_ns).table if path.is_file() else {}


class Content(NamedTuple):
    """The content of a file, and a hash of its part for each type."""

    multiprocessors: int
    table: Table
    hashes: Mapping[str, str]


@functools.cache
def _read(path: Path, changed: int) -> Content:
    try:
        content = trusted(files.text_of(path))
        parts = {dtype: part for dtype, part in content.items() if dtype not in HEADER}
        hashes = {dtype: hashlib.sha256(json.dumps(part).encode()).hexdigest() for dtype, part in parts.items()}
        table = {dtype: entries_of(part) for dtype, part in parts.items()}
        return Content(content["multiprocessors"], table, hashes)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, YAMLError) as error:
        raise HpcmmError(f"{path}: not a table of hpcmm tune ({type(error).__name__}); remove it") from error


def entries_of(part: Mapping[str, Any]) -> list[Entry]:
    """Return the entries of the part of a file for a type; its times are in microseconds."""
    names = part["builds"]
    if not all(0 <= time < math.inf for *_, times in part["shapes"] for time in times.values()):
        raise ValueError
    return [
        Entry(
            tuple(shape),
            beta,
            {names[at]: 1e-6 * time for at, time in times.items() if time},
            frozenset(names) - {names[at] for at in times},
        )
        for *shape, beta, times in part["shapes"]
    ]


def text_of(gpu: str, multiprocessors: int, table: Mapping[str, Sequence[Entry]]) -> str:
    lines = [f"gpu: {gpu}", f"multiprocessors: {multiprocessors}"]
    for dtype, entries in table.items():
        if not entries:  # of a command that was interrupted at once
            continue
        names = sorted({name for entry in entries for name in (*entry.seconds, *entry.slow)})
        lines += [f"{dtype}:", "  builds:", *(f'  - "{name}"' for name in names), "  shapes:"]
        for entry in entries:
            times = {name: seconds for name, seconds in entry.seconds.items() if seconds < SLOW * entry.least}
            fastest = sorted(times, key=times.__getitem__)
            row = [f"{names.index(name)}: {_microseconds(times[name])}" for name in fastest]
            row += [f"{number}: 0" for number, name in enumerate(names) if not entry.knows(name)]
            lines.append(f"  - [{', '.join(map(str, entry.shape))}, {entry.beta:g}, {{{', '.join(row)}}}]")
    return "\n".join(lines) + "\n"


def _microseconds(seconds: float) -> str:
    """Return rounded microseconds without an exponent, which YAML 1.1 would take for text."""
    return f"{float(f'{1e6 * seconds:.{DIGITS}g}'):.15g}"


def merged(old: Mapping[str, Sequence[Entry]], new: Mapping[str, Sequence[Entry]]) -> Table:
    """Return a table with the entries of both; a shape that both have is that of the second."""
    found = {}
    for dtype in {**old, **new}:
        entries = {(each.shape, bool(each.beta)): each for each in (*old.get(dtype, ()), *new.get(dtype, ()))}
        found[dtype] = list(entries.values())
    return found


def add(gpu: str, multiprocessors: int, new: Mapping[str, Sequence[Entry]], path: Path | None = None) -> Path:
    """Add entries to a table of a GPU, by default the user's own; return its file, replaced at once."""
    path = path or of_user(gpu)
    with locked(path):
        old = _read(path, path.stat().st_mtime_ns) if path.is_file() else None
        same = old and old.multiprocessors == multiprocessors  # else it has times of another part of the GPU
        with files.replacing(path) as temporary:
            text = text_of(gpu, multiprocessors, merged(old.table if same else {}, new))
            temporary.write_text(text, encoding="utf-8")
    return path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from changing a table meanwhile; raise OSError if the folder cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".lock")
    with files.opened(beside, "w") as file:
        files.lock(file, beside, wait=True)
        yield


# --- trials --------------------------------------------------------------------------------------------------------

_trials: dict[tuple[Gpu, Key], Trial] = {}  # that this process made or used: the same shape keeps its build


def trial(gpu: str, multiprocessors: int, key: Key) -> Trial | None:
    of, path = (Gpu(gpu, multiprocessors), key), trials_of(gpu)
    if of not in _trials and path.is_file():
        kept = _recorded(path, path.stat().st_size)
        if (multiprocessors, key) in kept:
            _trials[of] = kept[multiprocessors, key]
    return _trials.get(of)


def trials_of(gpu: str) -> Path:
    return of_user(gpu).with_suffix(".trials")


@functools.cache
def _recorded(path: Path, size: int) -> dict[tuple[int, Key], Trial]:
    """Return the results in a file, to which trials only add."""
    found = {}
    for line in files.text_of(path).splitlines():
        with contextlib.suppress(TypeError, ValueError):  # such as the line of a process that was killed
            multiprocessors, (dtype, variant, shape, reads_c), result = json.loads(line)
            found[multiprocessors, Key(dtype, variant, tuple(shape), reads_c)] = Trial(*result)
    return found


def keep(gpu: str, multiprocessors: int, key: Key, result: Trial) -> None:
    """Keep the result of a trial: in a file of the user, or in this process if it cannot be written."""
    path = trials_of(gpu)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.opened(path, "a", encoding="utf-8") as file:
            file.write(json.dumps([multiprocessors, key, result[:3]]) + "\n")
    except OSError as error:
        result = result._replace(kept=False)
        report_unwritable(path, error.strerror or str(error))
    _trials[Gpu(gpu, multiprocessors), key] = result


@functools.cache
def report_unwritable(path: Path, reason: str) -> None:
    print(f"{path}: cannot be written ({reason}); results of trials of builds last until this process ends", flush=True)


def settle(comm: Any) -> bool:
    """Broadcast each trial result from the first rank that has it; return whether the results of a rank changed.

    Ranks of one node decide once, because a table is locked meanwhile. Nodes may have tables of their own. Collective.
    """
    decided: dict[tuple[Gpu, Key], Trial] = {}
    for mine in reversed(comm.allgather(dict(_trials))):
        decided |= mine
    changed = {of: result for of, result in decided.items() if _trials.get(of, result)[:3] != result[:3]}
    for (gpu, key), result in changed.items():
        keep(*gpu, key, result)
    return bool(comm.allreduce(len(changed)))
