"""Write and read timings files: HDF5 with a seal, replaced whole or not at all.

A file is an HDF5 image and its seal. The seal is the text ``\\nhpcmm crc32 `` and the CRC-32 of the image in
eight hexadecimal digits; HDF5 ignores what follows its image. The attribute ``sealed_bytes`` of the root group
marks a sealed file; its value is the length of the image.

======================  ======================================  ===============================================
the file                origin                                  ``read``
======================  ======================================  ===============================================
ends with its seal      written by hpcmm                        checks CRC-32 and length, then opens the image
has the attribute only  sealed, then extended, truncated,       refuses it
                        or changed
has neither             written by hpcmm 0.1 or changed by      opens it in a separate process with a time
                        another program                         limit: HDF5 may crash or hang on damaged files
======================  ======================================  ===============================================

hpcmm 0.1 wrote the seal without the attribute. A program that changes a file on purpose deletes the attribute.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from hpcmm.model import TEXTBOOK, UNCHECKED, HpcmmError
from hpcmm.quantities import COUNTERS, ENERGY, ERRORS, PHASES, RESOURCES
from hpcmm.store.schema import (
    FORMAT,
    GROUPS,
    INDEXES,
    LATER,
    RENAMED,
    SCHEMA_VERSION,
    TEXT,
    UNKNOWN,
    VARIANTS,
    Groups,
    as_column,
    empty,
    row_count,
)
from hpcmm.text import printable

SEAL = b"\nhpcmm crc32 "
SEALED = "sealed_bytes"
SOURCE = "source"
SIGNATURE = b"\x89HDF\r\n\x1a\n"  # the first bytes of an HDF5 file
AGAIN = "if a run wrote it, run again"
READ_SECONDS = 30  # time limit for reading an unsealed file, plus its size divided by
READ_BYTES_PER_SECOND = 5_000_000
# Maximum ratio of declared bytes to file size. gzip reaches 1,000 on one repeated value; measured runs reach 3.
EXPANSION = 500


class StoreError(HpcmmError):
    """A file that cannot be read or written; the message has its path and what to do."""


def make_folder(path: Path) -> None:
    """Create a folder and those above it.

    Raises
    ------
    StoreError
        If it cannot be created; the message has the path that prevents it.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # a file, or a dangling link
        raise StoreError(f"{error.filename}: not a folder; remove it, or write elsewhere") from error
    except OSError as error:
        raise StoreError(f"{error.filename}: cannot be created: {error.strerror}") from error


def require_writable(path: Path) -> None:
    """Check that files can be created in a folder, without creating anything. The folder need not exist.

    Raises
    ------
    StoreError
        If they cannot be created; the message has the path that prevents it.
    """
    while not os.path.lexists(path):
        path = path.parent
    if not path.is_dir():
        raise StoreError(f"{path}: not a folder; remove it, or write elsewhere")
    if not os.access(path, os.W_OK | os.X_OK):
        raise StoreError(f"{path}: no permission to create files; change its permissions, or write elsewhere")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is synced and replaces ``path`` only if the body succeeds.

    Raises
    ------
    StoreError
        If the body or the replacement raises OSError; the message names ``path``.
    """
    make_folder(path.parent)
    temporary = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        kept = "; its earlier content is kept" if path.is_file() else ""
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}{kept}") from error
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)


def write_groups(path: Path, groups: Groups, single: bool = False, source: str = "") -> None:
    """Write a sealed file, atomically; groups that are not given are empty.

    ``single`` stores samples in single precision. ``source`` is a digest of what the file was made from.
    """
    content = sealed(groups, single, source)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def sealed(groups: Groups, single: bool = False, source: str = "") -> bytes:
    """Return the content of a sealed file with these groups."""
    # in memory, because HDF5 may crash if the disk is full
    with h5py.File("timings.h5", "w", driver="core", backing_store=False) as file:
        file.attrs["format"] = FORMAT
        file.attrs["schema_version"] = SCHEMA_VERSION
        file.attrs[SOURCE] = source
        file.attrs[SEALED] = np.int64(0)
        for group, declared in GROUPS.items():
            if single and group == "samples":
                declared = {name: ("f4" if kind == "f8" else kind, *rest) for name, (kind, *rest) in declared.items()}
            _write_group(file.create_group(group), groups.get(group, empty(group)), declared)
        file.flush()
        length = len(file.id.get_file_image())
        file.attrs.modify(SEALED, np.int64(length))  # in place, so that the length of the image is unchanged
        file.flush()
        image = file.id.get_file_image()
    return image + SEAL + b"%08x" % zlib.crc32(image)


def _write_group(group: h5py.Group, columns: Mapping[str, Sequence], declared: Mapping[str, tuple]) -> None:
    dimension = group.name.removeprefix("/").removesuffix("s")
    length = len(next(iter(columns.values())))
    packed = {"compression": "gzip", "shuffle": True} if length else {}
    scale = group.create_dataset(dimension + "_index", data=np.arange(length), **packed)
    scale.make_scale(dimension + "_index")
    scale.attrs["long_name"] = f"row of group {dimension}s"
    for name, values in columns.items():
        if name in declared:
            dtype, unit, long_name = declared[name]
        elif np.asarray(values).dtype.kind == "i":
            dtype, unit, long_name = "i8", "1", f"dimension {name} (0: no such dimension)"
        else:
            dtype, unit, long_name = "f8", "1", f"scalar {name} (NaN: no such scalar)"
        how = packed if dtype != TEXT else {}
        if dtype == TEXT:  # HDF5 rejects NUL and invalid Unicode, which driver messages may have
            values = [printable(text) for text in values]
        column = group.create_dataset(name, data=np.asarray(values, dtype=dtype), dtype=dtype, **how)
        column.dims[0].attach_scale(scale)
        column.attrs["long_name"] = long_name
        if unit:
            column.attrs["units"] = unit


def read(path: Path) -> Groups:
    """Read all groups as columns; texts are str without control characters.

    Files of earlier versions are supported. Missing columns get defaults: NaN for resources, energy, errors and
    counters, empty fingerprints, ``TEXTBOOK`` as the algorithm, one visit, no profiles, one point of each row of a job
    that failed. Renamed variants get their present names.

    Raises
    ------
    StoreError
        If the file is missing, truncated, damaged, changed after it was written, not written by hpcmm, or of a newer
        schema; if it refers to data in other files; or if it declares far more data than its size allows.
    """
    return _groups(path, *_image(path))


def fingerprints(path: Path) -> dict[str, bool]:
    """Return whether each point of a file has a result, by its fingerprint; empty if the file cannot be read.

    Samples are not read.
    """
    names = ("variant", "contender", "algorithm", "contender_algorithm", "fingerprint", "reference")
    try:
        with _opened(path) as file:
            rows = zip(*(file["measurements"][name].asstr()[()] for name in names), strict=True)
            return {row[4]: row[5] != UNCHECKED for row in rows if row[0] == row[1] and row[2] == row[3]}
    except (StoreError, KeyError):
        return {}


def source(path: Path) -> str:
    """Return the digest of what a file was made from; empty if it has none or cannot be read."""
    try:
        with _opened(path) as file:
            return str(file.attrs.get(SOURCE, ""))
    except StoreError:
        return ""


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file of any kind; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def require_sealed(path: Path) -> None:
    """Check the checksum of a file; an unsealed one must be readable.

    Raises
    ------
    StoreError
        As ``read``.
    """
    _image(path)


def _opened(path: Path) -> h5py.File:
    """Open a file whose checksum is right."""
    image, _ = _image(path)
    return h5py.File(h5py.h5f.open_file_image(image))


def _image(path: Path) -> tuple[bytes, int]:
    """Return the HDF5 image of a file whose checksum is right, and its length."""
    content = _content(path)
    end = len(content) - len(SEAL) - 8
    image = content[:end]
    if content[end:-8] != SEAL:
        content = _sealed_copy(path, len(content))
        image = content[: -len(SEAL) - 8]
    elif content[end:] != SEAL + b"%08x" % zlib.crc32(image):
        raise StoreError(f"{path}: truncated or damaged (its checksum does not match); {AGAIN}")
    return image, len(image)


def _content(path: Path) -> bytes:
    """Read the bytes of a file, if it is a regular file with the HDF5 signature."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise StoreError(f"{path}: {'a folder' if path.is_dir() else 'a device or pipe'}, not an HDF5 file")
        with path.open("rb") as file:
            begin = file.read(len(SIGNATURE))
            if begin != SIGNATURE:
                raise StoreError(f"{path}: not an HDF5 file, or truncated; {AGAIN}")
            return begin + file.read()
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error


def _sealed_copy(path: Path, size: int) -> bytes:
    """Read an unsealed file of ``size`` bytes in another process; return a sealed file with its groups."""
    limit = READ_SECONDS + size / READ_BYTES_PER_SECOND
    program = "import sys; from hpcmm.store.file import copy; sys.exit(copy(sys.argv[1]))"
    command = [sys.executable, "-P", "-W", "ignore", "-c", program, str(path)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"{path}: damaged (HDF5 did not finish reading it within {limit:.0f} s); {AGAIN}") from error
    if done.returncode == 0:
        return done.stdout
    message = done.stderr.decode(errors="replace").strip()
    if done.returncode == 1 and message:
        raise StoreError(message.splitlines()[-1])
    raise StoreError(f"{path}: damaged (HDF5 crashed with status {done.returncode} reading it); {AGAIN}")


def copy(name: str) -> int:
    """Write a sealed copy of an unsealed file to standard output, or one line to standard error.

    ``read`` runs this in a separate process.

    Returns
    -------
    int
        0, or 1 if the file is refused.
    """
    path = Path(name)
    try:
        sys.stdout.buffer.write(sealed(_groups(path, path.read_bytes(), None)))
        return 0
    except StoreError as error:
        print(error, file=sys.stderr)
    except MemoryError:
        print(f"{path}: out of memory", file=sys.stderr)
    return 1


def _groups(path: Path, image: bytes, length: int | None) -> Groups:
    """Read the groups of an HDF5 image; ``length`` is the expected seal attribute, None for an unsealed file."""
    try:
        with h5py.File(h5py.h5f.open_file_image(image)) as file:
            if file.attrs.get("format") != FORMAT:
                raise StoreError(f"{path}: not a file of {FORMAT}")
            version = int(file.attrs["schema_version"])
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{path}: schema version {version}, but this package reads up to {SCHEMA_VERSION}: upgrade hpcmm"
                )
            if file.attrs.get(SEALED, length) != length:
                raise StoreError(
                    f"{path}: extended, truncated or changed after it was written; {AGAIN}; "
                    f"if you changed it on purpose, delete its attribute {SEALED}"
                )
            columns = _columns(file, len(image))
            groups = {
                group: {name: _values(column) for name, column in columns[group].items()}
                if group in columns
                else empty(group)
                for group in GROUPS
            }
        rows, samples = row_count(groups["measurements"]), row_count(groups["samples"])
        unknown = dict.fromkeys((*RESOURCES, *ENERGY, *ERRORS, "clock"), np.full(rows, np.nan))
        unknown |= dict.fromkeys(("fingerprint", "transport", "pick"), np.full(rows, "", object))
        unknown |= dict.fromkeys(("algorithm", "contender_algorithm"), np.full(rows, TEXTBOOK, object))
        unknown["late_runs"] = np.full(rows, -1, "i4")
        phases = dict.fromkeys(PHASES, np.full(samples, np.nan)) | {"visit": np.zeros(samples, "i4")}
        schedules = groups["measurements"].pop("schedule", np.full(rows, "", object))
        groups["measurements"] = unknown | groups["measurements"]
        # older files have the run of the first visit only; damaged indexes are refused below
        phases["run"] = np.resize(groups["measurements"]["run"], max(rows, 1)).take(
            groups["samples"]["measurement"], mode="clip"
        )
        groups["samples"] = phases | groups["samples"]
        failed = np.array([reason.startswith("failed: ") for reason in groups["omitted"]["reason"]], "i4")
        groups["omitted"] = {"points": failed} | groups["omitted"]
        if "visits" not in columns:
            groups["visits"] = _visits(groups["samples"], schedules)
        counters = dict.fromkeys(COUNTERS, np.full(row_count(groups["profiles"]), np.nan))
        groups["profiles"] = counters | groups["profiles"]
        for group in ("measurements", "profiles"):
            groups[group] |= _typed(group, groups[group])
        _check(groups)
        for group, names in VARIANTS.items():
            groups[group] |= {name: _renamed(groups[group][name]) for name in names}
        return groups
    except (StoreError, MemoryError):
        raise
    except Exception as error:  # h5py raises many types for damaged files
        raise StoreError(f"{path}: truncated or damaged ({printable(str(error))}); {AGAIN}") from error


def _visits(samples: Mapping[str, np.ndarray], schedules: np.ndarray) -> dict[str, np.ndarray]:
    """Return the visits that samples have. Earlier files have the schedule of the first visit, and nothing else."""
    pairs = np.unique(np.stack([samples["measurement"], samples["visit"]], axis=1), axis=0)
    measurement, visit = pairs.T
    found = empty("visits") | {"measurement": measurement, "visit": visit.astype("i4")}
    found |= {name: np.full(len(pairs), np.nan) for name, values in found.items() if values.dtype.kind == "f"}
    return found | {"schedule": np.where(visit == 0, schedules[measurement], "").astype(object)}


def _columns(file: h5py.File, size: int) -> dict[str, dict[str, h5py.Dataset]]:
    """Find the columns of each group in a file of ``size`` bytes, without reading their data.

    Links, data in other files, other types, and more data than fits into the file are refused.
    """
    found: dict[str, dict[str, h5py.Dataset]] = {}
    declared = 0
    for group in GROUPS:
        if group in LATER and group not in file:
            continue
        members = _member(file, group)
        found[group] = {name: _member(members, name) for name in members if not name.endswith("_index")}
        for name, column in found[group].items():
            place = f"{group}.{name}"
            if not (name.isascii() and name.isidentifier()):
                raise ValueError(f"{group}: column {name!r}; allowed: letters, digits and _")
            if not isinstance(column, h5py.Dataset):
                raise ValueError(f"{place}: not a dataset")
            if column.external or column.is_virtual:
                raise ValueError(f"{place}: its data is in another file")
            text = h5py.check_string_dtype(column.dtype)
            if text is None and column.dtype.kind not in "iuf":
                raise ValueError(f"{place}: {column.dtype}; allowed: text and numbers")
            declared += max(1, column.size or 0) * column.dtype.itemsize
            if declared > EXPANSION * size:
                raise ValueError(f"{place}: {column.shape} declared in a file of {size} bytes")
    return found


def _typed(group: str, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return ``tile`` and ``pinned`` as integers; up to schema version 1 they were floats, NaN for none."""
    rows, found = row_count(columns), {}
    for name, kind, none in (("tile", "i4", 0), ("pinned", "i1", -1)):
        if name not in GROUPS[group]:
            continue
        values = columns.get(name, np.full(rows, np.nan))
        found[name] = np.nan_to_num(values, nan=none).astype(kind) if values.dtype.kind == "f" else values
    return found


def _renamed(labels: np.ndarray) -> np.ndarray:
    """Return labels of variants with present names; an algorithm that follows a name is kept."""
    found = [label.split(" ", 1) for label in labels]
    return as_column([" ".join([RENAMED.get(name, name), *algorithm]) for name, *algorithm in found], (TEXT,))


def _member(group: h5py.Group, name: str) -> h5py.Group | h5py.Dataset:
    """Return a member of a group, unless it is missing or a link."""
    link = group.get(name, getlink=True)
    if link is None:
        raise ValueError(f"no group {name}")
    if not isinstance(link, h5py.HardLink):
        raise ValueError(f"{name}: a link; links are not allowed")
    return group[name]


def _values(column: h5py.Dataset) -> np.ndarray:
    if h5py.check_string_dtype(column.dtype):
        texts = column.asstr()[()]
        return np.array([printable(text) for text in texts.flat], object).reshape(texts.shape)
    values = column[()]
    return values.astype("f8") if values.dtype.kind == "f" else values


def _check(groups: Groups) -> None:
    """Refuse missing columns, and columns with types, lengths or values that a run does not write."""
    for group, columns in groups.items():
        if lacking := GROUPS[group].keys() - columns.keys():
            raise ValueError(f"{group} has no {min(lacking)}")
        length = len(columns[next(iter(GROUPS[group]))])
        for name, values in columns.items():
            kind, unit, _ = GROUPS[group].get(name, ("i8" if values.dtype.kind == "i" else "f8", "1", ""))
            kinds = "O" if kind == TEXT else "f" if kind == "f8" else "iu"
            if values.shape != (length,) or values.dtype.kind not in kinds:
                raise ValueError(f"{group}.{name}: {values.dtype} {values.shape}; allowed: {kind} ({length},)")
            wrong = np.zeros(length, bool)
            if kinds == "iu":
                most = (
                    row_count(groups[INDEXES[name]]) - 1 if name in INDEXES else 1 if kind in ("u1", "i1") else np.inf
                )
                least = -1 if name in UNKNOWN else int(name == "ranks")
                wrong = (values < least) | (values > most)
            elif unit == "s":
                wrong = (values < 0) | np.isinf(values) | ((values == 0) & (name in ("kernel", "total")))
            if wrong.any():
                raise ValueError(f"{group}.{name}: {values[wrong][0]} in row {np.flatnonzero(wrong)[0]}")
