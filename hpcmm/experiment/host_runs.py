"""Run the host code of a CUDA source without a compiler: its launches for given sizes, with the arrays that they get.

The interpreter follows what decides launches: integers, ``dim3``, pointers, allocations, copies between arrays, loops
and calls of the file's functions. Other values are unknown. It skips loops over data, and code behind a condition that
is unknown.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcmm.experiment.host_code import TYPES, launches, parts_of
from hpcmm.experiment.syntax import Parameter, called_by, function_declarator, parameter, parser, part, text_of, walk
from hpcmm.model import DeviceError

if TYPE_CHECKING:
    from tree_sitter import Node

    from hpcmm.experiment.functions import Source

OF_DEVICE = {"multiProcessorCount": 64, "warpSize": 32, "maxThreadsPerBlock": 1024}  # of any GPU, or usual
INTEGERS = re.compile(r"\b(int|unsigned|long|short|size_t|uint|u?int(32|64)_t|dim3|auto)\b")
MEMORY = re.compile(r"(?:cuda|hip)(Malloc|Memset|Memcpy)(?:Managed|Async)?")
MOST_TURNS, MOST_IN_ALL = 64, 512  # of a loop of numbers, and of all loops
LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
OPERATORS = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, ">": operator.gt},
    **{"<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "<<": operator.lshift},
    **{">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor},
}
FUNCTIONS = {"ceil": math.ceil, "ceilf": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "log2": math.log2}
FUNCTIONS |= {"min": min, "max": max, "pow": pow, "log2f": math.log2, "sqrtf": math.sqrt, "abs": abs}


class Unclear(DeviceError):
    """Host code whose launches depend on what is unknown."""


class Returned(Exception):
    """The end of a function, with its value; also of a loop or of a switch."""

    def __init__(self, kind: str, value: Any = None):
        self.kind, self.value = kind, value


@dataclass(frozen=True)
class Pointer:
    """A place in an array of the host code."""

    array: str
    offset: int = 0  # in elements


@dataclass(frozen=True)
class Place:
    """A variable, or an element of a local array, whose address is taken."""

    names: dict
    key: Any


@dataclass(frozen=True)
class Step:
    """A launch, or an access of the host: ``fill``, ``copy``, ``load`` to the device or ``fetch`` from it.

    ``values`` are the arguments of the launch, or the pointers of the access with what it writes, and its bytes.
    """

    kind: str
    values: tuple[Any, ...]
    site: int = 0  # of a launch: its number in the source
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    shared_bytes: int = 0


@dataclass
class HostRun:
    """A run of a function of the host code: ``sizes`` are the values of names, whatever the code gives to these."""

    source: Source
    sizes: Mapping[str, int]
    itemsize: int = 4  # bytes of an element of a type of a template
    steps: list[Step] = field(default_factory=list)
    arrays: dict[str, int | None] = field(default_factory=dict)  # bytes of each; None if they are unknown
    # Integers that the code defines by itself, with the values that it gives to them; None if these are unknown
    used: dict[str, Any] = field(default_factory=dict)
    counting: bool = False  # whether a loop begins, whose counter is no size
    turns: int = 0  # of all loops

    def of(self, name: str) -> HostRun:
        """Run a function with the parameters that it has; raise Unclear if a launch is unknown."""
        try:
            self.call(name, [None] * len(self.source.parameters(name)))
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:  # code of another kind
            raise Unclear(f"{name}: {error}") from error
        return self

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        names: dict[Any, Any] = {}
        listed = part(function_declarator(self.source.nodes[name]), "parameters").named_children
        defaults = [self.value(x, {}) for each in listed for x in [part(each, "default_value")] if x]
        arguments = [*arguments, *defaults[len(defaults) + len(arguments) - len(listed) :]]
        for each, value in zip(self.source.parameters(name), arguments, strict=False):
            if value is None and each.pointers == 1:
                value = self.new(each.name, None)
            elif value is None and not each.pointers:
                value = self.given(each.name)
            names[each.name] = dim3([value]) if each.type == "dim3" else value
        try:
            self.run(part(self.source.nodes[name], "body"), names)
        except Returned as end:
            return end.value
        return None

    def given(self, name: str, value: Any = None) -> Any:
        """Return the value of an integer that the code defines by itself."""
        self.used.setdefault(name, value)
        return value if self.counting else self.sizes.get(name, value)

    def new(self, name: str, size: int | None) -> Pointer:
        names = (f"{name}{i or ''}" for i in itertools.count())
        free = next(x for x in names if x not in self.arrays)
        self.arrays[free] = size
        return Pointer(free)

    # --- statements

    def run(self, node: Node | None, names: dict) -> None:
        kind = node.type if node else ""
        if kind == "declaration":
            self.declare(node, names)
        elif kind == "if_statement":
            known, then, other = (part(node, x) for x in ("condition", "consequence", "alternative"))
            value = self.value(known, names)
            if value is None:  # an error, or which of several launches
                value = next((x is then for x in (then, other) if x and any(map(launches, walk(x)))), False)
            self.run(then if value else other, names)
        elif kind in LOOPS:
            self.loop(node, names)
        elif kind == "switch_statement":
            value, cases = self.value(part(node, "condition"), names), part(node, "body").named_children
            chosen = [
                i for i, x in enumerate(cases) if part(x, "value") and self.value(part(x, "value"), names) == value
            ]
            chosen += [i for i, x in enumerate(cases) if not part(x, "value")]
            try:
                for each in cases[chosen[0] :] if chosen else ():
                    for inner in each.named_children[bool(part(each, "value")) :]:
                        self.run(inner, names)
            except Returned as end:
                if end.kind != "break_statement":
                    raise
        elif kind in ("return_statement", "break_statement", "continue_statement"):
            raise Returned(kind, *(self.value(x, names) for x in node.named_children[:1]))
        elif kind.endswith("_expression"):
            self.value(node, names)
        elif node and kind not in ("comment", "function_definition", "preproc_def"):
            for each in node.named_children:
                self.run(each, names)

    def loop(self, node: Node, names: dict) -> None:
        """Run a loop with launches or allocations; another one only if it is short and changes no array."""
        start, known, update, body = (part(node, x) for x in ("initializer", "condition", "update", "body"))
        acting = self.acts(node)
        over_data = (x for x in walk(body) if x.type in LOOPS or x.type == "subscript_expression")
        if not acting and next(over_data, None):
            return self.forget(node, names)
        self.counting = True
        self.run(start, names)
        self.counting = False
        ends: list[int] = []  # of the turns, in the steps
        while True:
            value = self.value(known, names) if known and (ends or node.type != "do_statement") else True
            if value is not None and not value:
                return None
            parts = [self.steps[a:b] for a, b in itertools.pairwise(ends[-3:])]
            again = len(parts) > 1 and parts[0] and parts[0] == parts[1]  # for a time
            if again or (value is None and ends) or (len(ends) == MOST_TURNS and not acting):
                return self.forget(node, names)
            self.turns += 1
            if self.turns > MOST_IN_ALL:
                raise Unclear("a loop without an end")
            try:
                self.run(body, names)
            except Returned as end:
                if end.kind == "return_statement":
                    raise
                if end.kind == "break_statement":
                    return None
            self.value(update, names)
            ends.append(len(self.steps))

    def forget(self, node: Node, names: dict) -> None:
        """Mark the variables that code changes as unknown, which is not followed to its end."""
        for each in walk(node):
            changed = part(each, "left") or part(each, "argument")
            if each.type in ("assignment_expression", "update_expression") and text_of(changed) in names:
                names[text_of(changed)] = None

    def acts(self, node: Node) -> bool:
        """Return whether code has launches or accesses arrays of the device, itself or by functions of the file."""
        return any(
            is_step(x) or (x.type == "call_expression" and called_by(x) in acting(self.source)) for x in walk(node)
        )

    def declare(self, node: Node, names: dict) -> None:
        kind = text_of(part(node, "type"))
        for each in node.children_by_field_name("declarator"):
            declared = parameter(node, part(each, "declarator") if each.type == "init_declarator" else each)
            initial = part(each, "value")
            if each.type == "function_declarator":  # such as dim3 grid(n), read as a function
                declared = Parameter(text_of(part(each, "declarator")), kind, 0, False)
                texts = text_of(part(each, "parameters"))[1:-1]
                values = [self.text(x, names) for x in re.split(r",(?![^(]*\))", texts)]
            else:
                listed = initial and initial.type in ("argument_list", "initializer_list")
                values = [self.value(x, names) for x in (initial.named_children if listed else [initial])]
            if "vector" in kind:
                of, count = re.search(r"<\s*([\w ]+)", kind), values[0] if values else None
                size = count * self.size_of(of[1]) if of and isinstance(count, int) else None
                names[declared.name] = self.new(declared.name, size)
            elif kind == "dim3":
                names[declared.name] = dim3(values)
            elif "[" in text_of(each).partition("=")[0]:
                names[declared.name] = dict(enumerate(values)) if initial else {}
            elif declared.pointers or not INTEGERS.search(kind):
                names[declared.name] = values[0] if values else None
            else:
                value = values[0] if values else None
                value = math.trunc(value) if isinstance(value, float) and kind != "auto" else value
                names[declared.name] = self.given(declared.name, value) if is_own(initial) or value is None else value

    # --- values

    def text(self, text: str, names: dict) -> Any:
        return self.value(expression(text), names)

    def known(self, name: str, names: dict) -> Any:
        if name in names:
            return names[name]
        if name in self.constants:
            text = self.constants[name]
            value = self.text(text, {name: None})
            return self.given(name, value) if is_own(expression(text)) else value
        return {"true": 1, "false": 0}.get(name)

    @functools.cached_property
    def constants(self) -> dict[str, str]:
        return self.source.constants()

    def size_of(self, kind: str) -> int:
        kind = kind.replace("const", "").strip()
        size = np.dtype(TYPES[kind]).itemsize if TYPES.get(kind) in np.sctypeDict else self.itemsize
        return 8 if "*" in kind else size * int(re.search(r"[a-z]([24]?)$|$", kind)[1] or 1)

    def place(self, node: Node, names: dict) -> Place | None:
        """Return the variable or the element that an expression names."""
        inner = self.value(part(node, "argument"), names) if part(node, "argument") else None
        match node.type:
            case "identifier":
                return Place(names, text_of(node))
            case "parenthesized_expression":
                return self.place(node.named_children[0], names)
            case "subscript_expression" if isinstance(inner, dict):
                return Place(inner, self.value(part(node, "indices").named_children[0], names))
            case "pointer_expression" if isinstance(inner, Place):
                return inner
        return None

    def set(self, node: Node, value: Any, names: dict) -> Any:
        if node.type == "field_expression" and isinstance(self.value(part(node, "argument"), names), tuple):
            place = self.place(part(node, "argument"), names)
            old, at = place.names[place.key], "xyz".find(text_of(part(node, "field")))
            place.names[place.key] = (*old[:at], value, *old[at + 1 :])
        elif place := self.place(node, names):
            kept = value is None and place.names.get(place.key) is not None and place.key in self.sizes
            place.names[place.key] = place.names[place.key] if kept else value
        elif node.type in ("subscript_expression", "pointer_expression") and isinstance(value, int | float):
            target = self.value(part(node, "argument"), names)  # of managed memory
            at = self.value(part(node, "indices").named_children[0], names) if part(node, "indices") else 0
            if isinstance(target, Pointer) and at == 0:
                self.steps.append(Step("load", (target, value, self.itemsize)))
        return value

    def value(self, node: Node | None, names: dict) -> Any:
        """Return the value of an expression; None if it is unknown."""
        inner = part(node, "argument") or part(node, "value")
        match node.type if node else "":
            case "number_literal":
                return number(text_of(node))
            case "identifier" | "qualified_identifier":
                return self.known(text_of(node).rpartition("::")[2], names)
            case "true" | "false":
                return int(node.type == "true")
            case "parenthesized_expression" | "condition_clause" | "comma_expression" | "expression_statement":
                return [self.value(x, names) for x in node.named_children][-1:][0]
            case "binary_expression":
                left, right = (self.value(part(node, x), names) for x in ("left", "right"))
                return combined(part(node, "operator").type, left, right)
            case "unary_expression":
                value = self.value(inner, names)
                unary = {"-": operator.neg, "!": operator.not_, "~": operator.invert}.get(node.children[0].type)
                return unary(value) if unary and isinstance(value, int | float) else value
            case "conditional_expression":
                known = self.value(part(node, "condition"), names)
                which = "consequence" if known else "alternative"
                return None if known is None else self.value(part(node, which), names)
            case "assignment_expression":
                value, how = self.value(part(node, "right"), names), part(node, "operator").type
                if how != "=":
                    value = combined(how[:-1], self.value(part(node, "left"), names), value)
                return self.set(part(node, "left"), value, names)
            case "update_expression":
                old = self.value(inner, names)
                new = combined("+" if "++" in text_of(node) else "-", old, 1)
                self.set(inner, new, names)
                return new if node.children[0].type in ("++", "--") else old
            case "cast_expression":
                return cast(text_of(part(node, "type")), self.value(inner, names))
            case "sizeof_expression":
                named = self.value(part(node, "value"), names) if part(node, "value") else None
                return self.itemsize if isinstance(named, int) else self.size_of(text_of(node)[6:].strip("() "))
            case "pointer_expression" if text_of(node)[0] == "&":
                of = self.value(part(inner, "argument"), names) if inner.type == "subscript_expression" else None
                if isinstance(of, Pointer):
                    return combined("+", of, self.value(part(inner, "indices").named_children[0], names))
                return self.place(inner, names)
            case "subscript_expression" | "pointer_expression":
                place = self.place(node, names)
                return place.names.get(place.key) if place else None
            case "field_expression":
                value, name = self.value(inner, names), text_of(part(node, "field"))
                sized = isinstance(value, tuple) and name in ("x", "y", "z")
                return value["xyz".index(name)] if sized else OF_DEVICE.get(name)
            case "initializer_list":
                return dim3([self.value(x, names) for x in node.named_children])
            case "call_expression":
                return self.launch(node, names) if launches(node) else self.called(node, names)
        return None

    def called(self, node: Node, names: dict) -> Any:
        function, name = part(node, "function"), called_by(node)
        listed = part(node, "arguments").named_children
        values = [self.value(x, names) for x in listed]
        if memory := MEMORY.fullmatch(name):
            return self.access(memory[1], listed, values)
        if name == "swap" and len(listed) == 2:
            for each, value in zip(listed, reversed(values), strict=True):
                self.set(each, value, names)
            return None
        if name == "dim3":
            return dim3(values)
        if name in self.source.nodes:
            whole = self.source.nodes[name]
            short = not any(x.type in LOOPS for x in walk(whole)) and not self.source.functions[name].kernel
            return self.call(name, values) if short or name in acting(self.source) else None
        if name in self.source.macro_functions:
            parameters, body = self.source.macro_functions[name]
            return self.text(body, dict(zip(parameters, values, strict=False)))
        if name in FUNCTIONS:
            return FUNCTIONS[name](*values) if all(isinstance(x, int | float) for x in values) else None
        if function.type == "field_expression":  # such as A.data()
            value = self.value(part(function, "argument"), names)
            return value if isinstance(value, Pointer) else None
        if len(values) == 1 and (name.endswith("_cast") or function.type == "primitive_type"):
            kind = re.search(r"<(.*)>", text_of(function))
            return cast(kind[1] if kind else text_of(function), values[0])
        return None

    def access(self, kind: str, listed: Sequence[Node], values: Sequence[Any]) -> int:
        """Note an access of the host to an array; return that it succeeded."""
        size = values[-1] if kind == "Malloc" else values[2] if len(values) > 2 else None
        target, given = values[0], values[1] if len(values) > 1 else None
        if kind == "Malloc" and isinstance(target, Place):
            target.names[target.key] = self.new(str(target.key), values[1] if len(values) > 1 else size)
        elif kind == "Memset" and isinstance(target, Pointer):
            self.steps.append(Step("fill", (target, given, size)))
        elif kind == "Memcpy" and len(listed) > 3:
            how, one = text_of(listed[3]), text_of(listed[1]).startswith("&")
            if how.endswith("HostToDevice") and isinstance(target, Pointer):
                value = given.names.get(given.key) if isinstance(given, Place) else None
                self.steps.append(Step("load", (target, value, size if one else None)))
            elif how.endswith("DeviceToHost") and isinstance(given, Pointer):
                self.steps.append(Step("fetch", (given,)))
            elif isinstance(target, Pointer) and isinstance(given, Pointer) and isinstance(size, int):
                self.steps.append(Step("copy", (target, given, size)))
        return 0

    def launch(self, node: Node, names: dict) -> None:
        _, _, configuration, listed = parts_of(node)
        values = [self.value(x, names) for x in configuration]
        grid, block = (x if isinstance(x, tuple) else dim3([x]) for x in (*values, None, None)[:2])
        shared = values[2] if len(values) > 2 else 0
        if not grid or not block or not isinstance(shared, int):
            raise Unclear(text_of(node).partition(">>>")[0])
        if math.prod(grid):
            site = self.source.places[node.start_byte]
            function = self.source.functions.get(self.source.launches[site].function)
            if function is None:
                raise Unclear(f"no kernel {self.source.launches[site].function}")
            for wanted, each in zip(function.parameters, listed, strict=False):
                self.allocated(each, names) if wanted.pointers else None
            arguments = tuple(self.value(x, names) for x in listed)
            self.steps.append(Step("launch", arguments, site, trimmed(grid), trimmed(block), shared))

    def allocated(self, node: Node, names: dict) -> None:
        """Make an array for an argument of a launch whose allocation is not in the code."""
        if self.value(node, names) is None and text_of(node) not in ("nullptr", "NULL", "0"):
            unknown = (text_of(x) for x in walk(node) if x.type == "identifier" and names.get(text_of(x), 0) is None)
            if unallocated := next(unknown, ""):
                names[unallocated] = self.new(unallocated, None)


def is_step(node: Node) -> bool:
    return launches(node) or (node.type == "call_expression" and bool(MEMORY.fullmatch(called_by(node))))


@functools.lru_cache(8)
def acting(source: Source) -> frozenset[str]:
    """Return the functions of the host that launch or access arrays of the device, or call one that does."""
    direct = {name for name, node in source.nodes.items() if any(map(is_step, walk(node)))}
    host = (name for name, function in source.functions.items() if not function.kernel)
    return frozenset(name for name in host if direct & {*source.reached(name)})


def is_own(node: Node | None) -> bool:
    """Return whether an expression has no names, so that another value may take its place."""
    return node is None or not any(x.type in ("identifier", "call_expression") for x in walk(node))


def trimmed(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return sizes[: 3 if sizes[2] > 1 else 2 if sizes[1] > 1 else 1]


def dim3(values: Sequence[Any]) -> tuple[int, int, int] | None:
    if any(isinstance(x, tuple) for x in values):
        return values[0]
    found = (*(math.trunc(x) if isinstance(x, int | float) else None for x in values), 1, 1, 1)[:3]
    return None if None in found else found


def cast(kind: str, value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool) and "*" not in kind:
        return float(value) if re.search("float|double", kind) else math.trunc(value)
    return value


def combined(how: str, left: Any, right: Any) -> Any:
    """Return the value of a binary operation of C; None if it is unknown."""
    if how in ("&&", "||"):
        short = how == "||"
        if any(x is not None and bool(x) == short for x in (left, right)):
            return int(short)
        return None if left is None or right is None else int(not short)
    if isinstance(left, Pointer) and isinstance(right, int) and how in "+-":
        return Pointer(left.array, left.offset + (right if how == "+" else -right))
    if isinstance(left, Pointer) and isinstance(right, Pointer) and how in ("==", "!="):
        return int((left == right) == (how == "=="))
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return None
    if how in ("/", "%"):
        if not right:
            return None
        if isinstance(left, float) or isinstance(right, float):
            return left / right if how == "/" else None
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if how == "/" else left - quotient * right
    try:
        found = OPERATORS[how](left, right) if how in OPERATORS else None
    except (TypeError, ValueError, OverflowError):
        return None
    return int(found) if isinstance(found, bool) else found


def number(text: str) -> int | float | None:
    """Return the value of a number of C.

    >>> [number(x) for x in ("1024", "0x10u", "256.0f", "1e3", "16ULL")]
    [1024, 16, 256.0, 1000.0, 16]
    """
    text = text.replace("'", "")
    try:
        whole = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)[uUlLzZ]*", text)
        return int(whole[1], 0 if whole[1][:2].lower() == "0x" else 10) if whole else float(text.rstrip("fFlL"))
    except ValueError:
        return None


@functools.cache
def expression(text: str) -> Node | None:
    """Return the parsed text of an expression; None if it is none."""
    tree = parser().parse(f"int hpcmm = {text};".encode())
    found = next((x for x in walk(tree.root_node) if x.type == "init_declarator"), None)
    return None if tree.root_node.has_error else part(found, "value")
