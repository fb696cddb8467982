"""Kernels of users: files of C, CUDA or Python outside this package, each with its record in its first comment.

The record is YAML under the line ``hpcmm:`` of a comment before the first code. It ends at an empty line or with the
comment. ``kernel.schema.yaml`` has its keys; all have defaults. ``block``, ``rows``, ``columns``, ``per_thread``,
``max_blocks``, ``shared_bytes`` and ``cluster`` may be arithmetic over the constants and the keys before them.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hpcmm.devices import DEVICES
from hpcmm.dtypes import DTYPES
from hpcmm.kernels import name_of
from hpcmm.model import Geometry, Operation, Task, Variant
from hpcmm.operations import OPERATIONS, with_kernels
from hpcmm.reader import ConfigError, Loader, not_allowed, parse, schema_errors, schema_of, schema_problems

SCHEMA = schema_of(Path(__file__).with_name("kernel.schema.yaml"))
MARK = "hpcmm:"
LAUNCHED = ("rows", "columns", "block", "per_thread", "max_blocks", "shared_bytes", "cluster")  # in this order
LISTS = ("block", "cluster")  # may be lists of up to three numbers
MOST = 2**31 - 1
MOST_THREADS, MOST_SHARED = 1024, 227 * 1024  # of a block, on any GPU until compute capability 10.0
MOST_BYTES = 10_000_000  # of a file
PYTHON = ".py"
BLOCK_COMMENT = re.compile(r"\s*/\*.*?\*/", re.DOTALL)
LINE_COMMENT = re.compile(r"\s*//[^\n]*(?:\n|\Z)")
PYTHON_COMMENT = re.compile(r"\s*#[^\n]*(?:\n|\Z)")
ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class KernelFileError(ConfigError):
    """A kernel's file that cannot be used; each problem names the file, the line and the key."""


class LaunchError(KernelFileError):
    """A kernel whose head describes a launch that no GPU supports."""


@dataclass(frozen=True)
class OwnKernel:
    """A kernel of a user.

    Parameters
    ----------
    path : Path
    operations : tuple of str
        Names of the operations that it computes.
    variant : Variant
        Its record, whose name is that of the file.
    """

    path: Path
    operations: tuple[str, ...]
    variant: Variant


@dataclass(frozen=True)
class Constants(Geometry):
    """The macros of a C kernel, which has no launch."""

    constants: Mapping[str, int]

    def macros(self, task: Task) -> dict[str, int]:
        return dict(self.constants)


def read(path: str | Path, changes: Mapping[str, int] | None = None) -> OwnKernel:
    """Read a C or CUDA kernel and its head.

    Parameters
    ----------
    path : Path
    changes : mapping, optional
        Values that replace those of the head: of constants, of ``TILE``, and of the keys that are compiled as
        ``ROWS``, ``BLOCK`` and so on. The name of the variant has them.

    Raises
    ------
    KernelFileError
        With all problems.
    """
    path = Path(path).resolve()
    text = text_of(path)
    head, lines = head_of(text, path)
    device = next((each for each in DEVICES.values() if each.suffix == path.suffix), None)
    if device is None:
        allowed = ", ".join(each.suffix for each in DEVICES.values())
        raise KernelFileError(f"{path}: not a kernel file; allowed suffixes: {allowed} and {PYTHON}")
    problems = Problems(path, lines)
    chosen = chosen_operation(head, text, problems)
    known_dtypes(head, chosen, device.name, problems)
    if device.accelerator:
        allowed = {each.name for each in dataclasses.fields(chosen.geometry)} if chosen.geometry else set()
    else:
        allowed = set()
    for key in (*LAUNCHED, "tiles", "one_launch", "device"):
        if key in head and key not in allowed:
            what = f"{chosen.name} on the {device.title}"
            problems.add(key, f"not a key of {what}; allowed: {', '.join(sorted(allowed)) or 'none of the launch'}")
    apply(changes or {}, head, allowed, problems)
    if "tiles" in head and "block" in head:
        problems.add("tiles", "not together with block; give one of them")
    own_macros(head, chosen, text, problems)
    if device.accelerator and chosen.geometry is None:
        problems.add("operation", f"{chosen.name} has no launch for {path.suffix} files")
    problems.check()
    variant = record(name_of(path, changes or {}), path, device.name, head)
    dtypes = chosen.dtypes_of(variant)
    geometry: Any = Constants(head.get("constants", {}))
    if device.accelerator:
        unstated_shared_memory(head, text, problems)
        problems.check()
        geometry = {each: launched(chosen, head, DTYPES[each].itemsize, problems) for each in dtypes}
        problems.check(LaunchError)
    first = next(iter(geometry.values())) if isinstance(geometry, dict) else geometry
    variant = dataclasses.replace(variant, geometry=geometry, dtypes=dtypes, tiles=tuple(getattr(first, "tiles", ())))
    return OwnKernel(path, tuple(n for n, each in OPERATIONS.items() if each.kernels == chosen.kernels), variant)


def of_module(path: Path, module: Any) -> list[OwnKernel]:
    """Return the kernels of a Python file: a function for each operation whose name it has."""
    text = text_of(path)
    head, lines = head_of(text, path)
    problems = Problems(path, lines)
    allowed = ("dtypes", "description", "device", "deterministic", "arithmetic", "operation")
    for key in head:
        if key not in allowed:
            problems.add(key, f"not a key of Python files; allowed: {', '.join(allowed)}")
    accelerators = [each.name for each in DEVICES.values() if each.accelerator]
    device = head.get("device", accelerators[0])
    if device not in DEVICES:
        problems.add("device", f"{not_allowed(device)}{', '.join(DEVICES)}")
    found = [each for name, each in OPERATIONS.items() if callable(getattr(module, name, None))]
    if "operation" in head:
        found = [each for each in found if each.name == head["operation"]]
        if not found:
            problems.add("operation", f"the file has no function {head['operation']!r}")
    for operation in found:
        known_dtypes(head, operation, device, problems)
    problems.check()
    variant = record(path.name, path, device, head)
    return [
        OwnKernel(
            path,
            (each.name,),
            dataclasses.replace(variant, function=getattr(module, each.name), dtypes=each.dtypes_of(variant)),
        )
        for each in found
    ]


def record(name: str, path: Path, device: str, head: Mapping[str, Any]) -> Variant:
    """Return the fields of a variant's record that do not depend on the kind of its file."""
    dtypes = tuple(head.get("dtypes", ()))
    return Variant(
        name,
        device,
        head.get("description", "a kernel of a user"),
        path=path,
        dtypes=dtypes,
        architecture=head.get("architecture", ""),
        options=tuple(head.get("options", ())),
        deterministic=head.get("deterministic", True),
        arithmetic=dict.fromkeys(dtypes or DTYPES, head["arithmetic"]) if "arithmetic" in head else {},
        slow=not DEVICES[device].accelerator,  # its speed is unknown
    )


# --- the comment ---------------------------------------------------------------------------------------------------


class Problems:
    """Problems of a head, with the lines of its keys."""

    def __init__(self, path: Path, lines: Mapping[str, int]):
        self.path, self.lines, self.found = path, lines, []

    def add(self, key: str, what: str) -> None:
        line = f":{self.lines[key]}" if key in self.lines else ""
        self.found.append(f"{self.path}{line}: {key}: {what}")

    def check(self, error: type[KernelFileError] = KernelFileError) -> None:
        """Raise the problems, if there are any."""
        if self.found:
            raise error(*dict.fromkeys(self.found))


def text_of(path: Path) -> str:
    """Return the text of a kernel's file."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise KernelFileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KernelFileError(f"{path}: not a text file in UTF-8") from error
    if len(content) > MOST_BYTES:
        raise KernelFileError(f"{path}: too long; allowed: {MOST_BYTES} bytes")
    return text


def leading_comments(text: str, python: bool) -> str:
    """Return the comments before the first code, with what opens, continues and closes them replaced by blanks.

    >>> leading_comments("/* A kernel.\\n * hpcmm:\\n *   rows: 8 */\\nint x; /* no */", False)
    '   A kernel.\\n   hpcmm:\\n     rows: 8   '
    """
    end = 0
    patterns = (PYTHON_COMMENT,) if python else (BLOCK_COMMENT, LINE_COMMENT)
    while found := next(filter(None, (each.match(text, end) for each in patterns)), None):
        end = found.end()
    opening = r"#+!?" if python else r"/\*+(?!/)|//+|\*(?!/)"
    blank = re.sub(rf"^([ \t]*)({opening})", lambda each: each[1] + " " * len(each[2]), text[:end], flags=re.MULTILINE)
    return blank if python else re.sub(r"\*+/", lambda each: " " * len(each[0]), blank)


def head_of(text: str, path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the keys of a file's head, and their lines.

    Raises
    ------
    KernelFileError
        If it is not YAML, or not valid by the schema.
    """
    lines = leading_comments(text, path.suffix == PYTHON).splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip().startswith(MARK)]
    if not starts:
        return {}, {}
    if len(starts) > 1:
        raise KernelFileError(f"{path}:{starts[1] + 1}: {MARK} appears twice; the first is in line {starts[0] + 1}")
    start = starts[0]
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].strip()), len(lines))
    body = "\n" * start + "\n".join(lines[start:end])
    try:
        value = parse(body, path)
        node = yaml.compose(body, Loader)
    except ConfigError as error:
        raise KernelFileError(*(re.sub(r": line (\d+), ", r":\1: ", each) for each in error.problems)) from error
    inner = value[MARK[:-1]]
    if inner is None:
        return {}, {}
    if not isinstance(value, dict) or len(value) > 1 or not isinstance(inner, dict):
        raise KernelFileError(
            f"{path}:{start + 1}: {MARK} is followed by keys with values, indented below it, until an empty line"
        )
    places = {key.value: key.start_mark.line + 1 for key, _ in node.value[0][1].value}
    problems = Problems(path, places)
    for error in schema_errors(SCHEMA, inner):
        for each in schema_problems(error):
            unknown = re.match(r"unknown key '([^']*)'", each)
            key = unknown[1] if unknown else str(error.absolute_path[0])
            problems.found.append(f"{path}:{places.get(key, start + 1)}: {each}")
    problems.check()
    return inner, places


# --- its keys ------------------------------------------------------------------------------------------------------


def chosen_operation(head: Mapping[str, Any], text: str, problems: Problems) -> Operation:
    """Return the operation of a head, else the operation whose function is in the text."""
    known = with_kernels()
    if "operation" in head:
        if head["operation"] not in known:
            problems.add("operation", f"{not_allowed(head['operation'])}{', '.join(known)}")
            problems.check()
        return known[head["operation"]]
    for operation in known.values():
        if re.search(rf"\b{operation.kernels}\s*\(", text):
            return operation
    functions = ", ".join(dict.fromkeys(each.kernels for each in known.values()))
    problems.add("operation", f"the file has none of the functions {functions}; rename its function to one of these")
    problems.check()
    raise AssertionError  # check raises


def known_dtypes(head: Mapping[str, Any], operation: Operation, device: str, problems: Problems) -> None:
    """Report element types of a head that the operation or the device does not have."""
    allowed = [each for each in operation.dtypes if DTYPES[each].is_on(device)]
    for each in head.get("dtypes", ()):
        if each not in allowed:
            problems.add("dtypes", f"{not_allowed(each)}{', '.join(allowed)}")


def apply(changes: Mapping[str, int], head: dict[str, Any], allowed: set[str], problems: Problems) -> None:
    """Replace values of a head by changed ones."""
    constants = head["constants"] = dict(head.get("constants", {}))
    keys = {key.upper(): key for key in LAUNCHED if key in allowed}
    for name, value in changes.items():
        if name in constants:
            constants[name] = value
        elif name == "TILE" and "tiles" in allowed and "block" not in head:
            head["tiles"] = [value]
        elif name in keys:
            head[keys[name]] = value
        else:
            known = [*constants, *keys, *(["TILE"] if "tiles" in allowed and "block" not in head else [])]
            raise KernelFileError(f"{problems.path}: {not_allowed(name)}{', '.join(known) or 'no constant'}")


def own_macros(head: Mapping[str, Any], operation: Operation, text: str, problems: Problems) -> None:
    """Check that no macro of a head has two values."""
    given = {"REAL", "ACCUMULATOR", "TILE", *(key.upper() for key in LAUNCHED)}
    for name in head["constants"]:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            problems.add("constants", f"name {not_allowed(name)}names of C macros")
        elif name in given:
            problems.add("constants", f"{name} is defined by hpcmm; use the key of that name, or rename it")
    for i, line in enumerate(text.splitlines(), 1):
        if (defined := re.match(r"\s*#\s*define\s+(\w+)", line)) and defined[1] in head["constants"]:
            problems.found.append(
                f"{problems.path}:{i}: {defined[1]} is a constant of the head, which compiles the file with it; "
                "remove this line"
            )


def unstated_shared_memory(head: Mapping[str, Any], text: str, problems: Problems) -> None:
    """Report dynamic shared memory without its size."""
    found = re.search(r"extern\s+__shared__", text)
    if found and "shared_bytes" not in head:
        line = text.count("\n", 0, found.start()) + 1
        problems.found.append(
            f"{problems.path}:{line}: dynamic shared memory, but no key shared_bytes in the head; "
            "add it, for example shared_bytes: 1024 * ITEMSIZE"
        )


def launched(operation: Operation, head: Mapping[str, Any], itemsize: int, problems: Problems) -> Geometry | None:
    """Return the geometry of a head for elements of a size; None after a problem."""
    values: dict[str, Any] = {"constants": head["constants"]}
    known = {"ITEMSIZE": itemsize, **head["constants"]}
    for key in LAUNCHED:
        if key not in head:
            continue
        given = head[key]
        several = key in LISTS and isinstance(given, list)
        try:
            if several and not 1 <= len(given) <= 3:
                raise ValueError
            found = tuple(number(each, known) for each in (given if several else [given]))
        except ValueError:
            names = ", ".join(known)
            one = "an integer, or an expression of + - * / % and parentheses over " + names
            problems.add(key, f"{not_allowed(given)}{one}{', or a list of up to three' if key in LISTS else ''}")
            continue
        least = 0 if key in ("shared_bytes", "max_blocks") else 1
        if not all(least <= each <= MOST for each in found):
            problems.add(key, f"{given!r} is {', '.join(map(str, found))}; allowed: at least {least}, at most {MOST}")
        many = key in LISTS and isinstance(default_of(operation.geometry, key), tuple)
        if several and not many:
            problems.add(key, f"{not_allowed(given)}one number for {operation.name}")
        values[key] = found if many else found[0]
        known[key.upper()] = math.prod(found)
        threads, shared = known.get("BLOCK", 0), known.get("SHARED_BYTES", 0)
        if key == "block" and threads > MOST_THREADS:
            problems.add(key, f"{threads} threads; allowed: at most {MOST_THREADS}")
        if key == "shared_bytes" and shared > MOST_SHARED:
            problems.add(key, f"{shared} bytes of {given!r}; allowed: at most {MOST_SHARED}")
    values |= {key: head[key] for key in ("one_launch",) if key in head}
    values |= {key: tuple(head[key]) for key in ("tiles",) if key in head}
    for width in values.get("tiles", ()):
        if not 1 <= width**2 <= MOST_THREADS:
            problems.add("tiles", f"{width} x {width} threads; allowed: 1 to {MOST_THREADS}")
    if problems.found:
        return None
    try:
        return operation.geometry(**values)
    except ValueError as error:
        problems.add("block", str(error))
        return None


def default_of(geometry: type[Geometry], key: str) -> Any:
    return next(each.default for each in dataclasses.fields(geometry) if each.name == key)


def number(given: Any, known: Mapping[str, int]) -> int:
    """Return a number, or the value of an arithmetic expression; ``/`` rounds down as in C.

    >>> number("(ROWS + 4) * ITEMSIZE / 2", {"ROWS": 64, "ITEMSIZE": 4})
    136

    Raises
    ------
    ValueError
        If it is neither.
    """
    if type(given) is int:
        return given
    if not isinstance(given, str) or len(given) > 500:
        raise ValueError(given)
    try:
        return value_of(ast.parse(given.strip(), mode="eval").body, known)
    except (SyntaxError, ZeroDivisionError, KeyError, RecursionError, MemoryError) as error:
        raise ValueError(given) from error


def value_of(node: ast.expr, known: Mapping[str, int]) -> int:
    """Return the value of a parsed expression of integers and known names; raise a ValueError for any other."""
    match node:
        case ast.Constant(value=int(value)) if type(value) is int and abs(value) <= MOST:
            return value
        case ast.Name(id=name):
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value_of(operand, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            return ARITHMETIC[type(op)](value_of(left, known), value_of(right, known))
    raise ValueError(ast.dump(node))
