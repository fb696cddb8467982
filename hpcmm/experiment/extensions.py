"""Extensions: Python files from outside the package that add to what it can measure and show.

An extension is loaded by every process of an experiment whose config names it under ``extensions``, and by the
commands that read its timings, with ``--extension``. It defines any of these names:

``OPERATIONS``
    A sequence of ``model.Operation``.
``VARIANTS``
    A mapping from an operation's name to variants, which are added to its ladder. A variant's source is at its
    ``path``.
``DTYPES``
    A mapping from an operation's name to a mapping from ``dtypes.DType`` to the names of the variants that compute in
    it.
``ALGORITHMS``
    A sequence of ``parallel.algorithm.Algorithm``.
``FIGURES``
    A sequence of functions from the frame of ``analysis.measurements`` to figures of ``report.vega``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from hpcmm.dtypes import DTYPES
from hpcmm.model import HpcmmError
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import ALGORITHMS

NAMES = ("OPERATIONS", "VARIANTS", "DTYPES", "ALGORITHMS", "FIGURES")
LOADED: dict[Path, ModuleType] = {}  # in this process


class ExtensionError(HpcmmError):
    """An extension cannot be loaded; the message names its file."""


def load_named(config: Mapping[str, Any]) -> None:
    """Load the extensions that a config names, before it is validated: they add to the allowed names."""
    paths = config.get("extensions", ())
    if isinstance(paths, list) and all(isinstance(path, str) for path in paths):
        load(paths)


def load(paths: Iterable[str | Path]) -> None:
    """Load extensions in this process, each once.

    Raises
    ------
    ExtensionError
        If a file is missing, raises, defines none of the names above, or adds a name that exists already.
    """
    for path in map(Path, paths):
        path = path.resolve()
        if path not in LOADED:
            module = imported(path)
            add(module, path)
            LOADED[path] = module


def imported(path: Path) -> ModuleType:
    """Run the file of an extension as a module."""
    name = f"hpcmm_extension_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or not path.is_file():
        raise ExtensionError(f"extension {path}: no such Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the author's code may raise anything
        del sys.modules[name]
        raise ExtensionError(f"extension {path}: {type(error).__name__}: {error}") from error
    if not any(hasattr(module, each) for each in NAMES):
        raise ExtensionError(f"extension {path} adds nothing; it may define {', '.join(NAMES)}")
    return module


def add(module: ModuleType, path: Path) -> None:
    """Add the definitions of an extension to the tables of this process."""
    for operation in getattr(module, "OPERATIONS", ()):
        insert(OPERATIONS, operation, path)
    for algorithm in getattr(module, "ALGORITHMS", ()):
        insert(ALGORITHMS, algorithm, path)
    for name, variants in getattr(module, "VARIANTS", {}).items():
        operation = known(OPERATIONS, name, path)
        for variant in variants:
            if variant.name in {each.name for each in operation.ladder}:
                raise ExtensionError(f"extension {path}: {name} has a variant {variant.name!r} already")
        OPERATIONS[name] = dataclasses.replace(operation, ladder=(*operation.ladder, *variants))
    for name, dtypes in getattr(module, "DTYPES", {}).items():
        for dtype, computing in dtypes.items():
            if dtype.name not in DTYPES:
                insert(DTYPES, dtype, path)
            operation = known(OPERATIONS, name, path)
            ladder = tuple(
                dataclasses.replace(each, dtypes=(*operation.dtypes_of(each), dtype.name))
                if each.name in computing and dtype.name not in each.dtypes
                else dataclasses.replace(each, dtypes=operation.dtypes_of(each))
                for each in operation.ladder
            )
            OPERATIONS[name] = dataclasses.replace(operation, dtypes=(*operation.dtypes, dtype.name), ladder=ladder)


def insert(table: dict[str, Any], record: Any, path: Path) -> None:
    """Add a record under its name."""
    if record.name in table:
        raise ExtensionError(f"extension {path}: {record.name!r} exists already")
    table[record.name] = record


def known(table: Mapping[str, Any], name: str, path: Path) -> Any:
    """Return the record with a name."""
    if name not in table:
        raise ExtensionError(f"extension {path}: {name!r} is unknown; allowed: {', '.join(table)}")
    return table[name]
