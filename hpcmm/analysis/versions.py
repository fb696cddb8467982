"""Versions of the libraries that a run was compared with, from its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcmm.model import Variant
from hpcmm.parallel.algorithm import Algorithm


def library_of(variant: Variant | None, algorithm: Algorithm, versions: Mapping[str, str]) -> str:
    """Return the library of a measurement with its version, ``"cuBLAS 13.1.0"``.

    Parameters
    ----------
    variant : Variant or None
    algorithm : Algorithm
        Its library, if it has one, computes in place of the variant's.
    versions : mapping of str to str
        From ``versions_of``, for the run of the measurement.

    Returns
    -------
    str
        Empty for a kernel of this package or of a user; without a version if the provenance has none.
    """
    provider = algorithm.provider or (variant.provider if variant else "")
    return versions.get(provider, provider)


def versions_of(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Return each library of a run with its version, by ``Variant.provider`` and ``Algorithm.provider``.

    Examples
    --------
    >>> versions_of({"gpus": [{"cublas": 130100, "cub": 300102}], "cpu": {"blas": "openblas 0.3.31 (Haswell)"}})
    {'cuBLAS': 'cuBLAS 13.1.0', 'cuBLASLt': 'cuBLASLt 13.1.0', 'CUB': 'CUB 3.1.2', 'BLAS': 'openblas 0.3.31 (Haswell)'}
    """
    gpu = next((each for each in _listed(provenance.get("gpus")) if isinstance(each, Mapping)), {})
    cpu, installed = (_mapping(provenance.get(name)) for name in ("cpu", "installed"))
    cublas = _numbered(gpu.get("cublas"), 10_000)
    found = {
        "NumPy": installed.get("numpy"),
        "cuBLAS": cublas,
        "cuBLASLt": cublas,
        "CUB": _numbered(gpu.get("cub"), 100_000),
        "CuPy": gpu.get("cupy"),
        "cuBLASMp": installed.get("nvidia-cublasmp-cu13") or installed.get("nvidia-cublasmp-cu12"),
    }
    named = {name: f"{name} {value}" for name, value in found.items() if isinstance(value, str) and value}
    blas = cpu.get("blas")  # with the name of the library
    return named | ({"BLAS": blas} if isinstance(blas, str) and blas else {})


def _numbered(version: Any, major: int) -> str:
    """Return a version that NVIDIA's headers state as one number, with ``major`` times its first part."""
    if not isinstance(version, int) or version <= 0:
        return ""
    return f"{version // major}.{version % major // 100}.{version % 100}"


def _listed(value: Any) -> list:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
