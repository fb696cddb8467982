"""The operations, each a record in a module of its own."""

from hpcmm.operations.matmul import MATMUL
from hpcmm.operations.reduction import MAXIMUM, MINIMUM, SUM
from hpcmm.operations.vector_add import VECTOR_ADD

OPERATIONS = {operation.name: operation for operation in (MATMUL, SUM, MINIMUM, MAXIMUM, VECTOR_ADD)}
