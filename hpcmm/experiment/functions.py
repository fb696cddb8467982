"""The signatures of the functions of a C, C++ or CUDA source."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from hpcmm.experiment import syntax
from hpcmm.experiment.conditions import LOOPS, guards, has_remainder, is_condition, multiplies, takes_whole_tiles
from hpcmm.experiment.parsed import Parsed, headers_beside, is_kernel
from hpcmm.experiment.syntax import Parameter, called_by, calls, part, text_of, walk
from hpcmm.experiment.writes import written

COMBINING_CALLS = re.compile("shfl|atomic|fetch_|reduce|accumulate|sum", re.IGNORECASE)
DYNAMIC = re.compile(r"\bextern\b[^;{}]*__shared__")
RETURNED = "return"  # in place of the name of a parameter: the vector that a function returns


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
    whole_tiles: bool  # whether a loop is over the whole tiles of a size
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


class Source(Parsed):
    """A parsed source, with the signatures of its functions."""

    def __init__(self, text: str, path: Path | None = None):
        super().__init__(text, path)
        self.functions = {name: self.function(name) for name in self.nodes}

    def function(self, name: str) -> Function:
        node = self.nodes[name]
        template = syntax.template_of(node)
        parameters = self.parameters(name)
        body = part(node, "body")
        bodies = [part(self.nodes[each], "body") for each in self.reached(name)]
        bounds = [each for each in walk(node) if each.type == "launch_bounds"]
        loops = [x for each in bodies for x in walk(each) if x.type in LOOPS]
        loops += [body] * (name in map(called_by, calls(body)))
        combining = [text_of(part(x, "function")) for each in bodies for x in calls(each)]
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
        returns = text_of(part(node, "type")) + "*" * header[: header.find(name)].count("*")
        returns = self.vectors.get(returns, returns)
        return Function(
            name,
            returns,
            parameters,
            tuple((each, default) for each, default, _ in template),
            frozenset(each for each, _, is_type in template if is_type),
            is_kernel(node),
            written(self, name) | ({RETURNED} if self.makes(name, returns) else set()),
            guards(self, name, sizes | set(self.macros) | set(self.outside)),
            any(has_remainder(each, sizes) for one in bodies for each in walk(one)),
            any(takes_whole_tiles(one, sizes) for one in bodies),
            bool(loops) or any(COMBINING_CALLS.search(each) for each in combining),
            any(multiplies(each, scalars) for loop in loops for each in walk(loop)),
            text_of(bounds[0].named_children[0]) if bounds and bounds[0].named_children else "",
            any("extern" in text_of(each) for each in bodies)
            or any(DYNAMIC.search(text_of(each)) for each in self.items if syntax.definition(each) is None),
            "gridDim" in text_of(body),
            "threadIdx.y" not in text_of(body),
            frozenset(x for x, conditions in uses.items() if conditions and all(conditions)),
            frozenset(x for x, conditions in uses.items() if not conditions),
        )

    def makes(self, name: str, returns: str) -> bool:
        """Return whether a function returns an array that it makes, of two others if it is no vector."""
        pointer = re.fullmatch(r"(float|double|int)\s*\*{1,2}", returns)
        two = sum(bool(each.pointers) for each in self.parameters(name)) > 1
        return bool(syntax.VECTOR.fullmatch(returns) or (pointer and two and not written(self, name)))


def parsed(text: str, path: Path | None = None) -> Source:
    """Return the parsed source of a text; the last ones are kept, because several steps need the same source."""
    return _parsed(text, path, headers_beside(text, path))


@functools.lru_cache(16)
def _parsed(text: str, path: Path | None, headers: tuple[str, ...]) -> Source:
    """Parse a text again if a header appears beside its file: the source has other undeclared names then."""
    return Source(text, path)
