"""The product by NVIDIA's cuBLASMp, through nvmath-python: what the algorithms of this package are held against.

cuBLASMp takes column-major matrices: each rank has rows of A and C and columns of B, in slabs of one size. Of the
layouts that it takes this is one of the faster. NVLink multicast stays off, as everywhere in this package.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hpcmm.model import HpcmmError, Variant
from hpcmm.parallel.block_rows import BlockRows, deal
from hpcmm.parallel.distribution import ProductInPlace
from hpcmm.parallel.schedules import block_rows


class Cublasmp(ProductInPlace):
    """Slabs on the devices, each stored as the transpose of a row-major array."""

    def place(self) -> None:
        if importlib.util.find_spec("nvmath") is None:
            raise HpcmmError("algorithm cublasmp needs nvmath-python: pip install 'hpcmm[cublasmp]'")
        m, n, k = self.shape
        if m % self.comm.size or n % self.comm.size:
            raise HpcmmError(
                f"algorithm cublasmp needs rows and columns that {self.comm.size} ranks divide; {m}x{n}x{k} has not"
            )
        self.rows = BlockRows(self.comm, m)
        columns = block_rows(n, self.comm.size)
        rows, (_, width) = self.rows.rows, columns[self.comm.rank]
        self.a = self._placed("A", (rows, k), self.rows.scatter)
        self.b = self._placed(
            "B", (k, width), lambda whole, part: deal(self.comm, whole, part, [((0, k), column) for column in columns])
        )
        self.kept_c = self._placed("C", (rows, n), self.rows.scatter)
        self.c = self.backend.empty((n, rows), self.dtype)
        self.output = self.product = None

    def _placed(self, name: str, shape: tuple[int, int], scatter: Callable) -> Any:
        part = np.empty(shape, self.dtype)
        scatter(self.inputs.get(name), part)
        target = self.backend.empty(shape[::-1], self.dtype)
        self.backend.copy(np.ascontiguousarray(part.T), target)
        return target

    @property
    def carried(self) -> str:
        return "cublasmp"

    @property
    def arrays(self) -> dict[str, Any]:
        return {"A": self.a, "B": self.b, "C": self.c}

    def received(self) -> list:
        self.output = None
        return []

    def prepare(self, variant: Variant, parameters: Mapping[str, float]) -> Callable[[], None]:
        os.environ.setdefault("NVSHMEM_DISABLE_NVLS", "1")
        os.environ.setdefault("NVSHMEM_SYMMETRIC_SIZE", "16G")
        import nvmath.distributed
        from nvmath.distributed.distribution import Slab
        from nvmath.distributed.linalg.advanced import Matmul

        if nvmath.distributed.get_context() is None:
            nvmath.distributed.initialize(self.backend.device.id, self.comm, backends=["nvshmem", "nccl"])
        added = {"c": self.c.T, "beta": parameters["beta"]} if parameters["beta"] else {}
        slabs = [Slab.X, Slab.Y, Slab.X]
        self.product = Matmul(self.a.T, self.b.T, distributions=slabs, alpha=parameters["alpha"], **added)
        self.product.plan()

        def run() -> None:
            self.output = self.product.execute()

        return run

    def fetch(self) -> None:
        self.backend.synchronize()
        part = np.ascontiguousarray(self.output.get())
        self.rows.gather(part, self.result.get("C"))

    def close(self) -> None:
        if self.product is not None:
            self.product.free()
        super().close()
