"""The provenance of a GPU."""

from __future__ import annotations

from typing import Any

import cupy
import pynvml
from cupy.cuda import cub

from hpcmm.backends.cuda import cublaslt
from hpcmm.backends.cuda.compile import OPTIONS


def described(backend) -> dict[str, Any]:
    properties = cupy.cuda.runtime.getDeviceProperties(backend.device.id)
    attributes = backend.device.attributes
    return {
        "name": properties["name"].decode(),
        "uuid": backend.uuid,
        "driver": str(pynvml.nvmlSystemGetDriverVersion()),
        "compute_capability": backend.capability,
        "multiprocessors": backend.multiprocessors,
        "memory_bytes": properties["totalGlobalMem"],
        "l2_bytes": attributes["L2CacheSize"],
        "max_sm_clock": attributes["ClockRate"] * 1e3,
        "max_memory_clock": attributes["MemoryClockRate"] * 1e3,
        "memory_bus_bits": attributes["GlobalMemoryBusWidth"],
        "ecc": bool(attributes["EccEnabled"]),
        "constant_bytes": attributes["TotalConstantMemory"],
        "warp_size": attributes["WarpSize"],
        "block_threads": attributes["MaxThreadsPerBlock"],
        "block_dimensions": [attributes[f"MaxBlockDim{axis}"] for axis in "XYZ"],
        "grid_dimensions": [attributes[f"MaxGridDim{axis}"] for axis in "XYZ"],
        "block_registers": attributes["MaxRegistersPerBlock"],
        "block_shared_bytes": attributes["MaxSharedMemoryPerBlock"],
        "block_shared_bytes_on_request": attributes["MaxSharedMemoryPerBlockOptin"],
        **backend.limits,
        "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
        "nvrtc": ".".join(map(str, cupy.cuda.nvrtc.getVersion())),
        "cublas": cublaslt.version(),
        "cub": cub.get_build_version(),
        "nccl": backend.nccl_version,
        "cupy": cupy.__version__,
        "nvrtc_options": " ".join(OPTIONS),
        **backend.properties(),
        "empty_event_pair_seconds": backend.empty_event_pair(),
    }
