"""Write and read timings files: HDF5 with the seal of ``docs/file-format.md``, replaced whole or not at all."""

import contextlib
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcmm.model import UNCHECKED, HpcmmError
from hpcmm.store.schema import FORMAT, GROUPS, SCHEMA_VERSION, TEXT, Groups, empty
from hpcmm.system import files
from hpcmm.system.text import printable

SEAL = b"\nhpcmm crc32 "
SOURCE = "source"
SIGNATURE = b"\x89HDF\r\n\x1a\n"  # the first bytes of an HDF5 file
AGAIN = "if a run wrote it, run again"
UNSEALED: list[Path] = []  # files that were read without a checksum, whose values may be impossible
# HDF5 compresses texts of one length only, and takes kilobytes for a compressed column. A column of at least this many
# texts is padded to its longest one, up to this size before compression.
PADDED_ROWS = 200
PADDED_BYTES = 32 * 2**20
CHUNK_BYTES = 2**20  # of texts that are compressed together: long ones, such as provenances, have much in common


class MissingError(ValueError):
    """A file lacks a group or a column."""


class StoreError(HpcmmError):
    """A file that cannot be read or written; the message has its path and what to do."""


def make_folder(path: Path) -> None:
    """Create a folder and those above it; the error has the path that prevents it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # a file, or a dangling link
        raise StoreError(f"{error.filename}: not a folder; remove it, or write elsewhere") from error
    except OSError as error:
        raise StoreError(f"{error.filename}: cannot be created: {error.strerror}") from error


def require_writable(path: Path) -> None:
    """Check that files can be created in a folder, which need not exist, without creating anything."""
    while not os.path.lexists(path):
        path = path.parent
    if not path.is_dir():
        raise StoreError(f"{path}: not a folder; remove it, or write elsewhere")
    if not os.access(path, os.W_OK | os.X_OK):
        raise StoreError(f"{path}: no permission to create files; change its permissions, or write elsewhere")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is synced and replaces ``path`` only if the body succeeds; errors name ``path``."""
    make_folder(path.parent)
    try:
        with files.replacing(path) as temporary:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
    except OSError as error:
        kept = "; its earlier content is kept" if path.is_file() else ""
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}{kept}") from error


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_groups(path: Path, groups: Groups, single: bool = False, source: str = "") -> None:
    """Write a sealed file, atomically; groups that are not given are empty.

    ``single`` stores samples in single precision. ``source`` is a digest of what the file was made from.
    """
    content = sealed(groups, single, source)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def sealed(groups: Groups, single: bool = False, source: str = "") -> bytes:
    # in memory, because HDF5 may crash if the disk is full
    with h5py.File("timings.h5", "w", driver="core", backing_store=False) as file:
        file.attrs["format"] = FORMAT
        file.attrs["schema_version"] = SCHEMA_VERSION
        file.attrs[SOURCE] = source
        for group, declared in GROUPS.items():
            if single and group == "samples":
                declared = {name: ("f4" if kind == "f8" else kind, *rest) for name, (kind, *rest) in declared.items()}
            _write_group(file.create_group(group), groups.get(group, empty(group)), declared)
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
        how = packed
        if dtype == TEXT:  # HDF5 rejects NUL and invalid Unicode, which driver messages may have
            values = [printable(text).encode() for text in values]
            longest = max(map(len, values), default=0)
            if len(values) >= PADDED_ROWS and 0 < longest * len(values) <= PADDED_BYTES:
                dtype = h5py.string_dtype(length=longest)
                rows = min(len(values), max(1, CHUNK_BYTES // longest))
                how = {"compression": "gzip", "chunks": (rows,)}
            else:
                how = {}
        column = group.create_dataset(name, data=np.asarray(values, dtype=dtype), dtype=dtype, **how)
        column.dims[0].attach_scale(scale)
        column.attrs["long_name"] = long_name
        if column.dtype.kind == "S":
            column.attrs["_Encoding"] = "utf-8"  # xarray decodes these texts
        if unit:
            column.attrs["units"] = unit


def read(path: Path) -> Groups:
    """Read all groups as columns; texts are str without control characters."""
    return _parsed(path, _groups)


def fingerprints(path: Path) -> dict[str, bool]:
    """Return whether each point of a file has a result, by its fingerprint; empty if the file cannot be read."""
    names = ("variant", "contender", "algorithm", "contender_algorithm", "fingerprint", "reference")

    def parse(file: h5py.File) -> dict[str, bool]:
        columns = _columns(file)["measurements"]
        rows = zip(*(_values(columns[name]) for name in names), strict=True)
        return {row[4]: row[5] != UNCHECKED for row in rows if row[0] == row[1] and row[2] == row[3]}

    with contextlib.suppress(StoreError):
        return _parsed(path, parse)
    return {}


def source(path: Path) -> str:
    """Return the digest of what a file was made from; empty if it has none or cannot be read."""
    with contextlib.suppress(StoreError):
        return _parsed(path, lambda file: str(file.attrs.get(SOURCE, "")))
    return ""


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file of any kind; empty if it cannot be read."""
    with contextlib.suppress(OSError), files.opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return ""


def page_source(timings: Path) -> str:
    return f'<meta name="timings" content="sha256 {checksum(timings)}">'


def _image(path: Path) -> bytes:
    """Return the HDF5 image of a file whose checksum is right; the whole file if it has no seal."""
    try:
        with files.opened(path) as file:
            content = file.read(len(SIGNATURE))
            if content != SIGNATURE:
                raise StoreError(f"{path}: not an HDF5 file, or truncated; {AGAIN}")
            content += file.read()
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except MemoryError as error:
        raise StoreError(f"{path}: out of memory") from error
    end = len(content) - len(SEAL) - 8
    if content[end:-8] != SEAL:
        UNSEALED.append(path)
        return content
    image = content[:end]
    if content[end:] != SEAL + b"%08x" % zlib.crc32(image):
        raise StoreError(f"{path}: truncated, damaged or changed (its checksum does not match); {AGAIN}")
    return image


def _parsed(path: Path, parse: Callable[[h5py.File], Any]) -> Any:
    """Parse a file of this schema with a function; raise StoreError if its checksum is wrong."""
    image = _image(path)
    try:
        with h5py.File(h5py.h5f.open_file_image(image)) as file:
            if file.attrs.get("format") != FORMAT:
                raise StoreError(f"{path}: not a file of {FORMAT}")
            version = int(file.attrs["schema_version"])
            if version != SCHEMA_VERSION:
                how = "upgrade hpcmm" if version > SCHEMA_VERSION else "read it with the hpcmm that wrote it"
                raise StoreError(f"{path}: schema version {version}, but this package reads {SCHEMA_VERSION}: {how}")
            return parse(file)
    except StoreError:
        raise
    except MemoryError as error:
        raise StoreError(f"{path}: out of memory") from error
    except MissingError as error:
        raise StoreError(f"{path}: {error}: an earlier hpcmm wrote it, which can read it, or it was changed") from error
    except Exception as error:  # h5py raises many types for damaged files
        raise StoreError(f"{path}: truncated or damaged ({printable(str(error))}); {AGAIN}") from error


def _groups(file: h5py.File) -> Groups:
    groups = {}
    for group, columns in _columns(file).items():
        values = {name: _values(column) for name, column in columns.items()}
        numbers = {name for name, (kind, *_) in GROUPS[group].items() if kind == "f8"}
        length = len(next(iter(values.values()), ()))
        groups[group] = {name: np.full(length, np.nan) for name in sorted(numbers - values.keys())} | values
        if without := GROUPS[group].keys() - groups[group].keys():
            raise MissingError(f"{group} has no {min(without)}")
    return groups


def _columns(file: h5py.File) -> dict[str, dict[str, h5py.Dataset]]:
    """Find the columns of each group, without reading their data."""
    columns: dict[str, dict[str, h5py.Dataset]] = {}
    for group in GROUPS:
        if group not in file:
            raise MissingError(f"no group {group}")
        columns[group] = {name: column for name, column in file[group].items() if not name.endswith("_index")}
    return columns


def _values(column: h5py.Dataset) -> np.ndarray:
    if h5py.check_string_dtype(column.dtype):
        stored = column[()]
        texts = {each: printable(each.decode()) for each in set(stored.flat)}  # few, which many rows share
        return np.array([texts[each] for each in stored.flat], object).reshape(stored.shape)
    values = column[()]
    return values.astype("f8", copy=False) if values.dtype.kind == "f" else values
