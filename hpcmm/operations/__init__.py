"""The operations, each a record in a module of its own."""

from hpcmm.model import Operation, Task
from hpcmm.model.measurement import Point
from hpcmm.operations.links import LINKS
from hpcmm.operations.matmul import MATMUL
from hpcmm.operations.memory import BANDWIDTH, COPY, LATENCY, SCALE
from hpcmm.operations.reduction import MAXIMUM, MINIMUM, SUM
from hpcmm.operations.vector_add import VECTOR_ADD

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (MATMUL, SUM, MINIMUM, MAXIMUM, VECTOR_ADD, LATENCY, BANDWIDTH, COPY, SCALE, LINKS)
}


def with_kernels() -> dict[str, Operation]:
    """Return the operations that have rungs besides a library, to which kernels of users can be added.

    >>> list(with_kernels())
    ['matmul', 'sum', 'minimum', 'maximum', 'vector_add', 'copy', 'scale']
    """
    return {
        name: operation
        for name, operation in OPERATIONS.items()
        if not (operation.cached or all(variant.library for variant in operation.ladder))
    }


def task_of(point: Point) -> Task:
    operation = OPERATIONS[point.operation]
    variant = operation.variant(point.variant)
    return Task(operation, variant, point.shape, point.dtype, point.scalars, point.tile)


def dimensions() -> tuple[str, ...]:
    """Return the names of the dimensions of all operations, those of matmul first.

    >>> dimensions()
    ('m', 'n', 'k')
    """
    return tuple(dict.fromkeys(name for operation in OPERATIONS.values() for name in operation.dimensions))
