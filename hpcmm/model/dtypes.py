"""Element types and arithmetics, one record each: storage, accumulator, reference precision and peak rates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from hpcmm.model.records import beside


@dataclass(frozen=True)
class DType:
    # Config key, HDF5 value and table row; also the NumPy name of the stored type, if NumPy has it. Of products whose
    # results have another type, ``_to_`` and that type follow.
    name: str
    # The stored type in C and CUDA, by device if they differ or one of them lacks it; ``REAL`` in kernels
    c: str | Mapping[str, str] = field(hash=False)
    # Name of the record of the type in which kernels sum products; empty for the type itself. It is ``ACCUMULATOR`` in
    # kernels, and the type of scalars such as alpha.
    accumulator: str = ""
    result: str = ""  # name of the record of the type of results; empty for the type itself
    truth: str = "float64"  # NumPy name of the type in which references are computed
    # For a type that NumPy does not have: its name in the package ml_dtypes. Arrays hold the bits, as unsigned
    # integers, which CuPy and kernels take.
    ml_dtype: str = ""
    # For a type whose products tensor cores add up with fewer bits than the accumulator has: inputs of products are
    # integers up to this magnitude, so that all sums are exact, and results must be equal to the reference. 0 for any
    # other type.
    integers: int = 0
    capability: str = ""  # the first compute capability of GPUs that have the type; empty if all have it
    # Fused multiply-adds per clock and multiprocessor (SM), without tensor cores, by compute capability. Source: table
    # "Throughput of Native Arithmetic Instructions", CUDA C++ Programming Guide 12 (5.0 to 9.0) and Best Practices
    # Guide 13 (10.0, 12.0).
    fma_units: Mapping[str, int] = field(default_factory=dict, hash=False)
    # The same on tensor cores, for types that they multiply without prior rounding. Source: the architecture papers of
    # A100 (4 tensor cores per SM) and H100 (4); dense products.
    tensor_units: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def stem(self) -> str:
        """The name without the type of results."""
        return self.name.partition("_to_")[0]

    @cached_property
    def _type(self) -> np.dtype:
        return np.dtype(getattr(ml_dtypes, self.ml_dtype) if self.ml_dtype else self.stem)

    @cached_property
    def storage(self) -> np.dtype:
        """The NumPy type of arrays; elements of ``ml_dtype`` are stored as their bits."""
        return np.dtype(f"u{self._type.itemsize}") if self.ml_dtype else self._type

    def numbers(self, stored: np.ndarray) -> np.ndarray:
        """Return the numbers of stored elements, exactly: the array itself if NumPy has the type, else float32."""
        return stored.view(self._type).astype(np.float32) if self.ml_dtype else stored

    def stored(self, numbers: np.ndarray) -> np.ndarray:
        """Return numbers rounded to the nearest elements, ties to even; larger ones become infinite, or else NaN."""
        return numbers.astype(self._type).view(self.storage)

    @cached_property
    def itemsize(self) -> int:
        return self.storage.itemsize

    @property
    def is_integer(self) -> bool:
        return np.issubdtype(self._type, np.integer)

    @property
    def exact(self) -> bool:
        """Whether products have no rounding errors: of integers, or of inputs that are ``integers``."""
        return self.is_integer or self.integers > 0

    @property
    def unit_roundoff(self) -> float:
        """Half the distance from 1 to the next larger number; 0 for integers."""
        return 0.0 if self.is_integer else float(ml_dtypes.finfo(self._type).eps) / 2

    @property
    def largest(self) -> float:
        return float(ml_dtypes.finfo(self._type).max)

    @property
    def smallest_subnormal(self) -> float:
        return float(ml_dtypes.finfo(self._type).smallest_subnormal)

    def c_of(self, device: str) -> str:
        return self.c if isinstance(self.c, str) else self.c[device]

    def is_on(self, device: str) -> bool:
        return isinstance(self.c, str) or device in self.c

    @property
    def sums(self) -> "DType":
        return DTYPES[self.accumulator] if self.accumulator else self

    @property
    def results(self) -> "DType":
        return DTYPES[self.result] if self.result else self

    @property
    def poison(self) -> float:
        """A value that no result can have, in the type of ``storage``: NaN, or the minimum of an integer type."""
        if self.is_integer:
            return np.iinfo(self._type).min
        return self.stored(np.array(np.nan)).item()


_TABLES = beside(__file__)
DTYPES = {name: DType(name, **fields) for name, fields in _TABLES["dtypes"].items()}


@dataclass(frozen=True)
class Arithmetic:
    """Products and sums computed otherwise than in IEEE arithmetic of the element type."""

    name: str  # as the records of variants name it
    # Fused multiply-adds of the element type per clock and multiprocessor (SM) on tensor cores, by compute capability.
    # Source: the architecture papers of A100 and H100: 512 and 1,024 dense TF32 multiply-adds, and 4,096 of int8 on an
    # H100.
    tensor_units: Mapping[str, float] = field(default_factory=dict, hash=False)
    # Relative error of each input that is rounded before it is multiplied; 0 if inputs are exact, or as exact as the
    # element type
    input_roundoff: float = 0.0
    # How often matrices are divided into quarters, of which seven products are computed instead of eight
    strassen: int = 0
    narrow: bool = False  # whether products are added in the type of the results, not in that of the accumulator


def _arithmetic(name: str, products: int = 1, input_bits: int = 0, **fields: Any) -> Arithmetic:
    units = {capability: units / products for capability, units in fields.pop("tensor_units", {}).items()}
    return Arithmetic(name, units, 2.0**-input_bits if input_bits else 0.0, **fields)


ARITHMETICS = {name: _arithmetic(name, **fields) for name, fields in _TABLES["arithmetics"].items()}
