"""Fingerprints: digests of everything that affects the times and the verdict of a point.

A fingerprint covers the point, the settings of the measurement, the variant's record, its source with the headers, the
code that prepares, launches, times and checks it, and the versions of the libraries used. Code is read as text and not
imported, because planning needs neither MPI nor a GPU. Comments, docstrings, annotations and error messages have
no effect, nor have the functions and fields of records that are marked as untimed where they are defined.
"""

import ast
import dataclasses
import functools
import hashlib
import importlib.metadata
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import hpcmm
from hpcmm import kernels
from hpcmm.model import TEXTBOOK, Operation, Task, Variant
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import DType
from hpcmm.model.measurement import Measuring, Point
from hpcmm.operations import choice, task_of
from hpcmm.parallel import ALGORITHMS
from hpcmm.parallel.algorithm import Algorithm

PACKAGE = Path(hpcmm.__file__).parent
RECORDED = "revision.txt"  # in the package, the commit that a build records; no source
MEASURING = [("hpcmm.bench.measure", name) for name in ("measure_point", "Problem")]

Name = tuple[str, str]  # module, and name of a definition in it


def digest(value: Any) -> str:
    """Return a digest of a value of JSON types and records, the same in every process."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dataclasses.asdict).encode()).hexdigest()


def forget() -> None:
    """Clear the caches of sources, which may have changed."""
    for cached in (_file_text, of_code, of_algorithm, versions):
        cached.cache_clear()
    _digests.clear()


_digests: dict[tuple, str] = {}  # of tasks, because many points share them


def of_point(point: Point, measuring: Measuring, transport: str, share_gpu: bool) -> str:
    """Return the fingerprint of a point: 16 hexadecimal digits.

    The config's choice of a ``transport`` counts for algorithms other than the textbook's, and ``share_gpu`` for
    several ranks on GPUs.
    """
    task = task_of(point)
    device = DEVICES[task.variant.device]
    baseline = task.operation.baseline(device.name, task.dtype)
    parts = [
        *(point.key, measuring, versions(device.libraries)),
        of_task(task),
        of_task(dataclasses.replace(task, variant=baseline, tile=0)) if baseline else "",
        *(of_algorithm(ALGORITHMS[name]) for name in (point.algorithm, TEXTBOOK)),
        transport if point.algorithm != TEXTBOOK else "",
        share_gpu and point.ranks > 1 and device.accelerator,
    ]
    return digest(parts)[:16]


def of_task(task: Task) -> str:
    """Return a digest of the code that prepares, launches, times and checks a task."""
    # the key has the identities of records: comparing them would take longer than everything else
    key = (id(task.operation), id(task.variant), task.dtype)
    if key not in _digests:
        _digests[key] = _of_task(task.operation, task.variant, task.element)
    return _digests[key]


def _of_task(operation: Operation, variant: Variant, element: DType) -> str:
    geometry = variant.geometry_of(element.name)
    functions = [operation.draw, operation.reference, operation.reference_on, operation.arguments, variant.library]
    roots = [*MEASURING, DEVICES[variant.device].backend, *map(defined, filter(None, functions))]
    roots += sorted({defined(each) for each in (*classes_of(geometry), *classes_of(variant.picks))})
    picked = variant.picks.rungs(element.name) if variant.picks else ()
    # kernels that empty caches or keep a device busy, and the sums that verify products of any device
    helpers = sorted({*kernels.FOLDER.glob("*" + DEVICES[variant.device].suffix), kernels.FOLDER / "verify.c"})
    parts = [
        {f.name: getattr(variant, f.name) for f in dataclasses.fields(variant) if f.metadata.get("timed", True)},
        *(dataclasses.asdict(each) if dataclasses.is_dataclass(each) else None for each in (geometry, variant.picks)),
        [_of_task(operation, operation.variant(name), element) for name in picked],
        choice.times(variant, element.name),
        [bound(function) for function in functions],
        [element.name, element.c_of(variant.device), element.accumulator, element.truth],
        operation.macros.get(variant.device, {}),
        [dataclasses.asdict(operand) for operand in operation.operands],
        of_source(operation, variant),
        [bare(helper.read_text()) for helper in helpers],
        of_code(tuple(roots)),
    ]
    return digest(parts)


@functools.cache
def of_algorithm(algorithm: Algorithm) -> str:
    """Return a digest of the code that distributes an operation by an algorithm."""
    folder = PACKAGE / "parallel" / "transports"
    modules = [f"hpcmm.parallel.transports.{path.stem}" for path in sorted(folder.glob("[a-z]*.py"))]
    transports = [(module, name) for module in modules for name in _definitions(module, _file_text(module))]
    return of_code((defined(algorithm.distribution), *transports))


def of_source(operation: Operation, variant: Variant) -> str:
    """Return a digest of a variant's source and headers without comments, and ``HPCMM_SIMD`` if it is read."""
    if variant.library or variant.picks:
        return ""
    path = kernels.source(operation, variant)
    if variant.function:
        return digest(path.read_text())
    texts = [bare(file.read_text(errors="backslashreplace")) for file in (path, *kernels.headers(path))]
    chosen = os.environ.get("HPCMM_SIMD", "widest") if any("HPCMM_SIMD" in text for text in texts) else None
    return digest([texts, chosen])


@functools.cache
def bare(source: str) -> str:
    """Return C or CUDA without comments, with each run of white space as one blank."""
    return " ".join(kernels.without_comments(source).split())


@functools.cache
def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of the installed packages among ``packages``."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def defined(value: Callable) -> Name:
    """Return the module and name of a function or class; for a partial, of its function."""
    value = value.func if isinstance(value, functools.partial) else value
    return value.__module__, value.__qualname__.partition(".")[0]


def classes_of(value: Any) -> Iterable[type]:
    """Yield the class of a record, and those of the records in its fields."""
    if dataclasses.is_dataclass(value):
        yield type(value)
        value = vars(value)
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for each in value:
        yield from classes_of(each)


def bound(value: Callable | None) -> list:
    """Return the arguments that a partial binds."""
    return [list(value.args), value.keywords] if isinstance(value, functools.partial) else []


# --- code as text --------------------------------------------------------------------------------------------------


@functools.cache
def of_code(roots: tuple[Name, ...]) -> str:
    """Return a digest of definitions and of everything in this package that they refer to by name."""
    found: dict[Name, str] = {}
    waiting = list(roots)
    while waiting:
        module, own = name = waiting.pop()
        if name in found or not (definition := _definitions(module, _file_text(module)).get(own)):
            continue
        text, references = definition
        # The definition of a name counts, not its import. Only definitions can be tables: this module imports all
        # modules that define one, but other modules are imported in some processes only.
        if not (text and is_table(*name)):
            found[name] = text
            waiting += references
    return digest(sorted((*name, text) for name, text in found.items()))


def is_table(module: str, name: str) -> bool:
    """Return whether a name is a table of records by their names; only the records of a point affect its times."""
    table = getattr(sys.modules.get(module), name, None)
    if not table or not isinstance(table, Mapping):
        return False
    return all(getattr(record, "name", None) == key for key, record in table.items())


@functools.cache
def _definitions(module: str, source: str) -> dict[str, tuple[str, tuple[Name, ...]]]:
    """Return a module's definitions, and its imports of this package, as text and the names that each refers to."""
    tree = ast.parse(source)
    imports = {
        name.asname or name.name: (node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hpcmm"
        for name in node.names
    }
    modules = {name: inside for name, of in imports.items() if _path(inside := ".".join(of))}
    found: dict[str, tuple] = {name: ("", (of,)) for name, of in imports.items() if name not in modules}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defines = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defines = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        else:
            continue
        if code := Timed().visit(node):
            nodes = [*ast.walk(code)]
            references = [(module, each.id) for each in nodes if isinstance(each, ast.Name)]
            parts = [each for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)]
            references += [(modules[each.value.id], each.attr) for each in parts if each.value.id in modules]
            found |= dict.fromkeys(defines, (ast.dump(code), tuple(dict.fromkeys(references))))
    return found


@functools.cache
def _file_text(module: str) -> str:
    """Return the source of a module: under ``PACKAGE`` for this package, from its own file for an extension."""
    if module.partition(".")[0] != "hpcmm":
        return Path(inspect.getfile(sys.modules[module])).read_text()
    return _path(module).read_text()


def _path(module: str) -> Path | None:
    """Return the file of a module of this package; None if there is none of that name."""
    place = PACKAGE.joinpath(*module.split(".")[1:])
    return next(filter(Path.exists, (place.with_suffix(".py"), place / "__init__.py")), None)


class Timed(ast.NodeTransformer):
    """Remove docstrings, annotations, error messages, and functions without effect on times."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if any(isinstance(each, ast.Name) and each.id == "untimed" for each in node.decorator_list):
            return None
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        node.returns = None
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._without_docstring(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Raise()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant("")
        return self.generic_visit(node)

    def _without_docstring(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        return node


def of_profile(points: Iterable[Point], cache: str, seed: int) -> str:
    """Return a digest that changes when a profile must be repeated."""
    points = list(points)
    return digest([[point.key for point in points], [of_task(task_of(point)) for point in points], cache, seed])
