"""What the conditions and loops of a function compare: sizes, threads and the rest of a size."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcmm.experiment.syntax import called_by, calls, identifiers, names_in, part, text_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

    from hpcmm.experiment.parsed import Parsed

RELATIONS = {"<", "<=", ">", ">="}
OF_THREAD = re.compile(r"threadIdx|thread_rank|thread_index|hipThreadIdx", re.IGNORECASE)
LOOPS = ("for_statement", "for_range_loop", "while_statement", "do_statement")


def guards(source: Parsed, name: str, given: frozenset[str], seen: frozenset[str] = frozenset()) -> bool:
    """Return whether a condition of a function, or of one that gets a size from it, compares with a size."""
    body = part(source.nodes[name], "body")
    sizes = derived(body, set(given))
    threads = {each for each, value in source.macros.items() if OF_THREAD.search(value)}
    if seen:  # its other parameters may be indices
        threads |= {each.name for each in source.parameters(name)} - given
    threads = of_threads(body, threads)
    if not OF_THREAD.search(source.content.decode(errors="replace")):  # a function for the CPU has no threads
        threads = names_in(body)
    if any(compares(each, sizes, threads) for each in walk(body)):
        return True
    for each in calls(body):
        called = text_of(part(each, "function"))
        if called in source.nodes and called not in seen | {name}:
            given = zip(source.parameters(called), part(each, "arguments").named_children, strict=False)
            passed = frozenset(x.name for x, value in given if names_in(value) and names_in(value) <= sizes)
            if passed and guards(source, called, passed, seen | {name}):
                return True
    return False


def derived(body: Node, sizes: set[str]) -> set[str]:
    """Return names of sizes, and of local variables that are computed from parameters alone."""
    found = set(sizes)
    for inner in walk(body):
        if inner.type == "init_declarator":
            value = part(inner, "value")
            names = names_in(value)
            if names and names <= found and not re.search("threadIdx|/", text_of(value)):  # n / 16 counts tiles
                found.add(text_of(part(inner, "declarator")))
    return found


def of_threads(body: Node, given: set[str]) -> set[str]:
    """Return names of local variables that are computed from the index of a thread, or from ``given`` ones."""
    found = {each for each in names_in(body) if OF_THREAD.search(each)} | given
    for inner in (*walk(body), *walk(body)):  # twice, for loops
        if inner.type in ("init_declarator", "assignment_expression"):
            parts = ("declarator", "value") if inner.type == "init_declarator" else ("left", "right")
            target, value = (part(inner, field) for field in parts)
            if names_in(value) & found or OF_THREAD.search(text_of(value)):
                found |= {*identifiers(target)[:1]}
    return found


def compares(node: Node, sizes: set[str], threads: set[str]) -> bool:
    """Whether a node is a condition, other than that of a loop, that compares something of a thread with a size."""
    if node.type not in ("if_statement", "conditional_expression"):
        return False
    condition = part(node, "condition")
    return any(
        each.type == "binary_expression"
        and part(each, "operator").type in RELATIONS
        and names_in(each) & sizes
        and names_in(each) & threads
        for each in walk(condition)
    )


def has_remainder(node: Node, sizes: frozenset[str]) -> bool:
    """Whether a node is for the rest of a size: ``n % 4``, ``i + 4 <= n``, ``min(..., n)``, or a loop that goes on."""
    if node.type == "for_statement":
        steps = not re.search(r"\+\+|--", text_of(part(node, "update")))  # else a loop over a tile but its last line
        if steps and re.search(r"\+ *\d+ *<=? *\w+$|<=? *\w+ *- *\d+$", text_of(part(node, "condition"))):
            return True  # it stops before the rest
        before = [each.type for each in node.parent.named_children if each.end_byte <= node.start_byte]
        begins = re.search(r"=\s*\d+\s*;?$", text_of(part(node, "initializer")))
        inner = any(each.type in LOOPS for each in walk(part(node, "body")))
        condition = part(node, "condition")
        return not (begins or inner) and bool({*before} & {*LOOPS}) and bool(condition and names_in(condition) & sizes)
    if node.type == "call_expression":
        named = called_by(node).lower() in ("min", "imin", "min2")
        return named and bool(names_in(part(node, "arguments")) & sizes)
    if node.type != "binary_expression" or part(node, "operator").type != "%":
        return False
    asks = node  # a check such as if (n % 4) return; states multiples
    while asks and asks.type not in ("if_statement", "call_expression", "compound_statement"):
        asks = asks.parent
    refuses = asks and re.search(r"return|assert|exit|trap", text_of(asks)) and asks.type != "compound_statement"
    return not refuses and bool(names_in(part(node, "left")) & sizes)


def takes_whole_tiles(body: Node, sizes: frozenset[str]) -> bool:
    """Return whether a loop has as many turns as there are whole tiles in a size: ``n / 16``, which rounds down."""
    values = {}
    for node in walk(body):
        if node.type == "init_declarator":
            values[text_of(part(node, "declarator"))] = text_of(part(node, "value"))
    conditions = [text_of(part(node, "condition")) for node in walk(body) if node.type == "for_statement"]
    limits = [re.split("<=?|!=", condition)[-1].strip() for condition in conditions]
    whole = (re.fullmatch(r"\(?(\w+) */ *\w+(\.x|\.y)?\)?", values.get(limit, limit)) for limit in limits)
    return any(found and found[1] in sizes for found in whole)


def is_condition(node: Node) -> bool:
    """Return whether a name is a condition, as in ``if (flag)``, ``if (!flag && other)`` and ``flag == 1``."""
    while node.parent.type in ("parenthesized_expression", "condition_clause", "unary_expression"):
        node = node.parent
    around = node.parent
    if around.type == "binary_expression":
        number = any(x.type == "number_literal" for x in around.named_children)
        return part(around, "operator").type in ("&&", "||", *(("==", "!=") if number else ()))
    return around.type in ("if_statement", "conditional_expression") and part(around, "condition") == node


def multiplies(node: Node, scalars: set[str]) -> bool:
    """Whether a node adds up products: ``s += a * b``, ``s = s + a * b``, or a fused multiply-add.

    Products of ``scalars``, such as ``i += blockDim.x * gridDim.x``, are indices.
    """
    if node.type == "call_expression":
        return "fma" in text_of(part(node, "function")).lower()
    if node.type != "assignment_expression":
        return False
    operator, right = part(node, "operator").type, part(node, "right")
    products = [x for x in walk(right) if x.type == "binary_expression" and part(x, "operator").type == "*"]
    indices = [y.id for x in walk(right) if x.type == "subscript_argument_list" for y in walk(x)]
    inside = [x for x in products if x.id not in indices and names_in(x) - scalars]
    return bool(inside) and (operator == "+=" or (operator == "=" and "+" in text_of(right)))
