"""What a function of a file may compute, by its signature: its arrays, its sizes and its scalars."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence

from hpcmm.experiment.functions import RETURNED, Function, Source
from hpcmm.experiment.host_code import TYPES
from hpcmm.experiment.parsed import ELEMENT
from hpcmm.experiment.syntax import Parameter, of_returned
from hpcmm.experiment.writes import STEP, elements
from hpcmm.model.devices import Device
from hpcmm.model.dtypes import DTYPES

WORDS_OF_INTEGERS = re.compile(
    r"(std::)?(unsigned|signed|long|short|int|char|size_t|uint|u?int(8|16|32|64)_t|ptrdiff_t|ssize_t|bool|[iu](8|16|32|64)|usize|ulong|uint32|int64)\b"
)
IDENTITY = re.compile(r"ident|init|neutral|start|zero", re.IGNORECASE)  # names of the first value of a reduction
STRIDE = re.compile(r"((?:inc|stride)(?:r|c|row|col|column)|(?:row|col|column)(?:inc|stride)|rs|cs)([abc])")
NAMED_SUM = re.compile("sum|reduc|add_?all|total|accum|min|max", re.IGNORECASE)
COPYING = re.compile("copy|cpy")
COMBINING = re.compile(r"__shared__|\]\s*\+=|\*\s*\w+\s*\+=")  # without a loop
OF_LAUNCH = {
    "blockDim.x": r"(block|blk|tile)_?(size|sz|dim|width)|bs|blk|tile|threads?_?per_?block|(num|n)_?threads",
    "gridDim.x": r"grid_?(size|dim)|(num|n)_?blocks",
}
TILE = "16"  # of a function for the CPU
CONTIGUOUS = "1"  # elements from one column of a row to the next
SLOTS = ("m", "n", "k", "lda", "ldb", "ldc")  # integers of the operation's function, which pass any integers in a trial


def type_of(source: Source, parameter: Parameter, function: Function) -> str:
    """Return the element type of a parameter; empty if it has none, ``any`` for the parameter of a template."""
    name = parameter.type
    if name in function.types:
        return "any"
    for _ in range(3):
        if TYPES.get(name) in DTYPES:
            return TYPES[name]
        missing = ELEMENT.fullmatch(name) and name in source.undeclared
        if missing or name in ("REAL", "ACCUMULATOR"):
            return "any"
        name = alias(source, name)
    return ""


def element_of(source: Source, function: Function) -> str | None:
    """Return the element type of the arrays of a function: empty for any type, None for several.

    The result of a product may have another type than A and B.
    """
    arrays = arrays_of(source, function)
    results = {type_of(source, each, function) for each in arrays if each.name in function.written} - {"any"}
    inputs = {type_of(source, each, function) for each in arrays if each.name not in function.written} - {"any"}
    if len(inputs | results) < 2:
        return next(iter(inputs | results), "")
    found = [each for each in DTYPES.values() if {each.stem} == inputs and {each.results.name} == results]
    return found[0].name if found and len(arrays) == 3 else None


def alias(source: Source, name: str) -> str:
    """Return what a name of a type stands for; empty if it is no other one."""
    x = re.escape(name)
    found = re.search(rf"#\s*define\s+{x}\s+(.+)|typedef\s+([\w\s]+?)\s+{x}\s*;|using\s+{x}\s*=\s*(\w+)", source.active)
    return next(filter(None, found.groups())).strip() if found and name else ""


def is_threads(parameter: Parameter) -> bool:
    """Return whether a parameter is the number of threads."""
    return not parameter.pointers and bool(
        re.fullmatch(r"n?_?(num|n)?_?(omp)?_?threads?(_?(num|count))?", parameter.name.lower())
    )


def arrays_of(source: Source, function: Function) -> list[Parameter]:
    found = []
    for each in function.parameters:
        if (fields := source.fields(each.type)) and each.pointers < 2:
            deepest = 1 if function.kernel else 2
            fields = [x for x in fields if 1 <= x.pointers <= deepest]
            found += [dataclasses.replace(x, name=each.name, structure=each.type) for x in fields]
        elif each.pointers == 1 or (each.pointers == 2 and not function.kernel):
            sized = each.vector and each.pointers == 2  # it states all sizes, as a structure does
            found.append(dataclasses.replace(each, structure="vector") if sized else each)
    if RETURNED in function.written:
        kind, depth = of_returned(function.returns)
        of_vector = "vector" in function.returns
        whole = "vector" * (depth == 2 and of_vector)
        found.append(Parameter(RETURNED, kind, depth, False, structure=whole, vector=of_vector))
    if not found and not function.kernel:
        found = [each for each in source.used(function.name) if each.pointers]
    return [each for each in found if type_of(source, each, function) and each.name not in function.unused]


def integers_of(source: Source, function: Function) -> list[Parameter]:
    found = [
        each
        for each in function.parameters
        if not each.pointers
        and not is_threads(each)
        and (WORDS_OF_INTEGERS.match(each.type) or WORDS_OF_INTEGERS.match(alias(source, each.type)))
    ]
    found = [each for each in found if each.name not in function.flags]
    sized = any(each.vector for each in function.parameters)
    # else the only one is a length
    found = [each for each in found if not of_launch(function, each)] or ([] if sized else found)
    sizes = [each for each in found if hint(each.name) or each.name not in function.unused]
    found = sizes or found
    one_block = function.kernel and not function.looped and "blockIdx" not in source.text(function.name)
    if found or one_block:
        return found
    outside, values = [each for each in source.used(function.name) if not each.pointers], source.constants()
    large = [each for each in outside if not re.fullmatch(r"[12]?\d", values.get(each.name, "").strip())]
    return large or outside  # beside sizes, a small constant is that of a block or of registers


def of_launch(function: Function, parameter: Parameter) -> str:
    """Return the size of the launch that a parameter of a kernel gets, by its name, or a tile's; empty if none."""
    sizes = OF_LAUNCH.items() if function.kernel else [(TILE, OF_LAUNCH["blockDim.x"])] * (not is_threads(parameter))
    sizes = () if parameter.pointers else [*sizes, (CONTIGUOUS, STEP)]
    return next((size for size, names in sizes if re.fullmatch(names, parameter.name, re.IGNORECASE)), "")


def idle(source: Source, function: Function) -> dict[str, str]:
    """Return the value of parameters on which no result depends, of those in conditions, and of sizes of the launch."""
    used = {each.name for each in (*arrays_of(source, function), *integers_of(source, function))}
    own = {each.name: each for each in function.parameters if each.name not in used}
    names = [x for x in own if x in function.flags | function.unused and not is_threads(own[x])]
    found = {x: "0" for x in names if own[x].pointers or WORDS_OF_INTEGERS.match(own[x].type)}
    return found | {x.name: size for x in own.values() if (size := of_launch(function, x))}


def reals_of(source: Source, function: Function) -> list[Parameter]:
    whole, rest = integers_of(source, function), idle(source, function)
    return [
        each
        for each in function.parameters
        if not each.pointers
        and each not in whole
        and each.name not in rest
        and not is_threads(each)
        and type_of(source, each, function)
    ]


def untaken(source: Source, function: Function) -> list[Parameter]:
    """Return the parameters for which there is no value, such as those of other structures."""
    known = {x.name for each in (arrays_of, integers_of, reals_of) for x in each(source, function)}
    return [x for x in function.parameters if x.name not in known | {*idle(source, function)}]


def kinds(source: Source, function: Function, device: Device) -> list[str]:
    """Return the operations that a function may compute by its signature, the most plausible one first."""
    arrays, integers, reals = (each(source, function) for each in (arrays_of, integers_of, reals_of))
    if any(device.accelerator or not is_threads(each) for each in untaken(source, function)):
        return []
    written = [each for each in arrays if each.name in function.written]
    first = overwritten(source, function)
    if first and len(integers) <= 2 and len(arrays) == 2:
        if len(written) == 2 and COPYING.search(function.name.lower()):  # which copies either way
            return ["copy"]
        in_place = elements(source, function.name)[0] and not reals and function.flat  # else it only fills arrays
        return ["vector_add"] if len(written) == 1 else ["reduction"] * bool(in_place)
    if first:
        summed = NAMED_SUM.search(function.name) and "void" in function.returns
        return ["reduction"] if summed and len(integers) <= 1 and not reals and function.flat else []
    vectors = any(each.vector for each in arrays) and (len(integers) < 2 or RETURNED in function.written)
    if len(arrays) == 3 and vectors and not function.multiplies and any(each.structure for each in arrays):
        return []
    if len(arrays) == 3 and len(written) <= 1 and sized(integers) and len(reals) <= 2 and written:
        if len(integers) > 1 or all(each.structure for each in arrays):
            sum_of_matrices = len(integers) == 2 and not reals and not function.multiplies
            return ["vector_add", "matmul"] if sum_of_matrices else ["matmul"]
        if reals and by_elements(source, function):
            return ["vector_add"]
        if reals:
            return ["matmul"] if integers else []
        if not integers:  # exact multiples of a block
            return [] if function.multiplies else ["vector_add"]
        return ["matmul", "vector_add"] if multiplies(function) else ["vector_add", "matmul"]
    if len(arrays) == 2 and len(integers) == 2 and len(written) == 1 and not reals and not function.flat:
        return ["copy"]  # of a matrix
    if len(arrays) == 2 and len(integers) <= 1 and len(written) == 1 and all(IDENTITY.search(x.name) for x in reals):
        if reals:
            return ["reduction"] if len(reals) == 1 else []
        combines = function.looped or COMBINING.search(source.text(function.name))
        combines = combines and not COPYING.search(function.name.lower())
        return ["reduction", "copy"] if combines else ["copy", "reduction"]
    value = not re.search(r"void|\*", function.returns)
    returned = function.looped and value and not (reals or written or device.accelerator)
    sized_alone = len(arrays) == 1 and arrays[0].vector and not integers
    return ["reduction"] if returned and (sized_alone or len(arrays) == len(integers) == 1) else []


def multiplies(function: Function) -> bool:
    """Return whether a function of three arrays may be a product: it multiplies, and no name says otherwise."""
    return function.multiplies and not re.search("add|axpy", function.name.lower())


def result_of(source: Source, function: Function) -> str:
    """Return the array that holds the result: of several that a function writes to, the one that it does not read."""
    written = [each.name for each in arrays_of(source, function) if each.name in function.written]
    read = {name for name, _ in elements(source, function.name)[0]}
    return next((each for each in written if each not in read), written[-1] if written else "")


def by_elements(source: Source, function: Function) -> bool:
    """Return whether a function sets each element of its result from the same elements of its arrays."""
    names, result = {each.name for each in arrays_of(source, function)}, result_of(source, function)
    read, written = elements(source, function.name)
    indices = [index for name, index in written if name == result]
    sources = names if len(names) == 2 else names - {result}
    return bool(indices) and all(any((name, index) in read for index in indices) for name in sources)


def overwritten(source: Source, function: Function) -> str:
    """Return the array of a function on vectors that is an input and that it overwrites; empty if there is none."""
    arrays = [each.name for each in arrays_of(source, function)]
    written, result = function.written & {*arrays}, result_of(source, function)
    if len(arrays) == 1 or (len(arrays) == 2 and len(written) == 1 and by_elements(source, function)):
        return result if result != RETURNED else ""
    return next(iter(written - {result}), "") if len(arrays) == 2 else ""


def sized(integers: Sequence[Parameter]) -> bool:
    """Return whether integers may be sizes and leading dimensions, beside strides of 1."""
    return sum(hint(each.name) != CONTIGUOUS for each in integers) <= len(SLOTS)


def hint(name: str) -> str:
    """Return the size of a product that a name suggests: m, n, k, lda, ldb or ldc; 1 of a stride; empty if none.

    >>> [hint(each) for each in ("M", "numAColumns", "wB", "height_a", "lda", "width", "K_", "rows", "incColA")]
    ['m', 'k', 'n', 'm', 'lda', '', 'k', '', '1']
    """
    plain = re.sub(r"[^a-z]", "", name.lower().replace("num", ""))
    plain = plain.removeprefix("matrix").removeprefix("mat")
    if plain in SLOTS:
        return plain
    if re.fullmatch(r"n?batch(es|size|count)?", plain):
        return CONTIGUOUS  # one product
    if found := re.fullmatch(r"(?:ld|stride|pitch|lead\w*)([abc])", plain):
        return f"ld{found[1]}"
    if found := STRIDE.fullmatch(plain):  # from row to row, or from column to column
        return f"ld{found[2]}" if "r" in found[1].replace("stride", "") else CONTIGUOUS
    row = r"(?:rows?|h|height|hgt|ht)"
    column = r"(?:columns?|cols?|w|width|wid|wd)"
    for which, by_row, by_column in (("a", "m", "k"), ("b", "k", "n"), ("c", "m", "n")):
        if re.fullmatch(rf"n?{row}(?:of|in)?{which}|{which}n?{row}", plain):
            return by_row
        if re.fullmatch(rf"n?{column}(?:of|in)?{which}|{which}n?{column}", plain):
            return by_column
    return ""


def assignments(integers: Sequence[Parameter]) -> list[tuple[str, ...]]:
    """Return which size each integer may be, the most plausible first."""
    hints = [hint(each.name) for each in integers]
    names = sorted(each.name.lower() for each in integers)
    if names[:2] == ["m", "n"] and names[2:] in (["o"], ["p"]):  # of a textbook, where A is m x n
        hints = ["m", "k", "n"]
    if len(integers) == 1:
        return [("n",)]
    fixed = [each if each[:2] == "ld" or each == CONTIGUOUS else "" for each in hints]
    free = [i for i, each in enumerate(fixed) if not each]
    if len(free) == 1 and len(integers) > 1:
        ways = [("n",)]
    elif len(free) <= 3:
        ways = list(itertools.permutations("mnk", len(free)))
    else:
        ways = [tuple(hints[i] or "n" for i in free)]
    found = []
    for way in ways:
        whole = list(fixed)
        for i, each in zip(free, way, strict=True):
            whole[i] = each
        found.append(tuple(whole))
    return sorted(found, key=lambda way: sum(bool(a) and a != b for a, b in zip(hints, way, strict=True)))
