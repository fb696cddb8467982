"""Extensions: files from outside the package that add operations, kernels, types, algorithms and figures.

A C or CUDA file is a kernel, with its record in its first comment (``own_kernels``). So is a Python file that defines a
function with the name of an operation. Another Python file defines any of ``NAMES``. Every process of an experiment
loads the extensions that its config names, and so do the commands that read its timings, with ``--extension``.
"""

import dataclasses
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from hpcmm.experiment import own_kernels
from hpcmm.experiment.config import kernel_places
from hpcmm.experiment.own_kernels import OwnKernel
from hpcmm.kernels import file_of, name_of
from hpcmm.model import HpcmmError, Operation, Variant
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import DTYPES
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import ALGORITHMS
from hpcmm.system.text import described

NAMES = (
    "OPERATIONS",  # a sequence of ``model.Operation``
    "VARIANTS",  # by operation, variants that are added to its ladder; the source of one is at its ``path``
    "DTYPES",  # by operation, a mapping from ``dtypes.DType`` to the names of the variants that compute in it
    "ALGORITHMS",  # a sequence of ``parallel.algorithm.Algorithm``
    "FIGURES",  # functions from the frame of ``analysis.measurements`` to figures of ``report.vega``
)
SOURCES = tuple(device.suffix for device in DEVICES.values())  # of kernels
# In this process: the module of a Python file, and the kernels of the file
LOADED: dict[tuple[str, Path], tuple[ModuleType | None, list[OwnKernel]]] = {}


class ExtensionError(HpcmmError):
    """An extension cannot be loaded; the message names its file."""


class RaisedError(ExtensionError):
    """The code of an extension raised an error; the message has the versions of its packages."""


def figures() -> list[Callable]:
    """Return the functions of the loaded extensions that draw figures of the report."""
    return [draw for module, _ in LOADED.values() for draw in getattr(module, "FIGURES", ())]


def named(config: Mapping[str, Any]) -> list[str]:
    """Return the files that a config names under ``extensions``, and under ``variants`` of its sweeps."""
    paths = config.get("extensions", ())
    found = list(paths) if isinstance(paths, list) and all(isinstance(path, str) for path in paths) else []
    return list(dict.fromkeys([*found, *(place[i] for place, i in kernel_places(config))]))


def load(paths: Iterable[str | Path]) -> list[OwnKernel]:
    """Load extensions in this process, each once; return their kernels, or raise ExtensionError."""
    found = []
    for name in map(str, paths):
        file, values = file_of(name)
        path = Path(file).resolve()
        key = name_of(path, values), path
        if key not in LOADED:
            if values and path.suffix not in SOURCES:
                raise ExtensionError(f"extension {path}: values are for {' and '.join(SOURCES)} files: {name}")
            is_source = path.suffix in SOURCES
            module, own = (None, [own_kernels.read(path, values)]) if is_source else of_module(path)
            for kernel in own:
                for operation in kernel.operations:
                    add_variants(operation, (kernel.variant,), path)
            LOADED[key] = module, own
        found += LOADED[key][1]
    return found


def of_module(path: Path) -> tuple[ModuleType, list[OwnKernel]]:
    """Add the definitions of a Python file; return it, and its kernels."""
    module = imported(path)
    defines = any(hasattr(module, each) for each in NAMES)
    own = [] if defines else own_kernels.of_module(path, module)
    if not own and not defines:
        raise ExtensionError(
            f"extension {path} adds nothing; it may define {', '.join(NAMES)}, or a function with the name of an "
            f"operation: {', '.join(OPERATIONS)}"
        )
    add(module, path)
    return module, own


def imported(path: Path) -> ModuleType:
    name = f"hpcmm_extension_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or not path.is_file():
        raise ExtensionError(f"extension {path}: no such Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if "task" not in sys.modules and not importlib.util.find_spec("task"):
        sys.modules["task"] = task = ModuleType("task")  # of leaderboards
        task.input_t = task.output_t = Any
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the author's code may raise anything; an exit is no success
        del sys.modules[name]
        raise RaisedError(f"extension {path}: {described(error)}") from error
    return module


def add(module: ModuleType, path: Path) -> None:
    for operation in getattr(module, "OPERATIONS", ()):
        insert(OPERATIONS, operation, path)
    for algorithm in getattr(module, "ALGORITHMS", ()):
        insert(ALGORITHMS, algorithm, path)
    for name, variants in getattr(module, "VARIANTS", {}).items():
        add_variants(name, variants, path)
    for name, dtypes in getattr(module, "DTYPES", {}).items():
        for dtype, computing in dtypes.items():
            if dtype.name not in DTYPES:
                insert(DTYPES, dtype, path)
            operation = operation_of(name, path)
            ladder = tuple(
                dataclasses.replace(each, dtypes=(*operation.dtypes_of(each), dtype.name))
                if each.name in computing and dtype.name not in each.dtypes
                else dataclasses.replace(each, dtypes=operation.dtypes_of(each))
                for each in operation.ladder
            )
            OPERATIONS[name] = dataclasses.replace(operation, dtypes=(*operation.dtypes, dtype.name), ladder=ladder)


def add_variants(name: str, variants: Iterable[Variant], path: Path) -> None:
    operation = operation_of(name, path)
    for variant in variants:
        if variant.name in {each.name for each in operation.ladder}:
            raise ExtensionError(f"extension {path}: {name} has a variant {variant.name!r} already")
    OPERATIONS[name] = dataclasses.replace(operation, ladder=(*operation.ladder, *variants))


def insert(table: dict[str, Any], record: Any, path: Path) -> None:
    if record.name in table:
        raise ExtensionError(f"extension {path}: {record.name!r} exists already")
    table[record.name] = record


def operation_of(name: str, path: Path) -> Operation:
    if name not in OPERATIONS:
        raise ExtensionError(f"extension {path}: {name!r} is unknown; allowed: {', '.join(OPERATIONS)}")
    return OPERATIONS[name]
