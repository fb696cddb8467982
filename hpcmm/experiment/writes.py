"""The elements that a function reads and writes through its pointers, and the parameters that these come from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcmm.experiment.syntax import identifiers, part, text_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

    from hpcmm.experiment.parsed import Parsed

NO_VARIABLE = re.compile(r"\w+_cast|(float|double|half|int|uint|u?char|short|u?long)\d?|const|volatile|unsigned")
WRITING_CALLS = re.compile(r"atomic\w+|\w*store\w*", re.IGNORECASE)
STEP = "inc_?[xyz]"  # from one element of a vector to the next, as in BLAS
VALUES = ("binary_expression", "subscript_expression", "call_expression")  # that are no address if assigned


def written(source: Parsed, name: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the pointer parameters through which a function writes, itself or by functions that it calls."""
    roots, found = pointers(source, name)
    shared = {each.name for each in source.outside.values() if each.pointers}
    shared -= {each.name for each in source.parameters(name)}
    for each in walk(part(source.nodes[name], "body")):
        if each.type == "assignment_expression":
            left = part(each, "left")
            if left.type != "identifier" or roots.get(f"&{text_of(left)}"):
                found.add(roots.get(root_of(source, left), ""))
        elif each.type == "update_expression" and part(each, "argument").type != "identifier":
            found.add(roots.get(root_of(source, part(each, "argument")), ""))
        elif each.type == "argument_list":
            function = text_of(part(each.parent, "function")).partition("<")[0]
            given = each.named_children
            if WRITING_CALLS.fullmatch(function.rpartition("::")[2]) and given:
                found.add(roots.get(root_of(source, given[0]), ""))
            for called, values in ((function, given), *((text_of(x), given[i:]) for i, x in enumerate(given, 1))):
                if called in source.nodes and called not in seen | {name}:  # also the function of a thread
                    inside, own = written(source, called, seen | {name}), source.parameters(called)
                    pairs = zip(values, own, strict=False)
                    found |= {roots.get(root_of(source, value), "") for value, x in pairs if x.name in inside}
                    found |= inside & shared - {each.name for each in own}
    return frozenset(found - {""})


def pointers(source: Parsed, name: str) -> tuple[dict[str, str], set[str]]:
    """Return the parameter to whose memory each name of a function points, and those with a ``cuda::atomic_ref``.

    A reference has a second entry, with ``&``.
    """
    own = source.parameters(name)
    others = [each for each in source.outside.values() if each.name not in {x.name for x in own}]
    roots = {each.name: each.name for each in (*own, *others) if each.pointers or source.fields(each.type)}
    atomic: set[str] = set()
    for each in walk(part(source.nodes[name], "body")):
        if each.type == "init_declarator":
            declared, root = part(each, "declarator"), root_of(source, part(each, "value"))
            kind, root = text_of(part(each.parent, "type")), roots.get(root)
            names = identifiers(declared)
            pointer = declared.type == "pointer_declarator" or "auto" in text_of(each.parent).split()
            if root and "atomic_ref" in kind:
                atomic.add(root)
            elif root and names and (pointer or source.fields(kind)):
                roots[names[0]] = root
            elif root and names and declared.type == "reference_declarator":
                roots[names[0]] = roots[f"&{names[0]}"] = root
        elif each.type == "assignment_expression":
            left, right = part(each, "left"), part(each, "right")
            root = roots.get(root_of(source, right)) if right.type not in VALUES else None
            if left.type == "identifier" and root and f"&{text_of(left)}" not in roots:
                roots.setdefault(text_of(left), root)
    return roots, atomic


def elements(source: Parsed, name: str) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the elements that a function reads and sets: pairs of an array and the text of its index."""
    roots, read, written = pointers(source, name)[0], set(), set()
    for each in walk(part(source.nodes[name], "body")):
        around = each.parent
        pointed = each.type == "pointer_expression" and text_of(each).startswith("*")
        if not (pointed or each.type == "subscript_expression") or around.type == "subscript_expression":
            continue
        root = root_of(source, each)
        element = roots.get(root, ""), re.sub(rf"\b{root}\b|\s|\*\s*{STEP}\b", "", text_of(each))
        set_here = around.type == "assignment_expression" and part(around, "left") == each
        if set_here or around.type == "update_expression":
            written.add(element)
        if not set_here or part(around, "operator").type != "=":
            read.add(element)
    return read, written


def root_of(source: Parsed, node: Node | None) -> str:
    """Return the variable through which an expression reaches memory: ``C`` of ``*(float4 *)&C[i * n]``."""
    while node:
        match node.type:
            case "identifier":
                return text_of(node)
            case "subscript_expression" | "pointer_expression" | "field_expression":
                node = part(node, "argument")
            case "cast_expression":
                node = part(node, "value")
            case "binary_expression":
                node = part(node, "left")
            case "call_expression" if text_of(part(node, "function")) in source.objects:  # an operator ()
                return text_of(part(node, "function"))
            case "call_expression":
                given = part(node, "arguments").named_children
                parameters, body = source.macro_functions.get(text_of(part(node, "function")), ((), ""))
                names = [each for each in re.findall(r"[A-Za-z_]\w*", body) if not NO_VARIABLE.fullmatch(each)]
                if names and names[0] not in parameters:
                    return names[0]
                at = parameters.index(names[0]) if names else 0
                node = given[at] if at < len(given) else None
            case "parenthesized_expression" | "argument_list" | "initializer_list":
                node = node.named_children[0] if node.named_children else None
            case _:
                return ""
    return ""
