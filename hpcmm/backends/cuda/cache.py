"""The folder of compiled CUDA kernels, without CuPy."""

import os
from pathlib import Path

from hpcmm.model import DeviceError
from hpcmm.system import files


def folder() -> Path:
    return Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy/kernel_cache")


def write(path: Path, content: bytes) -> None:
    """Write a file atomically: other processes see the whole file or none."""
    try:
        with files.replacing(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        reason = "not a folder" if isinstance(error, FileExistsError) else error.strerror
        raise DeviceError(
            f"{path.parent}: cannot write compiled kernels: {reason}; set CUPY_CACHE_DIR to a writable folder"
        ) from error
