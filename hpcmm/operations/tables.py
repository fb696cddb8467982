"""Tables of times of builds: the files of ``hpcmm/tiles``, by GPU, and the user's own.

A file has the GPU's name and SM count. For each element type, it has the names of builds and a list of shapes,
``[m, n, k, beta, {build: microseconds}]``, with builds by their place in the list of names. Builds that are not in a
shape's entry took at least ``PROMISING`` times as long as the fastest one. The time 0 says that nothing is known.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from yaml import YAMLError

from hpcmm.model import HpcmmError
from hpcmm.system import files
from hpcmm.system.reader import trusted

FOLDER = Path(__file__).parents[1] / "tiles"
PROMISING = 2.0  # a build that takes this many times the least time is not in a table
DIGITS = 3  # of times, significant


class Entry(NamedTuple):
    """Seconds of builds, by name, at a shape, with beta or without; and builds of which nothing is known."""

    shape: tuple[int, ...]
    beta: float
    seconds: Mapping[str, float]
    unknown: tuple[str, ...] = ()

    @property
    def least(self) -> float:
        return min(self.seconds.values())


Table = dict[str, list[Entry]]  # by element type
HEADER = "gpu", "multiprocessors"  # keys of a file that are no element type


def file_of(gpu: str) -> str:
    """Return the name of a GPU's file.

    >>> file_of("NVIDIA H100 80GB HBM3")
    'nvidia-h100-80gb-hbm3.yaml'
    """
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") + ".yaml"


def of_user(gpu: str) -> Path:
    """Return the file of a user's own table of a GPU."""
    return files.user_cache() / "hpcmm" / "tiles" / file_of(gpu)


def files_of(gpu: str) -> list[Path]:
    """Return the files of a GPU that exist: the user's own, and that of this package."""
    return [path for path in (of_user(gpu), FOLDER / file_of(gpu)) if gpu and path.is_file()]


def version(gpu: str) -> tuple:
    """Return a value that changes when a table of a GPU changes."""
    return tuple((path, path.stat().st_mtime_ns) for path in files_of(gpu))


def tables(gpu: str, multiprocessors: int) -> list[Table]:
    """Return the tables of a GPU with all its SMs, the user's own first; none for a part of its SMs."""
    found = [_read(*each) for each in version(gpu)]
    return [table for of_table, table in found if of_table == multiprocessors]


def of_type(dtype: str, other: str | None = None) -> list:
    """Return the times of a type in all tables, those of another type where it has none; values of JSON types."""
    paths = sorted({*FOLDER.glob("*.yaml"), *of_user("").parent.glob("*.yaml")})
    found = [(path.name, *_read(path, path.stat().st_mtime_ns)) for path in paths]
    return [[name, sms, table.get(dtype) or table.get(other or "", [])] for name, sms, table in found]


def read(path: Path) -> Table:
    """Read a file; an empty table if there is none."""
    return _read(path, path.stat().st_mtime_ns)[1] if path.is_file() else {}


@functools.cache
def _read(path: Path, changed: int) -> tuple[int, Table]:
    try:
        return _parsed(trusted(files.text_of(path)))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, YAMLError) as error:
        raise HpcmmError(f"{path}: not a table of hpcmm tune ({type(error).__name__}); remove it") from error


def _parsed(content: Mapping) -> tuple[int, Table]:
    found = {}
    for dtype, part in content.items():
        if dtype not in HEADER:
            names = part["builds"]
            found[dtype] = [
                Entry(
                    tuple(shape),
                    beta,
                    {names[at]: 1e-6 * time for at, time in times.items() if time},
                    tuple(names[at] for at, time in times.items() if not time),
                )
                for *shape, beta, times in part["shapes"]
            ]
    return content["multiprocessors"], found


def text_of(gpu: str, multiprocessors: int, table: Mapping[str, Sequence[Entry]]) -> str:
    """Return the text of a file."""
    lines = [f"gpu: {gpu}", f"multiprocessors: {multiprocessors}"]
    for dtype, entries in table.items():
        if not entries:  # of a command that was interrupted at once
            continue
        kept = [(each, {n: s for n, s in each.seconds.items() if s < PROMISING * each.least}) for each in entries]
        names = sorted({name for entry, times in kept for name in (*times, *entry.unknown)})
        lines += [f"{dtype}:", "  builds:", *(f'  - "{name}"' for name in names), "  shapes:"]
        for entry, times in kept:
            fastest = sorted(times, key=times.__getitem__)
            known = [f"{names.index(name)}: {_microseconds(times[name])}" for name in fastest]
            of_entry = ", ".join([*known, *(f"{names.index(name)}: 0" for name in entry.unknown)])
            lines.append(f"  - [{', '.join(map(str, entry.shape))}, {entry.beta:g}, {{{of_entry}}}]")
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
    """Add entries to a table of a GPU, by default the user's own; return its file, which is replaced at once."""
    path = path or of_user(gpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    known, old = _read(path, path.stat().st_mtime_ns) if path.is_file() else (multiprocessors, {})
    old = old if known == multiprocessors else {}  # times of another part of the GPU
    temporary.write_text(text_of(gpu, multiprocessors, merged(old, new)), encoding="utf-8")
    temporary.replace(path)
    return path
