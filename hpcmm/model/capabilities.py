"""Limits of CUDA devices by compute capability, and the blocks that they allow on a multiprocessor.

Source: tables "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide (1.x: versions 1.0 to
6.5; 2.x: to 8.0), and the allocation units of the CUDA occupancy calculator.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hpcmm.model import HpcmmError
from hpcmm.model.records import beside


@dataclass(frozen=True)
class Capability:
    names: str  # compute capabilities with these limits
    # threads, blocks: resident threads and blocks per multiprocessor (SM)
    threads: int
    blocks: int
    registers: int  # 32-bit registers per SM
    shared: int  # shared memory per SM [KiB]
    block_threads: int  # threads per block
    block_shared: int  # shared memory per block [KiB]
    thread_registers: int  # registers per thread
    unit: int = 256  # registers are allocated in multiples of this number
    # Parts of an SM, each with an equal share of the registers, from which a warp takes its own; 0 if registers are
    # allocated to whole blocks
    partitions: int = 4
    shared_unit: int = 256  # shared memory is allocated in multiples of this number of bytes
    reserved: int = 0  # shared memory that the system takes in each block [B]

    @property
    def warps(self) -> int:
        """Resident warps per SM."""
        return self.threads // 32

    @property
    def generation(self) -> int:
        return int(self.names.split(".")[0])

    @property
    def grid_dimensions(self) -> int:
        return 2 if self.generation == 1 else 3

    @property
    def grid_x(self) -> int:
        """Maximum number of blocks of a grid in x."""
        return 2**16 - 1 if self.generation < 3 else 2**31 - 1

    @property
    def block_x(self) -> int:
        """Threads of a block in x or y; in z the limit is 64 for all."""
        return 512 if self.generation == 1 else 1024


CAPABILITIES = tuple(Capability(**record) for record in beside(__file__))


def capability(name: str) -> Capability:
    """Return the limits of a compute capability such as ``"9.0"``."""
    written = re.sub(r"^(?:sm|compute)_(\d+)(\d)a?$", r"\1.\2", name)  # as compilers do
    for each in CAPABILITIES:
        if {written, f"{written}.0"} & {*each.names.split()}:
            return each
    allowed = sorted((name for each in CAPABILITIES for name in each.names.split()), key=float)
    raise HpcmmError(f"compute capability {name} is not in the table; allowed: {', '.join(allowed)}")


WARP = 32
CURRENT = capability("9.0")  # has the units of allocation of all capabilities from 8.0 on


def block_limits(kernel: Mapping[str, float], like: Capability = CURRENT) -> dict[str, int]:
    """Return the number of blocks per SM that each resource which the kernel uses would allow alone.

    ``like`` has the units of allocation. ``"blocks"`` is the limit of the hardware.

    >>> fermi = {"sm_threads": 1536, "sm_blocks": 8, "sm_registers": 32768, "sm_shared_bytes": 16384}
    >>> block_limits(fermi | {"block_x": 16, "block_y": 16, "shared_bytes": 2048})
    {'threads': 6, 'shared memory': 8, 'blocks': 8}
    """
    warps = _ceil(kernel["block_x"] * kernel["block_y"], WARP)
    limits = {"threads": int(kernel["sm_threads"] // (WARP * warps))}
    if registers := kernel.get("registers", 0):
        if like.partitions:
            of_a_warp = like.unit * _ceil(registers * WARP, like.unit)
            resident = int(kernel["sm_registers"] // like.partitions // of_a_warp) * like.partitions
            limits["registers"] = resident // warps
        else:  # a block takes registers for an even number of warps
            of_a_block = like.unit * _ceil(registers * WARP * 2 * _ceil(warps, 2), like.unit)
            limits["registers"] = int(kernel["sm_registers"] // of_a_block)
    names = ("shared_bytes", "dynamic_shared_bytes", "reserved_shared_bytes")
    if shared := like.shared_unit * _ceil(sum(kernel.get(name, 0) for name in names), like.shared_unit):
        limits["shared memory"] = int(kernel["sm_shared_bytes"] // shared)
    return limits | {"blocks": int(kernel["sm_blocks"])}


def block_on(
    like: Capability, threads: tuple[int, int], shared: int = 0, registers: int = 0, sm_shared: int = 0
) -> dict[str, int]:
    """Return ``RESOURCES`` of a block on a device of a compute capability, for ``block_limits``.

    ``shared`` is the shared memory of a block in bytes, and ``sm_shared`` that of an SM, if it is configured to another
    amount than that of the compute capability. ``registers`` are those of a thread; 0 if unknown. Raise HpcmmError if
    such a block cannot be launched.
    """
    name = like.names.split()[0]
    for value, limit, of in (
        (threads[0] * threads[1], like.block_threads, "threads per block"),
        (shared, like.block_shared * 1024, "bytes of shared memory per block"),
        (registers, like.thread_registers, "registers per thread"),
    ):
        if value > limit:
            raise HpcmmError(f"{value} {of} are too many: compute capability {name} allows {limit}")
    block = {"block_x": threads[0], "block_y": threads[1], "registers": registers}
    block |= {"shared_bytes": shared, "reserved_shared_bytes": like.reserved}
    multiprocessor = {"sm_threads": like.threads, "sm_blocks": like.blocks, "sm_registers": like.registers}
    return block | multiprocessor | {"sm_shared_bytes": sm_shared or like.shared * 1024}


def _ceil(whole: float, part: int) -> int:
    return int(-(-whole // part))


def tile_phase(rows: int, columns: int, depth: int) -> tuple[int, int]:
    """Return the elements that a block of a product loads between two barriers, and the operations on them.

    Without tiles each thread loads one element of A and one of B for one multiply-add: a tile of one element.

    >>> tile_phase(16, 16, 16)
    (512, 8192)
    >>> tile_phase(1, 1, 1)
    (2, 2)
    """
    return depth * (rows + columns), 2 * rows * columns * depth
