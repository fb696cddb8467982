"""Peak rates: arithmetic of GPUs and CPUs from units and clock, memory of GPUs from clock and bus width."""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from hpcmm.model.dtypes import ARITHMETICS, DTYPES


def arithmetic(capability: str, dtype: str, other: str = "") -> tuple[float, str]:
    """Return the operations per SM and clock, and the units that execute them; NaN and "" if unknown.

    A multiply-add counts as two operations. ``other`` is the arithmetic if it is not that of the element type.

    >>> arithmetic("90", "float32"), arithmetic("90", "float64")
    ((256.0, 'FMA units'), (256.0, 'tensor cores'))
    >>> arithmetic("80", "float32", "three TF32 products")[1], arithmetic("30", "float64")
    ('tensor cores', (nan, ''))
    """
    record = ARITHMETICS.get(other) if other else DTYPES[dtype]
    tensor_units = record.tensor_units.get(capability, 0) if record else 0
    fma_units = 0 if other else DTYPES[dtype].fma_units.get(capability, 0)
    units, name = (fma_units, "FMA units") if fma_units >= tensor_units else (tensor_units, "tensor cores")
    return (2.0 * units, name) if units else (math.nan, "")


def peaks(gpus: Sequence[Mapping[str, Any]], dtype: str, other: str = "", ranks: int = 1) -> tuple[float, str, float]:
    """Return peak operations per second of several GPUs, the units that execute them, and peak bytes per second.

    Operations are counted at the maximum clock. ``gpus`` are records of the provenance, one per rank; a GPU that ranks
    share counts once. ``other`` is the arithmetic if it is not that of the element type. Unknown if one of the
    ``ranks`` has no record.
    """
    devices = distinct(gpus, ranks)
    flops, names, nbytes = 0.0, set(), 0.0
    for gpu in devices:
        per_clock, name = arithmetic(str(gpu.get("compute_capability", "")), dtype, other)
        flops += per_clock * _number(gpu.get("multiprocessors")) * _number(gpu.get("max_sm_clock"))
        nbytes += _number(gpu.get("memory_bytes_per_second"))
        names.add(name)
    if not devices:
        return math.nan, "", math.nan
    return flops, " and ".join(sorted(names)), nbytes


# Multiply-adds per clock of a core by AMX, and bytes of SIMD registers by the path of a kernel. Cores with AVX2 or
# NEON, and server cores with AVX-512, start two SIMD multiply-adds per clock. Source: Intel 64 and IA-32
# Architectures Optimization Reference Manual, chapter 20; the instruction tables of A. Fog.
AMX_UNITS = {"bfloat16": 512, "int8": 1024}
AMX_PRODUCTS = {"six int8 products of three slices": 6, "14 int8 products": 14}  # of int8 per product
SIMD_BYTES = {"avx512": 64, "avx2": 32, "neon": 16, "sve512": 64, "sve256": 32, "sve128": 16}
SIMD_UNITS = 2


def cpu_peak(cpu: Mapping[str, Any], dtype: str, other: str = "", ranks: int = 1) -> tuple[float, str]:
    """Return the peak operations per second of the threads of several ranks, and their units; NaN and "" if unknown.

    ``cpu`` is the record of the CPU in the provenance; ``other`` as in ``peaks``.

    >>> cpu = {"core_clock": 2e9, "threads_per_rank": 2, "simd": {"matmul/packed": "avx512", "matmul/amx": "amx"}}
    >>> cpu_peak(cpu, "float32"), cpu_peak(cpu, "int8")
    ((256000000000.0, 'AVX-512'), (8192000000000.0, 'AMX'))
    >>> cpu_peak({}, "float32")
    (nan, '')
    """
    simd = cpu.get("simd") if isinstance(cpu.get("simd"), Mapping) else {}
    path, amx = str(simd.get("matmul/packed")), simd.get("matmul/amx") == "amx"
    units, name = math.nan, ""
    if amx and (other in AMX_PRODUCTS or (dtype in AMX_UNITS and not other)):
        units, name = AMX_UNITS.get(dtype, AMX_UNITS["int8"]) / AMX_PRODUCTS.get(other, 1), "AMX"
    elif path in SIMD_BYTES and not (other or DTYPES[dtype].accumulator or DTYPES[dtype].is_integer):
        units, name = SIMD_UNITS * SIMD_BYTES[path] / DTYPES[dtype].itemsize, path.upper().replace("X5", "X-5")
    found = 2.0 * units * _number(cpu.get("core_clock")) * _number(cpu.get("threads_per_rank")) * ranks
    return (found, name) if math.isfinite(found) else (math.nan, "")


def fma_peak(gpus: Sequence[Mapping[str, Any]], dtype: str, clock: float, ranks: int = 1) -> float:
    """Return the operations per second of the FMA units of several GPUs at a clock [Hz]; NaN if unknown.

    The other parameters are those of ``peaks``. Without a clock it is the maximum one.
    """
    devices = distinct(gpus, ranks)
    clocks = [clock if clock > 0 else _number(gpu.get("max_sm_clock")) for gpu in devices]
    units = [_fma_units(gpu, dtype) for gpu in devices]
    return 2.0 * sum(map(operator.mul, units, clocks)) if devices else math.nan


def cores(gpu: Mapping[str, Any]) -> int:
    """Return the FMA units of a GPU for float32, which its data sheet calls cores; 0 if unknown.

    >>> cores({"compute_capability": "90", "multiprocessors": 132})
    16896
    """
    found = _fma_units(gpu, "float32")
    return int(found) if math.isfinite(found) else 0


def _fma_units(gpu: Mapping[str, Any], dtype: str) -> float:
    units = DTYPES[dtype].fma_units.get(str(gpu.get("compute_capability", "")), math.nan)
    return units * _number(gpu.get("multiprocessors"))


def distinct(gpus: Sequence[Mapping[str, Any]], ranks: int) -> list[Mapping[str, Any]]:
    """Return the GPU records of several ranks, each GPU once; empty if a rank has no record."""
    if len(gpus) < ranks:
        return []
    return list({gpu.get("uuid") or i: gpu for i, gpu in enumerate(gpus)}.values())


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and value > 0 else math.nan
