"""The ladder of the product: the record of each rung, and the libraries beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpcmm.model import Task, Variant
from hpcmm.model.launch import Workspace
from hpcmm.operations.amx import Packed, PackedResidues
from hpcmm.operations.blocks import Tiled, rounded_up
from hpcmm.operations.heads import ladder
from hpcmm.operations.picks import Fastest, Measured, Narrow, OwnPrediction, SharedTiles, Waves
from hpcmm.operations.residues import Residues
from hpcmm.operations.split_k import DmmaTile, FmaTile, Skinny, SkinnyChoice, SkinnyTile, SplitChoice, SplitK
from hpcmm.operations.split_k_tma import SplitTile, SplitWgmma, Tf32
from hpcmm.operations.strassen import Strassen
from hpcmm.operations.stream_k import UNALIGNED, DmmaChoice, StreamK, StreamKDmma, StreamKFma
from hpcmm.operations.tma import (
    NEAR,
    DmmaRing,
    PersistentDmma,
    SixteenBitTma,
    ThreeFp16,
    TmaChoice,
    TransposedInt8,
)

SIXTEEN_BIT = ("float16", "bfloat16")
SUSTAINED = 730e12  # operations per second in 16-bit types at the power limit of an H200
EIGHT_BIT = ("int8", "float8_e4m3")
EVERY = ("float32", "float64", *SIXTEEN_BIT)
TILES = (8, 16, 32)
TRANSPOSED_ROW = 16  # bytes: rows of a transposed matrix of 8-bit elements begin at multiples of it
LIBRARY_WORKSPACE = 32 << 20  # bytes for cuBLASLt, as cuBLAS takes on Hopper
OF_CUBLASLT = {"library": Workspace((LIBRARY_WORKSPACE,), "uint8")}


def blas(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Callable[[], Any]:
    """C = alpha A B + beta C in one call of the device's BLAS."""
    alpha, beta = task.scalars["alpha"], task.scalars["beta"]
    return backend.gemm(task.dtype, alpha, arrays["A"], arrays["B"], beta, arrays["C"])


def blas_fastest(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Callable[[], Any]:
    """The same by the fastest algorithm that the library proposes, found by timing each."""
    alpha, beta = task.scalars["alpha"], task.scalars["beta"]
    return backend.gemm_fastest(task.dtype, alpha, arrays["A"], arrays["B"], beta, arrays["C"])


def workspace_of_blas(task: Task) -> dict[str, Workspace]:
    """Return the transpose of B in 8-bit types; in float8_e4m3 also the workspace of cuBLASLt, which multiplies then.

    In int8, cuBLAS is up to ten times as slow without it. In float8_e4m3, cuBLASLt needs it.
    """
    _, n, k = task.shape
    if task.dtype not in EIGHT_BIT:
        return {}
    transpose = {"transpose": Workspace((n, rounded_up(k, TRANSPOSED_ROW)), task.element.storage.name)}
    return transpose | ({} if task.dtype == "int8" else OF_CUBLASLT)


def workspace_of_fastest(task: Task) -> dict[str, Workspace]:
    """Return the same, the workspace of the library, and the result of its trials."""
    m, n, _ = task.shape
    results = task.element.results.storage.name
    return workspace_of_blas(task) | OF_CUBLASLT | {"trial": Workspace((m, n), results)}


def blas_mkl(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Callable[[], Any]:
    """The same in a call of MKL."""
    alpha, beta = task.scalars["alpha"], task.scalars["beta"]
    return backend.gemm_mkl(task.dtype, alpha, arrays["A"], arrays["B"], beta, arrays["C"])


def blas_onednn(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Callable[[], Any]:
    """The same in a call of oneDNN."""
    alpha, beta = task.scalars["alpha"], task.scalars["beta"]
    return backend.gemm_onednn(task.dtype, alpha, arrays["A"], arrays["B"], beta, arrays["C"])


def blas_tf32(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Callable[[], Any]:
    """The same with inputs rounded to TF32."""
    return backend.gemm_tf32(task.scalars["alpha"], arrays["A"], arrays["B"], task.scalars["beta"], arrays["C"])


def blas_emulated(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Callable[[], Any]:
    """The same in the arithmetic by which the library emulates the type."""
    alpha, beta = task.scalars["alpha"], task.scalars["beta"]
    return backend.gemm_emulated(task.dtype, alpha, arrays["A"], arrays["B"], beta, arrays["C"])


def emulation_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Return the bytes of the workspace of an emulated product.

    In float64 it is the bound in the documentation of cuBLAS ("Fixed-Point Workspace Requirements") for dynamic
    mantissa control and at most 79 bits: slices of A and B in int8, int32 sums of the slices, and 128 MiB.
    """
    if dtype != "float64":
        return LIBRARY_WORKSPACE
    m, n, k = shape
    slices, blocks = -(-(79 + 1) // 8), -(-k // 64)
    rows, columns, terms = rounded_up(m, 1024), rounded_up(n, 1024), rounded_up(k, 128)
    sliced = (rows + columns) * (terms * slices + 4)
    summed = min(4 * rows * columns * slices, 1 << 32) * -(-k // 8192)
    precision = 4 * (m * blocks + n * blocks + m * n)
    return max(sliced + summed, precision) * 5 // 4 + (128 << 20)


def workspace_of_emulation(task: Task) -> dict[str, Workspace]:
    """Return the workspace of the library."""
    return {"library": Workspace((emulation_bytes(task.dtype, task.shape),), "uint8")}


# Launches that a head cannot describe: their tiles depend on the shape, or there are several
LAUNCHES = {
    "split_k": SplitK(
        (
            SplitChoice(FmaTile(32, 32, 8, 8, 4, 4, 8, 4, 8), 4, 0.612, 0.71e-6),
            SplitChoice(FmaTile(32, 64, 8, 8, 8, 4, 8, 4, 8), 4, 0.692, 1.68e-6),
            SplitChoice(FmaTile(64, 32, 8, 8, 8, 8, 8, 4, 8), 4, 0.679, 1.91e-6),
            SplitChoice(FmaTile(64, 64, 4, 8, 8, 4, 16, 4, 4), 4, 0.710, 1.91e-6),
            SplitChoice(FmaTile(32, 128, 8, 8, 16, 4, 8, 4, 8), 4, 0.773, 2.80e-6),
            SplitChoice(FmaTile(48, 96, 6, 6, 12, 4, 16, 3, 8), 4, 0.748, 2.34e-6),
            SplitChoice(FmaTile(128, 64, 4, 8, 16, 8, 16, 3, 8), 4, 0.789, 3.95e-6),
            SplitChoice(FmaTile(64, 128, 4, 8, 16, 8, 16, 3, 8), 4, 0.784, 3.95e-6),
            SplitChoice(FmaTile(96, 96, 2, 6, 12, 4, 32, 3, 8), 4, 0.755, 2.49e-6),
            SplitChoice(FmaTile(128, 128, 2, 8, 16, 8, 32, 3, 8), 1, 0.784, 7.05e-6),
        )
    ),
    "skinny": {
        "float32": Skinny(
            (
                SkinnyChoice(SkinnyTile(2, 128, 2, 4, 1, 4, 16, 3, 2), 8, 1, 8192),
                SkinnyChoice(SkinnyTile(1, 32, 1, 4, 4, 8, 32, 4, 1), 8, 1),
                SkinnyChoice(SkinnyTile(2, 32, 2, 4, 4, 8, 32, 4, 1), 8, 1),
                SkinnyChoice(SkinnyTile(4, 128, 4, 4, 1, 4, 16, 3, 2), 8, 1, 8192),
                SkinnyChoice(SkinnyTile(4, 32, 4, 4, 4, 8, 32, 4, 1), 8, 1),
                SkinnyChoice(SkinnyTile(8, 128, 8, 4, 1, 8, 8, 4, 1), 8, 1, 8192),
                SkinnyChoice(SkinnyTile(8, 128, 8, 4, 1, 4, 8, 4, 3), 8, 2),
                SkinnyChoice(SkinnyTile(16, 128, 16, 4, 1, 4, 16, 3, 2), 8, 2, 16384),
                SkinnyChoice(SkinnyTile(16, 128, 16, 4, 1, 8, 8, 4, 1), 8, 1, 8192),
                SkinnyChoice(SkinnyTile(16, 128, 16, 4, 1, 8, 8, 4, 1), 8, 2),
                SkinnyChoice(SkinnyTile(32, 1, 4, 1, 32, 1, 256, 3, 2), 1, 4),
                SkinnyChoice(SkinnyTile(32, 2, 4, 2, 32, 1, 256, 3, 2), 1, 4),
                SkinnyChoice(SkinnyTile(64, 4, 8, 4, 32, 1, 128, 3, 2), 2, 4),
                SkinnyChoice(SkinnyTile(64, 8, 8, 4, 16, 1, 128, 3, 2), 2, 4),
                SkinnyChoice(SkinnyTile(64, 16, 8, 4, 8, 1, 64, 4, 2), 2, 4),
            )
        ),
        "float64": Skinny(
            (
                SkinnyChoice(SkinnyTile(2, 128, 2, 4, 1, 4, 8, 3, 2), 8, 1),
                SkinnyChoice(SkinnyTile(4, 128, 4, 4, 1, 4, 8, 3, 2), 8, 1),
                SkinnyChoice(SkinnyTile(8, 128, 8, 4, 1, 8, 4, 4, 1), 8, 1, 8192),
                SkinnyChoice(SkinnyTile(8, 128, 8, 4, 1, 2, 8, 3, 4, tensor=True), 8, 1),
                SkinnyChoice(SkinnyTile(16, 128, 16, 4, 1, 8, 4, 4, 1), 8, 1, 16384),
                SkinnyChoice(SkinnyTile(16, 128, 16, 4, 1, 4, 8, 3, 2, tensor=True), 8, 1),
                SkinnyChoice(SkinnyTile(64, 1, 8, 1, 32, 1, 64, 3, 2), 2, 4, 16384),
                SkinnyChoice(SkinnyTile(32, 1, 4, 1, 32, 1, 128, 3, 2), 1, 4),
                SkinnyChoice(SkinnyTile(64, 2, 8, 2, 32, 1, 64, 3, 2), 2, 4),
                SkinnyChoice(SkinnyTile(64, 4, 8, 4, 32, 1, 64, 3, 2), 2, 4),
                SkinnyChoice(SkinnyTile(64, 8, 16, 4, 1, 1, 32, 4, 2, tensor=True), 2, 4),
                SkinnyChoice(SkinnyTile(128, 16, 16, 4, 1, 1, 32, 3, 1, tensor=True), 2, 4, 8192),
                SkinnyChoice(SkinnyTile(64, 16, 16, 4, 1, 1, 32, 4, 2, tensor=True), 2, 4),
            )
        ),
    },
    "stream_k_fma": StreamKFma(FmaTile(128, 128, 2, 8, 16, 8, 32, 3, 8), group_rows=8),
    "split_k_dmma": SplitK(
        (
            SplitChoice(DmmaTile(16, 32, 8, 16, 32, 8, 8), 3, 0.350, 1.09e-6),
            SplitChoice(DmmaTile(16, 64, 8, 16, 64, 8, 5), 4, 0.390, 1.24e-6),
            SplitChoice(DmmaTile(32, 32, 8, 32, 32, 16, 3), 4, 0.559, 3.46e-6),
            SplitChoice(DmmaTile(32, 64, 4, 32, 32, 16, 4), 4, 0.716, 2.12e-6),
            SplitChoice(DmmaTile(32, 128, 2, 32, 32, 16, 4), 4, 0.765, 2.41e-6),
            SplitChoice(DmmaTile(64, 64, 1, 32, 32, 16, 4, resident=2), 4, 0.826, 2.15e-6, alone=1.17),
            SplitChoice(DmmaTile(128, 32, 2, 32, 32, 16, 4), 4, 0.619, 3.34e-6),
            SplitChoice(DmmaTile(48, 96, 2, 16, 48, 16, 4, ahead=0), 4, 0.790, 3.60e-6),
            SplitChoice(DmmaTile(64, 128, 1, 32, 32, 16, 5), 4, 0.874, 4.40e-6),
            SplitChoice(DmmaTile(128, 64, 1, 32, 32, 16, 5), 4, 0.835, 3.65e-6),
            SplitChoice(DmmaTile(128, 96, 1, 32, 48, 16, 4), 4, 0.858, 5.04e-6),
        ),
        unaligned=1.12,
    ),
    "stream_k_dmma": StreamKDmma(
        (
            DmmaChoice(32, 48, 16, 24, 5, 3, 0.733, 1.33, 5.10e-6, 4.2e-6),
            DmmaChoice(32, 64, 16, 32, 5, 3, 0.680, 1.39, 3.38e-6, 8.9e-6),
            DmmaChoice(64, 64, 16, 32, 5, 1, 0.749, 1.00, 3.13e-6, 16.0e-6),
            DmmaChoice(64, 64, 32, 32, 5, 2, 0.797, 1.06, 4.16e-6, 9.7e-6),
            DmmaChoice(64, 64, 32, 32, 4, 3, 0.778, 1.24, 2.66e-6, 10.9e-6),
            DmmaChoice(64, 80, 16, 40, 5, 1, 0.794, 1.00, 4.50e-6, 14.0e-6),
            DmmaChoice(128, 40, 32, 40, 4, 2, 0.790, 1.12, 4.30e-6, 13.4e-6),
            DmmaChoice(64, 96, 32, 48, 5, 2, 0.880, 1.09, 6.27e-6, 35.2e-6),
            DmmaChoice(128, 56, 32, 56, 4, 2, 0.869, 1.04, 6.81e-6, 15.2e-6),
            DmmaChoice(64, 128, 32, 32, 4, 1, 0.897, 1.00, 4.89e-6, 12.4e-6),
            DmmaChoice(64, 128, 32, 64, 4, 2, 0.899, 1.05, 4.63e-6, 25.7e-6),
            DmmaChoice(128, 112, 32, 56, 4, 1, 0.958, 1.00, 8.15e-6, 22.4e-6),
        )
    ),
    "persistent_dmma": PersistentDmma(
        (
            DmmaRing(128, 64, 64, 32, 1, 2, 0.964, 4.70e-6, 1.11),
            DmmaRing(112, 64, 56, 32, 1, 2, 0.956, 4.58e-6, 1.10),
            DmmaRing(56, 128, 56, 32, 1, 2, 0.950, 5.05e-6, 1.11),
            DmmaRing(192, 48, 48, 48, 1, 2, 0.952, 5.49e-6, 1.15),
            DmmaRing(96, 64, 48, 32, 1, 2, 0.968, 3.44e-6, 1.15),
            DmmaRing(80, 64, 40, 32, 1, 2, 0.960, 2.35e-6, 1.24),
            DmmaRing(40, 128, 40, 32, 1, 2, 0.949, 2.37e-6, 1.24),
            DmmaRing(64, 64, 32, 32, 1, 2, 0.929, 2.09e-6, 1.28),
            DmmaRing(64, 64, 32, 32, 1, 3, 0.926, 2.49e-6, 1.41),
            DmmaRing(48, 96, 24, 48, 1, 3, 0.932, 2.78e-6, 1.39),
            DmmaRing(32, 64, 32, 32, 2, 3, 0.845, 2.16e-6, 1.51),
            DmmaRing(48, 48, 24, 48, 2, 2, 0.886, 2.67e-6, 1.18),
            DmmaRing(32, 32, 32, 32, 4, 2, 0.728, 1.86e-6, 1.59),
            DmmaRing(32, 32, 16, 32, 2, 2, 0.557, 0.79e-6, 1.38),
        )
    ),
    "stream_k": StreamK(
        rows=128,
        columns=128,
        depth=32,
        block=(256,),
        shared_bytes=65536,
        constants={"STAGES": 2, "GROUP_ROWS": 8, "PARTS": 2},
    ),
    "persistent": SixteenBitTma(
        (
            TmaChoice(192, 4, 3, 4.01e-6, 0.473e-6, 1.95e-6),
            TmaChoice(256, 3, 4, 4.01e-6, 0.634e-6, 2.34e-6),
            TmaChoice(128, 5, 2, 4.01e-6, 0.319e-6, 1.65e-6),
            TmaChoice(64, 8, 1, 4.01e-6, 0.185e-6, 1.42e-6),
            TmaChoice(64, 12, 1, 4.01e-6, 0.153e-6, 1.21e-6, rows=64),
        ),
        group_rows=NEAR,
        later=0.49,
        sustained=SUSTAINED,
    ),
    "multicast": SixteenBitTma(
        (
            TmaChoice(192, 4, 3, 4.69e-6, 0.470e-6, 2.92e-6),
            TmaChoice(256, 3, 4, 4.69e-6, 0.625e-6, 3.68e-6),
            TmaChoice(128, 6, 2, 4.69e-6, 0.314e-6, 2.47e-6),
            TmaChoice(64, 8, 1, 4.69e-6, 0.213e-6, 1.80e-6),
            TmaChoice(64, 8, 1, 4.69e-6, 0.208e-6, 1.79e-6, shares_a=True),
        ),
        cluster=2,
        later=0.35,
        sustained=SUSTAINED,
    ),
    "split_k_wgmma": SplitWgmma(
        (
            SplitTile(64, 64, 12, (1, 2, 4, 8), 0.209e-6, 0.46e-6),
            SplitTile(64, 128, 8, (1, 2, 4, 8), 0.240e-6, 0.88e-6),
            SplitTile(128, 64, 8, (1, 2, 4, 8), 0.228e-6, 0.64e-6),
            SplitTile(128, 128, 6, (1, 2, 4, 8), 0.335e-6, 0.86e-6),
            SplitTile(128, 192, 5, (1,), 0.479e-6, 1.41e-6),
            SplitTile(128, 256, 4, (1,), 0.650e-6, 1.62e-6),
        )
    ),
    "undivided_fma": SplitK(
        (
            SplitChoice(FmaTile(8, 32, 1, 1, 4, 8, 32, 12, 8, resident=3), 1, 0.60, 1.5e-6, alone=2.1),
            SplitChoice(FmaTile(16, 32, 1, 1, 4, 8, 32, 10, 8, resident=3), 1, 0.65, 1.5e-6, alone=1.7),
            SplitChoice(FmaTile(32, 32, 1, 2, 4, 8, 32, 8, 8, resident=3), 1, 0.65, 1.7e-6, alone=1.4),
            SplitChoice(FmaTile(64, 16, 1, 2, 4, 8, 32, 7, 8, resident=3), 1, 0.60, 1.7e-6, alone=1.4),
            SplitChoice(FmaTile(64, 32, 1, 4, 4, 8, 32, 6, 8, resident=2), 1, 0.70, 1.9e-6, alone=1.2),
            SplitChoice(FmaTile(64, 64, 1, 4, 8, 4, 32, 5, 8, resident=2), 1, 0.72, 2.0e-6, alone=1.2),
            SplitChoice(FmaTile(128, 64, 1, 8, 8, 4, 16, 5, 8, resident=2), 1, 0.76, 2.5e-6, alone=1.2),
            SplitChoice(FmaTile(128, 128, 1, 8, 8, 4, 16, 5, 8, resident=2), 1, 0.78, 4.0e-6, alone=1.1),
        )
    ),
    "undivided_dmma": PersistentDmma(
        (
            DmmaRing(8, 32, 8, 16, 1, 2, 0.50, 1.0e-6, 1.9),
            DmmaRing(128, 64, 64, 32, 1, 2, 0.964, 4.70e-6, 1.11),
            DmmaRing(112, 64, 56, 32, 1, 2, 0.956, 4.58e-6, 1.10),
            DmmaRing(56, 128, 56, 32, 1, 2, 0.950, 5.05e-6, 1.11),
            DmmaRing(192, 48, 48, 48, 1, 2, 0.952, 5.49e-6, 1.15),
            DmmaRing(96, 64, 48, 32, 1, 2, 0.968, 3.44e-6, 1.15),
            DmmaRing(80, 64, 40, 32, 1, 2, 0.960, 2.35e-6, 1.24),
            DmmaRing(40, 128, 40, 32, 1, 2, 0.949, 2.37e-6, 1.24),
            DmmaRing(64, 64, 32, 32, 1, 2, 0.929, 2.09e-6, 1.28),
            DmmaRing(64, 64, 32, 32, 1, 3, 0.926, 2.49e-6, 1.41),
            DmmaRing(48, 96, 24, 48, 1, 3, 0.932, 2.78e-6, 1.39),
            DmmaRing(64, 32, 32, 16, 1, 2, 0.85, 2.0e-6, 1.3),
            DmmaRing(32, 32, 16, 16, 1, 2, 0.70, 1.5e-6, 1.5),
            DmmaRing(64, 16, 16, 16, 1, 2, 0.65, 1.5e-6, 1.6),
            DmmaRing(16, 32, 8, 16, 1, 2, 0.60, 1.2e-6, 1.7),
        )
    ),
    "undivided_wgmma": SplitWgmma(
        (
            SplitTile(64, 128, 8, (1,), 0.240e-6, 0.88e-6),
            SplitTile(64, 64, 12, (1,), 0.209e-6, 0.46e-6),
            SplitTile(128, 64, 8, (1,), 0.228e-6, 0.64e-6),
            SplitTile(128, 128, 6, (1,), 0.335e-6, 0.86e-6),
            SplitTile(128, 192, 5, (1,), 0.479e-6, 1.41e-6),
            SplitTile(128, 256, 4, (1,), 0.650e-6, 1.62e-6),
        )
    ),
    "tf32": Tf32(
        (
            SplitTile(256, 128, 4, (1,), 0.604e-6, 4.07e-6),
            SplitTile(192, 128, 5, (1,), 0.479e-6, 2.79e-6),
            SplitTile(128, 128, 7, (1, 2, 4), 0.381e-6, 1.64e-6),
            SplitTile(64, 128, 9, (1, 2), 0.277e-6, 0.79e-6),
            SplitTile(128, 64, 9, (1, 2), 0.244e-6, 1.31e-6),
            SplitTile(64, 64, 14, (1, 2, 4), 0.210e-6, 0.33e-6),
            SplitTile(32, 64, 18, (1, 2, 4), 0.192e-6, 0.46e-6),
        )
    ),
    "three_fp16": ThreeFp16(
        (
            TmaChoice(192, 4, 0, 14e-6, 0.74e-6, 2e-6),
            TmaChoice(128, 7, 0, 7e-6, 0.533e-6, 2e-6),
            TmaChoice(64, 9, 0, 10e-6, 0.32e-6, 1.5e-6),
        )
    ),
    "amx_blocked": Packed(),
    "amx": Packed(),
    "int8_slices": Packed(3, scaled=True),
    "int8_residues": PackedResidues(14),
    "strassen_1": Strassen(1),
    "strassen_2": Strassen(2),
    "ozaki_14": Residues(14),
    "ozaki_15": Residues(15),
    "int8_transposed": TransposedInt8(
        (
            TmaChoice(256, 4, 0, 5e-6, 0.65e-6, 3e-6),
            TmaChoice(128, 7, 0, 4.2e-6, 0.33e-6, 1.8e-6),
            TmaChoice(64, 9, 0, 4e-6, 0.235e-6, 0.6e-6),
        )
    ),
}

LADDER = ladder(  # the order here is the order of the rungs
    "matmul",
    ("float32", "float64"),
    "serial",
    "serial_double",
    "unrolled",
    "pthread",
    "parallel_for",
    "avx",
    "openmp",
    "packed",
    "amx_tile",
    "amx_blocked",
    "amx",
    "int8_slices",
    "int8_residues",
    Variant(
        "numpy",
        "cpu",
        "NumPy's BLAS",
        dtypes=(*EVERY, "int8", "int32"),
        library=blas,
        deterministic=False,
        provider="blas",
    ),
    Variant(
        "mkl",
        "cpu",
        "MKL",
        library=blas_mkl,
        provider="mkl",
        unsupported=lambda backend, dtype: backend.why_no_library("mkl"),
        deterministic=False,
        context=True,
    ),
    Variant(
        "onednn",
        "cpu",
        "oneDNN",
        dtypes=("float32", "bfloat16", "int8"),
        library=blas_onednn,
        provider="onednn",
        unsupported=lambda backend, dtype: backend.why_no_library("onednn"),
        deterministic=False,
        context=True,
    ),
    "naive_unguarded",
    "naive",
    "naive_unrolled",
    "uncoalesced",
    "coalesced",
    "tiled_exact",
    "tiled_overrun",
    "tiled_guarded",
    "tiled_uncoalesced",
    "corner_turned",
    "tiled_padded",
    "tiled_remainder",
    "bank_conflict",
    "conflict_free",
    "tiled_rolled",
    "tiled_unrolled",
    "tiled_four_blocks",
    "tiled_two_blocks",
    "tiled_one_block",
    "pitched",
    "register_1d",
    "register_2d",
    "vectorized",
    "warp_tiled",
    "asynchronous",
    "swizzled",
    "large_thread_tile",
    "split_k",
    "skinny",
    "stream_k_fma",
    "undivided_fma",
    "tensor_core",
    "split_k_dmma",
    "stream_k_dmma",
    "persistent_dmma",
    "undivided_dmma",
    "warpgroup",
    "stream_k",
    "warp_mma",
    "mma_tiled",
    "mma_pipelined",
    "wgmma_shared",
    "tma",
    "warp_specialized",
    "persistent",
    "multicast",
    "split_k_wgmma",
    "undivided_wgmma",
    "tf32",
    "three_fp16",
    "ozaki_14",
    "ozaki_15",
    "int8_transposed",
    "strassen_1",
    "strassen_2",
    Variant(
        "best",
        "cuda",
        "runs the rung that is predicted to be fastest for the shape, in the arithmetic of the type",
        dtypes=EVERY,
        architecture="sm_90",
        picks=Measured(
            {
                "float32": {
                    "large_thread_tile": Waves(205e9, 8.71e-6),
                    "split_k": OwnPrediction(),
                    "skinny": Narrow(4.38e12, 6.09e-6),
                    "stream_k_fma": SharedTiles(204e9, 5.67e-6, 24.9e-6),
                },
                "float64": {
                    "persistent_dmma": OwnPrediction(overhead=5.0e-6, exposed=1.2),
                    "stream_k_dmma": OwnPrediction(overhead=1.0e-6, exposed=1.0, max_terms=5120),
                    "tensor_core": Waves(
                        234e9, 7.30e-6, resident=2, partial=1.07, unaligned=UNALIGNED, alone=1.10, exposed=0.35
                    ),
                    "split_k_dmma": OwnPrediction(overhead=3.6e-6, exposed=1.0),
                    "skinny": Narrow(5.45e12, 4.3e-6, max_rows=1),
                },
                **{
                    dtype: {
                        "persistent": OwnPrediction(exposed=0.99),
                        "multicast": OwnPrediction(exposed=1.13),
                        "split_k_wgmma": OwnPrediction(exposed=1.62, wait=0.41e-6),
                    }
                    for dtype in SIXTEEN_BIT
                },
            },
            sustained=dict.fromkeys(SIXTEEN_BIT, SUSTAINED),
        ),
    ),
    Variant(
        "best_invariant",
        "cuda",
        "the same among rungs of one order of k: the bits of a row of C depend on neither m nor the number of ranks",
        dtypes=EVERY,
        architecture="sm_90",
        invariant=True,
        picks=Fastest(
            {
                "float32": {"large_thread_tile": Waves(205e9, 8.71e-6), "undivided_fma": OwnPrediction()},
                "float64": {"undivided_dmma": OwnPrediction(overhead=5.0e-6, exposed=1.2)},
                **{
                    dtype: {
                        "persistent": OwnPrediction(exposed=0.99),
                        "multicast": OwnPrediction(exposed=1.13),
                        "undivided_wgmma": OwnPrediction(exposed=1.62, wait=0.41e-6),
                    }
                    for dtype in SIXTEEN_BIT
                },
            },
            sustained=dict.fromkeys(SIXTEEN_BIT, SUSTAINED),
        ),
    ),
    Variant(
        "best_three_tf32",
        "cuda",
        "the same among the rungs with three TF32 products",
        dtypes=("float32",),
        architecture="sm_90a",
        arithmetic={"float32": "three TF32 products"},
        picks=Fastest(
            {
                "float32": {
                    "tensor_core": Waves(232e9, 4.7e-6, resident=2),
                    "warpgroup": Waves(466e9, 6.29e-6),
                    "stream_k": SharedTiles(439e9, 6.06e-6, 9.41e-6),
                }
            }
        ),
    ),
    Variant(
        "cublas",
        "cuda",
        "cuBLAS, without TF32",
        dtypes=(*EVERY, *EIGHT_BIT),
        source="001",
        library=blas,
        provider="cublas",
        workspace=workspace_of_blas,
    ),
    Variant(
        "cublaslt",
        "cuda",
        "the fastest algorithm of cuBLASLt's heuristics",
        library=blas_fastest,
        tunes="cublas",
        provider="cublas",
        workspace=workspace_of_fastest,
        dtypes=(*EVERY, *EIGHT_BIT),
        deterministic=False,
        context=True,
    ),
    Variant(
        "cublas_tf32",
        "cuda",
        "cuBLAS with inputs rounded to TF32",
        library=blas_tf32,
        provider="cublas",
        dtypes=("float32",),
        architecture="sm_80",
        arithmetic={"float32": "TF32"},
        context=True,
    ),
    Variant(
        "cublas_emulated",
        "cuda",
        "cuBLAS with emulation: float64 by int8 products, float32 by BF16 products",
        library=blas_emulated,
        provider="cublas",
        unsupported=lambda backend, dtype: backend.why_not_emulated(dtype),
        workspace=workspace_of_emulation,
        dtypes=("float32", "float64"),
        architecture="sm_80",
        arithmetic={"float32": "nine BF16 products", "float64": "int8 products of cuBLAS"},
        context=True,
    ),
    geometry=Tiled,
    launches=LAUNCHES,
)
