"""Tensor maps, which describe a matrix to the tensor memory accelerator (TMA), made by the CUDA driver."""

from __future__ import annotations

import ctypes

import numpy as np

from hpcmm.backends.cuda.memory import PitchedMemory
from hpcmm.model import DeviceError
from hpcmm.model.launch import Boxes

BYTES, ALIGNMENT = 128, 64  # of a map
# CUtensorMapDataType and other enumerations of cuda.h
KINDS = {"uint8": 0, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9, "tfloat32": 11}
# With a promotion to 256 bytes, a row of a box (128 bytes) would also fetch a part of a box that another block loads.
NO_INTERLEAVE, SWIZZLE_128B, L2_PROMOTION_128B, ZEROS_OUTSIDE = 0, 3, 2, 0


def tensor_map(boxes: Boxes) -> np.ndarray:
    """Return the tensor map of a matrix as an argument of a launch; zeros if TMA cannot take the matrix.

    TMA takes an address and steps between rows that are multiples of 16 bytes. CuPy passes an array of one element by
    value.
    """
    raw = np.zeros(BYTES + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    record = raw[start : start + BYTES]
    matrix = boxes.matrix
    if matrix.size and matrix.data.ptr % 16 == 0 and matrix.strides[0] % 16 == 0:
        rows, columns = matrix.shape
        error = PitchedMemory.driver.cuTensorMapEncodeTiled(
            *(ctypes.c_void_p(record.ctypes.data), KINDS[boxes.dtype], 2, ctypes.c_void_p(matrix.data.ptr)),
            *((ctypes.c_uint64 * 2)(columns, rows), (ctypes.c_uint64 * 1)(matrix.strides[0])),
            *((ctypes.c_uint32 * 2)(boxes.columns, boxes.rows), (ctypes.c_uint32 * 2)(1, 1)),
            *(NO_INTERLEAVE, SWIZZLE_128B, L2_PROMOTION_128B, ZEROS_OUTSIDE),
        )
        if error:
            raise DeviceError(
                f"cuTensorMapEncodeTiled of {rows} x {columns} {boxes.dtype} in boxes of {boxes.rows} x "
                f"{boxes.columns} failed with CUDA error {error}"
            )
    return record.view(np.dtype((np.void, BYTES)))
