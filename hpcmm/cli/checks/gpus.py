"""Checks of the GPUs of a machine."""

import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcmm.backends.cuda import presence
from hpcmm.cli.checks.check import Check


def check_gpus() -> Iterator[Check]:
    if presence.count() == 0:
        if Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi"):
            advice = f"run nvidia-smi; CUDA_VISIBLE_DEVICES may hide GPUs: {os.environ.get('CUDA_VISIBLE_DEVICES')!r}"
            yield Check("GPUs", "error", "an NVIDIA driver is installed, but CUDA shows no GPU", advice)
        else:
            yield Check("GPUs", "ok", "none; CPU variants only")
        return
    if importlib.util.find_spec("cupy") is None:
        advice = "pip install 'hpcmm[cuda13]' or 'hpcmm[cuda12]', for the driver's CUDA version"
        yield Check("GPUs", "error", f"{presence.count()} GPUs, but CuPy is not installed", advice)
        return
    from hpcmm.backends.cuda import device as cuda

    about = cuda.survey()
    gpus = about["gpus"]
    for i, gpu in enumerate(gpus):
        memory = gpu["memory_bytes"] / 2**30
        yield Check(f"GPU {i}", "ok", f"{gpu['name']}, {memory:.0f} GiB, {gpu['uuid']}; a kernel compiled and ran")
    yield from check_gpu_settings(gpus, about["compute_processes"])
    first = gpus[0]
    numbers = {name: f"{value // 1000}.{value // 10 % 100}" for name, value in
               (("driver", about["driver_cuda"]), ("runtime", first["cuda_runtime"]))}  # fmt: skip
    yield Check("driver", "ok", f"{first['driver']}, for CUDA {numbers['driver']}")
    found = f"runtime {numbers['runtime']}, NVRTC {first['nvrtc']}, cuBLAS {first['cublas']}, CuPy {first['cupy']}"
    newer = first["cuda_runtime"] // 1000 > about["driver_cuda"] // 1000
    advice = "CuPy needs a newer CUDA than the driver supports: install the extra for the driver's CUDA version"
    yield Check.of("CUDA", not newer, found, advice, "error")
    advice = f"pip install nvidia-nccl-cu{first['cuda_runtime'] // 1000}"
    yield Check.of("NCCL", about["nccl"], about["nccl"] or "CuPy finds no NCCL", advice)
    if len(gpus) > 1:
        without = ", ".join(f"{i} to {j}" for i, j in about["without_peer_access"])
        found = f"no access from {without}" if without else "every GPU can access the memory of every other GPU"
        advice = "copies between these GPUs go through host memory; see nvidia-smi topo -m"
        yield Check.of("peer access", not without, found, advice)


def check_gpu_settings(gpus: Sequence[Mapping[str, Any]], processes: Sequence[int]) -> Iterator[Check]:
    """Look for power limits of GPUs and other processes on them; ``processes`` were counted before this one's."""
    for i, (gpu, others) in enumerate(zip(gpus, processes, strict=True)):
        limit, default = gpu.get("power_limit"), gpu.get("default_power_limit")
        if limit and default:
            fine = limit >= default
            advice = f"clocks drop under load: nvidia-smi -i {i} -pl {default:.0f}"
            yield Check.of(f"GPU {i} power limit", fine, f"{limit:.0f} of {default:.0f} W", advice)
        if others:
            advice = "they share the GPU with measurements: end them, or select another GPU with CUDA_VISIBLE_DEVICES"
            yield Check(f"GPU {i} processes", "warning", f"{others} other compute processes", advice)
        if gpu.get("persistence") is False:
            advice = f"the driver unloads between jobs, and clocks start low: nvidia-smi -i {i} -pm 1"
            yield Check(f"GPU {i} persistence", "warning", "off", advice)
        if gpu.get("mig"):
            advice = "an instance has a part of the SMs and of the bandwidth; hardware limits are of the whole GPU"
            yield Check(f"GPU {i} MIG", "warning", "on", advice)
