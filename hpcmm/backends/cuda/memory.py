"""Pitched device memory, which CuPy does not allocate, and copies between memories."""

import ctypes

import cupy
import numpy as np

from hpcmm.model import DeviceError

GUARD = 12345.0  # in the rows behind a matrix; a result that is computed from it is wrong


class PitchedMemory:
    """``height`` rows of ``width`` bytes in device memory, each at an aligned address (cuMemAllocPitch)."""

    driver = ctypes.CDLL("libcuda.so.1")

    def __init__(self, width: int, height: int, itemsize: int):
        pointer, pitch = ctypes.c_uint64(), ctypes.c_size_t()
        error = self.driver.cuMemAllocPitch_v2(
            ctypes.byref(pointer),
            ctypes.byref(pitch),
            ctypes.c_size_t(max(width, 1)),
            ctypes.c_size_t(max(height, 1)),
            ctypes.c_uint(max(itemsize, 4)),
        )
        if error:
            raise DeviceError(f"cuMemAllocPitch of {height} rows of {width} bytes failed with CUDA error {error}")
        self.pointer, self.pitch, self.bytes = pointer.value, pitch.value, pitch.value * max(height, 1)

    def __del__(self):
        if hasattr(self, "pointer"):
            self.driver.cuMemFree_v2(ctypes.c_uint64(self.pointer))


def pitched_empty(shape: tuple[int, int], dtype: str) -> cupy.ndarray:
    """Return a matrix in pitched memory, whose rows are padded to aligned addresses."""
    rows, columns = shape
    itemsize = np.dtype(dtype).itemsize
    owner = PitchedMemory(columns * itemsize, rows, itemsize)
    memory = cupy.cuda.UnownedMemory(owner.pointer, owner.bytes, owner)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides=(owner.pitch, itemsize))


class Guarded:
    """A matrix with a guard of rows behind it, in memory that a kernel may overrun without harm."""

    def __init__(self, shape: tuple[int, int], dtype: str, guard_rows: int):
        rows, columns = shape
        whole = cupy.empty((rows + guard_rows, columns), dtype)
        # array: the matrix
        self.array, self.guard = whole[:rows], whole[rows:]

    def fill(self, content: cupy.ndarray) -> None:
        copy_rows(content, self.array)
        self.guard.fill(GUARD)

    def complaint(self, name: str) -> str:
        """Return how many elements of the guard were overwritten, with the name of the matrix; empty if none was."""
        count = int((self.guard.get() != GUARD).sum())  # CuPy's comparison and sum take seconds to compile
        return f"{count:,} elements written behind {name}" if count else ""


def copy_rows(source, target, stream: cupy.cuda.Stream | None = None) -> None:
    """Copy a matrix by rows between any two memories, in a stream or the current one."""
    runtime, stream = cupy.cuda.runtime, stream or cupy.cuda.get_current_stream()
    rows, columns = target.shape
    runtime.memcpy2DAsync(
        *(address(target), target.strides[0], address(source), source.strides[0]),
        *(columns * target.itemsize, rows, runtime.memcpyDefault, stream.ptr),
    )


def address(array) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
