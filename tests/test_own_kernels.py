"""Kernels of users: the head of a file, its errors, and the variant that it makes."""

import ctypes
import importlib.metadata
import importlib.util
import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hpcmm import kernels
from hpcmm.backends.emulated import launch
from hpcmm.experiment import extensions, fingerprint, own_kernels
from hpcmm.experiment.config import read_config, validated
from hpcmm.kernels import file_of, modules, name_of
from hpcmm.model import Task
from hpcmm.operations import OPERATIONS, heads
from hpcmm.operations.heads import KernelFileError
from hpcmm.system.reader import ConfigError
from hpcmm.system.text import described

REFUSED = yaml.safe_load(Path(__file__).with_name("refused_heads.yaml").read_text())
EXAMPLES = Path(__file__).parents[1] / "examples" / "kernels"
MATMUL = 'extern "C" __global__ void matmul(int m) {}\n'
REDUCTION = 'extern "C" __global__ void reduction() {}\n'


def written(folder: Path, head: str, code: str = MATMUL, name: str = "my.cu") -> Path:
    path = folder / name
    lines = "".join(f"//   {line}\n" for line in head.splitlines())
    path.write_text((f"// A kernel.\n//\n// hpcmm:\n{lines}\n" if head else "") + code)
    return path


def task(kernel: own_kernels.OwnKernel, shape: tuple[int, ...], dtype: str = "float32", tile: int = 0) -> Task:
    return Task(OPERATIONS[kernel.operations[0]], kernel.variant, shape, dtype, {"alpha": 1.0, "beta": 0.0}, tile)


def launches(found: Task) -> list:
    matrix = SimpleNamespace(strides=(4, 4), itemsize=4)
    return found.geometry.launches(found, dict.fromkeys(["A", "B", "C", "x", "y", "z", "result", "partial0"], matrix))


def test_a_simple_kernel_needs_no_head(tmp_path):
    kernel = own_kernels.read(written(tmp_path, ""))
    assert kernel.operations == ("matmul",) and kernel.variant.name == "my.cu"
    assert kernel.variant.dtypes == ("float32", "float64") and kernel.variant.tiles == (16,)
    found = task(kernel, (33, 20, 5), tile=16)
    assert found.macros == {"REAL": "float", "ACCUMULATOR": "float", "TILE": 16}
    (launch,) = launches(found)
    assert (launch.grid, launch.block, launch.shared_bytes) == ((2, 3), (16, 16), 0)


def test_a_reduction_serves_all_operations_with_its_function(tmp_path):
    kernel = own_kernels.read(written(tmp_path, "block: 64\nper_thread: 2\nshared_bytes: BLOCK * ITEMSIZE", REDUCTION))
    assert kernel.operations == ("sum", "minimum", "maximum")
    assert own_kernels.read(written(tmp_path, "operation: minimum", REDUCTION)).operations == ("minimum",)
    first, second = launches(task(kernel, (8192,), "float64"))
    assert (first.grid, first.block, first.shared_bytes) == ((64,), (64,), 512)
    assert second.grid == (1,)


def test_every_key_of_a_product(tmp_path):
    head = """operation: matmul
dtypes: [float64]
change: mine
constants: {SIDE: 8, STAGES: 3}
rows: 64
columns: 2 * ROWS
block: [COLUMNS / SIDE, ROWS / SIDE]
shared_bytes: STAGES * (ROWS + COLUMNS) % 1000 * ITEMSIZE
cluster: [2, 1]
architecture: sm_90a
options: [-lineinfo]
deterministic: false
arithmetic: TF32"""
    variant = own_kernels.read(written(tmp_path, head)).variant
    assert (variant.change, variant.dtypes, variant.architecture) == ("mine", ("float64",), "sm_90a")
    assert (variant.options, variant.deterministic) == (("-lineinfo",), False)
    assert variant.arithmetic == {"float64": "TF32"}
    found = task(own_kernels.read(tmp_path / "my.cu"), (65, 129, 5), "float64")
    macros = {"ROWS": 64, "COLUMNS": 128, "BLOCK": 128, "SIDE": 8, "STAGES": 3}
    assert found.macros == found.macros | macros
    (launch,) = launches(found)
    assert (launch.grid, launch.block, launch.shared_bytes) == ((2, 2), (16, 8), 3 * 192 % 1000 * 8)
    (wide,) = launches(task(own_kernels.read(tmp_path / "my.cu"), (65, 300, 5), "float64"))
    assert wide.grid == (4, 2)  # three blocks along n, rounded up to whole clusters


def test_values_replace_those_of_the_head(tmp_path):
    path = written(tmp_path, "constants: {SIDE: 8}\nrows: 64\ncolumns: 64\nblock: ROWS * COLUMNS / SIDE / SIDE")
    kernel = own_kernels.read(path, {"ROWS": 32, "SIDE": 4})
    assert kernel.variant.name == "my.cu ROWS=32 SIDE=4"
    assert task(kernel, (1, 1, 1)).macros["BLOCK"] == 32 * 64 // 16
    with pytest.raises(KernelFileError, match="'NONE' is not allowed; allowed: SIDE, ROWS, COLUMNS, DEPTH, BLOCK"):
        own_kernels.read(path, {"NONE": 1})
    with pytest.raises(heads.LaunchError, match="4096 threads; allowed: at most 1024"):
        own_kernels.read(path, {"SIDE": 1})


@pytest.mark.parametrize(("head", "message"), REFUSED["wrong"])
def test_an_error_names_file_line_key_and_what_is_allowed(tmp_path, head, message):
    is_defined = "N: 3" in head  # below a comment with an empty last line
    path = written(tmp_path, f"{head}\n\n" * is_defined or head, "#define N 3\n" * is_defined + MATMUL)
    with pytest.raises(KernelFileError, match=message):
        own_kernels.read(path)


def test_a_type_that_c_does_not_have_is_refused_on_the_cpu(tmp_path):
    text = "hpcmm:\n  operation: matmul\n  dtypes: [float8_e4m3]\n"
    (tmp_path / "my.c").write_text(f"/*\n{text}*/\nvoid matmul() {{}}\n")
    with pytest.raises(KernelFileError, match=r"'float8_e4m3' is not allowed; allowed: .*bfloat16, .*int8, int32$"):
        own_kernels.read(tmp_path / "my.c")
    comment = "".join(f"// {line}\n" for line in text.splitlines())
    (tmp_path / "my.cu").write_text(f"{comment}//   block: 32\nvoid matmul() {{}}\n")
    kernel = own_kernels.read(tmp_path / "my.cu")
    assert task(kernel, (1, 1, 1), "float8_e4m3").macros["REAL"] == "__nv_fp8_e4m3"


def test_further_errors(tmp_path):
    for code, message in (
        ("int main() { return 0; }", "the file has none of the functions matmul, reduction, vector_add"),
        ("extern __shared__ float s[]; void matmul() {}", "my.cu:1: dynamic shared memory, but no key shared_bytes"),
        ("// hpcmm:\n//   block: 3\n\n// hpcmm:\nvoid matmul()", "my.cu:4: hpcmm: appears twice"),
        ("// hpcmm: the suite\nvoid matmul()", "my.cu:1: hpcmm: is followed by keys with values"),
    ):
        with pytest.raises(KernelFileError, match=re.escape(message)):
            own_kernels.read(written(tmp_path, "", code))
    with pytest.raises(KernelFileError, match="No such file"):
        own_kernels.read(tmp_path / "none.cu")
    (tmp_path / "bytes.cu").write_bytes(b"\xff\xfe")
    with pytest.raises(KernelFileError, match="not a text file in UTF-8"):
        own_kernels.read(tmp_path / "bytes.cu")


@pytest.mark.parametrize("suffix", [".c", ".cu"])
@pytest.mark.parametrize(
    "parameters",
    [
        "const float *A, const float *B, float *C, int n",
        "int m, int n, int k, const float *A, const float *B, float *C",
        "int m, int n, int k, float alpha, float A, int lda, const float *B, int ldb, float beta, float *C, int ldc",
    ],
)
def test_a_function_with_other_parameters_is_refused_before_it_is_called(tmp_path, parameters, suffix):
    file = written(tmp_path, "", f"void matmul({parameters}) {{}}", f"my{suffix}")
    message = r"other parameters than hpcmm passes: int m, int n.*bench my.*--adopt COPY"
    with pytest.raises(KernelFileError, match=message):
        own_kernels.read(file)


@pytest.mark.parametrize(
    "text",
    [
        "#define LIST int m, int n\nvoid matmul(LIST) {}",
        "typedef const float *In; void matmul(int m, int n, int k, float alpha, In A, int lda, In B, int ldb, "
        "float beta, float *C, int ldc, int threads) {}",
        "void matmul(unsigned m, unsigned n, unsigned k, REAL alpha, REAL const *A, unsigned lda, REAL B[], "
        "unsigned ldb, REAL beta, REAL *restrict C, unsigned ldc) {}",
    ],
)
def test_a_function_whose_parameters_may_be_right_is_read(tmp_path, text):
    assert own_kernels.read(written(tmp_path, "", text, "my.c")).operations == ("matmul",)


@pytest.mark.parametrize("comment", ["/* T\n * hpcmm:\n *   tiles: [8]\n */", "/*\nhpcmm:\n  tiles: [8]\n\nMore: */"])
def test_the_comment_may_have_any_form(tmp_path, comment):
    path = written(tmp_path, "", f"\ufeff{comment}\n// hpcmm is a suite\n{MATMUL}// the key block: 1\n")
    assert own_kernels.read(path).variant.tiles == (8,)


@pytest.mark.parametrize(("text", "message"), REFUSED["unread"])
def test_a_head_that_would_not_be_read_is_an_error(tmp_path, text, message):
    with pytest.raises(KernelFileError, match=re.escape(message)):
        own_kernels.read(written(tmp_path, "", text + MATMUL))


def test_a_python_file_may_not_have_its_head_in_a_docstring(tmp_path):
    (tmp_path / "my.py").write_text('"""Mine.\n\nhpcmm:\n  dtypes: [float32]\n"""\n')
    with pytest.raises(KernelFileError, match=r"my.py:3: 'hpcmm:' is not read; .* lines that begin with #"):
        own_kernels.of_module(tmp_path / "my.py", re)


KEYS = st.sampled_from([*heads.SCHEMA["properties"], "rowz", "a b"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["ROWS * 2", "ITEMSIZE", "float32"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["X", "ROWS", "1"]), inner, max_size=2),
    max_leaves=4,
)


@given(head=st.dictionaries(KEYS, VALUES, max_size=4), changes=st.dictionaries(st.sampled_from("XY"), st.integers()))
def test_any_head_gives_a_variant_or_an_error_that_names_the_file(tmp_path_factory, head, changes):
    path = tmp_path_factory.getbasetemp() / "any.cu"
    path.write_text(f"// hpcmm: {json.dumps(head)}\n{MATMUL}")
    try:
        kernel = own_kernels.read(path, changes)
    except KernelFileError as error:
        assert error.problems and all(str(path) in problem for problem in error.problems)
    else:
        for tile in kernel.variant.tiles or (0,):
            found = task(kernel, (5, 7, 3), kernel.variant.dtypes[0], tile)
            assert all(count > 0 for launch in launches(found) for count in (*launch.grid, *launch.block))


@given(st.text())
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any text.cu"
    path.write_bytes(text.encode(errors="replace"))
    try:
        own_kernels.read(path)
    except KernelFileError as error:
        assert str(path) in str(error)


EXPRESSIONS = st.recursive(
    st.integers(0, 99).map(str) | st.sampled_from(["X", "Y"]),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/%"), inner).map(lambda part: f"({' '.join(part)})"),
    max_leaves=8,
)


@given(EXPRESSIONS, st.integers(1, 99), st.integers(1, 99))
def test_arithmetic_is_that_of_python_with_whole_quotients(text, x, y):
    try:
        expected = eval(text.replace("/", "//"), {}, {"X": x, "Y": y})
    except ZeroDivisionError:
        with pytest.raises(ValueError):
            heads.number(text, {"X": x, "Y": y})
    else:
        assert heads.number(text, {"X": x, "Y": y}) == expected


@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True), st.integers(-99, 99), max_size=3))
def test_values_follow_a_name(values):
    path, found = file_of(f"some folder/{name_of(Path('my.cu'), values)}")
    assert (path, found) == ("some folder/my.cu", values)


def test_a_config_names_files_relative_to_itself(tmp_path, forgotten):
    (tmp_path / "inner").mkdir()
    written(tmp_path, "constants: {SIDE: 8}\nblock: 64", name="of_a_config.cu")
    variants = "{quick: [naive, ../of_a_config.cu, '../of_a_config.cu SIDE=4'], full: [naive]}"
    path = tmp_path / "inner" / "config.yaml"
    path.write_text(f"sweeps: {{a: {{operation: matmul, variants: {variants}, sizes: [8]}}}}")
    config = read_config(path)
    extensions.load(extensions.named(config))
    _, sweeps = validated(config)
    assert [each.name for each in sweeps["a"].variants] == ["naive", "of_a_config.cu", "of_a_config.cu SIDE=4"]
    path.write_text(path.read_text().replace("matmul", "sum").replace("naive, ", ""))
    with pytest.raises(ConfigError, match=r"sweeps\.a\.variants: '.*/\.\./of_a_.* is not allowed; allowed: "):
        validated(read_config(path))


def test_the_fingerprint_covers_the_file_its_headers_and_its_values(tmp_path):
    (tmp_path / "mine.h").write_text("#define ONE 1\n")
    path = written(tmp_path, "constants: {SIDE: 8}", f'#include "mine.h"\n{MATMUL}')

    def digest(**values) -> str:
        fingerprint.forget()
        return fingerprint.of_task(task(own_kernels.read(path, values), (1, 1, 1)))

    first = digest()
    assert digest() == first
    assert digest(SIDE=4) != first
    (tmp_path / "mine.h").write_text("#define ONE 2\n")
    second = digest()
    assert second != first
    path.write_text(path.read_text().replace("int m", "int n"))
    assert digest() not in (first, second)


def test_a_static_library_follows_the_source_that_needs_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "twice.c").write_text("int twice(int x) { return 2 * x; }")
    (tmp_path / "user.c").write_text("int twice(int x);\nint f(void) { return twice(21); }")
    subprocess.run(["cc", "-c", "-fPIC", "twice.c"], cwd=tmp_path, check=True)
    subprocess.run(["ar", "rc", "libtwice.a", "twice.o"], cwd=tmp_path, check=True)
    built = modules.compile_module(tmp_path / "user.c", {}, [f"-L{tmp_path}", "-ltwice"])
    assert ctypes.CDLL(str(built)).f() == 42


@pytest.mark.parametrize("include", ["<mine.h>", pytest.param("MINE", marks=pytest.mark.slow)])
@pytest.mark.parametrize("suffix", [".c", ".cu"])
def test_a_build_is_that_of_all_files_that_the_compiler_read(tmp_path, monkeypatch, emulated, include, suffix):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / f"mine{suffix}"
    kernel = 'extern "C" __global__ void matmul() {}' if suffix == ".cu" else ""
    source.write_text(f'#define MINE "mine.h"\n#inc\\\nlude {include}\n{kernel}')

    def built() -> Path:
        options = [f"-I{tmp_path}"]
        if suffix == ".c":
            return modules.compile_module(source, {}, options)
        if not launch.COMPILER:
            pytest.skip("no g++ on this machine")
        return launch.compile_library(source, "matmul", options, emulated)

    (tmp_path / "mine.h").write_text("int one = 1;\n")
    first = built()
    assert built() == first
    (tmp_path / "mine.h").write_text("int one = 2;\n")
    second = built()
    assert second != first and second.read_bytes() != first.read_bytes()
    (tmp_path / "mine.h").write_text("int one = 1;\n")
    assert built() == first


@pytest.mark.parametrize("include", ['"mine.h"', "<mine.h>", "MINE", '/**/ "mine.h" // its first line'])
@pytest.mark.parametrize("directive", ["#include", " # include", "#inc\\\nlude", "%:include", "#/* */import"])
def test_headers_are_found_however_they_are_included(tmp_path, directive, include):
    source, header, other = tmp_path / "mine.cu", tmp_path / "mine.h", tmp_path / "other.h"
    source.write_text(f'#define MINE "mine.h"\n{directive} {include}\n#include <cuda_fp16.h>\n')
    header.write_text('#include "other.h"\n')
    other.write_text('#include "mine.h"\nint \xe9;\n', "latin-1")
    assert sorted(kernels.headers(source)) == [header, other]


def test_no_example_hides_a_package():
    """Python looks in the current folder first: it would find ``numba_cuda.py`` there instead of the package."""
    packages = {"cuda", "cupy", "llvmlite", "numba", "numba_cuda", "numpy", "torch", "triton", "cutlass"}
    assert not packages & {path.stem for path in EXAMPLES.iterdir()}


def test_an_error_names_the_package_that_holds_the_module(tmp_path):
    """The modules ``numba.cuda`` are in the folder of ``numba_cuda``, which may be the one that is too old."""
    path = tmp_path / "site-packages" / "h5py" / "of_another.py"
    path.parent.mkdir(parents=True)
    path.write_text("import numpy\nnumpy.row_stack_of_old\n")
    spec = importlib.util.spec_from_file_location("psutil.of_another", path)
    with pytest.raises(AttributeError) as raised:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("h5py", "numpy", "psutil"))
    assert described(raised.value).endswith(f"'row_stack_of_old' ({versions})")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the packages
@pytest.mark.parametrize(
    ("name", "package"), [("numba_product", "numba.cuda"), ("triton_tile", "triton"), ("cuda_core", "cuda.core")]
)
def test_an_example_for_a_gpu_is_right(gpu, forgotten, name, package):
    """Without a GPU, or without its package, it is skipped."""
    pytest.importorskip(package)
    path = EXAMPLES / f"{name}.py"
    extensions.load([path])
    operation = OPERATIONS["matmul"]
    for shape in ((1, 1, 1), (65, 33, 70), (128, 256, 64), (2048, 2048, 2048)):
        found = Task(operation, operation.variant(path.name), shape, "float32", operation.scalars)
        inputs = operation.draw(np.random.default_rng(0), found)
        arrays = {key: gpu.empty(array.shape, "float32") for key, array in inputs.items()}
        for key, array in inputs.items():
            gpu.copy(array, arrays[key])
        gpu.prepare(found, arrays)()
        got = np.empty(inputs["C"].shape, np.float32)
        gpu.copy(arrays["C"], got)
        verdict = operation.reference(found, inputs)(got)
        assert verdict.passed, verdict
