"""Kernels with signatures of their own: a function of the operation's signature calls them.

The adapted source is a copy of the user's file with this function at its end. It has only the parts of the file that
the kernel needs, without host code.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcmm.experiment import hosted
from hpcmm.experiment.functions import RETURNED, Function, Source, parsed
from hpcmm.experiment.parsed import ELEMENT
from hpcmm.experiment.syntax import (
    Parameter,
    called_by,
    declared_by,
    definition,
    function_declarator,
    of_returned,
    parameter,
    part,
    text_of,
    walk,
)
from hpcmm.kernels import FOLDER, modules
from hpcmm.model.contract import Contract
from hpcmm.model.devices import DEVICES
from hpcmm.model.records import beside
from hpcmm.operations import OPERATIONS
from hpcmm.operations.heads import KernelFileError
from hpcmm.operations.reduction import START
from hpcmm.system import files
from hpcmm.system.text import choices, split

TABLES = beside(__file__)
SIGNATURES, ROWS = TABLES["signatures"], TABLES["rows"]
NUMBER = re.compile(r"(unsigned |signed |long |short )*(int|long|short|char|float|double|size_t|REAL|half|bool)")
REALS = ("float", "double", "REAL", "half", "int")
OF_TYPES = re.compile(r"cuda_(fp16|bf16|fp8)\.h")  # the headers of element types
STRUCTURE = re.compile(r"^((?:struct )?\w+(?:<[^{}]*>)?)\s*\{")
OF_ROWS = re.compile(r"\((\w+) \*\*\)(\w+)")  # a field of a structure
CEIL = re.compile(r"\bceil\(([^()/]+)/([^()/]+)\)")  # as in a grid; in C, the division would round down
LINE = re.compile(r'^#line (\d+) "(.*)"$', re.MULTILINE)
OWN = "hpcmm_own_"  # before the names of the user's functions that are named as the operation's
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"].*$', re.MULTILINE)


def parts_of(call: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Return the function of a call, its template arguments, and each parameter, which may be empty, with its value.

    >>> parts_of("mine<32, float>(A, width=n, 2 * k)")
    ('mine', '<32, float>', [('', 'A'), ('width', 'n'), ('', '2 * k')])
    """
    match = re.fullmatch(r"\s*(\w+)\s*(<.*?>)?\s*\((.*)\)\s*", call, re.DOTALL)
    if not match:
        raise ValueError(call)
    values = []
    for each in split(match[3]):
        named = re.fullmatch(r"(?:(\w+)\s*=(?!=))?\s*(.*)", each, re.DOTALL)
        values.append((named[1] or "", named[2]))
    return match[1], match[2] or "", values


def calls_of(head: Mapping[str, Any]) -> list[str]:
    """Return the calls of a head; none if the file has the operation's function."""
    return [head[key] for key in ("host", "call") if key in head]


def fits(function: Function, kernels: str) -> bool | None:
    """Return whether a function has the parameters of an operation's.

    The size of its integers matters on a GPU. None if macros, or other names of types, may stand for them.
    """
    taken, wanted = function.parameters, SIGNATURES[kernels]
    if not any(each.pointers for each in taken) or not all(each.name for each in taken):
        return None
    alike = [fit(x, y) for x, y in zip(taken, wanted, strict=False)]
    return False if len(taken) < len(wanted) or False in alike else None if None in alike else True


def fit(parameter: Parameter, wanted: str) -> bool | None:
    number = NUMBER.fullmatch(parameter.type)
    if "*" in wanted or parameter.pointers:
        unlike = bool(parameter.pointers) != ("*" in wanted) and (parameter.pointers or number)
        return False if unlike else True if parameter.pointers == 1 else None
    kind = TABLES["alike"].get(wanted.split()[0])
    return True if (parameter.type in kind if kind else not number or number[2] in REALS) else None


def names_of(kernels: str) -> list[str]:
    """Return the names of the parameters of an operation's function."""
    return [re.search(r"\w+$", parameter)[0] for parameter in SIGNATURES[kernels]]


def passed(head: Mapping[str, Any]) -> set[str]:
    """Return the names in the values of the calls of a head, without the names of parameters."""
    if "host" in head:  # all operands
        return {each.name for each in OPERATIONS[head["operation"]].operands}
    texts = (re.sub(r"\w+\s*=(?!=)", "", call.partition("(")[2]) for call in calls_of(head))
    return set(re.findall(r"\w+", " ".join(texts)))


def operation_of(head: Mapping[str, Any]) -> str:
    """Return the operation's function whose operands the calls of a head pass; empty if it is unclear.

    >>> operation_of({"call": "product(x=A, y=B, result=C, n)"})
    'matmul'
    >>> operation_of({"call": "add(x, y, n)", "overwrites": "y"})
    'vector_add'
    """
    if "host" in head:
        return OPERATIONS[head["operation"]].kernels
    names = passed(head)
    found = [TABLES["of_operand"][name] for name in names if name in TABLES["of_operand"]]
    if not found and {"x", "y"} <= names:
        return "vector_add" if head.get("overwrites") else "copy"
    if not found and "x" in names:
        return "reduction"  # a function that returns the result
    return found[0] if len(set(found)) == 1 else ""


def contract_of(head: Mapping[str, Any]) -> Contract | None:
    names, operation = passed(head), operation_of(head)
    scalars = dict(TABLES["scalars"].get(head.get("scalars", ""), {}))
    product = operation in ("matmul", "")
    if head.get("adds") and product:
        scalars = {"alpha": 1.0, **scalars, "beta": 1.0}
        if head.get("scalars") == "alpha":
            del scalars["alpha"]
    found = Contract(
        scalars,
        head.get("square", False),
        *(dict(head.get(key, {})) for key in ("multiples", "least", "most")),
        reads=head.get("reads", False),
        overwrites=head.get("overwrites", ""),
        in_place="overwrites" in head and not names & {"result", "z"},
        packed=operation == "matmul" and not names & {"lda", "ldb", "ldc"},
    )
    return found if found != Contract() else None


def default_scalars(call: str) -> str:
    """Return the key ``scalars`` of a product that passes no alpha or no beta; empty if it passes both."""
    alpha, beta = (each in passed({"call": call}) for each in ("alpha", "beta"))
    return "" if alpha and beta else "alpha" if alpha else "beta" if beta else "none"


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a head: the function of the file with what it takes from ``outside``, and the values that it gets."""

    function: Function
    template: str
    values: Sequence[tuple[str, str]]
    outside: Sequence[Parameter]


def read(path: Path, source: Source, call: str, head: Mapping[str, Any]) -> Call:
    """Read a call of a head; raise KernelFileError if the file has no such function."""
    try:
        name, template, values = parts_of(call)
    except ValueError:
        raise KernelFileError(
            f"{path}: call: {call!r} is not allowed; allowed: a function with its arguments, such as "
            "sgemm(m, n, k, A, B, C)"
        ) from None
    if head.get("layout") == "columns" and "host" not in head:  # whose arrays have other roles
        values = [
            (each, re.sub(r"\b\w+\b", lambda x: TABLES["exchanged"].get(x[0], x[0]), value)) for each, value in values
        ]
    function = source.functions.get(name)
    if function is None:
        names = choices(name, source.functions) or "none"
        raise KernelFileError(f"{path}: call: the file has no function {name!r}; its functions are: {names}")
    own = {each.name for each in function.parameters}
    outside = [source.outside[each] for each, _ in values if each in source.outside and each not in own]
    return Call(dataclasses.replace(function, parameters=(*outside, *function.parameters)), template, values, outside)


def body_of(path: Path, source: Source, call: Call, head: Mapping[str, Any], kernels: str, device: str) -> str:
    """Return the statements of the wrapper of a call."""
    name, returns = call.function.name, call.function.returns
    given = arguments(path, call.function, call.values, device)
    *spaces, own = source.qualified(name).split("::")
    called = "::".join([*spaces, (OWN if own == kernels else "") + own])
    lines = rows_of(call.function, call.values)
    for i, each in enumerate(call.function.parameters):
        if each.reference and not each.vector:  # which takes no temporary
            lines.append(f"auto &&hpcmm_{each.name}_reference = {given[i]};")
            given[i] = f"hpcmm_{each.name}_reference"
    body = f"{called}{call.template}({', '.join(given)});"
    if returns not in ("void", "static void") and "result" not in {value for _, value in call.values}:
        if kernels == "reduction" and RETURNED not in call.function.written:
            body = f"*result = {body}"
        if RETURNED in call.function.written:
            kind = "const auto" if "vector" in returns else returns
            of_matrix = TABLES["returned"][of_returned(returns)[1] - 1]
            body = f"{kind} hpcmm_result = {body}\n    {TABLES['returned_by'].get(kernels, of_matrix)}"
            if re.fullmatch(r"\w+\s*\*", returns) and re.search(r"\b(malloc|calloc|new)\b", source.text(name)):
                body += "\n    __builtin_free((void *)hpcmm_result);"
    passes = kernels == "reduction" and DEVICES[device].accelerator and "host" not in head
    if passes and (taken := head.get("multiples", {}).get("n")):
        body = f"{TABLES['rest_of_reduction'].format(taken=taken)}\n    {body}"
    return "\n    ".join([*lines, body])


def adapted(path: Path, text: str, head: Mapping[str, Any], kernels: str, device: str) -> Path:
    """Write the adapted source of a kernel, whose head has calls, into the user's cache; return its path."""
    source, accelerator = parsed(text, path), DEVICES[device].accelerator
    hosted_calls = hosted.calls_of(source, head["host"]) if "host" in head else {}
    called = [read(path, source, call, head) for call in hosted_calls.values() or calls_of(head)]
    bodies = [body_of(path, source, call, head, kernels, device) for call in called]
    parameters = [x for call in called for x in call.function.parameters]
    own = needed(path, source, called, accelerator)
    own = re.sub(
        rf"^(\s*#\s*pragma.*)|\b{kernels}\b(?=\s*[<(])", lambda x: x[1] or OWN + kernels, own, flags=re.MULTILINE
    )
    lines = first_lines(text, head, accelerator)
    conditions = (each for call in called for each in source.conditions(call.function.name))
    lines += [f"#define {each}" for each in dict.fromkeys(conditions)]
    lines += [f"typedef hpcmm_real {each};" for each in source.undeclared if ELEMENT.fullmatch(each)]
    lines += [f"typedef {TABLES['short'][each]} {each};" for each in source.undeclared if each in TABLES["short"]]
    lines += [TABLES["vector"]] * any(x.vector for x in parameters)
    lines += [TABLES["array"]] * any(
        call.function.kernel and x.lengths for call in called for x in call.function.parameters
    )
    lines += [f'#line 1 "{path}"', own]
    for name, call, body in zip(hosted_calls or [""], called, bodies, strict=True):
        taken = [declaration(x, call.function) for x in call.function.parameters] if hosted_calls else None
        lines.append(wrapper(kernels, name or kernels, body, accelerator, taken))
    lines += [TABLES["host_steps"]] * bool(hosted_calls)
    if kernels == "reduction" and accelerator and head.get("adds"):
        lines.append(wrapper(kernels, START, "*result = identity;", accelerator))
    content = "\n".join(lines)
    folder = files.cache() / "adapted" / hashlib.sha256(content.encode()).hexdigest()[:16]
    target = folder / f"{path.stem}{DEVICES[device].suffix}"
    if not target.exists():
        with files.replacing(target) as temporary:
            temporary.write_text(content, encoding="utf-8")
    return target


def arguments(path: Path, function: Function, values: list[tuple[str, str]], device: str) -> list[str]:
    wanted = [parameter.name for parameter in function.parameters]
    if unknown := [name for name, _ in values if name and name not in wanted]:
        allowed = choices(unknown[0], wanted)
        raise KernelFileError(
            f"{path}: call: {function.name} has no parameter {unknown[0]!r}; its parameters are: {allowed}"
        )
    pairs, rest = matched(function, values)
    for each, value in pairs:
        if not value:
            raise KernelFileError(f"{path}: call: no value for {each.name!r}; its call is {function}")
    if rest:
        raise KernelFileError(f"{path}: call: {rest} arguments too many; its call is {function}")
    found = {each.name: converted(each, value, function, device) for each, value in pairs}
    rows = [each for each in function.parameters if function.kernel and each.lengths and each.lengths[0] in found]
    for each in rows:
        value = dict((x.name, value) for x, value in pairs)[each.name]
        found[each.name] = f"{{({each.type} *){value}, {found[each.lengths[0]]}}}"
    return list(found.values())


def matched(function: Function, values: list[tuple[str, str]]) -> tuple[list[tuple[Parameter, str]], int]:
    by_name = {name: value for name, value in values if name}
    in_order = [value for name, value in values if not name]
    pairs = [(each, by_name.get(each.name) or (in_order.pop(0) if in_order else "")) for each in function.parameters]
    return pairs, len(in_order)


def converted(parameter: Parameter, value: str, function: Function, device: str) -> str:
    if value.startswith("{") or STRUCTURE.match(value):
        if parameter.pointers:
            return f"&hpcmm_{parameter.name}_structure"
        value = OF_ROWS.sub(r"hpcmm_\2", value)
        return value if DEVICES[device].accelerator else STRUCTURE.sub(r"(\1){", value)
    value = re.sub(r"\bsqrt\((\w+)\)", r"sqrt((double)\1) + 0.5", value)
    value = CEIL.sub(r"((\1 + \2 - 1) / (\2))", value)
    kind = "hpcmm_real" if parameter.type in function.types else parameter.type
    if parameter.vector and value in ROWS:
        rows, _, columns = ROWS[value]
        if parameter.pointers == 2:
            kind, value, columns = f"std::vector<{kind}>", f"hpcmm_{value}", "1"
        return (
            f"static_cast<std::vector<{kind}> &>(hpcmm_vector<{kind}>(({kind} *){value}, (size_t){rows} * {columns}))"
        )
    if parameter.pointers == 2 and value in ROWS:
        return f"hpcmm_{value}"
    if parameter.lengths:
        if not DEVICES[device].accelerator:
            return f"(void *){value}"
        return f"({kind} (*){''.join(f'[{length}]' for length in parameter.lengths)}){value}"
    if parameter.type == "auto" or (not parameter.pointers and parameter.type in function.types):
        kind = "hpcmm_real" if parameter.pointers else "hpcmm_scalar"
    return f"({kind}{' ' if parameter.pointers else ''}{'*' * parameter.pointers})({value})"


def first_lines(text: str, head: Mapping[str, Any], accelerator: bool) -> list[str]:
    """Return the lines before the user's text: types, and macros of hpcmm whose names the text defines itself."""
    own = [
        name
        for name in TABLES["macros"]
        if name not in head.get("constants", {})
        and re.search(
            rf"(#\s*define\s+|\b(int|unsigned|uint|size_t|auto|typename|class|const|enum|float|double|\w+_t)[\s*]+){name}\b|[}},{{]\s*{name}\s*[=;]|\b{name}\s*=[^=]",
            text,
        )
    ]
    real = ["typedef REAL hpcmm_real;", "typedef ACCUMULATOR hpcmm_scalar;"]
    if accelerator:  # what nvcc has without an include, and NVRTC has not
        types = dict.fromkeys(f"#include <{each}>" for _, each in INCLUDE.findall(text) if OF_TYPES.fullmatch(each))
        types |= {f"#include <{each}>": None for each, pattern in TABLES["types"].items() if re.search(pattern, text)}
        real = [
            *types,
            *real,
            *(f"#define {name} {value}" for name, value in TABLES["limits"].items() if uses(text, name)),
        ]
        of_hip = dict.fromkeys(re.findall(r"\bhip(Block|Thread|Grid)(Idx|Dim)_([xyz])\b", text))
        real += [f"#define hip{a}{b}_{c} {a.lower()}{b}.{c}" for a, b, c in of_hip]
        missing = {name: f"typedef {of_c} {name};" for name, of_c in TABLES["integers"].items()}
        missing |= {name: f"#define {name} {value}" for name, value in TABLES["math"].items()}
        of_std = dict.fromkeys(re.findall(rf"\bstd::(size_t|{'|'.join(TABLES['integers'])})\b", text))
        missing |= {f"std::{name}": f"namespace std {{ using ::{name}; }}" for name in of_std}
        if used := [line for name, line in missing.items() if uses(text, name)]:
            real += ["#ifdef __CUDACC_RTC__", *used, "#endif"]  # NVRTC has no headers of C
        if re.search(r"\bwarpSize\s*=[^=]", text):  # a name of CUDA that the file defines again
            real.append("#define warpSize hpcmm_own_warpSize")
        return ["typedef unsigned int uint;", "#ifndef assert", "#define assert(condition) ((void)0)", "#endif", *real,
                *(f"#undef {each}" for each in own)]  # fmt: skip
    return ["#include <stddef.h>", *real, *(f"#undef {each}" for each in own)]


def uses(text: str, name: str) -> bool:
    """Return whether a text has a name that it does not define itself."""
    defines = rf"#\s*define\s+{name}\b|\btypedef\b[^;]*\b{name}\s*;|\b{name}\s*=[^=]"
    return bool(re.search(rf"\b{name}\b", text)) and not re.search(defines, text)


def rows_of(function: Function, values: list[tuple[str, str]]) -> list[str]:
    """Return the statements for arguments with an address: rows of ``float **a``, and structures."""
    found = []
    for each, value in matched(function, values)[0]:
        field = OF_ROWS.search(value)
        if field or (each.pointers == 2 and value in ROWS):
            rows, leading, columns = ROWS[field[2] if field else value]
            element = field[1] if field else "hpcmm_real" if each.type in function.types else each.type
            operand = field[2] if field else value
            kind = f"{'const ' * (each.constant and not (field or each.vector))}{element} *"
            row = f"({kind}){operand} + (size_t)i * {leading}"
            if each.vector:
                kind, row = f"hpcmm_vector<{element}> ", f"hpcmm_vector<{element}>({row}, {columns})"
            found.append(f"{kind}hpcmm_{operand}[{rows} + 1];")
            found.append(f"for (int i = 0; i < {rows}; ++i) hpcmm_{operand}[i] = {row};")
        if each.pointers == 1 and STRUCTURE.match(value):
            fields = OF_ROWS.sub(r"hpcmm_\2", value[value.index("{") :])
            found.append(f"{each.type} hpcmm_{each.name}_structure = {fields};")
    return found


def needed(path: Path, source: Source, called: Sequence[Call], accelerator: bool) -> str:
    """Blank out what calls do not need of their file; variables outside the functions become parameters."""
    content = bytearray(source.content)

    def blank(start: int, end: int) -> None:
        content[start:end] = bytes(each if each == 10 else 32 for each in content[start:end])

    for start, end in set.intersection(*(set(source.needed(call.function.name)) for call in called)):
        blank(start, end)
    for node in (source.nodes[call.function.name] for call in called if call.function.kernel):
        body = part(node, "body").start_byte
        header = bytes(content[node.start_byte : body])
        changed = re.sub(rb"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", lambda x: b" " * len(x[0]), header)
        content[node.start_byte : body] = changed
    if any(call.function.kernel for call in called):
        content = content.replace(b"__global__", b"__device__")  # of their declarations, too; other kernels are gone
    changes = {x for call in called for x in passed_on(path, source, call.function.name, call.outside)}
    for place, end, inserted in sorted(changes, reverse=True):
        after = place + 4 if content[place:].startswith(b"void)") else end
        content[place:after] = inserted.encode()
    text = bytes(content).decode(errors="replace")
    if accelerator:  # host and GPU read one text; declarations of other kernels are gone
        text = re.sub(r"^([ \t]*#[ \t]*pragma[ \t]+once)", lambda x: " " * len(x[0]), text, flags=re.MULTILINE)
    return with_headers(text, path, accelerator)


def passed_on(path: Path, source: Source, name: str, outside: Sequence[Parameter]) -> Iterator[tuple[int, int, str]]:
    """Yield ranges and texts that make constants and variables of the file parameters of all functions that use them.

    An array of a kernel whose length is such a constant becomes ``hpcmm_rows``.
    """
    takers = source.takers(name, [each.name for each in outside])
    declared = {each.name: declaration(each) for each in outside}

    def joined(texts: Iterable[str], listed: Any) -> tuple[int, int, str]:
        others = listed.named_children and text_of(listed) != "(void)"  # which is removed
        place = listed.start_byte + 1
        return place, place, ", ".join(texts) + (", " if others else "")

    firsts = []
    for item in source.items:
        for each in declared_by(item) & takers.keys():
            firsts.append(item)
            node = source.nodes[each] if definition(item) else item
            listed = part(function_declarator(node), "parameters")
            if listed is None:  # a launch in code that cannot be read
                continue
            yield joined(map(declared.get, takers[each]), listed)
            for node in listed.named_children if source.functions[each].kernel else ():
                array = parameter(node)
                if array.lengths and array.lengths[0] in declared:
                    kind = f"hpcmm_rows<{'const ' * array.constant}{array.type}>"
                    yield node.start_byte, node.end_byte, f"{kind} {array.name}"
    for each in takers:
        for call in (x for x in walk(source.nodes[each]) if x.type == "call_expression"):
            called = called_by(call)
            if called in takers:
                yield joined(takers[called], part(call, "arguments"))
    if macros := [each for each in declared if each in source.macros]:
        first = min(firsts, key=lambda each: each.start_byte)
        undefined = "".join(f"#undef {each}\n" for each in macros)
        before = source.content[: first.start_byte].decode(errors="replace")
        mark = [*LINE.finditer(before)][-1:]  # of a copy with a head
        row, place = (int(mark[0][1]), mark[0][2]) if mark else (1, path)
        row += before.count("\n", mark[0].end() + 1 if mark else 0)
        yield first.start_byte, first.start_byte, f'\n{undefined}#line {row} "{place}"\n'


def declaration(parameter: Parameter, function: Function | None = None) -> str:
    """Return the declaration of a parameter; with its function, of one whose type may be that of a template."""
    kind = "hpcmm_real" if function and parameter.type in function.types else parameter.type
    lengths = "".join(f"[{each}]" for each in parameter.lengths)
    name = f"(*{parameter.name}){lengths}" if lengths else "*" * parameter.pointers + parameter.name
    return f"{kind} {name}"


def with_headers(text: str, path: Path, accelerator: bool) -> str:
    """Return a text without the headers that its compiler does not have, at the same lines."""

    def included(found: re.Match) -> str:
        near = path.parent / found[2]
        if found[1] == '"' and near.is_file():
            return f'#include "{near}"'
        if (FOLDER / found[2]).is_file():
            return found[0]
        if accelerator and not any(
            re.fullmatch(x, found[2]) and re.search(y, text) for x, y in TABLES["headers"].items()
        ):
            return ""
        if accelerator and found[2] == "cub/cub.cuh":  # the whole of CUB does not compile by NVRTC
            return "#include <cub/block/block_reduce.cuh>"
        return found[0] if found[1] == "<" and (accelerator or found[2] in there) else ""

    names = tuple(each for quote, each in INCLUDE.findall(text) if quote == "<")
    there = frozenset() if accelerator else on_this_machine(names)
    return INCLUDE.sub(included, text)


@functools.cache
def on_this_machine(headers: tuple[str, ...]) -> frozenset[str]:
    """Return the headers that the C compiler can find."""
    asked = "".join(f"#if __has_include(<{each}>)\nhas {i}\n#endif\n" for i, each in enumerate(headers))
    command = [*shlex.split(modules.compiler()[0]), "-E", "-P", "-x", "c++", "-"]
    found = re.findall(r"has (\d+)", modules.run_compiler(command, asked).stdout) if command[:-5] and headers else ()
    return frozenset(headers[int(each)] for each in found)


def wrapper(kernels: str, name: str, body: str, accelerator: bool, parameters: list[str] | None = None) -> str:
    """Return a function whose body is a call; by default of the operation's signature."""
    types = {"real": "hpcmm_real", "scalar": "hpcmm_scalar"}
    if parameters is None:
        parameters = [each.format(**types) for each in SIGNATURES[kernels]]
    parameters += [] if accelerator else ["int threads"]
    kind, unused = ("__global__ void", "") if accelerator else ("void", "    (void)threads;\n")
    names = {"name": name, "parameters": ", ".join(parameters), "body": body, "kind": kind, "unused": unused}
    return TABLES["wrapper"].format_map(names)
