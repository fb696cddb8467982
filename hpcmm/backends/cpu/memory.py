"""Arrays in host memory: aligned, and on huge pages if the system grants them.

NumPy's arrays begin 16 bytes behind a boundary of pages, and reuse freed memory with the pages that it has. Their
pages then depend on earlier allocations of the process, and with them the times of a kernel.
"""

import contextlib
import math
import mmap
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hpcmm.model import untimed

HUGE = 2 << 20  # bytes of a huge page of x86-64, and of 64-bit Arm with pages of 4 KiB
SMAPS = Path("/proc/self/smaps")
MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ", re.MULTILINE)
KIB = re.compile(r"(Rss|AnonHugePages|ShmemPmdMapped): +(\d+) kB")


def empty(shape: tuple[int, ...], dtype: str | np.dtype) -> np.ndarray:
    """Return an array of zeros in a mapping of its own, from a multiple of ``HUGE`` bytes on.

    The mapping is a multiple of ``HUGE`` long and advised to use huge pages. Without transparent huge pages the array
    has ordinary ones.
    """
    dtype, count = np.dtype(dtype), math.prod(shape)
    length = max(1, -(-count * dtype.itemsize // HUGE)) * HUGE
    mapping = mmap.mmap(-1, length + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = -np.frombuffer(mapping, np.uint8).ctypes.data % HUGE
    with contextlib.suppress(OSError, AttributeError):  # a kernel, or a system, without huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE, start, length)
    return np.frombuffer(mapping, np.uint8, count * dtype.itemsize, start).view(dtype).reshape(shape)


@untimed
def huge_pages(arrays: Iterable[np.ndarray]) -> float:
    """Return the share of the arrays' bytes that are on huge pages; NaN if unknown.

    It is read for each mapping of the process; a mapping that an array shares counts with the share of all its pages.
    """
    try:
        text = SMAPS.read_text()
    except OSError:
        return math.nan
    extents, total, huge = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays], 0, 0.0
    parts = MAPPING.split(text)[1:]  # first and last address, and the lines about it
    for first, last, lines in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        inside = sum(max(0, min(end, int(last, 16)) - max(begin, int(first, 16))) for begin, end in extents)
        if inside:
            sizes = {name: int(size) for name, size in KIB.findall(lines)}
            resident = sizes.get("Rss", 0)
            total += inside
            huge += inside * (sizes.get("AnonHugePages", 0) + sizes.get("ShmemPmdMapped", 0)) / max(1, resident)
    return huge / total if total else math.nan
