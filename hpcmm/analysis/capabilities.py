"""Limits of CUDA devices by compute capability.

Source: tables "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide (1.x: versions 1.0 to
6.5; 2.x: to 8.0), and the allocation units of the CUDA occupancy calculator.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcmm.model import HpcmmError


@dataclass(frozen=True)
class Capability:
    """The limits of one compute capability.

    Parameters
    ----------
    names : str
        Compute capabilities with these limits.
    threads, blocks : int
        Resident threads and blocks per multiprocessor (SM).
    registers : int
        32-bit registers per SM.
    shared : int
        Shared memory per SM [KiB].
    block_threads : int
        Threads per block.
    block_shared : int
        Shared memory per block [KiB].
    thread_registers : int
        Registers per thread.
    unit : int
        Registers are allocated in multiples of this number.
    partitions : int
        Parts of an SM, each with an equal share of the registers, from which a warp takes its own; 0 if registers are
        allocated to whole blocks.
    shared_unit : int
        Shared memory is allocated in multiples of this number of bytes.
    reserved : int
        Shared memory that the system takes in each block [B].
    """

    names: str
    threads: int
    blocks: int
    registers: int
    shared: int
    block_threads: int
    block_shared: int
    thread_registers: int
    unit: int = 256
    partitions: int = 4
    shared_unit: int = 256
    reserved: int = 0

    @property
    def warps(self) -> int:
        """Resident warps per SM."""
        return self.threads // 32

    @property
    def generation(self) -> int:
        """The major number of the compute capability."""
        return int(self.names.split(".")[0])

    @property
    def grid_dimensions(self) -> int:
        return 2 if self.generation == 1 else 3

    @property
    def grid_x(self) -> int:
        """Blocks of a grid in x."""
        return 2**16 - 1 if self.generation < 3 else 2**31 - 1

    @property
    def block_x(self) -> int:
        """Threads of a block in x or y; in z the limit is 64 for all."""
        return 512 if self.generation == 1 else 1024


KI = 1024
CAPABILITIES = (
    Capability("1.0 1.1", 768, 8, 8 * KI, 16, 512, 16, 128, unit=256, partitions=0, shared_unit=512),
    Capability("1.2 1.3", 1024, 8, 16 * KI, 16, 512, 16, 128, unit=512, partitions=0, shared_unit=512),
    Capability("2.0 2.1", 1536, 8, 32 * KI, 48, 1024, 48, 63, unit=64, partitions=2, shared_unit=128),
    Capability("3.0", 2048, 16, 64 * KI, 48, 1024, 48, 63),
    Capability("3.5", 2048, 16, 64 * KI, 48, 1024, 48, 255),
    Capability("3.7", 2048, 16, 128 * KI, 112, 1024, 48, 255),
    Capability("5.0 5.3 6.0 6.2", 2048, 32, 64 * KI, 64, 1024, 48, 255),
    Capability("5.2 6.1", 2048, 32, 64 * KI, 96, 1024, 48, 255),
    Capability("7.0 7.2", 2048, 32, 64 * KI, 96, 1024, 96, 255),
    Capability("7.5", 1024, 16, 64 * KI, 64, 1024, 64, 255),
    Capability("8.0", 2048, 32, 64 * KI, 164, 1024, 163, 255, shared_unit=128, reserved=KI),
    Capability("8.6", 1536, 16, 64 * KI, 100, 1024, 99, 255, shared_unit=128, reserved=KI),
    Capability("8.7", 1536, 16, 64 * KI, 164, 1024, 163, 255, shared_unit=128, reserved=KI),
    Capability("8.9 12.0", 1536, 24, 64 * KI, 100, 1024, 99, 255, shared_unit=128, reserved=KI),
    Capability("9.0 10.0 10.3", 2048, 32, 64 * KI, 228, 1024, 227, 255, shared_unit=128, reserved=KI),
)


def capability(name: str) -> Capability:
    """Return the limits of a compute capability such as ``"9.0"``.

    Raises
    ------
    HpcmmError
        If it is not in the table.
    """
    for each in CAPABILITIES:
        if name in each.names.split():
            return each
    allowed = sorted((name for each in CAPABILITIES for name in each.names.split()), key=float)
    raise HpcmmError(f"compute capability {name} is not in the table; allowed: {', '.join(allowed)}")
