"""Launches and template arguments to try for a function: those in the host code of its file come first."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from hpcmm.experiment.conditions import OF_THREAD
from hpcmm.experiment.functions import Function, Source
from hpcmm.experiment.host_code import LaunchSite
from hpcmm.experiment.host_runs import HostRun
from hpcmm.system.text import split

BLOCKS = ((4, 4), (32, 8), (8, 8), (32, 32), (16, 16), (512,), (64,), (128,), (1024,), (256,))  # the usual ones last
SHARED = (1, 2)  # elements per thread of dynamic shared memory to try
PRESETS = (  # values of template parameters that the file does not give, by their short names
    {"BM": 128, "BN": 128, "BK": 8, "TM": 8, "TN": 8, "NUMTS": 256},
    {"BM": 64, "BN": 64, "BK": 8, "TM": 8, "TN": 8, "NUMTS": 64},
    {"BM": 128, "BN": 128, "BK": 16, "TM": 8, "TN": 4, "WM": 64, "WN": 64, "WNITER": 4, "NUMTS": 128},
    {"BM": 64, "BN": 64, "BK": 8, "TM": 4, "TN": 4, "WM": 32, "WN": 32, "WNITER": 2, "NUMTS": 128},
)
THREADS = re.compile(r"THREAD|TPB|BLOCK|WORKGROUP|^BS$|^NT$")  # names of constants that may be numbers of threads
WIDTHS = (16, 32, 8, 256, 128)  # ... for all of them
CAST_OR_SUFFIX = re.compile(r"\((?:unsigned|int|size_t|unsigned int|float|double)\)|(?<=\d)[uUlLfF]+\b")
SIZE_OF = re.compile(r"\bsizeof\s*\(\s*(float|int|double|half)\s*\)")
DEFAULT_SHARED_BYTES = 48 << 10  # that every GPU has, for a head that states none
TYPE = "hpcmm_real"  # the name of the element type in an adapted source


def evaluate(text: str, known: Mapping[str, str]) -> int | None:
    """Return the value of a constant expression of C; None if it has none."""
    value = HostRun(None, {}).text(expanded(text, known) or "", {})  # of a text without names
    return math.trunc(value) if isinstance(value, int | float) else None


def sizes_of_block(text: str, known: Mapping[str, str]) -> tuple[int, ...]:
    """Return the threads of a block of a launch in host code; empty if they are not constant."""
    values = [evaluate(each, known) for each in parts(text, known)]
    while len(values) > 1 and values[-1] == 1:
        values.pop()
    return tuple(values) if values and None not in values else ()


def short(name: str) -> str:
    """Return the usual short name of a tile's size.

    >>> [short(each) for each in ("BLOCK_SIZE_M", "THREAD_SIZE_X", "bm", "TILE", "NUM_THREADS")]
    ['BM', 'TN', 'BM', 'TILE', 'NUMTS']
    """
    plain = name.upper().replace("_", "")
    tile = "B" if len(plain) > 4 else "TILE"
    for word, letter in (("SIZE", ""), ("BLOCK", "B"), ("THREAD", "T"), ("TILE", tile)):
        plain = plain.replace(word, letter)
    return {"TY": "TM", "TX": "TN", "BY": "BM", "BX": "BN"}.get(plain, plain)


def templates(source: Source, function: Function, of_file: bool = False) -> list[str]:
    """Return template arguments to try: those of launches in the file, and unless ``of_file``, usual ones."""
    if not function.template:
        return [""]
    tried: list[list[Any]] = []
    for site, known in sites(source, function):
        if site.template:
            tried.append([text if (value := evaluate(text, known)) is None else value for text in site.template])
    if not of_file:
        tried += [[default or preset.get(short(name)) for name, default in function.template] for preset in PRESETS]
        of_vectors = function.flat and not function.multiplies
        for width in sorted(WIDTHS, key=lambda each: (each > 32) != of_vectors):
            tried.append([default or width for _, default in function.template])
    is_type = [name in function.types for name, _ in function.template]
    whole = [[TYPE if is_one else each for is_one, each in zip(is_type, values, strict=False)] for values in tried]
    return list(dict.fromkeys(f"<{', '.join(map(str, each))}>" for each in whole if None not in each))


def constants_of(source: Source, function: Function, template: str) -> dict[str, str]:
    """Return the constants of a file, and the template arguments of a function."""
    arguments = zip((name for name, _ in function.template), split(template.strip("<>")), strict=False)
    return source.constants() | dict(arguments)


def sites(source: Source, function: Function, template: str = "") -> Iterator[tuple[LaunchSite, dict[str, str]]]:
    """Yield the launches of a function in its file, with the values of names there."""
    constants = constants_of(source, function, template)
    return ((x, constants | dict(x.definitions)) for x in source.launches if x.function == function.name)


def of_sites(source: Source, function: Function, template: str) -> dict[tuple[int, ...], int | None]:
    """Return the blocks of the launches of a function in its file, with their bytes of dynamic shared memory.

    A block that is not constant is empty, and bytes that are not constant are None.
    """
    found = {}
    for site, known in sites(source, function, template):
        if len(site.configuration) > 1:
            shared = evaluate(site.configuration[2], known) if len(site.configuration) > 2 else None
            found[sizes_of_block(site.configuration[1], known)] = shared
    return found


def own_grid(
    source: Source, function: Function, template: str, sizes: Mapping[str, str], ours: Sequence[str]
) -> tuple[list[str], dict[str, int]]:
    """Return the grid of the launch of a function in its file, in terms of the dimensions, and the sizes that it has.

    ``sizes`` are the dimensions by the names of parameters. The grid is empty if it is unknown. Where one variable
    stands for several dimensions, it is the one of ``ours``, a right grid.
    """
    for site, known in sites(source, function, template):
        if not site.configuration:
            continue
        named: dict[str, list[str]] = {}
        given = {}
        for each, text in zip(function.parameters, site.arguments, strict=False):
            if each.name in sizes and re.fullmatch(r"[A-Za-z_]\w*", text):
                named.setdefault(text, []).append(sizes[each.name])
            if each.name in sizes and (value := evaluate(text, known)) is not None:
                given[sizes[each.name]] = value
        grid = []
        for text, right in itertools.zip_longest(parts(site.configuration[0], known), ours, fillvalue=""):
            inner = expanded(text, known, set(named)) if text else "1"  # in names of the host code, such as k for n
            terms = {name: next((x for x in found if x in right), found[0]) for name, found in named.items()}
            grid.append(inner and re.sub(r"[A-Za-z_]\w*", lambda x, of=terms: of.get(x[0], x[0]), inner))
        return (grid if None not in grid else []), given
    return [], {}


def parts(text: str, known: Mapping[str, str]) -> list[str]:
    """Return the sizes in a ``dim3``, or in the definition of a name, of a name of a name, and so on."""
    for _ in range(4):
        text = known.get(text.strip(), text.strip())
    inner = re.fullmatch(r"(?:dim3\s*\w*\s*)?[({](.*)[)}]", text, re.DOTALL)
    depths = itertools.accumulate((x in "({") - (x in ")}") for x in (inner[1] if inner else ""))
    whole = inner and min(depths, default=0) >= 0  # not (n + 1) / (a + b)
    return split(inner[1] if whole else text)


def expanded(text: str, known: Mapping[str, str], dimensions: Collection[str] = ()) -> str | None:
    """Return an expression of C with the values of its names; None if it has other names than the dimensions."""

    def value(name: re.Match) -> str:
        return name[0] if name[0] in dimensions else f"({known.get(name[0], '?')})"

    def size(found: re.Match) -> str:  # in a ``dim3``, in place of ``grid.x``
        sizes = [*parts(found[1], known), "1", "1"]
        return f"({sizes['xyz'.index(found[2])]})" if found[1] in known else found[0]

    for _ in range(12):
        before, text = text, re.sub(r"\b(\w+)\.([xyz])\b", size, text)
        text = SIZE_OF.sub(lambda x: {"double": "8", "half": "2"}.get(x[1], "4"), text)
        text = CAST_OR_SUFFIX.sub("", text)
        text = re.sub(r"\b(true|false)\b", lambda x: str(int(x[0] == "true")), text)
        text = re.sub(r"(?<![\w)])\((\w+)\)", r"\1", re.sub(r"[A-Za-z_][\w.]*", value, text))
        if text == before or "?" in text:
            return text if re.fullmatch(r"[\w\s+\-*/%()<>|&]+", text) else None
    return None


def blocks(source: Source, function: Function, template: str, itemsize: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield pairs of a block and bytes of dynamic shared memory to try. Launches in the file come first."""
    known = constants_of(source, function, template)
    sites = of_sites(source, function, template)
    tried = list(sites)
    tried += [(bound,)] if function.threads and (bound := evaluate(function.threads, known)) else []
    tried += _blocks_of_constants({name: value for name in known if (value := evaluate(name, known))})
    if not OF_THREAD.search(source.text(function.name)):
        tried.append((1,))
    usual = sorted(BLOCKS, key=lambda each: (len(each) == 1) == function.flat)  # those that fit come last
    for block in dict.fromkeys((*tried, *reversed(usual))):
        threads = math.prod(block)
        if block and 0 < threads <= 1024:
            usual_bytes = [*(each * threads * itemsize for each in SHARED), DEFAULT_SHARED_BYTES]
            stated = sites.get(block)
            for each in ([stated] if stated else usual_bytes) if function.dynamic else (0,):
                yield block, each


def _blocks_of_constants(numbers: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Return the blocks that constants of a file suggest: sizes of tiles, and numbers of threads."""
    found: list[tuple[int, ...]] = []
    tile = {short(name): value for name, value in numbers.items()}
    if {"BM", "BN", "TM"} <= set(tile):
        rows, columns = tile["BM"] // tile["TM"], tile["BN"] // tile.get("TN", 1)
        found += [(rows * columns,), (columns, rows)]
    threads = [value for name, value in numbers.items() if THREADS.search(name.upper())]
    found += [(value,) for value in threads if 32 <= value <= 1024]
    for value in sorted({value for value in numbers.values() if 2 <= value <= 32}, reverse=True):
        found += [(value, value), (value * value,)]
    return found


def block_of_head(head: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    """Return the block that a head states, and the bytes of dynamic shared memory."""
    constants = {name: str(value) for name, value in head.get("constants", {}).items()}
    block = head["block"] if isinstance(head["block"], list) else [head["block"]]
    shared = evaluate(str(head.get("shared_bytes", 0)), {}) or DEFAULT_SHARED_BYTES
    return tuple(evaluate(str(each), constants) or 1 for each in block), shared
