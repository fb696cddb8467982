"""The functions of a C, C++ or CUDA source: signatures, launches, and what each needs of its file."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

NO_VARIABLE = re.compile(r"\w+_cast|(float|double|half|int|uint|u?char|short|u?long)\d?|const|volatile|unsigned")
RELATIONS = {"<", "<=", ">", ">="}
WRITING_CALLS = re.compile(r"atomic\w+|\w*store\w*", re.IGNORECASE)
TILE = re.compile(
    r"^[MNK][BCR]$|LANE|TILE|BLOCK|THREAD|WARP|TPB|^BS|^BM|^BN|^BK|^TM|^TN|PAD|STRIDE|UNROLL|FACTOR|COARS|GRAIN|PER_|CHUNK|STAGE|VEC|ELEM|SEED|ITER|EPS"
)
# Names of element types, and of sizes, that a file without its header does not declare
ELEMENT = re.compile(r"(?i:(?:real|data|value|scalar|elem(?:ent)?|num|fp|float|d)_?(?:t|type)|real|scalar)|T")
LENGTH = re.compile(
    r"[NMK]|(?:(?:MAT|MATRIX|VEC|VECTOR|ARRAY|DATA|NUM|[NABC])_?)?(?:SIZE|DIM|LEN|LENGTH|WIDTH|ROWS?|COLS?|COLUMNS?)"
)
SIZE = re.compile(r"((unsigned|long) ?)*(int|long|unsigned)?|size_t|u?int(32|64)_t")  # types
CONDITIONALS = ("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif")
GROUPS = (*CONDITIONALS, "linkage_specification", "declaration_list", "namespace_definition")
OF_THREAD = re.compile(r"threadIdx|thread_rank|thread_index|hipThreadIdx", re.IGNORECASE)
COMBINING_CALLS = re.compile("shfl|atomic|fetch_|reduce|accumulate|sum", re.IGNORECASE)
VECTOR = re.compile(r"(?:std::)?vector<\s*(.*\S)\s*>")
RETURNED = "return"  # in place of the name of a parameter: the vector that a function returns
LAUNCHING = ("hipLaunchKernelGGL", "hipLaunchKernel")
LOOPS = ("for_statement", "for_range_loop", "while_statement", "do_statement")
NAMES = ("identifier", "type_identifier", "namespace_identifier", "field_identifier")
VALUES = ("binary_expression", "subscript_expression", "call_expression")  # that are no address if assigned


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

    def __str__(self) -> str:
        shown = f"{self.type} {'*' * self.pointers}"
        if self.vector:
            shown = f"{'std::vector<' * self.pointers}{self.type}{'>' * self.pointers} &"
        return f"{'const ' if self.constant else ''}{shown}{self.name}"


@dataclass(frozen=True)
class Function:
    """A function of a source."""

    name: str
    returns: str
    parameters: tuple[Parameter, ...]
    # Name and default of each template parameter; the default is empty if there is none
    template: tuple[tuple[str, str], ...]
    types: frozenset[str]  # the template parameters that are types
    kernel: bool  # whether it is ``__global__``
    written: frozenset[str]  # the pointers through which it writes
    guarded: bool  # whether a condition compares something with a size
    remainders: bool  # whether it handles what no multiple of a width has: it claims to take any size
    looped: bool  # whether a loop or a shuffle combines values
    multiplies: bool  # whether it multiplies elements in a loop
    threads: str  # the number of threads in its launch bounds; empty without
    dynamic: bool  # whether it has dynamic shared memory
    strides: bool  # whether it uses the size of the grid
    flat: bool  # whether it uses threads in x only
    flags: frozenset[str]  # the parameters that only conditions use
    unused: frozenset[str]  # the parameters that nothing uses

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})"


@dataclass(frozen=True)
class LaunchSite:
    """A launch in the host code: texts of template arguments, configuration, arguments, and of definitions before."""

    function: str
    template: tuple[str, ...]
    configuration: tuple[str, ...]
    arguments: tuple[str, ...]
    definitions: Mapping[str, str]


@functools.cache
def parser():
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes in it, in the order of the text."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def text_of(node: Node | None) -> str:
    return node.text.decode(errors="replace") if node else ""


class Source:
    """A parsed source."""

    def __init__(self, text: str, path: Path | None = None):
        self.content, self.path = text.encode(), path
        self.tree = parser().parse(self.content)
        self.items = list(items(self.tree.root_node))
        self.nodes = {text_of(name_in(each)): each for each in map(definition, self.items) if each}
        self.macro_nodes = [each for each in walk(self.tree.root_node) if each.type == "preproc_def"]
        self.macros = {
            text_of(node.child_by_field_name("name")): text_of(node.child_by_field_name("value")).strip()
            for node in self.macro_nodes
        }
        self.macro_functions = {
            text_of(each.child_by_field_name("name")): (
                re.findall(r"\w+", text_of(each.child_by_field_name("parameters"))),
                text_of(each.child_by_field_name("value")),
            )
            for each in walk(self.tree.root_node)
            if each.type == "preproc_function_def"
        }
        self.functions = {name: self.function(name) for name in self.nodes}
        self.launches = [self.launch(each) for each in walk(self.tree.root_node) if launches(each)]

    def constants(self) -> dict[str, str]:
        """Return the text of each macro without parameters and of each constant of the file."""
        values = {name: value for name, value in self.macros.items() if value}
        for item in self.items:
            if item.type == "declaration":
                values |= definitions(item)
        return values

    @functools.cached_property
    def active(self) -> str:
        """The text without the branches of conditionals on names that the file defines before, or does not define."""
        content = bytearray(self.content)
        defined = {text_of(x.child_by_field_name("name")): x.start_byte for x in self.macro_nodes}
        for each in walk(self.tree.root_node):
            if each.type != "preproc_ifdef":
                continue
            name, other = text_of(each.child_by_field_name("name")), each.child_by_field_name("alternative")
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
            value = text_of(each.child_by_field_name("value")).split("//")[0].strip()
            if re.fullmatch(r"[\d\s()*+<uUlL]+", value or "-"):
                name = text_of(each.child_by_field_name("name"))
                found[name] = Parameter(name, "int", 0, True)
        for item in self.items:
            declares = item.type == "declaration" and function_declarator(item) is None
            variables = [parameter(item, each) for each in item.children_by_field_name("declarator") if declares]
            found |= {each.name: each for each in variables if each.pointers or SIZE.fullmatch(each.type)}
        found |= {each: Parameter(each, "int", 0, True) for each in self.undeclared if LENGTH.fullmatch(each)}
        return {name: each for name, each in found.items() if name and (each.pointers or not TILE.search(name.upper()))}

    @functools.cached_property
    def undeclared(self) -> list[str]:
        """The names of sizes and types that a file uses and does not declare; none if a header beside it may do so."""
        headers = re.findall(r'#\s*include\s*"(.+?)"', self.content.decode(errors="replace"))
        if self.path and any((self.path.parent / each).is_file() for each in headers):
            return []
        nodes = [each for each in walk(self.tree.root_node) if each.type in ("identifier", "type_identifier")]
        declared = {text_of(each) for each in nodes if declares(each.parent, each)}
        used = map(text_of, nodes)
        return [x for x in dict.fromkeys(used) if x not in declared and (ELEMENT.fullmatch(x) or LENGTH.fullmatch(x))]

    def structures(self) -> dict[str, list[Parameter]]:
        """Return the fields of each structure of the file, by the name of its type."""
        found = {}
        for item in walk(self.tree.root_node):
            if item.type == "struct_specifier" and (body := item.child_by_field_name("body")):
                declared = [each for each in body.named_children if each.type == "field_declaration"]
                fields = [parameter(each, x) for each in declared for x in each.children_by_field_name("declarator")]
                names = [text_of(item.child_by_field_name("name"))]
                if item.parent.type == "type_definition":
                    names.append(text_of(item.parent.child_by_field_name("declarator")))
                names += [f"struct {names[0]}"] * bool(names[0])
                found |= dict.fromkeys(filter(None, names), fields)
        return found

    def qualified(self, name: str) -> str:
        """Return the name of a function with its namespaces."""
        node = self.nodes[name]
        while node := node.parent:
            if node.type == "namespace_definition" and (own := node.child_by_field_name("name")):
                name = f"{text_of(own)}::{name}"
        return name

    def used(self, name: str) -> list[Parameter]:
        """Return the sizes and arrays of the file that a function, or one that it calls, uses in no declaration."""
        kernel = "__global__" in text_of(self.nodes[name]).partition("{")[0]
        names, others = set(re.findall(r"\w+", self.macros_of(name))), {x.name for x in self.parameters(name)}
        names |= {length for each in self.parameters(name) for length in each.lengths if kernel}
        for function in map(self.nodes.get, self.reached(name)):
            whole = kernel and function != self.nodes[name]
            for each in walk(function if whole else function.child_by_field_name("body")):
                if each.type in ("array_declarator", "template_argument_list"):
                    others |= names_in(each)
                elif each.type == "assignment_expression":
                    others.add(text_of(each.child_by_field_name("left")))
                elif each.type == "identifier":
                    names.add(text_of(each))
        return [each for each in self.outside.values() if each.name in names - others]

    @functools.cached_property
    def vectors(self) -> dict[str, str]:
        """The vectors of C++ to which the file gives names, such as ``Matrix``."""
        pattern = rf"typedef\s+({VECTOR.pattern})\s+(\w+)\s*;|using\s+(\w+)\s*=\s*({VECTOR.pattern})\s*;"
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
        listed = function_declarator(self.nodes[name]).child_by_field_name("parameters").named_children
        own = (each for each in listed if each.type.endswith("parameter_declaration") and text_of(each) != "void")
        return tuple(parameter(each, vectors=self.vectors) for each in own)

    # --- signatures

    def function(self, name: str) -> Function:
        node = self.nodes[name]
        template = template_of(node)
        parameters = self.parameters(name)
        body = node.child_by_field_name("body")
        bodies = [self.nodes[each].child_by_field_name("body") for each in self.reached(name)]
        bounds = [each for each in walk(node) if each.type == "launch_bounds"]
        loops = [x for each in bodies for x in walk(each) if x.type in LOOPS]
        loops += [body] * (name in map(called_by, (x for x in walk(body) if x.type == "call_expression")))
        combining = [text_of(x) for each in bodies for x in calls(each)]
        scalars = {each.name for each in parameters if not each.pointers} | {each for each, _, _ in template}
        scalars |= {*self.macros, "blockDim", "gridDim", "blockIdx", "threadIdx"}
        sizes = frozenset(each.name for each in (*parameters, *self.outside.values()) if not each.pointers)
        macros = set(re.findall(r"\w+", self.macros_of(name)))
        uses = {
            x.name: [is_condition(y) for y in walk(body) if y.type == "identifier" and text_of(y) == x.name]
            for x in parameters
            if x.name not in macros
        }
        header = self.content[node.start_byte : body.start_byte].decode(errors="replace")
        returns = text_of(node.child_by_field_name("type")) + "*" * header[: header.find(name)].count("*")
        returns = self.vectors.get(returns, returns)
        return Function(
            name,
            returns,
            parameters,
            tuple((each, default) for each, default, _ in template),
            frozenset(each for each, _, is_type in template if is_type),
            "__global__" in header,
            self.written(name, frozenset()) | ({RETURNED} if VECTOR.fullmatch(returns) else frozenset()),
            self.compares(
                name,
                frozenset(each.name for each in parameters if not each.pointers) | set(self.macros) | set(self.outside),
            ),
            any(has_remainder(each, sizes) for one in bodies for each in walk(one)),
            bool(loops) or any(COMBINING_CALLS.search(each) for each in combining),
            any(multiplies(each, scalars) for loop in loops for each in walk(loop)),
            text_of(bounds[0].named_children[0]) if bounds and bounds[0].named_children else "",
            self.shared_outside or any("extern" in text_of(each) for each in bodies),
            "gridDim" in text_of(body),
            "threadIdx.y" not in text_of(body),
            frozenset(x for x, conditions in uses.items() if conditions and all(conditions)),
            frozenset(x for x, conditions in uses.items() if not conditions),
        )

    def reached(self, name: str) -> list[str]:
        """Return a function and all functions of the file that it calls or passes on, directly or indirectly."""
        found = [name]
        for each in found:
            inside = list(walk(self.nodes[each]))
            local = {text_of(x) for x in inside if x in x.parent.children_by_field_name("declarator")}
            called = [called_by(x) for x in inside if x.type == "call_expression"]
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

    def compares(self, name: str, given: frozenset[str], seen: frozenset[str] = frozenset()) -> bool:
        """Return whether a condition of a function, or of one that gets a size from it, compares with a size."""
        body = self.nodes[name].child_by_field_name("body")
        sizes = derived(body, set(given))
        threads = {each for each, value in self.macros.items() if OF_THREAD.search(value)}
        if seen:  # its other parameters may be indices
            threads |= {each.name for each in self.parameters(name)} - given
        threads = of_threads(body, threads)
        if not OF_THREAD.search(self.content.decode(errors="replace")):  # a function for the CPU has no threads
            threads = {text_of(each) for each in walk(body) if each.type == "identifier"}
        if any(compares(each, sizes, threads) for each in walk(body)):
            return True
        for each in walk(body):
            called = text_of(each.child_by_field_name("function")) if each.type == "call_expression" else ""
            if called in self.nodes and called not in seen | {name}:
                values = each.child_by_field_name("arguments").named_children
                names = list(map(names_in, values))
                own = self.parameters(called)
                passed = frozenset(x.name for x, used in zip(own, names, strict=False) if used and used <= sizes)
                if passed and self.compares(called, passed, seen | {name}):
                    return True
        return False

    @functools.cached_property
    def shared_outside(self) -> bool:
        """Whether dynamic shared memory is declared outside of functions, or in a structure such as a template."""
        return any(dynamic(item) for item in self.items if definition(item) is None)

    def written(self, name: str, seen: frozenset[str]) -> frozenset[str]:
        """Return the pointer parameters through which a function writes, itself or by functions that it calls."""
        roots, found = self.pointers(name)
        shared = {each.name for each in self.outside.values() if each.pointers}
        shared -= {each.name for each in self.parameters(name)}
        for each in walk(self.nodes[name].child_by_field_name("body")):
            if each.type == "assignment_expression":
                left = each.child_by_field_name("left")
                if left.type != "identifier" or roots.get(f"&{text_of(left)}"):
                    found.add(roots.get(self.root_of(left), ""))
            elif each.type == "update_expression":
                inner = each.child_by_field_name("argument")
                if inner.type != "identifier":
                    found.add(roots.get(self.root_of(inner), ""))
            elif each.type == "argument_list":
                function = text_of(each.parent.child_by_field_name("function")).partition("<")[0]
                given = each.named_children
                if WRITING_CALLS.fullmatch(function.rpartition("::")[2]) and given:
                    found.add(roots.get(self.root_of(given[0]), ""))
                for called, values in ((function, given), *((text_of(x), given[i:]) for i, x in enumerate(given, 1))):
                    if called in self.nodes and called not in seen | {name}:  # also the function of a thread
                        inner_written = self.written(called, seen | {name})
                        inner = self.parameters(called)
                        found |= inner_written & shared - {each.name for each in inner}
                        pairs = zip(values, inner, strict=False)
                        found |= {roots.get(self.root_of(value), "") for value, x in pairs if x.name in inner_written}
        return frozenset(found - {""})

    def pointers(self, name: str) -> tuple[dict[str, str], set[str]]:
        """Return the parameter to whose memory each name of a function points, and those with a ``cuda::atomic_ref``.

        A reference has a second entry, with ``&``.
        """
        structures, own = self.structures(), self.parameters(name)
        others = [each for each in self.outside.values() if each.name not in {x.name for x in own}]
        roots = {each.name: each.name for each in (*own, *others) if each.pointers or each.type in structures}
        atomic: set[str] = set()
        for each in walk(self.nodes[name].child_by_field_name("body")):
            if each.type == "init_declarator":
                declared, root = each.child_by_field_name("declarator"), self.root_of(each.child_by_field_name("value"))
                kind, root = text_of(each.parent.child_by_field_name("type")), roots.get(root)
                names = [text_of(x) for x in walk(declared) if x.type == "identifier"]
                pointer = declared.type == "pointer_declarator" or "auto" in text_of(each.parent).split()
                if root and "atomic_ref" in kind:
                    atomic.add(root)
                elif root and names and (pointer or kind in structures):
                    roots[names[0]] = root
                elif root and names and declared.type == "reference_declarator":
                    roots[names[0]] = roots[f"&{names[0]}"] = root
            elif each.type == "assignment_expression":
                left, right = each.child_by_field_name("left"), each.child_by_field_name("right")
                root = roots.get(self.root_of(right)) if right.type not in VALUES else None
                if left.type == "identifier" and root and f"&{text_of(left)}" not in roots:
                    roots.setdefault(text_of(left), root)
        return roots, atomic

    def elements(self, name: str) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
        """Return the elements that a function reads and sets: pairs of an array and the text of its index."""
        roots, read, written = self.pointers(name)[0], set(), set()
        for each in walk(self.nodes[name].child_by_field_name("body")):
            around = each.parent
            if each.type != "subscript_expression" or around.type == "subscript_expression":
                continue
            root = self.root_of(each)
            element = roots.get(root, ""), re.sub(rf"\b{root}\b|\s", "", text_of(each))
            set_here = around.type == "assignment_expression" and around.child_by_field_name("left") == each
            if set_here or around.type == "update_expression":
                written.add(element)
            if not set_here or around.child_by_field_name("operator").type != "=":
                read.add(element)
        return read, written

    def root_of(self, node: Node | None) -> str:
        """Return the variable through which an expression reaches memory: ``C`` of ``*(float4 *)&C[i * n]``."""
        while node:
            match node.type:
                case "identifier":
                    return text_of(node)
                case "subscript_expression" | "pointer_expression" | "field_expression":
                    node = node.child_by_field_name("argument")
                case "cast_expression":
                    node = node.child_by_field_name("value")
                case "binary_expression":
                    node = node.child_by_field_name("left")
                case "call_expression":
                    given = node.child_by_field_name("arguments").named_children
                    parameters, body = self.macro_functions.get(text_of(node.child_by_field_name("function")), ((), ""))
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

    # --- launches in the host code

    def launch(self, node: Node) -> LaunchSite:
        function, given = node.child_by_field_name("function"), []
        if text_of(function) in LAUNCHING:  # of HIP: function, grid, block, shared memory, stream, arguments
            function, *given = node.child_by_field_name("arguments").named_children
        named = [each for each in walk(function) if each.type == "identifier"]
        named = named[1:] if named and text_of(named[0]) == "HIP_KERNEL_NAME" else named
        arguments = [each for each in walk(function) if each.type == "template_argument_list"][:1]
        configuration = [each for x in node.children if x.type == "kernel_call_syntax" for each in x.named_children]
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
        return LaunchSite(
            text_of(named[0]) if named else text_of(function),
            tuple(text_of(each) for each in arguments[0].named_children) if arguments else (),
            tuple(text_of(each) for each in configuration or given[:4]),
            tuple(map(text_of, given[4:] or node.child_by_field_name("arguments").named_children)),
            known,
        )

    # --- the part of the file that a function needs

    def needed(self, name: str) -> list[tuple[int, int]]:
        """Return the ranges of bytes of the items that a function does not need, such as host code."""
        uses: dict[int, set[str]] = {}
        declares: dict[str, list[int]] = {}
        for i, item in enumerate(self.items):
            names = {text_of(each) for each in walk(item) if each.type in NAMES}
            uses[i] = names
            for each in declared_by(item):
                declares.setdefault(each, []).append(i)
        bodies = {each: set(re.findall(r"\w+", value)) for each, value in self.macros.items()}
        bodies |= {each: set(re.findall(r"\w+", body)) for each, (_, body) in self.macro_functions.items()}
        waiting, seen, kept = [name], set(), set()
        while waiting:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            waiting += bodies.get(each, ())
            for i in declares.get(each, ()):
                if i not in kept:
                    kept.add(i)
                    waiting += uses[i]
        return [
            (item.start_byte, item.end_byte)
            for i, item in enumerate(self.items)
            if i not in kept and item.type != "preproc_call" and not uses_names(item, seen)
        ]


def items(node: Node) -> Iterator[Node]:
    """Yield the declarations and definitions of a file, also of its conditional parts and namespaces."""
    for item in node.named_children:
        if item == node.child_by_field_name("condition"):  # of #if
            continue
        if item.type in GROUPS:
            if item.type == "linkage_specification" and item.child_by_field_name("body").type != "declaration_list":
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
    if found and found.type == "function_definition" and found.child_by_field_name("body"):
        declarator = function_declarator(found)
        return found if declarator and text_of(name_in(found)) else None
    return None


def function_declarator(node: Node) -> Node | None:
    declarator = node.child_by_field_name("declarator")
    while declarator and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or next(iter(declarator.named_children), None)
    return declarator


def name_in(node: Node) -> Node | None:
    """Return the name of a function definition."""
    return function_declarator(node).child_by_field_name("declarator")


def parameter(node: Node, declarator: Node | None = None, vectors: Mapping[str, str] = {}) -> Parameter:
    """Return the record of a parameter, or of a variable of a declaration that may have several.

    ``vectors`` are those of C++ by the names that a file gives them.
    """
    declarator = declarator or node.child_by_field_name("declarator")
    lengths, pointers, name = [], 0, ""
    while declarator:
        if declarator.type in ("pointer_declarator", "abstract_pointer_declarator"):
            pointers += 1
        elif declarator.type in ("array_declarator", "abstract_array_declarator"):
            lengths.append(text_of(declarator.child_by_field_name("size")))
        elif declarator.type in ("identifier", "field_identifier"):
            name = text_of(declarator)
        inner = declarator.child_by_field_name("declarator")
        if inner is None:
            inner = next((x for x in declarator.named_children if x.type.endswith("declarator")), None)
            inner = inner or next(
                (x for x in declarator.named_children if x.type in ("identifier", "field_identifier")), None
            )
        declarator = inner
    lengths.reverse()
    if lengths:
        pointers += 1
    before = text_of(node)[: text_of(node).rfind(name)] if name else text_of(node)
    # g++ and the parser allow the words of a type in any order: unsigned int, const unsigned
    kind = " ".join(text_of(node.child_by_field_name("type")).split())
    kind, depth = of_vectors(vectors.get(kind, kind))
    constant = bool(re.search(r"\bconst\b", before))
    return Parameter(name, kind, pointers + depth, constant, tuple(lengths[1:]), vector=bool(depth))


def of_vectors(text: str) -> tuple[str, int]:
    """Return the element type of a vector of C++, and how many vectors are around it.

    >>> of_vectors("std::vector<std::vector<double> >")
    ('double', 2)
    """
    depth = 0
    while found := VECTOR.fullmatch(text):
        text, depth = found[1], depth + 1
    return text, depth


def template_of(node: Node) -> list[tuple[str, str, bool]]:
    """Return name, default, and whether it is a type, of each parameter of the template around a function."""
    if node.parent is None or node.parent.type != "template_declaration":
        return []
    found = []
    for entry in node.parent.child_by_field_name("parameters").named_children:
        is_type = "type_parameter" in entry.type
        names = [x for x in walk(entry) if x.type in ("identifier", "type_identifier")]
        default = text_of(entry.child_by_field_name("default_value") or entry.child_by_field_name("default_type"))
        if names:
            declared = entry.child_by_field_name("declarator")
            if text_of(entry.child_by_field_name("type")) == "bool":
                default = default or "false"
            found.append((text_of(names[0] if is_type else declared or names[-1]), default, is_type))
    return found


def calls(node: Node) -> Iterator[Node]:
    return (each.child_by_field_name("function") for each in walk(node) if each.type == "call_expression")


def called_by(node: Node) -> str:
    """Return the name of the function that a call names, without namespaces and template arguments."""
    return text_of(node.child_by_field_name("function")).partition("<")[0].rpartition("::")[2]


def launches(node: Node) -> bool:
    if node.type != "call_expression":
        return False
    named = text_of(node.child_by_field_name("function")) in LAUNCHING
    return named or any(each.type == "kernel_call_syntax" for each in node.children)


def uses_names(item: Node, names: set[str]) -> bool:
    """Return whether an item is a declaration like ``using namespace a``, or ``using a::b`` of one of the names."""
    text = text_of(item)
    return item.type == "using_declaration" and ("namespace" in text or re.findall(r"\w+", text)[-1] in names)


def dynamic(item: Node) -> bool:
    return bool(re.search(r"\bextern\b[^;{}]*__shared__", text_of(item)))


def derived(body: Node, sizes: set[str]) -> set[str]:
    """Return names of sizes, and of local variables that are computed from parameters alone."""
    found = set(sizes)
    for inner in walk(body):
        if inner.type == "init_declarator":
            value = inner.child_by_field_name("value")
            names = names_in(value)
            if names and names <= found and not re.search("threadIdx|/", text_of(value)):  # n / 16 counts tiles
                found.add(text_of(inner.child_by_field_name("declarator")))
    return found


def of_threads(body: Node, given: set[str]) -> set[str]:
    """Return names of local variables that are computed from the index of a thread, or from ``given`` ones."""
    found = {
        text_of(inner) for inner in walk(body) if inner.type == "identifier" and OF_THREAD.search(text_of(inner))
    } | given
    for inner in (*walk(body), *walk(body)):  # twice, for loops
        if inner.type in ("init_declarator", "assignment_expression"):
            parts = ("declarator", "value") if inner.type == "init_declarator" else ("left", "right")
            target, value = (inner.child_by_field_name(part) for part in parts)
            if (names_in(value) & found or OF_THREAD.search(text_of(value))) and (
                names := [text_of(x) for x in walk(target) if x.type == "identifier"]
            ):
                found.add(names[0])
    return found


def compares(node: Node, sizes: set[str], threads: set[str]) -> bool:
    """Whether a node is a condition, other than that of a loop, that compares something of a thread with a size."""
    if node.type not in ("if_statement", "conditional_expression"):
        return False
    condition = node.child_by_field_name("condition")
    return any(
        each.type == "binary_expression"
        and each.child_by_field_name("operator").type in RELATIONS
        and names_in(each) & sizes
        and names_in(each) & threads
        for each in walk(condition)
    )


def has_remainder(node: Node, sizes: frozenset[str]) -> bool:
    """Whether a node is for the rest of a size: ``n % 4``, ``i + 4 <= n``, ``min(..., n)``, or a loop that goes on."""
    if node.type == "for_statement":
        if re.search(r"\+ *\d+ *<=? *\w+$|<=? *\w+ *- *\d+$", text_of(node.child_by_field_name("condition"))):
            return True  # it stops before the rest
        before = [each.type for each in node.parent.named_children if each.end_byte <= node.start_byte]
        begins = re.search(r"=\s*\d+\s*;?$", text_of(node.child_by_field_name("initializer")))
        inner = any(each.type in LOOPS for each in walk(node.child_by_field_name("body")))
        condition = node.child_by_field_name("condition")
        return not (begins or inner) and bool({*before} & {*LOOPS}) and bool(condition and names_in(condition) & sizes)
    if node.type == "call_expression":
        named = called_by(node).lower() in ("min", "imin", "min2")
        return named and bool(names_in(node.child_by_field_name("arguments")) & sizes)
    if node.type != "binary_expression" or node.child_by_field_name("operator").type != "%":
        return False
    asks = node  # a check such as if (n % 4) return; states multiples
    while asks and asks.type not in ("if_statement", "call_expression", "compound_statement"):
        asks = asks.parent
    refuses = asks and re.search(r"return|assert|exit|trap", text_of(asks)) and asks.type != "compound_statement"
    return not refuses and bool(names_in(node.child_by_field_name("left")) & sizes)


def is_condition(node: Node) -> bool:
    """Return whether a name is a condition, as in ``if (flag)``, ``if (!flag && other)`` and ``flag == 1``."""
    while node.parent.type in ("parenthesized_expression", "condition_clause", "unary_expression"):
        node = node.parent
    around = node.parent
    if around.type == "binary_expression":
        number = any(x.type == "number_literal" for x in around.named_children)
        return around.child_by_field_name("operator").type in ("&&", "||", *(("==", "!=") if number else ()))
    return around.type in ("if_statement", "conditional_expression") and around.child_by_field_name("condition") == node


def multiplies(node: Node, scalars: set[str]) -> bool:
    """Whether a node adds up products: ``s += a * b``, ``s = s + a * b``, or a fused multiply-add.

    Products of ``scalars``, such as ``i += blockDim.x * gridDim.x``, are indices.
    """
    if node.type == "call_expression":
        return "fma" in text_of(node.child_by_field_name("function")).lower()
    if node.type != "assignment_expression":
        return False
    operator, right = node.child_by_field_name("operator").type, node.child_by_field_name("right")
    products = [
        x for x in walk(right) if x.type == "binary_expression" and x.child_by_field_name("operator").type == "*"
    ]
    inside = [x for x in products if not within_index(x, right) and names_in(x) - scalars]
    return bool(inside) and (operator == "+=" or (operator == "=" and "+" in text_of(right)))


def names_in(node: Node) -> set[str]:
    return {text_of(each) for each in walk(node) if each.type == "identifier"}


def within_index(node: Node, top: Node) -> bool:
    while node != top and node.parent:
        node = node.parent
        if node.type in ("subscript_argument_list", "subscript_expression"):
            return True
    return False


def definitions(node: Node) -> dict[str, str]:
    """Return the texts of the values that a declaration or an assignment gives to names."""
    found = {}
    if node.type == "assignment_expression":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        changed = node.child_by_field_name("operator").type != "="  # such as /=: the value is no longer known
        value = "" if changed else text_of(right)
        return {text_of(left): value} if left.type in ("identifier", "field_expression") else {}
    for part in node.named_children:
        if part.type == "init_declarator":
            value = part.child_by_field_name("value")
            found[text_of(part.child_by_field_name("declarator"))] = text_of(value)
        elif part.type == "function_declarator" and text_of(node.child_by_field_name("type")) == "dim3":
            found[text_of(part.child_by_field_name("declarator"))] = text_of(part.child_by_field_name("parameters"))
    return found


def declares(node: Node, name: Node) -> bool:
    """Return whether a node declares a name in it."""
    fields = [each for field in ("declarator", "name") for each in node.children_by_field_name(field)]
    return name in fields or node.type in ("preproc_params", "type_parameter_declaration")


def declared_by(item: Node) -> set[str]:
    """Return the names that an item of a file declares."""
    inner = item
    while inner.type in ("template_declaration", "linkage_specification"):
        further = [
            inside
            for inside in inner.named_children
            if not inside.type.endswith("_list") and inside.type != "string_literal"
        ]
        if not further:
            return set()
        inner = further[-1]
    if inner.type == "function_definition":
        declarator = function_declarator(inner)
        name = declarator.child_by_field_name("declarator") if declarator else None
        return {text_of(name).rpartition("::")[2]} if name else set()
    if inner.type in ("type_definition", "declaration", "alias_declaration"):
        found = {text_of(inside) for inside in walk(inner) if inside.type in NAMES}
        if inner.type == "declaration" and function_declarator(inner):
            return {text_of(function_declarator(inner).child_by_field_name("declarator"))}
        values = (x.child_by_field_name("value") for x in walk(inner) if x.type == "init_declarator")
        return found - {text_of(x) for value in values for x in walk(value) if x.type in NAMES}
    if inner.type == "ERROR":
        return {text_of(inside) for inside in walk(inner) if inside.type in NAMES}
    names = [inside for inside in walk(inner) if inside.type in NAMES]
    if inner.type == "enum_specifier":
        return {text_of(inside) for inside in names}
    return {text_of(inner.child_by_field_name("name"))} if inner.child_by_field_name("name") else set()
