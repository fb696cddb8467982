"""The launches in the host code of a source, with the definitions of names before them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcmm.experiment.syntax import part, text_of, walk
from hpcmm.model.records import beside

if TYPE_CHECKING:
    from tree_sitter import Node

TYPES = {each: x for x, names in beside(__file__, "types.yaml").items() for each in names}
LAUNCHING = ("hipLaunchKernelGGL", "hipLaunchKernel")


@dataclass(frozen=True)
class LaunchSite:
    """A launch in the host code: texts of template arguments, configuration, arguments, and of definitions before."""

    function: str
    template: tuple[str, ...]
    configuration: tuple[str, ...]
    arguments: tuple[str, ...]
    definitions: Mapping[str, str]
    scope: tuple[int, int]  # the bytes of the function around it


def parts_of(node: Node) -> tuple[str, list[Node], list[Node], list[Node]]:
    """Return the function of a launch, and the nodes of its template arguments, its configuration and its arguments."""
    function, given = part(node, "function"), []
    if text_of(function) in LAUNCHING:  # of HIP: function, grid, block, shared memory, stream, arguments
        function, *given = part(node, "arguments").named_children
    named = [each for each in walk(function) if each.type == "identifier"]
    named = named[1:] if named and text_of(named[0]) == "HIP_KERNEL_NAME" else named
    arguments = [each for each in walk(function) if each.type == "template_argument_list"][:1]
    configuration = [each for x in node.children if x.type == "kernel_call_syntax" for each in x.named_children]
    return (
        text_of(named[0]) if named else text_of(function),
        arguments[0].named_children if arguments else [],
        configuration or given[:4],
        given[4:] or part(node, "arguments").named_children,
    )


def launch(node: Node) -> LaunchSite:
    scope, known, around = node, {}, {node.id}
    while scope.parent and scope.type != "function_definition":
        scope = scope.parent
        around.add(scope.id)
    for each in walk(scope):
        if each.type in ("declaration", "assignment_expression") and each.start_byte < node.start_byte:
            place = each.parent if each.parent.type != "expression_statement" else each.parent.parent
            if place.id in around:
                known |= definitions(each)
            elif each.type == "assignment_expression":  # in a branch, or in a loop
                known |= dict.fromkeys(definitions(each), "")
    function, *lists = parts_of(node)
    texts = (tuple(map(text_of, each)) for each in lists)
    return LaunchSite(function, *texts, known, (scope.start_byte, scope.end_byte))


def launches(node: Node) -> bool:
    if node.type != "call_expression":
        return False
    named = text_of(part(node, "function")) in LAUNCHING
    return named or any(each.type == "kernel_call_syntax" for each in node.children)


def definitions(node: Node) -> dict[str, str]:
    """Return the texts of the values that a declaration or an assignment gives to names."""
    found = {}
    if node.type == "assignment_expression":
        left, right = part(node, "left"), part(node, "right")
        changed = part(node, "operator").type != "="  # such as /=: the value is no longer known
        value = "" if changed else text_of(right)
        return {text_of(left): value} if left.type in ("identifier", "field_expression") else {}
    for each in node.named_children:
        if each.type == "init_declarator":
            value = part(each, "value")
            found[text_of(part(each, "declarator"))] = text_of(value)
        elif each.type == "function_declarator" and text_of(part(node, "type")) == "dim3":
            found[text_of(part(each, "declarator"))] = text_of(part(each, "parameters"))
    return found
