"""Element types and arithmetics, one record each: storage, accumulator, reference precision and peak rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type.

    Parameters
    ----------
    name : str
        Config key, HDF5 value and table row; also the NumPy name of the stored type.
    c : str, or mapping of str to str
        The stored type in C and CUDA, by device if they differ; ``REAL`` in kernels.
    accumulator : str
        Name of the record of the type in which kernels sum products; empty for the type itself. It is ``ACCUMULATOR``
        in kernels, and the type of scalars such as alpha.
    truth : str
        NumPy name of the type in which references are computed.
    fma_units : mapping of str to int
        Fused multiply-adds per clock and multiprocessor (SM), without tensor cores, by compute capability.
        Source: table "Throughput of Native Arithmetic Instructions", CUDA C++ Programming Guide 12 (5.0 to 9.0)
        and Best Practices Guide 13 (10.0, 12.0).
    tensor_units : mapping of str to int
        The same on tensor cores, for types that they multiply without prior rounding.
        Source: the architecture papers of A100 (4 tensor cores per SM) and H100 (4).
    """

    name: str
    c: str | Mapping[str, str] = field(hash=False)
    accumulator: str = ""
    truth: str = "float64"
    fma_units: Mapping[str, int] = field(default_factory=dict, hash=False)
    tensor_units: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.name).itemsize

    @property
    def is_integer(self) -> bool:
        return np.issubdtype(np.dtype(self.name), np.integer)

    @property
    def unit_roundoff(self) -> float:
        """Half the distance from 1 to the next larger number; 0 for integers."""
        return 0.0 if self.is_integer else float(np.finfo(self.name).eps) / 2

    def c_of(self, device: str) -> str:
        """Return the name of the stored type in kernels of a device."""
        return self.c if isinstance(self.c, str) else self.c[device]

    @property
    def sums(self) -> DType:
        """The record of the accumulator."""
        return DTYPES[self.accumulator] if self.accumulator else self

    @property
    def poison(self) -> float:
        """A value that no result can have: NaN, or the minimum of an integer type."""
        return np.iinfo(self.name).min if self.is_integer else np.nan


DTYPES = {
    dtype.name: dtype
    for dtype in (
        DType("int32", "int"),
        DType(
            "float32",
            "float",
            fma_units={
                **{"50": 128, "52": 128, "60": 64, "61": 128, "70": 64, "75": 64, "80": 64, "86": 128, "89": 128},
                **{"90": 128, "100": 128, "120": 128},
            },
        ),
        DType(
            "float64",
            "double",
            truth="longdouble",
            fma_units={
                **{"50": 4, "52": 4, "60": 32, "61": 4, "70": 32, "75": 2, "80": 32, "86": 2, "89": 2},
                **{"90": 64, "100": 64, "120": 2},
            },
            tensor_units={"80": 64, "90": 128},
        ),
    )
}


@dataclass(frozen=True)
class Arithmetic:
    """Products and sums computed otherwise than in IEEE arithmetic of the element type.

    Parameters
    ----------
    name : str
        As the records of variants name it.
    tensor_units : mapping of str to float
        Fused multiply-adds of the element type per clock and multiprocessor (SM) on tensor cores, by compute
        capability. Source: the architecture papers of A100 and H100: 512 and 1,024 dense TF32 multiply-adds.
    input_roundoff : float
        Relative error of each input that is rounded before it is multiplied; 0 if inputs are exact, or as exact as the
        element type.
    """

    name: str
    tensor_units: Mapping[str, float] = field(default_factory=dict, hash=False)
    input_roundoff: float = 0.0


ARITHMETICS = {
    arithmetic.name: arithmetic
    for arithmetic in (
        Arithmetic("three TF32 products", tensor_units={"80": 512 / 3, "90": 1024 / 3}),
        # 10 bits follow the first one; the hardware may drop the others without rounding
        Arithmetic("TF32", tensor_units={"80": 512, "90": 1024}, input_roundoff=2.0**-10),
    )
}
