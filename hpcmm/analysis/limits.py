"""Peak rates of GPUs: arithmetic from units and clock, memory from clock and bus width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hpcmm.dtypes import ARITHMETICS, DTYPES


def arithmetic(capability: str, dtype: str, other: str = "") -> tuple[float, str]:
    """Return the operations per SM and clock, and the units that execute them; NaN and "" if unknown.

    A multiply-add counts as two operations. ``other`` is the arithmetic if it is not that of the element type.

    Examples
    --------
    >>> arithmetic("90", "float32")
    (256.0, 'FMA units')
    >>> arithmetic("90", "float64")
    (256.0, 'tensor cores')
    >>> arithmetic("80", "float32", "three TF32 products")[1]
    'tensor cores'
    >>> arithmetic("30", "float64")
    (nan, '')
    """
    if other:
        record = ARITHMETICS.get(other)
        units = {"tensor cores": record.tensor_units.get(capability, 0) if record else 0}
        return _fastest(units)
    element = DTYPES[dtype]
    units = {
        "FMA units": element.fma_units.get(capability, 0),
        "tensor cores": element.tensor_units.get(capability, 0),
    }
    return _fastest(units)


def _fastest(units: Mapping[str, float]) -> tuple[float, str]:
    name = max(units, key=lambda each: units[each])
    return (2.0 * units[name], name) if units[name] else (math.nan, "")


def peaks(gpus: Sequence[Mapping[str, Any]], dtype: str, other: str = "", ranks: int = 1) -> tuple[float, str, float]:
    """Return peak operations per second of several GPUs, the units that execute them, and peak bytes per second.

    Operations are counted at the maximum clock.

    Parameters
    ----------
    gpus : sequence of mapping
        GPU records of the provenance, one per rank. A GPU that ranks share counts once.
    dtype : str
    other : str
        The arithmetic if it is not that of the element type.
    ranks : int
        Ranks whose peaks are asked for; unknown if a rank has no record.
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


def fma_peak(gpus: Sequence[Mapping[str, Any]], dtype: str, clock: float, ranks: int = 1) -> float:
    """Return the operations per second of the FMA units of several GPUs at a clock [Hz]; NaN if unknown.

    The other parameters are those of ``peaks``. Without a clock it is the maximum one.
    """
    peak = 0.0
    for gpu in distinct(gpus, ranks):
        units = DTYPES[dtype].fma_units.get(str(gpu.get("compute_capability", "")), math.nan)
        peak += (
            2.0
            * units
            * _number(gpu.get("multiprocessors"))
            * (clock if clock > 0 else _number(gpu.get("max_sm_clock")))
        )
    return peak or math.nan


def distinct(gpus: Sequence[Mapping[str, Any]], ranks: int) -> list[Mapping[str, Any]]:
    """Return the GPU records of several ranks, each GPU once; empty if a rank has no record."""
    if len(gpus) < ranks:
        return []
    return list({gpu.get("uuid") or i: gpu for i, gpu in enumerate(gpus)}.values())


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and value > 0 else math.nan
