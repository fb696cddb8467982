"""CPU rungs of the product: across every blocking boundary, on every SIMD path, with threads and leading dimensions."""

import ctypes
import functools
import importlib.metadata
import itertools
import os
import re
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from tasks import task

from hpcmm import kernels
from hpcmm.backends.cpu import device, libraries
from hpcmm.backends.cpu.device import CpuBackend, cache_sizes, flush_bytes
from hpcmm.kernels import modules
from hpcmm.kernels.modules import module_of
from hpcmm.model import DeviceError
from hpcmm.operations.matmul import MATMUL
from hpcmm.operations.matmul_ladder import Gemm

PLAIN = ("float32", "float64")
OWN = [variant for variant in MATMUL.ladder if variant.device == "cpu" and not variant.library]
RUNGS = [variant.name for variant in OWN if not variant.unsupported]  # test_amx.py has the others
WITH_PATHS = ["avx", "packed"]
# Rows and bytes of columns of a tile
TILES = {"avx512": (12, 128), "avx2": (6, 64), "portable": (6, 32), "neon": (8, 32)}
TILES |= {"sve128": (8, 32), "sve256": (8, 64), "sve512": (8, 128)}
PATHS = list(TILES)
on_every_path = pytest.mark.parametrize(("path", "dtype"), list(itertools.product(PATHS, PLAIN)))
UNTOUCHED = 77


def test_threads_run_the_loop_of_one_thread():
    """As in the document 000, so that a step to them shows what threads gain, and nothing else."""
    loops = set()
    for name in ("serial", "pthread", "parallel_for"):
        text = kernels.source(MATMUL, MATMUL.variant(name)).read_text()
        loop = re.search(r"for \(size_t j = 0.*?\*c = .*?;", text, re.DOTALL)[0]
        loop = re.sub(r"\(ACCUMULATOR\)|\bx\.", "", loop).replace("ACCUMULATOR", "REAL")
        loops.add(" ".join(loop.split()))
    assert len(loops) == 1, loops


def path_of(name: str, dtype: str) -> str:
    path = module_of(task(MATMUL, (1, 1, 1), dtype, variant=name)).path
    path.restype = ctypes.c_char_p
    return path().decode()


def take(path: str, name: str, dtype: str, monkeypatch) -> None:
    """Make a kernel run a path, or skip the test on a processor without it."""
    monkeypatch.setenv("HPCMM_SIMD", path)
    if path_of(name, dtype) != path:
        pytest.skip(f"this processor has no {path}")


def product(name: str, dtype: str, matrices, scalars: tuple[float, float], threads: int = 1) -> np.ndarray:
    """Run a rung on A, B and C with odd leading dimensions that differ; what lies around C stays as it is."""
    arrays = {}
    for operand, x, columns in zip("ABC", matrices, (3, 5, 7), strict=True):
        around = np.nan if operand != "C" and dtype in PLAIN else UNTOUCHED
        whole = np.full((len(x) + 1, x.shape[1] + columns), around, x.dtype)
        arrays[operand] = whole[: len(x), : x.shape[1]]
        arrays[operand][...] = x
    (m, n), k = arrays["C"].shape, arrays["A"].shape[1]
    given = dict(zip(("alpha", "beta"), scalars, strict=True))
    CpuBackend(threads).prepare(task(MATMUL, (m, n, k), dtype, variant=name, scalars=given), arrays)()
    whole, result = arrays["C"].base, np.ascontiguousarray(arrays["C"])
    assert np.all(whole[:, n:] == UNTOUCHED) and np.all(whole[m] == UNTOUCHED)
    return result


@functools.cache
def problem(name: str, dtype: str, shape, scalars: tuple[float, float], change=None):
    """Return inputs and what judges a result by the bound of the rung; without ``beta``, C is NaN and is not read."""
    drawn = task(MATMUL, shape, dtype, variant=name, scalars=dict(zip(("alpha", "beta"), scalars, strict=True)))
    inputs = MATMUL.draw(np.random.default_rng(shape), drawn)
    if change:
        change(inputs)
    return inputs.values(), MATMUL.reference(drawn, inputs)


def check(name: str, dtype: str, shape, scalars=(1.5, 0.5), threads: int = 1, change=None) -> np.ndarray:
    """Hold the result to its bound; return it."""
    scalars = tuple(map(int, np.multiply(scalars, 2))) if dtype == "int8" else scalars
    matrices, judge = problem(name, dtype, shape, scalars, change)
    result = product(name, dtype, matrices, scalars, threads)
    verdict = judge(result)
    assert verdict.passed, (name, shape, scalars, verdict.where)
    return result


def constant(name: str, dtype: str) -> int:
    """A block size, from the source."""
    text = kernels.source(MATMUL, MATMUL.variant("packed")).read_text()
    number, by_size = re.search(rf"^    {name} = (\d+)( / sizeof\(REAL\))?,", text, re.MULTILINE).groups()
    return int(number) // (np.dtype(dtype).itemsize if by_size else 1)


def shapes_across_the_blocks(path: str, dtype: str) -> list[tuple[int, int, int]]:
    mc, nc, kc = (constant(name, dtype) for name in ("MC", "NC", "KC"))
    mr, nr = TILES[path][0], TILES[path][1] // np.dtype(dtype).itemsize
    assert mc % mr == 0 and nc % nr == 0
    around = [(x - 1, x, x + 1) for x in (mr, mc, nr, nc, kc)]
    rows, all_rows, columns, all_columns, terms = around
    return [
        *[(m, nr + 3, 29) for m in (*rows, 2 * mr + 1, *all_rows, 2 * mc + 1)],
        *[(mr + 5, n, 31) for n in (*columns, 2 * nr + 1, *all_columns, 2 * nc + 1)],
        *[(mr + 1, nr + 3, k) for k in (1, 2, *terms, 2 * kc + 1, 3 * kc + 2)],
        (mc + 1, nc + 1, kc + 1),
    ]


@on_every_path
def test_packed_across_every_block_boundary(path, dtype, monkeypatch):
    take(path, "packed", dtype, monkeypatch)
    for shape in shapes_across_the_blocks(path, dtype):
        check("packed", dtype, shape)
        check("packed", dtype, shape, (-0.75, 0.0))


@on_every_path
def test_avx_on_every_path(path, dtype, monkeypatch):
    take(path, "avx", dtype, monkeypatch)
    for n in (1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200):
        check("avx", dtype, (5, n, 37))
        check("avx", dtype, (3, n, 130), (-0.75, 0.0))


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", PLAIN)
@pytest.mark.parametrize("name", RUNGS)
def test_any_number_of_threads(name, dtype, threads):
    empty = (0, 9, 4), (5, 0, 4), (9, 7, 0), (40, 3, 0), (40, 40, 0)
    for shape in (*empty, (1, 1, 1), (2, 300, 17), (300, 2, 17), (61, 130, 40), (131, 157, 83), (2, 300, 1801)):
        check(name, dtype, shape, threads=threads)


@on_every_path
def test_packed_has_the_same_bits_for_any_number_of_threads(path, dtype, monkeypatch):
    """Threads cut C where it suits them, also through tiles; terms are cut where k alone decides."""
    take(path, "packed", dtype, monkeypatch)
    mc, nc, kc = (constant(name, dtype) for name in ("MC", "NC", "KC"))
    for shape in ((61, 53, 2 * kc + 5), (77, 2 * nc + 3, kc + 1), (131, nc + 1, 83), (2 * mc + 5, 2 * nc + 3, 33)):
        results = {check("packed", dtype, shape, (1.7, 0.3), threads).tobytes() for threads in (1, 2, 3, 5, 7, 8)}
        assert len(results) == 1, shape


@on_every_path
def test_few_rows_or_columns_of_packed_have_the_bits_of_more(path, dtype, monkeypatch):
    """Ranks may have fewer rows and, of ``ring`` and ``summa``, columns than C, and the bits must not tell how many."""
    take(path, "packed", dtype, monkeypatch)
    rng = np.random.default_rng(5)
    long, many = 2 * constant("KC", dtype) + 3, constant("SUMS", dtype) // 4 + 9
    of_few_columns = [(1, 6, 5), (37, 6, 100), (16, 6, long), (515, 6, 7)]
    of_few_rows = [(7, 5, 1), (7, 101, 35), (7, 67, long), (7, many, 131)]
    for (m, n, k), beta in itertools.product(of_few_columns + of_few_rows, (0.0, 0.5)):
        a, b, c = (rng.uniform(-1, 1, size).astype(dtype) for size in ((m, k), (k, n), (m, n)))
        whole = product("packed", dtype, (a, b, c), (1.5, beta))
        fewer = [(m, columns) for columns in range(1, 5)] if n == 6 else [(rows, n) for rows in range(1, 7)]
        for (rows, columns), threads in itertools.product(fewer, (1, 3)):
            part = np.s_[:rows, :columns]
            found = product("packed", dtype, (a[:rows], b[:, :columns], c[part]), (1.5, beta), threads)
            assert found.tobytes() == whole[part].tobytes(), (rows, columns, k, beta, threads)


@pytest.mark.parametrize("name", WITH_PATHS)
def test_a_path_that_the_processor_lacks_is_never_taken(name, monkeypatch):
    monkeypatch.setenv("HPCMM_SIMD", "of tomorrow")
    assert path_of(name, "float32") in ("portable", "neon")


def test_a_compiler_writes_its_messages_in_english(monkeypatch):
    for name in ("LC_ALL", "LANG", "LANGUAGE"):
        monkeypatch.setenv(name, "de_DE.UTF-8")
    assert modules.run_compiler(["sh", "-c", "echo $LC_ALL $LANGUAGE"]).stdout == "C.UTF-8\n"


def test_the_provenance_names_the_paths(monkeypatch):
    monkeypatch.delenv("HPCMM_SIMD", raising=False)
    simd = CpuBackend(1).describe()["cpu"]["simd"]
    others = [variant.name for variant in OWN if variant.unsupported]
    assert sorted(simd) == sorted(f"matmul/{name}" for name in [*WITH_PATHS, *others])
    assert set(simd.values()) <= {*PATHS, "amx", "emulated"}


def test_serial_double_sums_in_double():
    m, n, k = 7, 9, 20000
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 1, (m, k)).astype(np.float32), rng.uniform(0, 1, (k, n)).astype(np.float32)
    truth = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    one, double = (product(name, "float32", (a, b, truth), (1.0, 0.0)) for name in ("serial", "serial_double"))
    assert np.all(double == truth) and not np.all(one == truth)


def test_serial_double_is_serial_for_double():
    assert np.array_equal(*(check(name, "float64", (23, 19, 57)) for name in ("serial", "serial_double")))


PROGRAM = """
import sys, threading
import numpy as np, psutil
from hpcmm.backends.cpu import libraries
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.model import Task
from hpcmm.operations.matmul import MATMUL

rng = np.random.default_rng(0)
arrays = {name: rng.random((96, 96)) for name in "ABC"}
backend = CpuBackend(3)
task = Task(MATMUL, MATMUL.variant(sys.argv[1]), (96, 96, 96), "float64", MATMUL.scalars)
call = backend.prepare(task, arrays)
process = psutil.Process()
before = process.num_threads()
call()
assert process.num_threads() <= before + 2, "more threads than asked for"

def in_a_new_thread():
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()

in_a_new_thread()
before = process.memory_info().rss
for _ in range(80):  # with 15 MB of copies each
    in_a_new_thread()
grown = process.memory_info().rss - before
assert grown < 100e6, f"{grown} bytes are left behind by threads that ended"
before = process.memory_info().rss
for _ in range(2000):
    call()
assert process.memory_info().rss - before < 10e6, "calls leave memory behind"
"""


@pytest.mark.parametrize("name", ["pthread", pytest.param("openmp", marks=pytest.mark.slow), "packed"])
def test_no_more_threads_than_requested_and_no_leftovers(name):
    # malloc gives back what is as large as the copies, instead of keeping some for threads to come
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, name], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("beta", [0, 2])
def test_the_baseline_of_integers_wraps_as_they_do(beta):
    a, b, c = (np.full(shape, 70_000, np.int32) for shape in ((5, 3), (3, 4), (5, 4)))
    truth = np.full((5, 4), 3 * 3 * 70_000**2 + beta * 70_000).astype(np.int32)  # modulo 2^32
    libraries.gemm(Gemm("int32", 3, a, b, beta, c))()
    assert np.array_equal(c, truth)


def test_the_baseline_is_one_call_of_blas_and_the_provenance_names_it():
    gemms = CpuBackend(1).describe()["cpu"]["gemm"]
    assert re.fullmatch(r"\w*cblas_sgemm\w* of openblas [0-9.]+, \S+", gemms["float32"])
    assert re.fullmatch(r"\w*cblas_dgemm\w* of openblas [0-9.]+, \S+", gemms["float64"])


def test_another_blas_is_not_measured(monkeypatch):
    libraries.find_gemm.cache_clear()
    monkeypatch.setattr(libraries.threadpoolctl, "threadpool_info", list)
    try:
        with pytest.raises(DeviceError, match="install NumPy by pip"):
            libraries.gemm(Gemm("float32", 1.5, *(np.ones((7, 7), np.float32) for _ in range(2)), 0.5, np.ones((7, 7))))
        assert libraries.describe()["gemm"]["float32"] == "unknown"
    finally:
        libraries.find_gemm.cache_clear()


def test_openblas_integers_have_the_configured_width():
    for config, width in ((b"DYNAMIC_ARCH Haswell", ctypes.c_int), (b"USE64BITINT DYNAMIC_ARCH", ctypes.c_int64)):
        library = SimpleNamespace(openblas_get_config=lambda config=config: b"OpenBLAS 0.3.30 " + config)
        assert libraries.openblas_integer(library) is width
    assert libraries.openblas_integer(object()) is None


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("length", [0, 1, 64, 65, 64 * 1000 + 1])
def test_every_line_of_the_flush_buffer_is_read(threads, length):
    backend = CpuBackend(threads)
    backend._flush = np.zeros(length, np.uint8)
    backend._flush[::64] = np.arange(len(backend._flush[::64])) % 251
    assert backend.fill_caches() == int(backend._flush[::64].sum(dtype=np.int64))


def test_a_cold_run_fills_the_caches_and_a_hot_run_does_not(monkeypatch):
    monkeypatch.setattr(device, "cache_sizes", cache_sizes)
    backend, filled = CpuBackend(2), []
    assert flush_bytes({1: 1 << 16, 2: 1 << 20}, 2) == 2 << 20
    assert flush_bytes({2: 4 << 20, 3: 32 << 20}, 2) == 64 << 20
    assert flush_bytes({2: 4 << 20, 3: 1 << 30}, 2) == 8 << 20, "the last level cannot be emptied"
    assert flush_bytes({2: 1 << 30, 3: 1 << 30}, 2) == 128 << 20
    assert flush_bytes({3: 1 << 30}, 64) == 256 << 20
    assert flush_bytes({}, 1) == 64 << 20
    about = backend.describe()["cpu"]
    assert about["flush_bytes"] == flush_bytes(cache_sizes(), 2)
    right = backend.fill_caches
    monkeypatch.setattr(backend, "fill_caches", lambda: filled.append(right()))
    for cold in (False, True):
        backend.seconds_alone(lambda: None, cold, {"x": np.ones(100)})
    assert filled == [about["flush_bytes"] // 64]
    assert backend._flush.nbytes == about["flush_bytes"]


def test_a_checkout_that_is_not_installed_compiles_its_modules(monkeypatch):
    missing = Mock(side_effect=importlib.metadata.PackageNotFoundError("hpcmm"))
    monkeypatch.setattr(modules.importlib.metadata, "distribution", missing)
    assert modules.load("evict", kernels.FOLDER / "evict.c", {}) and modules.describe()["flags"]
