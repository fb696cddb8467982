"""What a GPU could do at most: arithmetic by its units and clock, memory by its clock and width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# Fused multiply-adds of a multiprocessor (SM) in a clock, by compute capability.
# Source: table "Throughput of Native Arithmetic Instructions", CUDA C++ Programming Guide 12 (5.0 to 9.0)
# and Best Practices Guide 13 (10.0, 12.0).
FMA_UNITS = {
    "50": {"float32": 128, "float64": 4},
    "52": {"float32": 128, "float64": 4},
    "60": {"float32": 64, "float64": 32},
    "61": {"float32": 128, "float64": 4},
    "70": {"float32": 64, "float64": 32},
    "75": {"float32": 64, "float64": 2},
    "80": {"float32": 64, "float64": 32},
    "86": {"float32": 128, "float64": 2},
    "89": {"float32": 128, "float64": 2},
    "90": {"float32": 128, "float64": 64},
    "100": {"float32": 128, "float64": 64},
    "120": {"float32": 128, "float64": 2},
}
# The same by tensor cores, of products whose inputs are not rounded to fewer digits first: float64 alone.
# Source: the architecture papers of A100 (4 tensor cores an SM, 16 each) and H100 (4, 32 each).
TENSOR_UNITS = {"80": {"float64": 64}, "90": {"float64": 128}}


def arithmetic(capability: str, dtype: str) -> tuple[float, str]:
    """Operations of an SM in a clock, and the units that do them; NaN and "" where this is not known.

    A multiplication and its addition are two operations.

    Examples
    --------
    >>> arithmetic("90", "float32")
    (256.0, 'FMA units')
    >>> arithmetic("90", "float64")
    (256.0, 'tensor cores')
    >>> arithmetic("30", "float64")
    (nan, '')
    """
    units = {
        "FMA units": FMA_UNITS.get(capability, {}).get(dtype, 0),
        "tensor cores": TENSOR_UNITS.get(capability, {}).get(dtype, 0),
    }
    name = max(units, key=lambda each: units[each])
    return (2.0 * units[name], name) if units[name] else (math.nan, "")


def peaks(gpus: Sequence[Mapping[str, Any]], dtype: str, clock: float = math.nan) -> tuple[float, str, float]:
    """Most operations a second of several GPUs, the units that do them, and bytes a second of their memories.

    Parameters
    ----------
    gpus : sequence of mapping
        What provenance says of the GPU of each rank. Ranks may share one: it counts once.
    dtype : str
    clock : float
        Of the SMs [Hz]; their highest where it is NaN.
    """
    devices = {gpu.get("uuid") or i: gpu for i, gpu in enumerate(gpus)}.values()
    flops, names, nbytes = 0.0, set(), 0.0
    for gpu in devices:
        a_clock, name = arithmetic(str(gpu.get("compute_capability", "")), dtype)
        at = clock if math.isfinite(clock) else _number(gpu.get("max_sm_clock"))
        flops += a_clock * _number(gpu.get("multiprocessors")) * at
        nbytes += _number(gpu.get("memory_bytes_per_second"))
        names.add(name)
    if not devices:
        return math.nan, "", math.nan
    return flops, " and ".join(sorted(names)), nbytes


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and value > 0 else math.nan
