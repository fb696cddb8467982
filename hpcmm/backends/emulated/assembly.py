"""Inline PTX of a source as C++ for the host: the usual instructions of tensor cores and asynchronous copies."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcmm.model import NotTested
from hpcmm.system.text import split

TEXT = r'"(?:[^"\\]|\\.)*"'
COMMENT = r"//[^\n]*|/\*.*?\*/"
GAP = r"(?:\s|\\\n)*"
ASM = re.compile(
    rf"{COMMENT}|{TEXT}|(?P<asm>\b(?:asm|__asm__|__asm)\b{GAP}(?:(?:__)?volatile(?:__)?)?{GAP}\()", re.DOTALL
)
PART = re.compile(rf"{COMMENT}|(?P<text>{TEXT})|(?P<other>.)", re.DOTALL)
OPERAND = re.compile(r'\s*(?:\[\w+\])?\s*"[^"]*"\s*\((.*)\)\s*', re.DOTALL)
TYPES = {"f32": "float", "f64": "double", "pred": "bool"}
TYPES |= {
    f"{kind}{bits}": f"{'' if kind == 's' else 'unsigned '}{name}"
    for kind in "bus"
    for bits, name in ((16, "short"), (32, "int"), (64, "long long"))
}
# Shapes of MMAs, and the types of their factors
MMAS = {(f"m16n8k{k}", of) for k, of in ((16, "f16"), (16, "bf16"), (8, "f16"), (8, "bf16"), (8, "tf32"), (4, "tf32"))}
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
RELATIONS = {"ne": "!=", "eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
NOTHING = ("prefetch", "membar")  # instructions without effect on a result
ORDERED = {"acquire", "release", "relaxed", "mmio", "gpu", "sys", "cluster", "param", "const", "local"}
HOST = "cuda_on_host::"


def without_assembly(text: str) -> str:
    """Return a source with C++ in place of its inline PTX, at the same lines.

    Raise NotTested if it has an instruction that the host does not know.
    """
    done, found = 0, []
    for statement in ASM.finditer(text):
        if not statement["asm"] or statement.start() < done:
            continue
        end, sections = operands(text, statement.end())
        region = text[statement.start() : end]
        try:
            code = translated(*sections)
        except ValueError as error:
            first = max(text.rfind('#line 1 "', 0, statement.start()), 0)
            line = text.count("\n", first, statement.start()) + (first == 0)
            raise NotTested(f"needs a GPU: inline PTX ({error}) in line {line}") from error
        found += [text[done : statement.start()], code, ("\\\n" if "\\\n" in region else "\n") * region.count("\n")]
        done = end
    return "".join([*found, text[done:]])


def operands(text: str, start: int) -> tuple[int, tuple[str, list[str]]]:
    """Return the end of a statement, the text of its instructions, and the expressions of its operands."""
    depth, place, parts, strings = 1, start, [""], []
    while depth:
        token = PART.match(text, place)
        if token is None:
            raise NotTested("needs a GPU: inline PTX without an end")
        place = token.end()
        if token["text"] and len(parts) == 1:
            strings.append(token["text"][1:-1])
        elif token["text"]:
            parts[-1] += token["text"]
        elif token["other"]:
            depth += (token["other"] == "(") - (token["other"] == ")")
            if token["other"] == ":" and depth == 1 and text[place - 2] != ":" != text[place : place + 1]:
                parts.append("")
            elif token["other"] == ":" and depth == 1 and not parts[-1].strip().strip(":"):
                parts.append("")  # of "::" without outputs
            elif depth:
                parts[-1] += token["other"].replace("\\", " ")
    given = [OPERAND.fullmatch(operand) for part in parts[1:3] for operand in split(part)]
    return place, ("".join(strings), [operand[1] for operand in given if operand])


def translated(template: str, values: Sequence[str]) -> str:
    """Return a statement of C++ for the instructions of a template.

    >>> translated("fma.rn.f32 %0, %1, %2, %0;", ["sum", "a[0]", "b"])
    'do { (sum) = __builtin_fmaf((a[0]), (b), (sum)); } while (0)'
    """
    template = re.sub(r"\\[ntr]", " ", re.sub(COMMENT, "", template.replace("\\n", "\n")))
    template = re.sub(r"\s*([,\[\]{}|])\s*", r"\1", re.sub(r"\s+", " ", template)).strip()
    if not template:  # kept, because a loop without a statement would not be watched, and never end
        return 'asm volatile("" ::: "memory")'
    if template.startswith("{") and template.endswith("}"):
        template = template[1:-1]  # a block
    names = {x for names in re.findall(r"\.reg ?\.\w+ ([\w,]+)", template) for x in names.split(",")}
    template = re.sub(r"[A-Za-z_]\w*", lambda x: f"hpcmm_{x[0]}" if x[0] in names else x[0], template)
    code = " ".join(filter(None, (instruction(line.strip()) for line in template.split(";"))))
    code = re.sub(r"%(\d+)", lambda x: f"({values[int(x[1])].strip()})", code)
    return f"do {{ {code} }} while (0)" if code else "((void)0)"


def instruction(text: str) -> str:
    """Return C++ for one instruction, in which operands are still numbers; ValueError has the name of one not known."""
    if not text:
        return ""
    predicate, name, rest = re.fullmatch(r"(?:@(!?\w+) )?([.\w:]+) ?(.*)", text).groups()
    if predicate:
        return f"if ({predicate}) {{ {instruction(f'{name} {rest}')} }}"
    kind, *parts = name.replace("::", "__").split(".")
    given = [operand.strip() for operand in split(rest.replace("%%laneid", f"{HOST}cuda_lane()"))]
    type_ = TYPES.get(parts[-1], "") if parts else ""
    if "%%" in rest:
        raise ValueError(name)
    match kind, *parts:
        case "", "reg":
            of, names = rest.split(" ", 1)
            return f"{TYPES[of[1:]]} {names};"
        case "cp", "async", "commit_group":
            return f"{HOST}cuda_cp_async_commit_group();"
        case "cp", "async", "wait_group" | "wait_all", *_:
            return f"{HOST}cuda_cp_async_wait_group({rest or 0});"
        case "cp", "async", "ca" | "cg", *_:
            target, source, size, *valid = given[:4]
            return f"{HOST}cuda_cp_async({shared(target)}, {pointer('void', source)}, {size}, {(valid or [size])[0]});"
        case "ldmatrix", *_ if "b16" in parts:
            own = registers(given[0])
            stored = " ".join(f"{x} = hpcmm_x[{i}];" for i, x in enumerate(own))
            transposed = "true" if "trans" in parts else "false"
            return (
                f"unsigned hpcmm_x[4]; {HOST}ptx::cuda_ldmatrix(hpcmm_x, {shared(given[1])}, {transposed}, "
                f"{len(own)}); {stored}"
            )
        case "mma", "sync", "aligned", shape, "row", "col", *types if (shape, *types[1:2]) in MMAS:
            return product(types, *map(registers, given))
        case "ld" | "st", *_ if type_ and not ORDERED & set(parts):
            whole, address = given if kind == "ld" else given[::-1]
            inside = any(part.startswith("shared") for part in parts)
            own = f"(({type_} *)({shared(address) if inside else pointer('char', address)}))"
            pairs = [(x, f"{own}[{i}]") for i, x in enumerate(registers(whole))]
            return " ".join(f"{x} = {y};" if kind == "ld" else f"{y} = {x};" for x, y in pairs)
        case "cvta", "to", "shared", *_:
            return f"{given[0]} = {HOST}api::__cvta_generic_to_shared({pointer('void', given[1])});"
        case ("cvta", "to", "global", *_) | ("mov", _):
            if "{" in rest:
                raise ValueError(name)
            return f"{given[0]} = {given[1]};"
        case "cvt", _, source if not {"f32", "f64", "f16"} & set(parts):
            return f"{given[0]} = ({TYPES[parts[0]]})({TYPES[source]}){given[1]};"
        case "setp", relation, _ if relation in RELATIONS:
            return f"{given[0]} = ({type_}){given[1]} {RELATIONS[relation]} ({type_}){given[2]};"
        case "fma", "rn", "f32":
            return f"{given[0]} = __builtin_fmaf({', '.join(given[1:])});"
        case "bar" | "barrier", "sync", *_:
            return f"{HOST}cuda_named_barrier({', '.join(given)});" if given[1:] else "__syncthreads();"
        case _ if kind in OPERATORS and type_ and set(parts[:-1]) <= {"lo", "rn"}:
            return f"{given[0]} = ({type_}){given[1]} {OPERATORS[kind]} ({type_}){given[2]};"
        case _ if kind in NOTHING:
            return ""
    raise ValueError(name)


def registers(text: str) -> list[str]:
    return split(text.strip("{}"))


def shared(address: str) -> str:
    """Return the pointer of an address in shared memory."""
    return f"(char *){HOST}cuda_dynamic_shared() + (int)({address.strip('[]')})"


def pointer(type_: str, address: str) -> str:
    return f"({type_} *)((char *){address.strip('[]')})"


def product(types: Sequence[str], d: list[str], a: list[str], b: list[str], c: list[str]) -> str:
    """Return a product of fragments; those with fewer terms are filled with zeros."""
    of = types[1]
    number = f"{HOST}api::__uint_as_float({{}})" if of == "tf32" else "{}"
    a, b = ([number.format(register) for register in x] for x in (a, b))
    element, function = ("float", "mma_m16n8k8_tf32") if of == "tf32" else ("unsigned", f"mma_m16n8k16_{of}")
    sums, stored = c, [f"{x} = hpcmm_c[{i}];" for i, x in enumerate(d)]
    if types[0] == "f16":
        sums = [f"{HOST}ptx::cvt_f32_f16({x} >> {shift})" for x in c for shift in (0, 16)]
        pairs = (f"hpcmm_c[{2 * i}], hpcmm_c[{2 * i + 1}]" for i in range(2))
        stored = [f"{x} = {HOST}ptx::cvt_rn_f16x2({pair});" for x, pair in zip(d, pairs, strict=True)]
    filled = [", ".join([*x, *["0"] * (count - len(x))]) for x, count in ((a, 4), (b, 2))]
    return (
        f"float hpcmm_c[4] = {{{', '.join(sums)}}}; const {element} hpcmm_a[4] = {{{filled[0]}}}, "
        f"hpcmm_b[2] = {{{filled[1]}}}; {HOST}ptx::{function}(hpcmm_c, hpcmm_a, hpcmm_b); {' '.join(stored)}"
    )
