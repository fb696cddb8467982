"""The product by NVIDIA's cuBLASMp, through nvmath-python: the baseline of the distributed products.

cuBLASMp takes column-major matrices: each rank has rows of A and C and columns of B, in slabs of equal size. This is
one of the faster layouts that it supports.

nvmath-python 0.8 and 1.0 take the same calls. They differ in where a workspace is: in the heap of NVSHMEM before 1.0,
in memory that NCCL registers since.
"""

import contextlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpcmm.model import HpcmmError, Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.collectives import Block, move_blocks
from hpcmm.parallel.memory import Need, whole_elements
from hpcmm.parallel.product import ProductInPlace, is_product, local_rows
from hpcmm.parallel.schedules import block_rows

PACKAGES = ("nvidia-cublasmp-cu13", "nvidia-cublasmp-cu12")  # of which one is installed


def too_old(nccl: str) -> str:
    """Return which NCCL the installed cuBLASMp needs if this version is older; empty if it is not, or is unknown."""
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            package = importlib.metadata.distribution(name)
            needed = re.search(r"\bnvidia-nccl-cu\d+[ (]*>=\s*([\d.]+)", " ".join(package.requires or ()))
            if nccl and needed and numbers(nccl) < numbers(needed[1]):
                release = ".".join(package.version.split(".")[:2])
                return f"cuBLASMp {release} needs NCCL >= {needed[1]}, found {nccl}"
    return ""


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def initialize(comm: Any, backend: Any) -> None:
    """Start nvmath.distributed, once in a process; it keeps a communicator of its own until the process ends."""
    import nvmath.distributed

    if nvmath.distributed.get_context() is None:
        since_1_0 = hasattr(nvmath.distributed, "ProcessGroup")
        backends = ["nccl"] if since_1_0 else ["nvshmem", "nccl"]
        nvmath.distributed.initialize(backend.index, comm.Dup(), backends=backends)


class Cublasmp(ProductInPlace):
    """Slabs on the devices, each stored as the transpose of a row-major array."""

    transport_name = "cublasmp"

    def load(self) -> None:
        if importlib.util.find_spec("nvmath") is None:
            raise HpcmmError("algorithm cublasmp needs nvmath-python: pip install 'hpcmm[cublasmp]'")
        if reason := too_old(self.backend.nccl_version):
            raise HpcmmError(f"algorithm cublasmp: {reason}; install this NCCL, or an earlier {PACKAGES[0]}")
        m, n, k = self.shape
        if m % self.comm.size or n % self.comm.size:
            raise HpcmmError(
                f"algorithm cublasmp: m and n must be multiples of the number of ranks, {self.comm.size}; "
                f"the shape is {m}x{n}x{k}"
            )
        self.a = self.placed("A", self.block_rows(m, k))
        self.b = self.placed("B", [((0, k), columns) for columns in block_rows(n, self.comm.size)])
        self.output = None
        self.plan = self.releases.enter_context(contextlib.ExitStack())  # that of the last ``prepare``

    def placed(self, name: str, blocks: Sequence[Block]) -> Any:
        (_, rows), (_, columns) = blocks[self.comm.rank]
        part = np.empty((rows, columns), self.dtype)
        move_blocks(self.comm, self.inputs.get(name), part, blocks, scatter=True)
        return self.backend.upload(np.ascontiguousarray(part.T))

    def restore(self) -> None:
        self.output = None
        super().restore()

    def prepare(self, task: Task) -> Run:
        self.plan.close()  # ranks free its workspace together, so it is not left to the garbage collector
        initialize(self.comm, self.backend)
        from nvmath.distributed.distribution import Slab
        from nvmath.distributed.linalg.advanced import Matmul

        added = {"c": self.c.T, "beta": task.scalars["beta"]} if task.scalars["beta"] else {}
        slabs = [Slab.X, Slab.Y, Slab.X]
        product = Matmul(self.a.T, self.b.T, distributions=slabs, alpha=task.scalars["alpha"], **added)
        self.plan.callback(product.free)
        product.plan()

        def once() -> None:
            self.output = product.execute()

        return Run(once)

    def fetch(self) -> None:
        self.backend.synchronize()
        part = np.ascontiguousarray(self.output.get())
        move_blocks(self.comm, self.result.get("C"), part, self.c_blocks, scatter=False)


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: C three times, because the result is a new array, and all of B in the workspace."""
    _, n, k = shape
    rows, terms = local_rows(shape, ranks, rank)
    device = rows * k + terms * n + 3 * rows * n + k * n
    return Need(device, max(rows * k, terms * n, rows * n), whole_elements(operation, shape, rank))


CUBLASMP = Algorithm(
    "cublasmp",
    "NVIDIA's cuBLASMp, through nvmath-python",
    distribution=Cublasmp,
    suits=is_product,
    need=need,
    measures=("kernel",),
    variants=("cublas",),
    own_sums=True,
    transport=None,
    package="nvmath",
    provider="cublasmp",
)
