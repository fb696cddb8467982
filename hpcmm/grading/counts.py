"""What a CUDA kernel does, counted in the host emulation: the properties that an exercise asks for.

A result does not show how a kernel found it. The emulation sees every access, and knows which lanes make it together.
It counts what a profiler counts on a GPU: sectors, wavefronts, barriers.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpcmm.model.records import beside

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
    """Barriers by blocks, ``missed`` by threads; MMAs by warps, code blocks by threads; elements ``sent`` by ranks."""

    launches: int = 0
    barriers: int = 0
    missed: int = 0
    mmas: int = 0
    code_blocks: int = 0
    accesses: tuple[Access, ...] = ()
    sent: int = 0


def read(text: str, launches: int) -> Counts:
    counts = json.loads(text)
    accesses = tuple(Access(*each) for each in counts.pop("accesses", ()))
    return Counts(launches, accesses=accesses, **counts)


PROPERTIES = beside(__file__)
# What an access adds to a number of all accesses. Other properties are fields of ``Counts``.
SHARES: Mapping[str, Callable[[Access], float]] = {
    "sectors": lambda access: 0 if access.shared else access.parts / access.warps,
    "global_loads": lambda access: access.lanes if not access.shared and access.kind == READ else 0,
    "conflicts": lambda access: access.parts - access.least if access.shared else 0,
    "shared_accesses": lambda access: access.warps if access.shared else 0,
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
                    about, advice = PROPERTIES[key]
                    place = f", most of them @0x{where.place:x}" if where and limits is self.most else ""
                    return (
                        f"the result is right, but it takes {value:.6g} {about} {at}{place}; allowed: {name} "
                        f"{limit:.6g}. {advice}"
                    )
        return ""


def counted(name: str, counts: Counts) -> tuple[float, Access | None]:
    """Return the number of a property, and the access that adds most to it."""
    share = SHARES.get(name)
    if share is None:
        return getattr(counts, name), None
    shares = list(map(share, counts.accesses))
    total = max(shares, default=0.0) if name == "sectors" else sum(shares)
    return total, max(counts.accesses, key=share, default=None)
