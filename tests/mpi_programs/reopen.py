"""Open, run, close and open again every algorithm over every transport that works here, twice in one process.

    mpiexec -n 2 python reopen.py cpu|cuda [nvmath]

On a CPU a stand-in takes the place of the calls of nvmath-python. On GPUs, ranks may share one, and cublasmp is run if
``nvmath`` is given, which needs nvmath-python and a GPU per rank.
"""

import itertools
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import numpy as np
from mpi4py import MPI
from ranks import WORLD as COMM
from ranks import backend

from hpcmm.bench.measure import Problem, measure_point
from hpcmm.model.measurement import Measuring, Point
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import algorithms_of, world
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.transports.choice import Connections, candidates
from hpcmm.parallel.transports.pinned import Pinned

DEVICE, WITH_NVMATH = sys.argv[1], sys.argv[1] == "cpu" or "nvmath" in sys.argv[2:]
BACKEND = backend(DEVICE)
VARIANTS = {
    "cpu": {"matmul": "numpy", "sum": "serial", "vector_add": "serial", "links": "memcpy"},
    "cuda": {"matmul": "cublas", "sum": "one_launch", "vector_add": "vectorized", "links": "device_copy"},
}[DEVICE]
EVEN, UNEVEN = (12 * COMM.size, 8 * COMM.size, 67), (61, 53, 67)
SCALARS = [{"alpha": 1.5, "beta": 0.5}, {"alpha": 1.0, "beta": 0.0}]
LIMITS = Measuring(0, 1, 1, 1.0, 1.0, "hot", seed=1)
REGISTERED: list[int] = []  # addresses of page-locked arrays that are not released


# --- the calls of nvmath-python ------------------------------------------------------------------------------------


class OnDevice(np.ndarray):
    def get(self) -> np.ndarray:
        return np.array(self)


class Matmul:
    """C = alpha A B + beta C of slabs, by MPI; its memory is freed by all ranks together, before it is forgotten."""

    comm: MPI.Comm | None = None

    def __init__(self, a, b, c=None, *, distributions, alpha, beta=None):
        assert distributions == ["X", "Y", "X"] and self.comm is not None
        self.operands, self.alpha, self.beta, self.planned = (a, b, c), alpha, beta, False
        self.valid = self.comm.allreduce(1) == self.comm.size

    def plan(self) -> None:
        self.planned = True

    def execute(self) -> OnDevice:
        assert self.valid and self.planned
        a, b, c = self.operands
        product = self.alpha * a @ np.hstack(self.comm.allgather(np.ascontiguousarray(b)))
        return (product if c is None else product + self.beta * c).astype(a.dtype).view(OnDevice)

    def free(self) -> None:
        self.comm.Barrier()
        self.valid = False

    def __del__(self):
        if self.valid:
            world.abort("a product of cuBLASMp was not freed")


def initialize(device: int, comm: MPI.Comm, *, backends: list[str]) -> None:
    assert Matmul.comm is None, "initialized twice in one process"
    assert (device, backends) == (0, ["nvshmem", "nccl"])
    Matmul.comm = comm


def stand_in() -> None:
    """Put the stand-in where nvmath-python would be imported from."""
    distribution, advanced = ModuleType("nvmath.distributed.distribution"), ModuleType("advanced")
    distribution.Slab, advanced.Matmul = SimpleNamespace(X="X", Y="Y"), Matmul
    distributed, nvmath = ModuleType("nvmath.distributed"), ModuleType("nvmath")
    distributed.get_context, distributed.initialize = lambda: Matmul.comm, initialize
    nvmath.distributed, nvmath.__spec__ = distributed, ModuleSpec("nvmath", None)
    names = ("nvmath", "nvmath.distributed", "nvmath.distributed.distribution", "nvmath.distributed.linalg")
    modules = (nvmath, distributed, distribution, ModuleType("linalg"))
    sys.modules |= dict(zip(names, modules, strict=True)) | {"nvmath.distributed.linalg.advanced": advanced}
    BACKEND.index = 0


# --- the points ----------------------------------------------------------------------------------------------------


def points(carrier: str, first: bool) -> Iterator[Point]:
    """Yield points of all algorithms that this transport carries; of those without a transport with the ``first``."""
    for name, variant in VARIANTS.items():
        operation = OPERATIONS[name]
        for algorithm in algorithms_of(operation):
            if not runs_over(algorithm, carrier, first):
                continue
            chosen = operation.variant(algorithm.variants[0] if algorithm.variants else variant)
            wanted = ("float32", "bfloat16") if name == "matmul" else operation.dtypes_of(chosen)[:1]
            shape = (1003,) if name != "matmul" else EVEN if algorithm.name == "cublasmp" else UNEVEN
            for dtype in (each for each in wanted if algorithm.takes_type(each)):
                # cuBLASMp takes no C if beta is 0
                for scalars in SCALARS if algorithm.name == "cublasmp" and dtype == "float32" else SCALARS[:1]:
                    given = scalars if name == "matmul" else {}
                    yield Point(name, chosen.name, shape, dtype, COMM.size, given, algorithm.name)


def runs_over(algorithm: Algorithm, carrier: str, first: bool) -> bool:
    if algorithm.name == "cublasmp" and not WITH_NVMATH:
        return False
    return first if algorithm.transport is None else not algorithm.fixed or algorithm.transport == carrier


def measured(connections: Connections, point: Point) -> None:
    """Measure a point, and close its problem, which may be closed again."""
    problem = Problem(connections.ranks, BACKEND, point, 1, connections)
    for measurement in measure_point(problem, point, LIMITS, beside=point.algorithm not in NO_BASELINE):
        assert measurement.verdict.passed, (point.name, measurement.contender, measurement.verdict)
    problem.close()
    problem.close()
    for transport in connections.opened.values():
        assert not getattr(transport, "windows", None) and not getattr(transport, "remote", None), point.name
    assert not REGISTERED, f"{point.name}: host memory is still page-locked"
    BACKEND.release()


NO_BASELINE = {each.name for name in VARIANTS for each in algorithms_of(OPERATIONS[name]) if not each.baseline}


def count_registrations() -> None:
    register, unregister = BACKEND.register, BACKEND.unregister

    def registered(array):
        register(array)
        REGISTERED.append(array.ctypes.data)

    def unregistered(array):
        unregister(array)
        REGISTERED.remove(array.ctypes.data)

    BACKEND.register, BACKEND.unregister = registered, unregistered


def main() -> None:
    if DEVICE == "cpu":
        Pinned.in_host_memory = True
        stand_in()
    carriers, count = [], 0
    count_registrations()
    for turn, kind in itertools.product(range(2), candidates(BACKEND)):
        connections = Connections(COMM, BACKEND, kind.name)
        if reason := connections.missing(kind.name):
            if COMM.rank == turn == 0:
                print(f"{kind.name}: {reason}", flush=True)
        else:
            carriers += [kind.name] if turn == 0 else []
            for point in points(kind.name, kind.name == carriers[0]):
                measured(connections, point)
                count += 1
        connections.close()
    if COMM.rank == 0:
        names = sorted({each.algorithm for carrier in carriers for each in points(carrier, True)})
        print(f"{count} times opened, run and closed, over {', '.join(carriers)}: {', '.join(names)}", flush=True)


if __name__ == "__main__":
    main()
