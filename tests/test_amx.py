"""CPU rungs on AMX, and their emulation in C: products of every shape, accuracy, detection; libraries; 64-bit Arm."""

import ctypes
import os
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tasks import task
from test_cpu_rungs import check, path_of, product, take

from hpcmm import kernels
from hpcmm.backends.cpu import libraries, searches
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.kernels import modules
from hpcmm.operations.matmul import MATMUL

RUNGS = [
    (name, dtype)
    for name in ("amx_tile", "amx_blocked", "amx", "int8_slices", "int8_residues")
    for dtype in MATMUL.variant(name).dtypes
]
PATHS = ["amx", "emulated"]
SHAPES = [
    (1, 1, 1), (0, 5, 4), (5, 0, 4), (4, 5, 0), (16, 16, 64), (17, 15, 65), (31, 33, 127), (33, 65, 31), (40, 1, 600),
    (1, 40, 600), (257, 20, 70), (20, 513, 70), (70, 70, 1025),
]  # fmt: skip
SCALARS = [(1.5, 0.5), (-2.0, 0.0), (1.0, 1.0)]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("name", "dtype"), RUNGS)
def test_products_of_every_shape(name, dtype, path, monkeypatch):
    take(path, name, dtype, monkeypatch)
    for i, shape in enumerate(SHAPES):
        check(name, dtype, shape, SCALARS[i % len(SCALARS)], threads=1 + i % 3)


@pytest.mark.parametrize(("name", "dtype"), RUNGS)
@given(shape=st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 300)), threads=st.integers(1, 4))
def test_products_of_random_shapes(name, dtype, shape, threads):
    check(name, dtype, shape, threads=threads)


def test_threads_share_the_blocks_of_c(tmp_path):
    """Each block of C belongs to one thread, and the numbers of blocks of two threads differ by one at most."""
    source = Path(__file__).parent / "kernels" / "walks.c"
    command = ["gcc", "-fopenmp", "-shared", "-fPIC", f"-I{kernels.FOLDER}", source, "-o", tmp_path / "walks.so"]
    subprocess.run(command, check=True)
    walks = ctypes.CDLL(str(tmp_path / "walks.so")).walks
    for m, n, threads in [(3000, 3000, 4), (64, 2050, 3), (2050, 33, 4), (300, 700, 5), (1, 1, 2)]:
        owners, counts = np.zeros((m, n), np.int32), np.zeros(threads, np.int32)
        walks(m, n, threads, *(x.ctypes.data_as(ctypes.c_void_p) for x in (owners, counts)))
        assert np.all(owners == 1)
        assert np.ptp(counts) <= 1


@pytest.mark.parametrize(("name", "dtype"), [each for each in RUNGS if each[1] != "bfloat16"])
def test_the_emulation_gives_the_bits_of_the_instructions(name, dtype, monkeypatch):
    results = []
    for path in PATHS:
        take(path, name, dtype, monkeypatch)
        results.append(check(name, dtype, (100, 70, 333)))
    assert np.array_equal(*results)


@pytest.mark.parametrize(
    ("name", "dtype", "k"), [("int8_slices", "float32", 40001), ("int8_residues", "float64", 70001)]
)
def test_sums_beyond_int32_are_taken_in_parts(name, dtype, k):
    def ones(inputs):
        inputs["A"][:] = inputs["B"][:] = -1

    check(name, dtype, (3, 5, k), change=ones)
    check(name, dtype, (3, 5, k))


@pytest.mark.parametrize(
    ("name", "dtype", "largest"), [("int8_slices", "float32", 60), ("int8_residues", "float64", 200)]
)
def test_rows_and_columns_of_any_magnitude(name, dtype, largest):
    """Powers of two that multiply rows of A and columns of B change nothing but the exponents of results."""

    def powers(first, last, count):
        return np.ldexp(1.0, np.linspace(first, last, count).astype(int))

    def scale(inputs):
        inputs["A"] *= powers(-largest, largest, len(inputs["A"]))[:, None].astype(dtype)
        inputs["B"] *= powers(largest, -largest, inputs["B"].shape[1]).astype(dtype)

    check(name, dtype, (40, 50, 200), (1.5, 0.0), change=scale)


@pytest.mark.parametrize(("name", "dtype"), [("int8_slices", "float32"), ("int8_residues", "float64")])
def test_what_is_not_finite_spoils_its_row_or_column_only(name, dtype):
    rng = np.random.default_rng(0)
    a, b, c = (rng.uniform(-1, 1, shape).astype(dtype) for shape in ((40, 90), (90, 50), (40, 50)))
    a[3, 5], a[8], b[7, 9] = np.nan, 0, np.inf
    result = product(name, dtype, (a, b, c), (1.5, 0.5), 2)
    assert np.isnan(result[3]).all() and np.isnan(result[:, 9]).all()
    rest = np.delete(np.delete(result, 3, 0), 9, 1)
    right = 1.5 * np.delete(a, 3, 0).astype(float) @ np.delete(b, 9, 1)
    right += 0.5 * np.delete(np.delete(c, 3, 0), 9, 1)
    assert np.allclose(rest, right, atol=1e-4 if dtype == "float32" else 1e-11)
    assert np.array_equal(np.delete(result[8], 9), 0.5 * np.delete(c[8], 9))


def test_instructions_are_never_run_unless_the_system_grants_them(monkeypatch):
    for wanted in ("emulated", "portable", "of tomorrow"):
        monkeypatch.setenv("HPCMM_SIMD", wanted)
        for name, dtype in RUNGS:
            assert path_of(name, dtype) == "emulated"
        backend = CpuBackend(1)
        for name, dtype in RUNGS:
            assert "no AMX" in MATMUL.why_not_run_on(backend, MATMUL.variant(name), dtype)
    monkeypatch.delenv("HPCMM_SIMD")
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if "amx_tile" not in flags:
        assert path_of("amx", "int8") == "emulated"


def test_a_library_that_is_missing_is_named_with_its_package(monkeypatch):
    for each in libraries.OPTIONAL.values():
        each.cache_clear()
    monkeypatch.setattr(libraries, "file_of", lambda pattern: None)
    for name in libraries.OPTIONAL:
        assert f"pip install {name}" in getattr(CpuBackend(1), f"why_no_{name}")("float32")


# Processors of qemu by the path that packed takes there; with SVE, by the longest vector in units of 128 bits
PROCESSORS = {"cortex-a72": "neon"} | {
    f"max,{lengths},sve-default-vector-length=-1": path
    for lengths, path in {
        "sve-max-vq=1": "sve128",
        "sve-max-vq=2": "sve256",
        "sve384=on,sve-max-vq=3": "sve256",
        "sve-max-vq=4": "sve512",
        "sve-max-vq=8": "sve",
        "sve-max-vq=16": "sve",
    }.items()
}


def harness(compiler: str, name: str, dtype: str, folder: Path, *options: str | Path) -> Path:
    """Compile a rung with a program that checks its products with two threads, and prints its path."""
    sources = kernels.source(MATMUL, MATMUL.variant(name)), Path(__file__).with_name("amx_harness.c")
    real = {"float32": "float", "float64": "double"}[dtype]
    known = ("-std=gnu11", "-fopenmp", f"-DREAL={real}", "-Wall", "-Werror")
    subprocess.run([compiler, *known, *options, *sources, "-lm", "-o", folder / "program"], check=True)
    return folder / "program"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype", "sanitizer"),
    [
        *(("avx", "float32", "address,undefined"), ("packed", "float64", "address,undefined")),
        *(("avx", "float64", "thread"), ("packed", "float32", "thread")),
    ],
)
def test_sanitizers_find_nothing_on_any_path(name, dtype, sanitizer, tmp_path):
    compiler, version = modules.compiler()
    if "clang" in version or not compiler:
        pytest.skip("needs GCC: races.c tells its OpenMP to ThreadSanitizer")
    options = searches.with_order() if sanitizer == "thread" else ("-fno-sanitize-recover=all",)
    program = harness(compiler, name, dtype, tmp_path, "-O1", "-g1", f"-fsanitize={sanitizer}", *options)
    for path in ("neon", "portable") if platform.machine() == "aarch64" else ("avx512", "avx2", "portable"):
        surroundings = os.environ | {"HPCMM_SIMD": path, "ASAN_OPTIONS": "detect_leaks=0"}
        done = subprocess.run([program], env=surroundings, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), path


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), [("avx", "float64"), ("packed", "float32")])
def test_the_path_of_64_bit_arm(name, dtype, tmp_path):
    compiler, emulator = (shutil.which(each) for each in ("aarch64-linux-gnu-gcc", "qemu-aarch64"))
    if platform.machine() == "aarch64" or not (compiler and emulator):
        pytest.skip("needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user")
    program = harness(compiler, name, dtype, tmp_path, "-O2", "-static")
    for processor, path in PROCESSORS.items():
        path = path if name == "packed" else "neon"
        done = subprocess.run([emulator, "-cpu", processor, program], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, f"{path}\n"), processor


@pytest.mark.slow
def test_the_emulation_of_amx_compiles_for_arm(tmp_path):
    compiler = shutil.which("aarch64-linux-gnu-gcc")
    if not compiler:
        pytest.skip("needs gcc-aarch64-linux-gnu and libc6-dev-arm64-cross")
    for name, dtype in RUNGS:
        macros = [f"-D{key}={value}" for key, value in task(MATMUL, (1, 1, 1), dtype, variant=name).macros.items()]
        command = [compiler, "-std=gnu11", "-fopenmp", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *macros]
        source = kernels.source(MATMUL, MATMUL.variant(name))
        subprocess.run([*command, f"-I{kernels.FOLDER}", source], check=True)
