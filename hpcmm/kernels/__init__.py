"""The kernel sources: one file per rung in ``<folder>/lessons`` or ``<folder>/products``, and headers."""

import re
from collections.abc import Mapping
from pathlib import Path

from hpcmm.model import Operation, Variant
from hpcmm.model.devices import DEVICES

FOLDER = Path(__file__).parent
MOST_BYTES = 1 << 20  # of a file that may be a header
SUFFIXES = (*(device.suffix for device in DEVICES.values()), ".py")  # of the files that hold a kernel of a user


def source(operation: Operation, variant: Variant) -> Path:
    """Return the source file of a variant that is not a library."""
    name = variant.name + DEVICES[variant.device].suffix
    return variant.adapted or variant.path or FOLDER / operation.kernels / f"{variant.shelf}s" / name


def options(variant: Variant, macros: Mapping[str, object]) -> list[str]:
    """Return the options that a CUDA kernel is compiled with; ``{NAME}`` in them is the value of a macro."""
    return [re.sub(r"\{(\w+)\}", lambda name: str(macros.get(name[1], name[0])), each) for each in variant.options]


def headers(path: Path) -> tuple[Path, ...]:
    """Return the files that a source includes, directly or indirectly, from its own folder or from this one.

    If a directive names a macro, all other files of its folder are taken, but none of more than 1 MiB.
    """
    found: dict[Path, None] = {}
    waiting = [path]
    while waiting:
        including = waiting.pop()
        text = without_comments(including.read_text(errors="replace").replace("\\\n", ""))
        for name in re.findall(r"^[ \t]*(?:#|%:)[ \t]*(?:include|include_next|import)\b(.*)", text, re.MULTILINE):
            if named := re.match(r'\s*(?:"(.+?)"|<(.+?)>)', name):
                candidates = (folder / (named[1] or named[2]) for folder in (including.parent, FOLDER))
                read = [each for each in candidates if each.is_file()][:1]
            else:
                near = (each for each in sorted(including.parent.iterdir()) if each != path and each.is_file())
                read = [each for each in near if each.stat().st_size <= MOST_BYTES]
            for header in read:
                if header not in found:
                    found[header] = None
                    waiting.append(header)
    return tuple(found)


def without_comments(text: str) -> str:
    """Return a source in C or CUDA without its comments; the lines stay.

    >>> without_comments("int x; // no\\n/* a\\n */ int y; char *s = '//';")
    "int x;  \\n \\n int y; char *s = '//';"
    """
    parts = r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?\*/'
    return re.sub(parts, lambda part: part[1] or " " + "\n" * part[0].count("\n"), text, flags=re.DOTALL)


def dynamic_shared(text: str) -> list[str]:
    """Return the names of the arrays of a CUDA source whose size in shared memory the launch states.

    >>> dynamic_shared("extern volatile __shared__ float s []; extern __shared__ __align__(16) char t[];")
    ['s', 't']
    """
    statements = re.findall(r"\bextern\b([^;{}]*);", without_comments(text))
    return [name for each in statements if "__shared__" in each for name in re.findall(r"(\w+)\s*\[", each)]


def is_file(name: str) -> bool:
    """Return whether the name of a variant in a config is that of a file.

    >>> is_file("./my.cu"), is_file("my.cu ROWS=64"), is_file("naive")
    (True, True, False)
    """
    return file_of(name)[0].endswith(SUFFIXES)


def file_of(name: str) -> tuple[str, dict[str, int]]:
    """Return the path of a kernel's file, and the values that follow it.

    >>> file_of("./my.cu ROWS=64 DEPTH=8"), file_of("a b.cu")
    (('./my.cu', {'ROWS': 64, 'DEPTH': 8}), ('a b.cu', {}))
    """
    path, given = re.fullmatch(r"(.*?)((?:\s+[A-Za-z_]\w*=-?\d+)*)\s*", name, re.DOTALL).groups()
    return path, {key: int(value) for key, value in (each.split("=") for each in given.split())}


def name_of(path: Path, values: Mapping[str, int]) -> str:
    """Return the name of the variant of a file with such values."""
    return " ".join([path.name, *(f"{name}={value}" for name, value in values.items())])
