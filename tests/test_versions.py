"""The library that each time is compared with, and its version."""

import pytest
import timings
from timings import measurement

from hpcmm import analysis, store
from hpcmm.analysis.versions import library_of, versions_of
from hpcmm.measurement import Point
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import ALGORITHMS

GPU = {"name": "NVIDIA H100", "multiprocessors": 114, "cublas": 130100, "cub": 300102, "cupy": "14.2.0"}
PROVENANCE = {
    "gpus": [GPU],
    "cpu": {"blas": "openblas 0.3.31 (Haswell)"},
    "installed": {"numpy": "2.5.2", "nvidia-cublasmp-cu13": "0.7.0.125"},
}
VERSIONS = {"NumPy": "2.5.2", "cuBLAS": "13.1.0", "cuBLASLt": "13.1.0", "CUB": "3.1.2"} | {
    "CuPy": "14.2.0",
    "cuBLASMp": "0.7.0.125",
}
EVERY = [(operation, variant) for operation in OPERATIONS.values() for variant in operation.ladder]


def test_the_provenance_has_the_version_of_every_library():
    named = {name: f"{name} {version}" for name, version in VERSIONS.items()}
    assert versions_of(PROVENANCE) == named | {"BLAS": "openblas 0.3.31 (Haswell)"}
    providers = {variant.provider for _, variant in EVERY} | {each.provider for each in ALGORITHMS.values()}
    assert providers - {""} == {*VERSIONS, "BLAS"}


@pytest.mark.parametrize(("operation", "variant"), EVERY, ids=lambda each: each.name)
def test_a_library_and_only_a_library_has_a_provider(operation, variant):
    assert bool(variant.provider) == bool(variant.library)


@pytest.mark.parametrize("wrong", [{}, {"gpus": 3, "cpu": [], "installed": None}, {"gpus": [{"cublas": "new"}, 1]}])
def test_unknown_versions_are_left_out(wrong):
    assert versions_of(wrong) == {}
    assert library_of(OPERATIONS["matmul"].variant("cublas"), ALGORITHMS["ring"], versions_of(wrong)) == "cuBLAS"


def test_each_measurement_has_its_library_and_the_sm_count_of_its_gpu(tmp_path):
    points = [
        ("naive", 1, TEXTBOOK, "cublas"),
        ("openmp", 1, TEXTBOOK, "numpy"),
        ("cublas", 2, "cublasmp", ""),
        ("cublas", 2, "ring", ""),
    ]
    rows = []
    for variant, ranks, algorithm, library in points:
        point = Point("matmul", variant, (64, 64, 64), "float32", ranks, algorithm=algorithm)
        rows += [measurement(point)] + ([measurement(point, library)] if library else [])
    frame = analysis.measurements(store.read(timings.write(tmp_path / "timings.h5", {"size": rows}, PROVENANCE)))
    found = {(row["contender"], row["contender_algorithm"]): row for row in analysis.row_dicts(frame)}
    libraries = {
        **{("naive", TEXTBOOK): "", ("openmp", TEXTBOOK): "", ("numpy", TEXTBOOK): "openblas 0.3.31 (Haswell)"},
        **{("cublas", TEXTBOOK): "cuBLAS 13.1.0", ("cublas", "ring"): "cuBLAS 13.1.0"},
        ("cublas", "cublasmp"): "cuBLASMp 0.7.0.125",
    }
    assert {key: row["library"] for key, row in found.items()} == libraries
    on_gpus = {key for key, row in found.items() if row["multiprocessors"] == 114}
    assert on_gpus == {key for key in found if key[0] not in ("openmp", "numpy")}
    assert all(row["multiprocessors"] == 0 for key, row in found.items() if key not in on_gpus)
