"""The operations, each a record in a module of its own."""

from hpcmm.operations.matmul import MATMUL
from hpcmm.operations.reduction import REDUCTION

OPERATIONS = {operation.name: operation for operation in (MATMUL, REDUCTION)}
