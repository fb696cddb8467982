"""A kernel: one C source and one record."""

from pathlib import Path

from hpcmm.model import Variant

VARIANTS = {
    "matmul": (
        Variant("row_axpy", "cpu", "each row of C is a sum of rows of B", path=Path(__file__).with_name("row_axpy.c")),
    )
}
