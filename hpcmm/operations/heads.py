"""The head of a kernel's file: the record of a rung of this package, or of a kernel of a user.

A head is YAML under the line ``hpcmm:`` of a comment before the first code. It ends at an empty line or with the
comment. ``head.schema.yaml`` has its keys; all have defaults. Numbers may be expressions over the constants and the
keys before them. A ``grid`` is expressions over the sizes of the problem, too.
"""

import ast
import dataclasses
import difflib
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import yaml

from hpcmm import kernels
from hpcmm.model import Geometry, Task, Variant
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.records import beside, trusted
from hpcmm.system import reader
from hpcmm.system.reader import ConfigError, Loader, not_allowed, parse, schema_errors, schema_problems

SCHEMA = beside(__file__, "head.schema.yaml")
LADDERS = beside(__file__, "ladders.yaml")
MARK = "hpcmm:"
AMX = "amx"  # the architecture of C kernels that need it
REPLACED = {"launches", "workspace", "found_in"}  # by ``host``
# Keys whose values are numbers, in the order in which they are evaluated. A later one may use an earlier one.
NUMBERS = ("rows", "columns", "depth", "block", "per_thread", "max_blocks", "per_sm", "long", "stride", "capacity",
           "shared_bytes", "cluster", "tensor_maps")  # fmt: skip
LISTS = ("block", "cluster")  # may be lists of up to three numbers
ZERO_ALLOWED = ("shared_bytes", "max_blocks", "per_sm", "long")
SWITCHES = ("staged", "one_launch", "constant_memory", "pointers")
AS_IN_RECORD = ("source", "counterpart", "shelf", "deterministic", "exact", "pitched", "guard_rows", "leaf_bytes",
                "invariant", "cooperative", "slow", "context", "traffic", "all_threads")  # fmt: skip
MOST = 2**31 - 1
MOST_THREADS, MOST_SHARED = 1024, 227 * 1024  # of a block, on any GPU until compute capability 10.0
MOST_BYTES = 10_000_000  # of a file
MOST_CHARACTERS = 100_000  # of a head, and of the empty lines that stand for what precedes it: YAML reads 1 MB a second
PYTHON = ".py"
BLOCK_COMMENT = re.compile(r"\s*/\*.*?\*/", re.DOTALL)
LINE_COMMENT = re.compile(r"\s*//[^\n]*(?:\n|\Z)")
PYTHON_COMMENT = re.compile(r"\s*#[^\n]*(?:\n|\Z)")
MARK_ANYWHERE = re.compile(
    r"""^[ \t]*(?:/\*+|//+|\*+|#+!?|\"{3}|'{3})?[ \t]*(hpcmm[ \t]*:)""", re.MULTILINE | re.IGNORECASE
)
KEY = re.compile(r"\s*([a-z_]+)[ \t]*:")
# What an expression may consist of
ARITHMETIC = (
    *(ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv),
    *(ast.Mod, ast.Call, ast.IfExp, ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.Eq),
)
FUNCTIONS = {"__builtins__": {"min": min, "max": max}}


class KernelFileError(ConfigError):
    """A kernel's file that cannot be used; each problem names the file, the line and the key."""


class LaunchError(KernelFileError):
    """A kernel whose head describes a launch that no GPU supports."""


class Problems:
    """Problems of a head, with the lines of its keys."""

    def __init__(self, path: Path, lines: Mapping[str, int]):
        self.path, self.lines, self.found = path, lines, []

    def add(self, key: str, what: str) -> None:
        line = f":{self.lines[key]}" if key in self.lines else ""
        self.found.append(f"{self.path}{line}: {key}: {what}")

    def check(self, error: type[KernelFileError] = KernelFileError) -> None:
        if self.found:
            raise error(*dict.fromkeys(self.found))


def rung(
    path: Path, geometry: type[Geometry] | None, dtypes: Sequence[str], launches: Geometry | Mapping | None = None
) -> Variant:
    """Read the record of a rung of this package.

    The keys of a head describe ``geometry``. ``launches``, by type if types differ in it, is one that a head cannot
    describe. ``dtypes`` are the element types if the head names none.
    """
    (device,) = (kind for kind in DEVICES.values() if kind.suffix == path.suffix)
    body, start = body_of(text_of(path), path)
    if not start:
        raise KernelFileError(f"{path}: no head; a rung of this package has one under the line {MARK}")
    head = trusted(body)[MARK[:-1]]
    variant = record(path.stem, device.name, head)
    if launches is None and device.accelerator and geometry:
        problems = Problems(path, {})
        launches = geometries(geometry, head, variant.dtypes or dtypes, problems)
        problems.check()
    return with_geometry(variant, launches)


def record(name: str, device: str, head: Mapping[str, Any]) -> Variant:
    """Return the fields of a record that do not depend on the launch."""
    dtypes = tuple(head.get("dtypes", ()))
    arithmetic = head.get("arithmetic", {})
    return Variant(
        name,
        device,
        head.get("change", ""),
        dtypes=dtypes,
        architecture="" if head.get("architecture") == AMX else head.get("architecture", ""),
        unsupported="why_no_amx" if head.get("architecture") == AMX else "",
        options=tuple(head.get("options", ())),
        arithmetic=dict.fromkeys(dtypes or DTYPES, arithmetic) if isinstance(arithmetic, str) else arithmetic,
        **{key: head[key] for key in AS_IN_RECORD if key in head},
    )


def with_geometry(variant: Variant, geometry: Geometry | Mapping[str, Geometry] | None) -> Variant:
    """Return a record with a geometry, and the tiles and the capacity that the geometry has."""
    first = next(iter(geometry.values())) if isinstance(geometry, Mapping) else geometry
    given = {name: getattr(first, name) for name in ("tiles", "capacity") if hasattr(first, name)}
    return dataclasses.replace(variant, geometry=geometry, **given)


# --- the comment ---------------------------------------------------------------------------------------------------


def text_of(path: Path) -> str:
    try:
        return reader.text_of(path, MOST_BYTES)
    except ConfigError as error:
        raise KernelFileError(*error.problems) from error


def leading_comments(text: str, python: bool) -> str:
    """Return the comments before the first code, with what opens, continues and closes them replaced by blanks.

    >>> leading_comments("/* A kernel.\\n * hpcmm:\\n *   rows: 8 */\\nint x; /* no */", False)
    '   A kernel.\\n   hpcmm:\\n     rows: 8   '
    """
    comments = text[: end_of_comments(text, python)]
    opening = r"#+!?" if python else r"/\*+(?!/)|//+|\*(?!/)"
    blank = re.sub(rf"^([ \t]*)({opening})", lambda each: each[1] + " " * len(each[2]), comments, flags=re.MULTILINE)
    return blank if python else re.sub(r"\*+/", lambda each: " " * len(each[0]), blank)


def end_of_comments(text: str, python: bool = False) -> int:
    end = 0
    patterns = (PYTHON_COMMENT,) if python else (BLOCK_COMMENT, LINE_COMMENT)
    while found := next(filter(None, (pattern.match(text, end) for pattern in patterns)), None):
        end = found.end()
    return end


def whole(path: Path) -> str:
    """Return the text of a source; another source that it includes, to give it another head, stands in its place."""

    def code(included: re.Match) -> str:
        text = (kernels.FOLDER / included[1]).read_text()
        return text[end_of_comments(text) :].strip()

    return re.sub(rf'^#include "(\w+/\w+/\w+\{path.suffix})"$', code, path.read_text(), flags=re.MULTILINE)


def body_of(text: str, path: Path) -> tuple[str, int]:
    """Return the YAML of a file's head, at its lines, and the line of ``hpcmm:`` from 1; empty and 0 without a head."""
    lines = leading_comments(text, path.suffix == PYTHON).splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip().startswith(MARK)]
    if not starts:
        return "", 0
    if len(starts) > 1:
        raise KernelFileError(f"{path}:{starts[1] + 1}: {MARK} appears twice; the first is in line {starts[0] + 1}")
    start = starts[0]
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].strip()), len(lines))
    body = "\n" * start + "\n".join(lines[start:end])
    if len(body) > MOST_CHARACTERS:
        raise KernelFileError(
            f"{path}:{start + 1}: {MARK} a head of {len(body) - start} characters, after {start} lines; "
            f"allowed: {MOST_CHARACTERS} together"
        )
    return body, start + 1


def check_unread(text: str, path: Path, start: int, end: int) -> None:
    """Raise an error if a line looks like part of a head, but is outside the lines ``start`` to ``end`` of the head.

    Without it a misplaced head would be silently ignored, and a correct kernel would be launched wrongly.
    """
    for found in MARK_ANYWHERE.finditer(text):
        line = text.count("\n", 0, found.start(1)) + 1
        if line != start:
            what = f"{found[1]!r} is not read"
            if found[1] != MARK:
                raise KernelFileError(f"{path}:{line}: {what}; write {MARK!r}")
            comment = "lines that begin with #" if path.suffix == PYTHON else "the comments"
            raise KernelFileError(f"{path}:{line}: {what}; move it up: a head stands in {comment} before any code")
    lines = leading_comments(text, path.suffix == PYTHON).splitlines()
    keys = [each[1] if (each := KEY.match(line)) and each[1] in SCHEMA["properties"] else "" for line in lines]
    for i, line in enumerate(lines):
        if start and i >= end and keys[i]:
            raise KernelFileError(
                f"{path}:{i + 1}: {keys[i]}: not read: the head ends at the empty line {end + 1}; remove that line"
            )
        word = "" if start or not any(keys[i + 1 : i + 2]) else line.strip().lower().removesuffix(":").rstrip()
        if difflib.get_close_matches(word, [MARK[:-1]], cutoff=0.75):
            raise KernelFileError(f"{path}:{i + 1}: {line.strip()!r} begins no head; did you mean {MARK!r}?")


def head_of(text: str, path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the keys of a file's head, and their lines; raise KernelFileError if lines elsewhere look like a head."""
    body, start = body_of(text, path)
    check_unread(text, path, start, body.count("\n") + 1)
    if not start:
        return {}, {}
    try:
        value = parse(body, path)
        node = yaml.compose(body, Loader)
    except ConfigError as error:
        raise KernelFileError(*(re.sub(r": line (\d+), ", r":\1: ", problem) for problem in error.problems)) from error
    inner = value.get(MARK[:-1]) if isinstance(value, dict) and len(value) == 1 else ""
    if inner is None:
        return {}, {}
    if not isinstance(inner, dict):
        raise KernelFileError(
            f"{path}:{start}: {MARK} is followed by keys with values, indented below it, until an empty line"
        )
    places = {key.value: key.start_mark.line + 1 for key, _ in node.value[0][1].value}
    problems = Problems(path, places)
    for key in REPLACED & inner.keys():
        problems.add(
            key,
            "no key; write a function into the file that allocates, launches and returns the result as a program of "
            "CUDA does, and give its name: host: total(n=n)",
        )
    problems.check()
    for error in schema_errors(SCHEMA, inner):
        for each in schema_problems(error):
            unknown = re.match(r"unknown key '([^']*)'", each)
            key = unknown[1] if unknown else str(error.absolute_path[0])
            problems.found.append(f"{path}:{places.get(key, start)}: {each}")
    problems.check()
    return inner, places


# --- the launch ----------------------------------------------------------------------------------------------------


def keys_of(geometry: type[Geometry] | None) -> set[str]:
    return {field.name for field in dataclasses.fields(geometry)} if geometry else set()


def geometries(
    geometry: type[Geometry], head: Mapping[str, Any], dtypes: Sequence[str], problems: Problems
) -> Geometry | Mapping[str, Geometry] | None:
    """Return the geometry of a head: one for all types, or one each if it depends on the size of an element."""
    found = {dtype: launched(geometry, head, DTYPES[dtype].itemsize, problems) for dtype in dtypes}
    first = next(iter(found.values()), None)
    return first if all(other == first for other in found.values()) else found


def launched(geometry: type[Geometry], head: Mapping[str, Any], itemsize: int, problems: Problems) -> Geometry | None:
    """Return the geometry of a head for elements of a size in bytes; None after a problem."""
    values: dict[str, Any] = {"constants": head["constants"]} if "constants" in head else {}
    defined = {"ITEMSIZE": itemsize, **head.get("constants", {})}
    fields = {field.name: field.default for field in dataclasses.fields(geometry)}
    for key in (key for key in NUMBERS if key in head and key in fields):
        try:
            found = evaluated(key, head[key], defined)
        except ValueError:
            names = ", ".join(defined)
            one = "an integer, or an expression of + - * / % and parentheses over " + names
            problems.add(key, f"{not_allowed(head[key])}{one}{', or a list of up to three' if key in LISTS else ''}")
            continue
        numbers = found.values() if isinstance(found, Mapping) else found
        least = 0 if key in ZERO_ALLOWED else 1
        if not all(least <= value <= MOST for value in numbers):
            problems.add(
                key, f"{head[key]!r} is {', '.join(map(str, numbers))}; allowed: at least {least}, at most {MOST}"
            )
        many = isinstance(fields[key], tuple)
        if isinstance(head[key], list) and not many:
            problems.add(key, f"{not_allowed(head[key])}one number for this operation")
        values[key] = found if many or isinstance(found, Mapping) else found[0]
        defined[key.upper()] = math.prod(numbers)
    check_limits(defined, head, problems)
    values |= {key: head[key] for key in (*SWITCHES, "adds") if key in head and key in fields}
    values |= {key: tuple(head[key]) for key in ("tiles", "grid") if key in head and key in fields}
    if problems.found:
        return None
    try:
        return geometry(**values)
    except ValueError as error:
        problems.add("grid" if "grid" in head else "block", str(error))
        return None


def evaluated(key: str, given: Any, defined: Mapping[str, int]) -> tuple[int, ...] | dict[str, int]:
    """Return the numbers of a key. Raise ValueError if one is neither a number nor an expression of defined names."""
    if key == "tensor_maps":
        return {name: number(each, defined) for name, each in given.items()}
    several = isinstance(given, list) and key in LISTS
    if several and not 1 <= len(given) <= 3:
        raise ValueError(given)
    return tuple(number(item, defined) for item in (given if several else [given]))


def check_limits(defined: Mapping[str, int], head: Mapping[str, Any], problems: Problems) -> None:
    if defined.get("BLOCK", 0) > MOST_THREADS:
        problems.add("block", f"{defined['BLOCK']} threads; allowed: at most {MOST_THREADS}")
    if defined.get("SHARED_BYTES", 0) > MOST_SHARED:
        shared = f"{defined['SHARED_BYTES']} bytes of {head['shared_bytes']!r}"
        problems.add("shared_bytes", f"{shared}; allowed: at most {MOST_SHARED}")
    for width in head.get("tiles", ()):
        if not 1 <= width**2 <= MOST_THREADS:
            problems.add("tiles", f"{width} x {width} threads; allowed: 1 to {MOST_THREADS}")


def sizes_of(task: Task) -> dict[str, int]:
    return dict(zip(task.operation.dimensions, task.shape, strict=True))


def number(given: Any, defined: Mapping[str, int]) -> int:
    """Return a number, or the value of an arithmetic expression; ``/`` rounds down as in C, ``ceil(a / b)`` up.

    >>> number("(ROWS + 4) * ITEMSIZE / 2", {"ROWS": 64, "ITEMSIZE": 4})
    136
    >>> number("min(ceil(n / 32), 7)", {"n": 65})
    3
    """
    if type(given) is int:
        return given
    if not isinstance(given, str) or len(given) > 500:
        raise ValueError(given)
    try:
        return int(eval(expression(given), FUNCTIONS, defined))
    except (ArithmeticError, LookupError, NameError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(given) from error


@functools.lru_cache(1024)
def expression(text: str) -> CodeType:
    """Return a compiled expression of whole numbers and names; raise ValueError for any other code."""
    parsed = Whole().visit(ast.parse(text.strip(), mode="eval").body)
    return compile(ast.fix_missing_locations(ast.Expression(parsed)), "<head>", "eval")


class Whole(ast.NodeTransformer):
    """Refuses all but ``ARITHMETIC``, and divides as C does."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        large = isinstance(node, ast.Constant) and not (type(node.value) is int and abs(node.value) <= MOST)
        if large or not isinstance(node, ARITHMETIC):
            raise ValueError(ast.dump(node))
        return super().generic_visit(node)

    def visit_Div(self, node: ast.Div) -> ast.AST:
        return ast.FloorDiv()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(func=ast.Name(id="ceil"), args=[ast.BinOp(op=ast.Div()) as quotient]):
                below = ast.BinOp(ast.UnaryOp(ast.USub(), quotient.left), ast.FloorDiv(), quotient.right)
                return self.generic_visit(ast.UnaryOp(ast.USub(), below))
        return self.generic_visit(node)


# --- ladders -------------------------------------------------------------------------------------------------------


def ladder(
    folder: str,
    dtypes: Sequence[str],
    *functions: Callable[..., Any],
    geometry: type[Geometry] | None = None,
    launches: Mapping[str, Geometry | Mapping[str, Geometry]] | None = None,
    picks: Callable[[Mapping[str, Sequence[str]]], Any] | None = None,
) -> tuple[Variant, ...]:
    """Return the records of a ladder, in the order of ``ladders.yaml``.

    The heads of the sources in ``folder`` are the records of rungs, as ``rung`` reads them. ``functions`` are those
    that the records of libraries name, ``launches`` are by name, and ``picks`` makes a pick of its rungs.
    """
    suffixes = [device.suffix for device in DEVICES.values()]
    paths = {path.stem: path for path in (kernels.FOLDER / folder).glob("*/*") if path.suffix in suffixes}
    named, launches = {each.__name__: each for each in functions}, launches or {}

    def beside(name: str, head: Mapping[str, Any]) -> Variant:
        given = {key: named[head[key]] for key in ("library", "workspace") if key in head}
        given |= {key: head[key] for key in ("provider", "tunes", "unsupported") if key in head}
        if "call" in head:
            given["library"] = functools.partial(given["library"], call=head["call"])
        if "picks" in head:
            given["picks"] = picks({dtype: tuple(names) for dtype, names in head["picks"].items()})
        return dataclasses.replace(record(name, head["device"], head), **given)

    return tuple(
        rung(paths[each], geometry, dtypes, launches.get(each))
        if isinstance(each, str)
        else beside(*next(iter(each.items())))
        for each in LADDERS[folder]
    )
