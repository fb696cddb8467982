"""Launch tasks: bind the kernels of a task to its arrays."""

import ctypes
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import cupy
import numpy as np

from hpcmm.backends.cuda.compile import constant_of, kernel_of
from hpcmm.backends.cuda.memory import Guarded, PitchedMemory, copy_rows, pitched_empty
from hpcmm.model import DeviceError, Task, untimed
from hpcmm.model.launch import Boxes, Launch, Run
from hpcmm.operations.overwritten import on_copy


def prepare(backend, task: Task, arrays: Mapping[str, cupy.ndarray]) -> Run:
    if task.variant.contract and task.variant.contract.overwrites:
        return on_copy(backend, task, arrays)
    if task.variant.library:
        return Run.of(task.variant.library(backend, task, arrays))
    if task.variant.function:
        stream = cupy.cuda.get_current_stream()
        return Run(functools.partial(task.variant.function, stream=stream, **arrays, **task.scalars))
    chooser = task.variant.picks or task.geometry
    if backend.tries:
        chooser.decide(backend, task)
    task = backend.placed(task).picked
    if task.variant.pitched:
        return pitched(backend, task, arrays)
    if task.variant.guard_rows:
        return guarded(backend, task, arrays)
    return launched(backend, task, arrays)


def pitched(backend, task: Task, arrays: Mapping[str, cupy.ndarray]) -> Run:
    """Return a run on copies whose rows are padded."""
    padded = {name: pitched_empty(array.shape, array.dtype) for name, array in arrays.items()}
    run = prepare(backend, without(task, pitched=False), padded)
    return dataclasses.replace(
        run,
        before=lambda: [copy_rows(arrays[name], padded[name]) for name in arrays],
        after=lambda: [copy_rows(padded[name], arrays[name]) for name in results_of(task)],
    )


def guarded(backend, task: Task, arrays: Mapping[str, cupy.ndarray]) -> Run:
    """Return a run on copies with guard rows behind them, which it must not change."""
    rows = task.variant.guard_rows
    guards = {name: Guarded(array.shape, task.dtype, rows) for name, array in arrays.items()}
    run = prepare(backend, without(task, guard_rows=0), {name: each.array for name, each in guards.items()})
    return dataclasses.replace(
        run,
        before=lambda: [each.fill(arrays[name]) for name, each in guards.items()],
        after=lambda: [copy_rows(guards[name].array, arrays[name]) for name in results_of(task)],
        complaint=lambda: "; ".join(filter(None, (each.complaint(name) for name, each in guards.items()))),
    )


def without(task: Task, **changes: object) -> Task:
    return dataclasses.replace(task, variant=dataclasses.replace(task.variant, **changes))


def results_of(task: Task) -> list[str]:
    return [operand.name for operand in task.operation.operands if operand.role != "in"]


def launched(backend, task: Task, arrays: Mapping[str, cupy.ndarray]) -> Run:
    constants = [
        (constant_of(task, name), arrays[operand]) for name, operand in task.geometry.in_constant_memory(task).items()
    ]
    workspace = {name: backend.empty(each.shape, each.dtype) for name, each in task.workspace.items()}
    launches = task.geometry.launches(task, {**arrays, **workspace})
    calls = []
    for launch in launches:
        kernel = kernel_of(launch.task or task, launch.function)
        if launch.shared_bytes > kernel.max_dynamic_shared_size_bytes:
            try:
                kernel.max_dynamic_shared_size_bytes = launch.shared_bytes
            except cupy.cuda.driver.CUDADriverError as error:
                asked = f"{launch.shared_bytes} bytes of shared memory"
                raise DeviceError(f"{task.variant.name}: {asked}: {error}") from error
        arguments = tuple(tensor_map(each) if isinstance(each, Boxes) else each for each in launch.arguments)
        usual = functools.partial(kernel, launch.grid, launch.block, arguments, shared_mem=launch.shared_bytes)
        calls.append(overlapping(kernel, launch, arguments) if launch.overlaps else usual)

    def once() -> None:
        for constant, array in constants:
            constant.copy_from_device_async(array.data, array.nbytes)
        for call in calls:
            call()

    texts = [
        f"{launch.function or task.operation.kernels}, grid {launch.grid}, block {launch.block}, "
        f"{launch.shared_bytes} bytes of dynamic shared memory"
        for launch in launches
    ]
    return Run(once, launches="; ".join(texts))


MAP_BYTES, MAP_ALIGNMENT = 128, 64  # of a tensor map
# CUtensorMapDataType and other enumerations of cuda.h
KINDS = {"uint8": 0, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9, "tfloat32": 11}
# With a promotion to 256 bytes, a row of a box (128 bytes) would also fetch a part of a box that another block loads.
NO_INTERLEAVE, SWIZZLE_128B, L2_PROMOTION_128B, ZEROS_OUTSIDE = 0, 3, 2, 0


def tensor_map(boxes: Boxes) -> np.ndarray:
    """Return the tensor map of a matrix as an argument of a launch; zeros if TMA cannot take the matrix.

    TMA takes an address and steps between rows that are multiples of 16 bytes. CuPy passes an array of one element by
    value.
    """
    raw = np.zeros(MAP_BYTES + MAP_ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % MAP_ALIGNMENT
    record = raw[start : start + MAP_BYTES]
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
    return record.view(np.dtype((np.void, MAP_BYTES)))


class LaunchConfig(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        *(("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)),
    ]


PROGRAMMATIC_STREAM_SERIALIZATION = 6  # of CUlaunchAttributeID


def overlapping(kernel, launch: Launch, arguments: tuple) -> Callable[[], None]:
    """Return a call that launches a kernel which may begin before the launch before it has ended.

    CuPy has no such call.
    """
    values = [np.array(argument.data.ptr if isinstance(argument, cupy.ndarray) else argument) for argument in arguments]
    pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
    attribute = np.zeros(9, np.uint64)  # CUlaunchAttribute: the identifier, and 64 bytes for its value
    attribute[:2] = PROGRAMMATIC_STREAM_SERIALIZATION, 1
    sizes = [(*each, 1, 1)[:3] for each in (launch.grid, launch.block)]
    config = LaunchConfig(*sizes[0], *sizes[1], launch.shared_bytes, None, attribute.ctypes.data, 1)
    function = ctypes.c_void_p(kernel.kernel.ptr)

    def call() -> None:
        config.stream = cupy.cuda.get_current_stream().ptr
        error = PitchedMemory.driver.cuLaunchKernelEx(ctypes.byref(config), function, pointers, None)
        if error:
            raise DeviceError(f"cuLaunchKernelEx of {kernel.name} failed with CUDA error {error}")

    call.kept = arguments, values, attribute  # the driver reads them
    return call


@untimed
def resources(task: Task, arrays: Mapping[str, cupy.ndarray]) -> dict[str, float]:
    """Return ``RESOURCES`` of a prepared task on its device; empty for a library and a Python function.

    Of several functions, they are of the first launch of the one that is named as the kernels of the operation, if it
    is launched.
    """
    if not task.variant.compiled:
        return {}
    workspace = {name: each.placeholder for name, each in task.workspace.items()}
    launches = task.geometry.launches(task, {**arrays, **workspace})
    if not launches:
        return {}
    first = next((launch for launch in launches if not launch.function), launches[0])
    kernel = kernel_of(first.task or task, first.function)
    resident = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
        kernel.kernel.ptr, math.prod(first.block), first.shared_bytes
    )
    return {
        "registers": kernel.num_regs,
        "shared_bytes": kernel.shared_size_bytes,
        "dynamic_shared_bytes": first.shared_bytes,
        "local_bytes": kernel.local_size_bytes,
        "constant_bytes": kernel.const_size_bytes,
        "block_x": first.block[0],
        "block_y": math.prod(first.block[1:]),
        "grid_x": first.grid[0],
        "grid_y": math.prod(first.grid[1:]),
        "resident_blocks": resident,
    }
