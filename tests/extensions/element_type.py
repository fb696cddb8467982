"""An element type: float16, added up in float32, with a baseline and the serial rung."""

import numpy as np

from hpcmm.dtypes import DType
from hpcmm.model import Variant

FLOAT16 = DType("float16", {"cpu": "_Float16", "cuda": "__half"}, accumulator="float32")


def widened(backend, task, arrays):
    """C = alpha A B + beta C by NumPy's BLAS in float32, rounded to float16 once."""
    a, b, c = (arrays[name] for name in "ABC")
    alpha, beta = (np.float32(task.scalars[name]) for name in ("alpha", "beta"))

    def run():
        product = alpha * (a.astype(np.float32) @ b.astype(np.float32))
        c[...] = product if beta == 0 else product + beta * c

    return run


VARIANTS = {"matmul": (Variant("widened", "cpu", "NumPy's BLAS in float32", library=widened, dtypes=("float16",)),)}
DTYPES = {"matmul": {FLOAT16: ("serial", "widened")}}
