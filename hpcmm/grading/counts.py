"""What a CUDA kernel does, counted in the host emulation: the properties that an exercise asks for.

A result does not show how a kernel found it. The emulation sees every access, and knows which lanes make it together.
It counts what a profiler counts on a GPU: sectors, wavefronts, barriers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

READ = 0  # kind of an access


@dataclass(frozen=True)
class Access:
    """All accesses at one place of the code."""

    place: int  # address of the code in its library
    shared: bool  # whether they are to shared memory, not to global memory
    kind: int  # ``READ``, or a write or an atomic operation
    # warps, lanes: accesses by warps, and by their lanes
    warps: int
    lanes: int
    # parts, least: sectors of global memory or wavefronts of shared memory that they take, and the fewest for as many
    # bytes
    parts: int
    least: int


@dataclass(frozen=True)
class Counts:
    """What the launches of a kernel did: barriers by blocks, MMAs by warps, basic blocks of code by threads.

    Of MPI ranks, the elements that one ``sent`` to another.
    """

    launches: int = 0
    barriers: int = 0
    mmas: int = 0
    code_blocks: int = 0
    accesses: tuple[Access, ...] = ()
    sent: int = 0


def read(text: str, launches: int) -> Counts:
    """Read what the emulation counted."""
    counts = json.loads(text)
    accesses = tuple(Access(*each) for each in counts.pop("accesses", ()))
    return Counts(launches, accesses=accesses, **counts)


@dataclass(frozen=True)
class Property:
    """A number by which an exercise judges a kernel."""

    about: str  # what is counted, after a number
    advice: str  # how to mend a kernel that has too many, or too few
    # What an access adds. Without it, the number is a field of ``Counts``, of the property's name.
    share: Callable[[Access], float] | None = None
    total: Callable[[Iterable[float]], float] = sum  # of the shares of all accesses


PROPERTIES: Mapping[str, Property] = {
    "sectors": Property(
        "sectors of 32 bytes per access of a warp to global memory",
        "Neighbouring threads (threadIdx.x) of a warp should access neighbouring elements of a row",
        lambda access: 0 if access.shared else access.parts / access.warps,
        lambda shares: max(shares, default=0.0),
    ),
    "global_loads": Property(
        "loads of threads from global memory",
        "Load an element once, and let all threads of the block use it from shared memory or registers",
        lambda access: access.lanes if not access.shared and access.kind == READ else 0,
    ),
    "conflicts": Property(
        "wavefronts of shared memory more than without bank conflicts",
        "The lanes of a warp should access different banks: word w is in bank w % 32, so a row of 32 words puts a "
        "column into one bank",
        lambda access: access.parts - access.least if access.shared else 0,
    ),
    "shared_accesses": Property(
        "accesses of warps to shared memory",
        "A warp takes part in a step if one of its lanes does: let whole warps retire, and reuse what is in registers",
        lambda access: access.warps if access.shared else 0,
    ),
    "barriers": Property(
        "barriers of blocks", "A step within one warp needs __syncwarp() only, and other steps one __syncthreads() each"
    ),
    "code_blocks": Property(
        "basic blocks of code that threads run",
        "Every turn of a loop is one at least: let a turn do several steps, written one after the other",
    ),
    "mmas": Property("MMA instructions of warps", "Multiply by mma_*, which one warp executes on tensor cores"),
    "sent": Property(
        "elements that one rank sends to another",
        "Send what a rank needs only: its rows of A, all of B, and back its rows of C",
    ),
    "launches": Property("launches", "Combine the results of all blocks in the launch that computes them"),
}


@dataclass(frozen=True)
class Limits:
    """The shape and the element type at which a kernel is counted, and the allowed numbers by property."""

    shape: tuple[int, ...]
    dtype: str
    most: Mapping[str, float]
    least: Mapping[str, float]

    def fault(self, counts: Counts) -> str:
        """Return which number is not allowed, with the place ``@0x...`` that adds most; empty if all are."""
        at = f"at {'x'.join(map(str, self.shape))} {self.dtype}"
        for name, limits in (("at most", self.most), ("at least", self.least)):
            for key, limit in limits.items():
                value, where = counted(key, counts)
                if value > limit if limits is self.most else value < limit:
                    its = PROPERTIES[key]
                    place = f", most of them @0x{where.place:x}" if where and limits is self.most else ""
                    return (
                        f"the result is right, but it takes {value:.6g} {its.about} {at}{place}; allowed: {name} "
                        f"{limit:.6g}. {its.advice}"
                    )
        return ""


def counted(name: str, counts: Counts) -> tuple[float, Access | None]:
    """Return the number of a property, and the access that adds most to it."""
    its = PROPERTIES[name]
    if its.share is None:
        return getattr(counts, name), None
    return its.total(map(its.share, counts.accesses)), max(counts.accesses, key=its.share, default=None)
