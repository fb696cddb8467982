"""Backends, which compile, launch and time tasks on a device."""

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import psutil

from hpcmm.backends.base import Backend
from hpcmm.backends.cuda import presence
from hpcmm.model import DeviceError, Task
from hpcmm.model.devices import DEVICES, Machine
from hpcmm.system import surroundings


def missing(device: str) -> str:
    """Return the reason why variants of a device cannot run on this machine; empty if they can."""
    return presence.missing() if device == "cuda" else ""


def visible(device: str) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that this process can use; empty for the CPU, which every rank has."""
    return tuple(presence.uuids()) if device == "cuda" else ()


def this_machine() -> Machine:
    return Machine(
        {name: missing(name) for name in DEVICES},
        {"cpu": surroundings.cpus(), "cuda": presence.count()},
        {"cpu": psutil.virtual_memory().total, "cuda": presence.memory()},
        presence.multiprocessors(),
    )


def open_backend(device: str, threads: int, local_rank: int, share_gpu: bool) -> Backend:
    """Return the backend of this rank, which may use some CPU threads; its rank on this node selects the GPU."""
    if device == "cpu":
        from hpcmm.backends.cpu.device import CpuBackend

        return CpuBackend(threads)
    gpus = presence.count()
    if gpus == 0:
        raise DeviceError(
            "this batch needs a GPU, but CUDA shows none here: run it on a node with one, or set backends: cpu"
        )
    if importlib.util.find_spec("cupy") is None:
        raise DeviceError("this batch needs CuPy: pip install 'hpcmm[cuda13]' or 'hpcmm[cuda12]'")
    if local_rank >= gpus and not share_gpu:
        raise DeviceError(
            f"rank {local_rank} of this node has no GPU of its own (CUDA shows {gpus}); "
            "use fewer ranks per node or set share_gpu: true"
        )
    from hpcmm.backends.cuda.device import CudaBackend

    return CudaBackend(local_rank % gpus)
