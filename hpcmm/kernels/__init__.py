"""The kernel sources: one file per rung, ``<folder>/<rung>.c`` or ``.cu``, and shared headers."""

import re
from pathlib import Path

from hpcmm.devices import DEVICES
from hpcmm.model import Operation, Variant

FOLDER = Path(__file__).parent


def source(operation: Operation, variant: Variant) -> Path:
    """Return the source file of a variant that is not a baseline."""
    stem = variant.kernel or variant.name
    return variant.path or FOLDER / operation.kernels / (stem + DEVICES[variant.device].suffix)


def headers(path: Path) -> tuple[Path, ...]:
    """Return the files of this package that a source includes, directly or indirectly."""
    found: dict[Path, None] = {}
    waiting = [path]
    while waiting:
        for name in re.findall(r'^#include "(.+)"', waiting.pop().read_text(), re.MULTILINE):
            header = FOLDER / name
            if header.exists() and header not in found:
                found[header] = None
                waiting.append(header)
    return tuple(found)
