"""The ladder of the product: the record of each rung, and the libraries beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpcmm.model import Task, Variant
from hpcmm.model.launch import Workspace
from hpcmm.operations.amx import Packed, PackedResidues
from hpcmm.operations.blocks import Tiled, rounded_up
from hpcmm.operations.heads import ladder
from hpcmm.operations.picks import Fastest
from hpcmm.operations.residues import Residues
from hpcmm.operations.split_k import DmmaTile, FmaTile, Skinny, SkinnyTile, SplitChoice, SplitK
from hpcmm.operations.split_k_tma import FewRows, ShortK, ShortTile, SplitTile, SplitWgmma, StreamKWgmma, Tf32
from hpcmm.operations.strassen import Strassen
from hpcmm.operations.stream_k import DmmaChoice, StreamK, StreamKDmma, StreamKFma
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
EIGHT_BIT = ("int8", "float8_e4m3")
EVERY = ("float32", "float64", *SIXTEEN_BIT)
TILES = (8, 16, 32)
FEW_PARTS = 1, 2, 3, 4, 6, 8  # blocks of a cluster that divide the k of a tile with few rows
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
            SplitChoice(FmaTile(32, 32, 8, 8, 4, 4, 8, 4, 8), 4),
            SplitChoice(FmaTile(32, 64, 8, 8, 8, 4, 8, 4, 8), 4),
            SplitChoice(FmaTile(64, 32, 8, 8, 8, 8, 8, 4, 8), 4),
            SplitChoice(FmaTile(64, 64, 4, 8, 8, 4, 16, 4, 4), 4),
            SplitChoice(FmaTile(32, 128, 8, 8, 16, 4, 8, 4, 8), 4),
            SplitChoice(FmaTile(48, 96, 6, 6, 12, 4, 16, 3, 8), 4),
            SplitChoice(FmaTile(128, 64, 4, 8, 16, 8, 16, 3, 8), 4),
            SplitChoice(FmaTile(64, 128, 4, 8, 16, 8, 16, 3, 8), 4),
            SplitChoice(FmaTile(96, 96, 2, 6, 12, 4, 32, 3, 8), 4),
            SplitChoice(FmaTile(128, 128, 2, 8, 16, 8, 32, 3, 8), 1),
            SplitChoice(FmaTile(32, 64, 1, 4, 8, 4, 8, 4, 8, resident=6), 1),
            SplitChoice(FmaTile(64, 64, 1, 8, 4, 8, 16, 4, 8, resident=4), 1),
            SplitChoice(FmaTile(128, 64, 1, 8, 8, 4, 8, 4, 8, resident=3), 1),
            SplitChoice(FmaTile(64, 128, 1, 8, 8, 4, 8, 4, 8, resident=3), 1),
        )
    ),
    "skinny": {
        "float32": Skinny(
            (
                SkinnyTile(2, 128, 2, 4, 1, 4, 16, 3, 2),
                SkinnyTile(1, 32, 1, 4, 4, 8, 32, 4, 1),
                SkinnyTile(2, 32, 2, 4, 4, 8, 32, 4, 1),
                SkinnyTile(4, 128, 4, 4, 1, 4, 16, 3, 2),
                SkinnyTile(4, 32, 4, 4, 4, 8, 32, 4, 1),
                SkinnyTile(8, 128, 8, 4, 1, 8, 8, 4, 1),
                SkinnyTile(8, 128, 8, 4, 1, 4, 8, 4, 3),
                SkinnyTile(16, 128, 16, 4, 1, 4, 16, 3, 2),
                SkinnyTile(16, 128, 16, 4, 1, 8, 8, 4, 1),
                SkinnyTile(32, 1, 4, 1, 32, 1, 256, 3, 2),
                SkinnyTile(32, 2, 4, 2, 32, 1, 256, 3, 2),
                SkinnyTile(64, 4, 8, 4, 32, 1, 128, 3, 2),
                SkinnyTile(64, 8, 8, 4, 16, 1, 128, 3, 2),
                SkinnyTile(64, 16, 8, 4, 8, 1, 64, 4, 2),
            )
        ),
        "float64": Skinny(
            (
                SkinnyTile(2, 128, 2, 4, 1, 4, 8, 3, 2),
                SkinnyTile(4, 128, 4, 4, 1, 4, 8, 3, 2),
                SkinnyTile(8, 128, 8, 4, 1, 8, 4, 4, 1),
                SkinnyTile(8, 128, 8, 4, 1, 2, 8, 3, 4, tensor=True),
                SkinnyTile(16, 128, 16, 4, 1, 8, 4, 4, 1),
                SkinnyTile(16, 128, 16, 4, 1, 4, 8, 3, 2, tensor=True),
                SkinnyTile(64, 1, 8, 1, 32, 1, 64, 3, 2),
                SkinnyTile(32, 1, 4, 1, 32, 1, 128, 3, 2),
                SkinnyTile(64, 2, 8, 2, 32, 1, 64, 3, 2),
                SkinnyTile(64, 4, 8, 4, 32, 1, 64, 3, 2),
                SkinnyTile(64, 8, 16, 4, 1, 1, 32, 4, 2, tensor=True),
                SkinnyTile(128, 16, 16, 4, 1, 1, 32, 3, 1, tensor=True),
                SkinnyTile(64, 16, 16, 4, 1, 1, 32, 4, 2, tensor=True),
            )
        ),
    },
    "stream_k_fma": StreamKFma(FmaTile(128, 128, 2, 8, 16, 8, 32, 3, 8), group_rows=8),
    "split_k_dmma": SplitK(
        (
            SplitChoice(DmmaTile(16, 32, 8, 16, 32, 8, 4), 8),
            SplitChoice(DmmaTile(16, 64, 8, 16, 64, 8, 5), 4),
            SplitChoice(DmmaTile(32, 32, 8, 32, 32, 16, 3), 4),
            SplitChoice(DmmaTile(32, 64, 4, 32, 32, 16, 4), 4),
            SplitChoice(DmmaTile(32, 128, 2, 32, 32, 16, 4), 4),
            SplitChoice(DmmaTile(64, 64, 1, 32, 32, 16, 4, resident=2), 4),
            SplitChoice(DmmaTile(128, 32, 2, 32, 32, 16, 4), 4),
            SplitChoice(DmmaTile(48, 96, 2, 16, 48, 16, 4, ahead=0), 4),
            SplitChoice(DmmaTile(64, 128, 1, 32, 32, 16, 5), 4),
            SplitChoice(DmmaTile(128, 64, 1, 32, 32, 16, 5), 4),
            SplitChoice(DmmaTile(128, 96, 1, 32, 48, 16, 4), 4),
        )
    ),
    "stream_k_dmma": StreamKDmma(
        (
            DmmaChoice(32, 48, 16, 24, 5, 3),
            DmmaChoice(32, 64, 16, 32, 5, 3),
            DmmaChoice(64, 64, 16, 32, 5, 1),
            DmmaChoice(64, 64, 32, 32, 5, 2),
            DmmaChoice(64, 64, 32, 32, 4, 3),
            DmmaChoice(64, 80, 16, 40, 5, 1),
            DmmaChoice(128, 40, 32, 40, 4, 2),
            DmmaChoice(64, 96, 32, 48, 5, 2),
            DmmaChoice(128, 56, 32, 56, 4, 2),
            DmmaChoice(64, 128, 32, 32, 4, 1),
            DmmaChoice(64, 128, 32, 64, 4, 2),
            DmmaChoice(128, 112, 32, 56, 4, 1),
        )
    ),
    "persistent_dmma": PersistentDmma(
        (
            DmmaRing(128, 64, 64, 32, 1, 2),
            DmmaRing(112, 64, 56, 32, 1, 2),
            DmmaRing(56, 128, 56, 32, 1, 2),
            DmmaRing(192, 48, 48, 48, 1, 2),
            DmmaRing(96, 64, 48, 32, 1, 2),
            DmmaRing(80, 64, 40, 32, 1, 2),
            DmmaRing(40, 128, 40, 32, 1, 2),
            DmmaRing(64, 64, 32, 32, 1, 2),
            DmmaRing(64, 64, 32, 32, 1, 3),
            DmmaRing(48, 96, 24, 48, 1, 3),
            DmmaRing(32, 64, 32, 32, 2, 3),
            DmmaRing(48, 48, 24, 48, 2, 2),
            DmmaRing(32, 32, 32, 32, 4, 2),
            DmmaRing(32, 32, 16, 32, 2, 2),
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
            TmaChoice(192, 4, 3),
            TmaChoice(256, 3, 4),
            TmaChoice(128, 5, 2),
            TmaChoice(64, 8, 1),
            TmaChoice(64, 12, 1, rows=64),
        ),
        group_rows=NEAR,
    ),
    "multicast": SixteenBitTma(
        (
            TmaChoice(192, 4, 3),
            TmaChoice(256, 3, 4),
            TmaChoice(128, 6, 2),
            TmaChoice(64, 8, 1),
            TmaChoice(64, 8, 1, shares_a=True),
        ),
        cluster=2,
    ),
    "split_k_wgmma": SplitWgmma(
        (
            SplitTile(64, 64, 12, (1, 2, 4, 8)),
            SplitTile(64, 128, 8, (1, 2, 4, 8)),
            SplitTile(128, 64, 8, (1, 2, 4, 8)),
            SplitTile(128, 128, 6, (1, 2, 4, 8)),
            SplitTile(192, 64, 6, (1,)),
            SplitTile(192, 128, 5, (1,)),
            SplitTile(128, 192, 5, (1,)),
            SplitTile(128, 256, 4, (1,)),
        )
    ),
    "few_rows_wgmma": FewRows(
        (
            SplitTile(8, 64, 8, FEW_PARTS),
            SplitTile(8, 128, 6, FEW_PARTS),
            SplitTile(16, 64, 7, FEW_PARTS),
            SplitTile(16, 128, 6, FEW_PARTS),
            SplitTile(48, 64, 7, FEW_PARTS),
            SplitTile(48, 128, 5, FEW_PARTS),
            SplitTile(96, 64, 5, FEW_PARTS),
            SplitTile(96, 128, 7, FEW_PARTS),
            SplitTile(160, 64, 7, FEW_PARTS),
            SplitTile(160, 128, 6, FEW_PARTS),
        )
    ),
    "stream_k_wgmma": StreamKWgmma(
        (
            SplitTile(128, 128, 6, (1,)),
            SplitTile(128, 192, 5, (1,)),
            SplitTile(128, 256, 4, (1,)),
        )
    ),
    "short_k_wgmma": ShortK(
        (
            ShortTile(64, 64, 1, 5),
            ShortTile(64, 64, 2, 5),
            ShortTile(64, 128, 1, 4),
            ShortTile(64, 128, 2, 4),
            ShortTile(128, 64, 1, 2),
            ShortTile(128, 64, 2, 2),
            ShortTile(128, 128, 1, 2),
            ShortTile(128, 128, 2, 2),
            ShortTile(128, 256, 1, 1),
        )
    ),
    "fixed_parts_fma": SplitK(
        (
            SplitChoice(FmaTile(16, 32, 4, 4, 4, 4, 16, 8, 8), 1),
            SplitChoice(FmaTile(32, 32, 4, 4, 4, 8, 16, 6, 8), 1),
            SplitChoice(FmaTile(32, 64, 4, 8, 8, 4, 16, 5, 8), 1),
            SplitChoice(FmaTile(64, 32, 4, 8, 4, 8, 16, 5, 8), 1),
            SplitChoice(FmaTile(64, 64, 4, 8, 8, 4, 16, 4, 4), 1),
            SplitChoice(FmaTile(128, 64, 4, 8, 16, 8, 16, 3, 8), 1),
            SplitChoice(FmaTile(64, 128, 4, 8, 16, 4, 16, 3, 8), 1),
        )
    ),
    "undivided_dmma": PersistentDmma(
        (
            DmmaRing(8, 32, 8, 16, 1, 2),
            DmmaRing(8, 32, 8, 16, 1, 4),
            DmmaRing(128, 64, 64, 32, 1, 2),
            DmmaRing(112, 64, 56, 32, 1, 2),
            DmmaRing(56, 128, 56, 32, 1, 2),
            DmmaRing(192, 48, 48, 48, 1, 2),
            DmmaRing(96, 64, 48, 32, 1, 2),
            DmmaRing(80, 64, 40, 32, 1, 2),
            DmmaRing(40, 128, 40, 32, 1, 2),
            DmmaRing(64, 64, 32, 32, 1, 2),
            DmmaRing(64, 64, 32, 32, 1, 3),
            DmmaRing(48, 96, 24, 48, 1, 3),
            DmmaRing(64, 32, 32, 16, 1, 2),
            DmmaRing(32, 32, 16, 16, 1, 2),
            DmmaRing(64, 16, 16, 16, 1, 2),
            DmmaRing(16, 32, 8, 16, 1, 2),
        )
    ),
    "undivided_wgmma": SplitWgmma(
        (
            SplitTile(64, 128, 8, (1,)),
            SplitTile(64, 64, 12, (1,)),
            SplitTile(128, 64, 8, (1,)),
            SplitTile(128, 128, 6, (1,)),
            SplitTile(128, 192, 5, (1,)),
            SplitTile(128, 256, 4, (1,)),
        )
    ),
    "undivided_few_rows": FewRows(
        (
            SplitTile(8, 64, 12, (1,)),
            SplitTile(16, 64, 12, (1,)),
            SplitTile(32, 64, 18, (1,)),
            SplitTile(64, 64, 12, (1,)),
        )
    ),
    "tf32": Tf32(
        (
            SplitTile(256, 128, 4, (1,)),
            SplitTile(192, 128, 5, (1,)),
            SplitTile(128, 128, 7, (1, 2, 4)),
            SplitTile(64, 128, 9, (1, 2)),
            SplitTile(128, 64, 9, (1, 2)),
            SplitTile(64, 64, 14, (1, 2, 4)),
            SplitTile(32, 64, 18, (1, 2, 4)),
        )
    ),
    "three_fp16": ThreeFp16(
        (
            TmaChoice(192, 4, 0),
            TmaChoice(128, 7, 0),
            TmaChoice(64, 9, 0),
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
            TmaChoice(256, 4, 0),
            TmaChoice(128, 7, 0),
            TmaChoice(64, 9, 0),
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
    "fixed_parts_tile",
    "fixed_parts_fma",
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
    "few_rows_wgmma",
    "short_k_wgmma",
    "stream_k_wgmma",
    "undivided_wgmma",
    "undivided_few_rows",
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
        picks=Fastest(
            {
                "float32": ("large_thread_tile", "split_k", "skinny", "stream_k_fma"),
                "float64": ("persistent_dmma", "stream_k_dmma", "tensor_core", "split_k_dmma", "skinny"),
                **dict.fromkeys(
                    SIXTEEN_BIT, ("persistent", "multicast", "split_k_wgmma", "few_rows_wgmma", "short_k_wgmma")
                ),
            }
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
                "float32": ("fixed_parts_tile", "fixed_parts_fma"),
                "float64": ("undivided_dmma",),
                **dict.fromkeys(SIXTEEN_BIT, ("persistent", "multicast", "undivided_wgmma", "undivided_few_rows")),
            }
        ),
    ),
    Variant(
        "best_three_tf32",
        "cuda",
        "the same among the rungs with three TF32 products",
        dtypes=("float32",),
        architecture="sm_90a",
        arithmetic={"float32": "three TF32 products"},
        picks=Fastest({"float32": ("tensor_core", "warpgroup", "stream_k")}),
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
