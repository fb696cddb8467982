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


def peaks(gpus: Sequence[Mapping[str, Any]], dtype: str, other: str = "") -> tuple[float, str, float]:
    """Return peak operations per second of several GPUs, the units that execute them, and peak bytes per second.

    Operations are counted at the maximum clock.

    Parameters
    ----------
    gpus : sequence of mapping
        GPU records of the provenance, one per rank. A GPU that ranks share counts once.
    dtype : str
    other : str
        The arithmetic if it is not that of the element type.
    """
    devices = {gpu.get("uuid") or i: gpu for i, gpu in enumerate(gpus)}.values()
    flops, names, nbytes = 0.0, set(), 0.0
    for gpu in devices:
        per_clock, name = arithmetic(str(gpu.get("compute_capability", "")), dtype, other)
        flops += per_clock * _number(gpu.get("multiprocessors")) * _number(gpu.get("max_sm_clock"))
        nbytes += _number(gpu.get("memory_bytes_per_second"))
        names.add(name)
    if not devices:
        return math.nan, "", math.nan
    return flops, " and ".join(sorted(names)), nbytes


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and value > 0 else math.nan
