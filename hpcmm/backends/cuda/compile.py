"""CUDA sources as kernels, compiled by NVRTC."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from typing import Any

import cupy
from cupy.cuda import nvrtc

from hpcmm import kernels
from hpcmm.backends.base import DeviceError
from hpcmm.model import Operation, Task, Variant


def kernel_of(task: Task) -> cupy.RawKernel:
    """Return the compiled kernel of a task."""
    return compile_kernel(task.operation, task.variant, tuple(task.macros.items()))


@functools.cache
def compile_kernel(operation: Operation, variant: Variant, macros: tuple[tuple[str, Any], ...]) -> cupy.RawKernel:
    """Compile a variant's source with macros."""
    source = kernels.source(operation, variant)
    headers = hashlib.sha256(b"".join(header.read_bytes() for header in kernels.headers(source))).hexdigest()
    options = ("--std=c++17", "-lineinfo", f"-I{kernels.FOLDER}", *(f"-D{name}={value}" for name, value in macros))
    options += variant.options
    options += (f"-DHEADERS={headers}",)  # the key of CuPy's kernel cache has the text and the options, not the headers
    text = source.read_text()
    if not variant.architecture.endswith("a"):
        return cupy.RawModule(code=text, options=options).get_function(operation.kernels)
    # CuPy compiles for what all GPUs of a compute capability and later ones have
    program = nvrtc.createProgram(text, source.name, (), ())
    try:
        nvrtc.compileProgram(program, (*options, "-ftz=true", f"-arch={variant.architecture}"))
        code = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise DeviceError(f"NVRTC: {error}\n{nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        function = cupy.RawModule(path=file.name).get_function(operation.kernels)
        function.compile()  # while the file is there
    return function
