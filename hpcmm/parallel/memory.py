"""The memory that a rank needs: elements of operands and whole arrays.

The arithmetic needs neither MPI nor a device, so a plan can use it. Each algorithm's module has its own ``need``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpcmm.model import Operation
from hpcmm.parallel.schedules import block_row


@dataclass(frozen=True)
class Need:
    """The most elements that one rank holds at once."""

    device: int  # in device memory; for a CPU this is host memory
    staging: int  # in host memory, on the way to a device with its own memory
    whole: int  # in host memory, for rank 0's whole arrays

    def bytes(self, itemsize: int, in_host_memory: bool) -> tuple[int, int]:
        """Return the bytes of host memory and of device memory; the latter is 0 if the device is the host."""
        if in_host_memory:
            return (self.whole + self.device) * itemsize, 0
        return (self.whole + self.staging) * itemsize, self.device * itemsize


def elements(operation: Operation, shape: Sequence[int]) -> dict[str, int]:
    size = dict(zip(operation.dimensions, shape, strict=True))
    return {operand.name: math.prod(size[d] for d in operand.dimensions) for operand in operation.operands}


def local_elements(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> dict[str, int]:
    _, rows = block_row(shape[0], ranks, rank)
    whole, local = elements(operation, shape), elements(operation, (rows, *shape[1:]))
    replicated = [operand.name for operand in operation.operands if operand.distribution == "replicated"]
    return local | {name: whole[name] for name in replicated}


def whole_elements(operation: Operation, shape: Sequence[int], rank: int) -> int:
    """Return the number of elements of the whole arrays that a rank holds; only rank 0 holds any.

    These are the inputs, the largest of them twice (it is drawn, then copied to its place), and the result.
    """
    whole = elements(operation, shape)
    inputs = [whole[operand.name] for operand in operation.operands if operand.role != "out"]
    results = sum(whole[operand.name] for operand in operation.operands if operand.role != "in")
    return sum(inputs) + max(inputs) + results if rank == 0 else 0
