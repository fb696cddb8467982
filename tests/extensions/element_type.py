"""An element type: half, float16 added up in float64, with a baseline and the serial rung."""

import numpy as np

from hpcmm.model import Variant
from hpcmm.model.dtypes import DType

HALF = DType("half", {"cpu": "_Float16", "cuda": "__half"}, accumulator="float64")


def widened(backend, task, arrays):
    """C = alpha A B + beta C by NumPy's BLAS in float64, rounded to float16 once."""
    a, b, c = (arrays[name] for name in "ABC")
    alpha, beta = (np.float64(task.scalars[name]) for name in ("alpha", "beta"))

    def run():
        product = alpha * (a.astype(np.float64) @ b.astype(np.float64))
        c[...] = product if beta == 0 else product + beta * c

    return run


VARIANTS = {"matmul": (Variant("widened", "cpu", "NumPy's BLAS in float64", library=widened, dtypes=("half",)),)}
DTYPES = {"matmul": {HALF: ("serial", "widened")}}
