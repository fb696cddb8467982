"""The time model of products on a GPU: waves of tiles, each limited by arithmetic or by the bytes that it loads."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from hpcmm.model import Task
from hpcmm.model.dtypes import ARITHMETICS

# Share of the SMs that clusters of each size can use, with one block per SM, on an H100 or H200. All blocks of a
# cluster run in one GPC, and its number of SMs need not be a multiple of the size of the cluster.
CLUSTERED = {1: Fraction(1), 2: Fraction(1), 3: Fraction(39, 44), 4: Fraction(10, 11)}
CLUSTERED |= {5: Fraction(5, 6), 6: Fraction(17, 22), 7: Fraction(35, 44), 8: Fraction(10, 11)}


class Constants(NamedTuple):
    launch: float  # seconds of a launch
    wave: float  # seconds of a wave besides its mainloop and the stores of C
    stored: float  # bytes of C that an SM stores per clock
    exchange: float  # seconds in which the blocks of a cluster add up their parts of a tile
    fix_up: float  # seconds for adding up the parts of tiles that resident blocks divide
    bandwidth: float  # share of the bandwidth of the memory that reads reach
    loaded: float  # bytes that an SM loads from the L2 cache per clock
    occupied: float  # warps that multiply at half the peak rate of an SM
    reuse: float  # side of a warp's tile with which loads from shared memory take as long as the multiplications
    # Clocks of a thread for an element that it loads by itself, because rows are not aligned to 16 bytes
    element: float


# One fit to the times of builds in the table of an H100 (``hpcmm/tiles``), for every type, rung and tile
CONSTANTS = Constants(4.3e-6, 1.4e-6, 16, 1.2e-6, 9.3e-6, 0.72, 49, 1.6, 4.1, 30)


@dataclass(frozen=True)
class Work:
    """How a build divides a product."""

    # rows, columns: a tile of C
    rows: int
    columns: int
    depth: int  # steps of k of a pipeline stage
    warps: float  # warps that multiply for a tile
    slices: int = 1  # groups of these warps that divide the steps of a tile
    parts: int = 1  # blocks of a cluster that divide the steps of a tile
    resident: int = 1  # tiles that an SM computes at the same time
    divided: bool = False  # whether resident blocks divide tiles (stream-K)
    shared: int = 1  # blocks that share the loads of one operand
    # Whether rows that are not aligned to 16 bytes are copied by a launch before; else threads load each element
    copied: bool = False
    loaders: int = 0  # threads that load a tile; 0 for those that multiply


def resident_blocks(parts: int, sms: int) -> int:
    """Return the blocks that run at the same time, at one per SM, in clusters of ``parts`` blocks.

    >>> [resident_blocks(parts, 132) for parts in CLUSTERED]
    [132, 132, 117, 120, 110, 102, 105, 120]
    """
    return max(1, math.floor(sms * CLUSTERED[parts] / parts)) * parts


def multiply_adds(task: Task) -> float:
    """Return the multiply-adds of an SM per clock, by the units and the arithmetic of a task's variant."""
    arithmetic = ARITHMETICS.get(task.variant.arithmetic.get(task.dtype, ""))
    units = (arithmetic and arithmetic.tensor_units) or {**task.element.fma_units, **task.element.tensor_units}
    return units["90"]


def alignment(shape: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return the bytes, up to 16, of which rows of A and of B are multiples.

    >>> alignment((1, 5, 8), 4)
    (16, 4)
    """
    _, n, k = shape
    return math.gcd(16, k * itemsize), math.gcd(16, n * itemsize)


def seconds(task: Task) -> float:
    """Return the predicted seconds of a build: of a task whose geometry always runs the same one."""
    (m, n, k), size, (launch, wave, stored, exchange, fix_up, *rates) = task.shape, task.element.itemsize, CONSTANTS
    bandwidth, loaded, occupied, reuse, element = rates
    work = task.geometry.work(task)
    rows, columns = min(work.rows, m), min(work.columns, n)
    tiles = -(-m // work.rows) * -(-n // work.columns)
    step = work.depth * work.slices
    steps = -(-k // (step * work.parts)) * step  # of k, of a block
    unaligned = [multiple < 16 for multiple in alignment(task.shape, size)]
    singly = 0 if work.copied else rows * unaligned[0] + columns * unaligned[1]  # elements of each step
    own_loads = singly * steps / (work.loaders or 32 * work.warps) * element
    loads = (rows + columns) * (1 + 1 / work.shared) / 2 * steps * size / loaded
    side = math.sqrt(work.rows * work.columns * work.slices / work.warps)  # of a warp's tile
    multiplications = work.rows * work.columns * steps / multiply_adds(task) * (1 + reuse / side)

    def clocks(count: float) -> float:
        together = max(1, min(count, work.resident))
        idle = 1 + occupied / (work.warps * together)
        return count * (max(multiplications * idle, loads) + own_loads / together)

    per_sm = -(-tiles * work.parts // resident_blocks(work.parts, task.sms))  # tiles of the SM with the most
    full, rest = divmod(per_sm, work.resident)
    mainloops = clocks(full * work.resident) + (clocks(rest) if rest else 0)
    extra = exchange if work.parts > 1 else 0
    blocks = tiles * work.parts
    if work.divided and blocks % task.sms:
        share, whole = blocks / task.sms, -(-blocks // task.sms)
        saved = 1 - max(share / whole, 1 / max(1, -(-k // (work.depth * work.parts))))
        extra -= max(0, saved * clocks(whole) / task.clock - fix_up)  # else whole tiles take less time
    ends = (full + (rest > 0)) * (wave + rows * columns * size / stored / task.clock)
    moved = bandwidth * task.bandwidth  # bytes per second
    copy = 0.0
    if work.copied and any(unaligned):
        copy = launch + 2 * size * k * (m * unaligned[0] + n * unaligned[1]) / moved
    # neither hides all of the other
    return launch + copy + math.hypot(mainloops / task.clock + ends + extra, task.bytes / moved)
