"""A parsed C, C++ or CUDA source: functions, macros, structures and launches, and what each function needs."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hpcmm.experiment import syntax
from hpcmm.experiment.host_code import definitions, launch, launches
from hpcmm.experiment.syntax import Parameter, called_by, calls, identifiers, names_in, parameter, part, text_of, walk
from hpcmm.system.text import split

if TYPE_CHECKING:
    from tree_sitter import Node

TILE = re.compile(
    r"^[MNK][BCR]$|LANE|TILE|BLOCK|THREAD|WARP|TPB|^BS|^BM|^BN|^BK|^TM|^TN|PAD|STRIDE|UNROLL|FACTOR|COARS|GRAIN|PER_|CHUNK|STAGE|VEC|ELEM|SEED|ITER|EPS"
)
SHORT_TYPE = re.compile(r"f(32|64)|[iu](8|16|32|64)|usize")
# Names of element types, and of sizes, that a file without its header does not declare
ELEMENT = re.compile(r"(?i:(?:real|data|value|scalar|elem(?:ent)?|num|fp|float|d)_?(?:t|type)|real|scalar)|T")
LENGTH = re.compile(
    r"[NMK]|(?:(?:MAT|MATRIX|VEC|VECTOR|ARRAY|DATA|NUM|[NABC])_?)?(?:SIZE|DIM|LEN|LENGTH|WIDTH|ROWS?|COLS?|COLUMNS?)"
)
SIZE = re.compile(r"((unsigned|long) ?)*(int|long|unsigned)?|size_t|u?int(32|64)_t")  # types
# Macros of a header that is not there: a statement without a semicolon, and a word before a function
CHECK = re.compile(rb"(?m)^([; \t]+[A-Z_\d]*(?:CHECK|ERR|CALL|SAFE)[A-Z_\d]*\(.*\)[ \t]*\n)[ \t](?=[ \t]*[A-Za-z_])")
WORD = re.compile(rb"(?m)^([A-Z][A-Z_\d]{3,})(?=\s+(?:static\s|inline\s)*\s*(?:void|int|float|double)\b[^;{}]*\{)")
NAMESPACES = {"std", "nvcuda", "cooperative_groups", "cub", "cuda"}  # of headers that compilers have


def names_in_file(nodes: list[Node]) -> list[str]:
    """Return the name of each function: after its namespace, or after ``host_`` beside a kernel, if others have it."""
    own = [text_of(syntax.name_in(each)) for each in nodes]
    kernels = {name for name, node in zip(own, nodes, strict=True) if is_kernel(node)}
    found = []
    for name, node in zip(own, nodes, strict=True):
        outer = ["host"] if name in kernels and not is_kernel(node) else syntax.namespaces(node)
        found.append("_".join([*outer, name]) if own.count(name) > 1 else name)
    return found


def is_kernel(definition: Node | None) -> bool:
    return "__global__" in text_of(definition).partition("{")[0]


def headers_beside(text: str, path: Path | None) -> tuple[str, ...]:
    """Return the headers that a text includes and that are beside its file."""
    named = re.findall(r'#\s*include\s*"(.+?)"', text) if path else ()
    return tuple(each for each in named if (path.parent / each).is_file())


class Parsed:
    """A parsed source."""

    def __init__(self, text: str, path: Path | None = None):
        self.path, content = path, bytearray(text.encode())
        # The search for a contract asks the same about a function many times, and a parsed source does not change.
        for method in (self.used, self.parameters, self.reached, self.text, self.macros_of):
            setattr(self, method.__name__, functools.cache(method))
        for each in walk(syntax.parser().parse(bytes(content)).root_node):  # so that no word in a comment counts
            if each.type == "comment":
                content[each.start_byte : each.end_byte] = re.sub(rb"[^\n]", b" ", each.text)
        self.content = CHECK.sub(rb"\1;", CHECK.sub(rb"\1;", content))  # a match takes the start of the next line
        known = re.findall(rb"#[ \t]*define[ \t]+(\w+)", content)
        if not self.has_headers:
            self.content = WORD.sub(lambda x: x[0] if x[1] in known else b" " * len(x[1]), self.content)
        self.tree = syntax.parser().parse(self.content)
        self.items = list(syntax.items(self.tree.root_node))
        # kernels last, because a launcher may have the name of one
        defined = sorted(filter(None, map(syntax.definition, self.items)), key=is_kernel)
        self.nodes = dict(zip(names_in_file(defined), defined, strict=True))
        self.macro_nodes = [each for each in walk(self.tree.root_node) if each.type == "preproc_def"]
        self.macros = {text_of(part(node, "name")): text_of(part(node, "value")).strip() for node in self.macro_nodes}
        defines = [each for each in walk(self.tree.root_node) if each.type == "preproc_function_def"]
        texts = ([text_of(part(each, field)) for field in ("name", "parameters", "value")] for each in defines)
        self.macro_functions = {name: (re.findall(r"\w+", taken), value) for name, taken, value in texts}
        sites = [each for each in walk(self.tree.root_node) if launches(each)]
        self.launches, self.places = list(map(launch, sites)), {each.start_byte: i for i, each in enumerate(sites)}

    def constants(self) -> dict[str, str]:
        """Return the text of each macro without parameters and of each constant of the file."""
        values = {name: re.sub(r"//.*|/\*.*?\*/", "", value).strip() for name, value in self.macros.items()}
        values = {name: value for name, value in values.items() if value}
        for item in self.items:
            if item.type == "declaration":
                values |= definitions(item)
        return values

    @functools.cached_property
    def active(self) -> str:
        """The text without the branches of conditionals on names that the file defines before, or does not define."""
        content = bytearray(self.content)
        defined = {text_of(part(x, "name")): x.start_byte for x in self.macro_nodes}
        for each in walk(self.tree.root_node):
            if each.type != "preproc_ifdef":
                continue
            name, other = text_of(part(each, "name")), part(each, "alternative")
            known = name.startswith("__CUDA") or defined.get(name, each.start_byte) < each.start_byte
            start, end = each.start_byte, other.start_byte if other else each.end_byte
            if known == (text_of(each.children[0]) == "#ifndef"):
                content[start:end] = b" " * (end - start)
            elif other:
                content[end : other.end_byte] = b" " * (other.end_byte - end)
        return bytes(content).decode(errors="replace")

    @functools.cached_property
    def outside(self) -> dict[str, Parameter]:
        """The constants and variables of the file that may be arguments of its functions: sizes and arrays."""
        found = {}
        for each in self.macro_nodes:
            value = text_of(part(each, "value")).split("//")[0].strip()
            if re.fullmatch(r"[\d\s()*+<uUlL]+", value or "-"):
                name = text_of(part(each, "name"))
                found[name] = Parameter(name, "int", 0, True)
        for item in self.items:
            declares = item.type == "declaration" and syntax.function_declarator(item) is None
            variables = [parameter(item, each) for each in item.children_by_field_name("declarator") if declares]
            found |= {each.name: each for each in variables if each.pointers or SIZE.fullmatch(each.type)}
        found |= {each: Parameter(each, "int", 0, True) for each in self.undeclared if LENGTH.fullmatch(each)}
        return {name: each for name, each in found.items() if name and (each.pointers or not TILE.search(name.upper()))}

    @functools.cached_property
    def has_headers(self) -> bool:
        """Whether a header that the file includes is beside it."""
        return bool(headers_beside(self.content.decode(errors="replace"), self.path))

    @functools.cached_property
    def undeclared(self) -> list[str]:
        """The names of sizes and types that a file uses and does not declare; none if a header beside it may do so."""
        if self.has_headers:
            return []
        nodes = [each for each in walk(self.tree.root_node) if each.type in ("identifier", "type_identifier")]
        declared = {text_of(each) for each in nodes if syntax.declares(each.parent, each)}
        used = map(text_of, nodes)
        of_header = [each for each in dict.fromkeys(used) if each not in declared]
        return [x for x in of_header if ELEMENT.fullmatch(x) or LENGTH.fullmatch(x) or SHORT_TYPE.fullmatch(x)]

    def fields(self, kind: str) -> list[Parameter]:
        """Return the fields of a type; none if it is no structure of the file, nor an instance of a template of one."""
        name, _, given = kind.partition("<")
        own, found = self.structures.get(name, ((), ()))
        values = dict(zip(own, (x.replace("const ", "") for x in split(given.rstrip(">"))), strict=False))
        return [dataclasses.replace(x, type=values.get(x.type, x.type)) for x in found]

    @functools.cached_property
    def objects(self) -> set[str]:
        """The names of parameters that are structures."""
        return {x.name for name in self.nodes for x in self.parameters(name) if self.fields(x.type)}

    @functools.cached_property
    def structures(self) -> dict[str, tuple[list[str], list[Parameter]]]:
        """The parameters of the template and the fields of each structure of the file, by the name of its type."""
        found = {}
        for item in walk(self.tree.root_node):
            if item.type == "struct_specifier" and (body := part(item, "body")):
                declared = [each for each in body.named_children if each.type == "field_declaration"]
                fields = [parameter(each, x) for each in declared for x in each.children_by_field_name("declarator")]
                names = [text_of(part(item, "name"))]
                if item.parent.type == "type_definition":
                    names.append(text_of(part(item.parent, "declarator")))
                names += [f"struct {names[0]}"] * bool(names[0])
                own = [name for name, *_ in syntax.template_of(item)]
                found |= dict.fromkeys(filter(None, names), (own, fields))
        return found

    def conditions(self, name: str) -> list[str]:
        """Return the names without which the file hides a function, as a header with its implementation does."""
        place = self.nodes[name].start_byte
        nodes = [x for x in walk(self.tree.root_node) if x.type == "preproc_ifdef"]
        asked = [x for x in nodes if text_of(x.children[0]) == "#ifdef"]
        ends = [(part(x, "alternative") or x.children[-1]).start_byte for x in asked]
        names = [text_of(part(x, "name")) for x, end in zip(asked, ends, strict=True) if x.start_byte < place < end]
        return [x for x in names if x not in self.macros and not x.startswith("_")]

    def qualified(self, name: str) -> str:
        """Return the name of a function with its namespaces."""
        node = self.nodes[name]
        return "::".join([*syntax.namespaces(node), text_of(syntax.name_in(node))])

    def used(self, name: str) -> list[Parameter]:
        """Return the sizes and arrays of the file that a function, or one that it calls, uses in no declaration."""
        kernel = is_kernel(self.nodes[name])
        names, others = set(re.findall(r"\w+", self.macros_of(name))), {x.name for x in self.parameters(name)}
        names |= {length for each in self.parameters(name) for length in each.lengths if kernel}
        for function in map(self.nodes.get, self.reached(name)):
            whole = kernel and function != self.nodes[name]
            for each in walk(function if whole else part(function, "body")):
                if each.type in ("array_declarator", "template_argument_list"):
                    others |= names_in(each)
                elif each.type == "assignment_expression":
                    others.add(text_of(part(each, "left")))
                elif each.type == "identifier":
                    names.add(text_of(each))
        return [each for each in self.outside.values() if each.name in names - others]

    @functools.cached_property
    def vectors(self) -> dict[str, str]:
        """The vectors of C++ and the pointers to which the file gives names, such as ``Matrix``."""
        kinds = rf"{syntax.VECTOR.pattern}|(?:float|double|int)\s*\*"
        pattern = rf"typedef\s+({kinds})\s*\b(\w+)\s*;|using\s+(\w+)\s*=\s*({kinds})\s*;"
        found = re.findall(pattern, self.content.decode(errors="replace"))
        return {before or after: first or second for first, _, before, after, second, _ in found}

    def takers(self, name: str, given: Iterable[str]) -> dict[str, list[str]]:
        """Return which of the given names a function, and each that it calls, uses or passes on."""
        words = {each: set(re.findall(r"\w+", self.text(each))) for each in self.reached(name)}
        own = {each: {x.name for x in self.parameters(each)} for each in words}
        found = {each: [x for x in given if x in words[each] - own[each] or each == name] for each in words}
        return {each: names for each, names in found.items() if names}

    def parameters(self, name: str) -> tuple[Parameter, ...]:
        """Return the parameters of a function."""
        listed = part(syntax.function_declarator(self.nodes[name]), "parameters").named_children
        own = (each for each in listed if each.type.endswith("parameter_declaration") and text_of(each) != "void")
        return tuple(parameter(each, vectors=self.vectors) for each in own)

    def reached(self, name: str) -> list[str]:
        """Return a function and all functions of the file that it calls or passes on, directly or indirectly."""
        found = [name]
        for each in found:
            inside = list(walk(self.nodes[each]))
            local = {text_of(x) for x in inside if x in x.parent.children_by_field_name("declarator")}
            called = [called_by(x) for x in calls(self.nodes[each])]
            called += [text_of(x) for x in inside if x.type == "identifier" and x.parent.type == "argument_list"]
            found += [x for x in dict.fromkeys(called) if x in self.nodes and x not in {*found, *local}]
        return found

    def text(self, name: str) -> str:
        """Return the source of a function, with the functions that it calls and the macros that these use."""
        return "\n".join(text_of(self.nodes[each]) for each in self.reached(name)) + self.macros_of(name)

    def macros_of(self, name: str) -> str:
        """Return the bodies of the macros that a function uses, or one that it calls."""
        text, found = "\n".join(text_of(self.nodes[x]) for x in self.reached(name)), ""
        for _ in range(2):  # macros of macros
            words = set(re.findall(r"\w+", text + found))
            found += "".join(f"\n{self.macros.get(x, '')}" for x in words & set(self.macros))
            found += "".join(f"\n{body}" for x, (_, body) in self.macro_functions.items() if x in words)
        return found

    # --- the part of the file that a function needs

    def needed(self, name: str) -> list[tuple[int, int]]:
        """Return the ranges of bytes of the items that a function does not need, such as host code."""
        uses: dict[str, set[str]] = {}
        declares: dict[str, set[int]] = {}
        launching = {site.scope for site in self.launches}
        own, place = text_of(syntax.name_in(self.nodes[name])), syntax.namespaces(self.nodes[name])
        for i, item in enumerate(self.items):
            function = syntax.definition(item)
            for each in syntax.declared_by(item):
                if function and not is_kernel(function):
                    launches = (function.start_byte, function.end_byte) in launching
                    if launches or is_kernel(self.nodes.get(each)):
                        continue  # host code, named as the kernel or as a variable of it
                if function and each == own and syntax.namespaces(function) != place:
                    continue
                declares.setdefault(each, set()).add(i)
                uses.setdefault(each, set()).update(identifiers(item, syntax.NAMES))
        kinds = ("namespace_definition", *["using_declaration"] * self.has_headers)  # of the file, or of its headers
        spaces = (identifiers(x, syntax.NAMES)[:1] for x in walk(self.tree.root_node) if x.type in kinds)
        outer = NAMESPACES.union(*spaces)
        bodies = {**self.macros, **{each: body for each, (_, body) in self.macro_functions.items()}}
        waiting, seen = [own], set()
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                waiting += [*re.findall(r"\w+", bodies.get(each, "")), *uses.get(each, ())]
        kept = {i for each in seen for i in declares.get(each, ())}
        return [
            (item.start_byte, item.end_byte)
            for i, item in enumerate(self.items)
            if i not in kept and item.type != "preproc_call" and not syntax.uses_names(item, seen | outer)
        ]
