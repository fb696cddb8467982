"""Backends turn a variant into something that can be launched and timed on a device."""

from __future__ import annotations

import ctypes
import importlib.util
import os

from hpcmm.model import Device, HpcmmError


class DeviceError(HpcmmError):
    """A device that is missing or cannot do what was asked."""


def gpu_count() -> int:
    """Count the GPUs that CUDA would show this process, without starting CuPy."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def gpu_uuids() -> list[str]:
    """Name the GPUs that CUDA would show this process."""
    names = []
    for index in range(gpu_count()):
        driver = ctypes.CDLL("libcuda.so.1")
        device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetUuid_v2(uuid, device):
            raise DeviceError(f"CUDA does not name GPU {index}")
        names.append(bytes(uuid).hex())
    return names


def cuda_missing() -> str:
    """Say why CUDA variants cannot run on this machine; empty if they can."""
    if gpu_count() == 0:
        return "no GPU on the machine that planned"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (extras cuda12 and cuda13)"
    return ""


def present() -> tuple[str, int, int]:
    """What a plan asks of this machine: why it cannot run CUDA variants, how many GPUs, how many cores to run on."""
    return cuda_missing(), gpu_count(), len(os.sched_getaffinity(0))


def open_backend(device: Device, threads: int, local_rank: int, share_gpu: bool):
    """Return the backend of this rank.

    Parameters
    ----------
    device : {"cpu", "cuda"}
    threads : int
        CPU threads that this rank may use.
    local_rank : int
        Rank on this node, which picks the GPU.
    share_gpu : bool
        Whether several ranks may use one GPU.

    Raises
    ------
    DeviceError
        If there is no GPU for this rank.
    """
    if device == "cpu":
        from hpcmm.backends.cpu import CpuBackend

        return CpuBackend(threads)
    gpus = gpu_count()
    if gpus == 0:
        raise DeviceError(
            "this batch needs a GPU, but CUDA shows none here: run it on a node with one, or set backends: cpu"
        )
    if importlib.util.find_spec("cupy") is None:
        raise DeviceError("this batch needs CuPy: pip install 'hpcmm[cuda13]' or 'hpcmm[cuda12]'")
    if local_rank >= gpus and not share_gpu:
        raise DeviceError(
            f"rank {local_rank} of this node has no GPU of its own (CUDA shows {gpus}); "
            "use fewer ranks a node or set share_gpu: true"
        )
    from hpcmm.backends.cuda import CudaBackend

    return CudaBackend(local_rank % gpus)
