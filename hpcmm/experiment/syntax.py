"""The syntax of C, C++ and CUDA: what nodes of a parsed source declare, define and call."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

CONDITIONALS = ("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif")
GROUPS = (*CONDITIONALS, "linkage_specification", "declaration_list", "namespace_definition")
VECTOR = re.compile(r"(?:std::)?vector<\s*(.*\S)\s*>")
NAMES = ("identifier", "type_identifier", "namespace_identifier", "field_identifier")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function: its name, its type without pointers, and the levels of its pointer.

    ``lengths`` are the declared lengths of an array after the first one, which are part of its type. ``structure`` is
    the type of the structure whose field it is. A ``vector`` of C++ counts as a pointer, a vector of vectors as two.
    """

    name: str
    type: str
    pointers: int
    constant: bool
    lengths: tuple[str, ...] = ()
    structure: str = ""
    vector: bool = False
    reference: bool = False

    def __str__(self) -> str:
        shown = f"{self.type} {'*' * self.pointers}"
        if self.vector:
            shown = f"{'std::vector<' * self.pointers}{self.type}{'>' * self.pointers} &"
        return f"{'const ' if self.constant else ''}{shown}{self.name}"


@functools.cache
def parser():
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


@functools.lru_cache(4096)  # the nodes of a function are needed many times, and tree_sitter creates them anew each time
def walk(node: Node) -> tuple[Node, ...]:
    """Return a node and all nodes in it, in the order of the text."""
    found, waiting = [], [node]
    while waiting:
        found.append(waiting.pop())
        waiting += reversed(found[-1].children)
    return tuple(found)


def part(node: Node | None, field: str) -> Node | None:
    """Return the part of a node that bears the name of a field."""
    return node.child_by_field_name(field) if node else None


def text_of(node: Node | None) -> str:
    return node.text.decode(errors="replace") if node else ""


def items(node: Node) -> Iterator[Node]:
    """Yield the declarations and definitions of a file, also of its conditional parts and namespaces."""
    for item in node.named_children:
        if item == part(node, "condition"):  # of #if
            continue
        if item.type in GROUPS:
            if item.type == "linkage_specification" and part(item, "body").type != "declaration_list":
                yield item
            else:
                yield from items(item)
        elif item.type in ("comment", "preproc_def", "preproc_function_def", "preproc_include", "preproc_call"):
            continue
        elif item.type not in ("identifier", "namespace_identifier", "nested_namespace_specifier", "string_literal"):
            yield item


def definition(item: Node) -> Node | None:
    """Return the function definition of an item, which may be a template."""
    found = item
    while found and found.type in ("template_declaration", "linkage_specification"):
        inner = [each for each in found.named_children if each.type in ("function_definition", "template_declaration")]
        found = inner[0] if inner else None
    if found and found.type == "function_definition" and part(found, "body"):
        declarator = function_declarator(found)
        return found if declarator and text_of(name_in(found)) else None
    return None


def function_declarator(node: Node) -> Node | None:
    declarator = part(node, "declarator")
    while declarator and declarator.type != "function_declarator":
        declarator = part(declarator, "declarator") or next(iter(declarator.named_children), None)
    return declarator


def name_in(node: Node) -> Node | None:
    """Return the name of a function definition."""
    return part(function_declarator(node), "declarator")


def namespaces(node: Node | None) -> list[str]:
    """Return the names of the namespaces around a node, the outer one first."""
    found = []
    while node := node.parent:
        if node.type == "namespace_definition" and (own := part(node, "name")):
            found.insert(0, text_of(own))
    return found


def parameter(node: Node, declarator: Node | None = None, vectors: Mapping[str, str] = {}) -> Parameter:
    """Return the record of a parameter, or of a variable of a declaration that may have several.

    ``vectors`` are those of C++ by the names that a file gives them.
    """
    declarator = declarator or part(node, "declarator")
    lengths, pointers, name, reference = [], 0, "", False
    while declarator:
        reference = reference or declarator.type == "reference_declarator"
        if declarator.type in ("pointer_declarator", "abstract_pointer_declarator"):
            pointers += 1
        elif declarator.type in ("array_declarator", "abstract_array_declarator"):
            lengths.append(text_of(part(declarator, "size")))
        elif declarator.type in ("identifier", "field_identifier"):
            name = text_of(declarator)
        inner = declarator.named_children
        names = (x for x in inner if x.type in ("identifier", "field_identifier"))
        named = next((x for x in inner if x.type.endswith("declarator")), None) or next(names, None)
        declarator = part(declarator, "declarator") or named
    lengths.reverse()
    if lengths:
        pointers += 1
    before = text_of(node)[: text_of(node).rfind(name)] if name else text_of(node)
    # g++ and the parser allow the words of a type in any order: unsigned int, const unsigned
    kind = " ".join(text_of(part(node, "type")).split())
    kind, depth = of_vectors(vectors.get(kind, kind))
    if kind.endswith("*"):  # a name of a pointer
        kind, pointers = kind.rstrip("* "), pointers + 1
    constant = bool(re.search(r"\bconst\b", before))
    pointers += depth
    return Parameter(name, kind, pointers, constant, tuple(lengths[1:]), vector=bool(depth), reference=reference)


def of_vectors(text: str) -> tuple[str, int]:
    """Return the element type of a vector of C++, and how many vectors are around it.

    >>> of_vectors("std::vector<std::vector<double> >")
    ('double', 2)
    """
    depth = 0
    while found := VECTOR.fullmatch(text):
        text, depth = found[1], depth + 1
    return text, depth


def of_returned(text: str) -> tuple[str, int]:
    """Return the element type of a vector or a pointer that a function returns, and its depth."""
    pointer = re.fullmatch(r"(\w+)\s*(\*{1,2})", text)
    return (pointer[1], len(pointer[2])) if pointer else of_vectors(text)


def template_of(node: Node) -> list[tuple[str, str, bool]]:
    """Return name, default, and whether it is a type, of each parameter of the template around a function."""
    if node.parent is None or node.parent.type != "template_declaration":
        return []
    found = []
    for entry in part(node.parent, "parameters").named_children:
        is_type = "type_parameter" in entry.type
        names = [x for x in walk(entry) if x.type in ("identifier", "type_identifier")]
        default = text_of(part(entry, "default_value") or part(entry, "default_type"))
        if names:
            declared = part(entry, "declarator")
            if text_of(part(entry, "type")) == "bool":
                default = default or "false"
            found.append((text_of(names[0] if is_type else declared or names[-1]), default, is_type))
    return found


def calls(node: Node) -> list[Node]:
    return [each for each in walk(node) if each.type == "call_expression"]


def called_by(node: Node) -> str:
    """Return the name of the function that a call names, without namespaces and template arguments."""
    return text_of(part(node, "function")).partition("<")[0].rpartition("::")[2]


def uses_names(item: Node, names: set[str]) -> bool:
    """Return whether an item is a declaration like ``using namespace std``, or ``using a::b`` of one of the names."""
    words = re.findall(r"\w+", text_of(item))
    return item.type == "using_declaration" and words[2 if "namespace" in words else -1] in names


def identifiers(node: Node, kinds: Collection[str] = ("identifier",)) -> list[str]:
    return [text_of(each) for each in walk(node) if each.type in kinds]


def names_in(node: Node) -> set[str]:
    return set(identifiers(node))


def declares(node: Node, name: Node) -> bool:
    """Return whether a node declares a name in it."""
    fields = [each for field in ("declarator", "name") for each in node.children_by_field_name(field)]
    return name in fields or node.type in ("preproc_params", "type_parameter_declaration")


def declared_by(item: Node) -> set[str]:
    """Return the names that an item of a file declares."""
    inner = item
    while inner.type in ("template_declaration", "linkage_specification"):
        further = [x for x in inner.named_children if not x.type.endswith("_list") and x.type != "string_literal"]
        if not further:
            return set()
        inner = further[-1]
    declarator = function_declarator(inner) if inner.type in ("function_definition", "declaration") else None
    if declarator:
        return {text_of(part(declarator, "declarator")).rpartition("::")[2]}
    if inner.type in ("type_definition", "declaration", "alias_declaration"):
        values = [part(x, "value") for x in walk(inner) if x.type == "init_declarator"]
        return {*identifiers(inner, NAMES)} - {x for value in values for x in identifiers(value, NAMES)}
    if inner.type in ("ERROR", "enum_specifier"):
        return {*identifiers(inner, NAMES)}
    return {text_of(part(inner, "name"))} - {""}
