"""Python functions that return their result, in files and from a notebook."""

import functools
import sys
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
import yaml

import hpcmm
from hpcmm.bench import hints
from hpcmm.bench.notebook import source_of
from hpcmm.experiment import extensions, own_kernels, returning
from hpcmm.model import ENDED, HpcmmError, Task
from hpcmm.operations import OPERATIONS

FUNCTIONS = yaml.safe_load(Path(__file__).with_name("functions.yaml").read_text())
PANEL = 3


def product(a, b):
    return half(a, b) + np.matmul(a[:, PANEL:], b[PANEL:])


def as_it_is(function):
    return function


@as_it_is
def half(a: np.ndarray, b, end=PANEL):
    return np.matmul(a[:, :end], b[:end])


def read(folder, text: str) -> own_kernels.OwnKernel:
    path = folder / "of_test.py"
    path.write_text(text)
    (kernel,) = own_kernels.of_module(path, extensions.imported(path))
    return kernel


def test_a_wrong_function_gets_a_hint(tmp_path):
    variant = read(tmp_path, "def matmul(a, b): return a[:, : len(b) // 4 * 4] @ b[: len(b) // 4 * 4]").variant
    task = Task(OPERATIONS["matmul"], variant, (1, 17, 33), "float32", {"alpha": 1, "beta": 0})
    assert hints.on_cpu(task).startswith("right at multiples of 1 x 1 x 4: compare with m, n and k")


@pytest.mark.parametrize("case", [*FUNCTIONS["return"], *FUNCTIONS["fill"]], ids=itemgetter("text"))
def test_a_function_returns_its_result_or_fills_it(tmp_path, case):
    kernel, operation = read(tmp_path, case["text"]), case["operation"]
    fixed = case.get("fixed", {"alpha": 1, "beta": 0} if operation == "matmul" else {})
    contract = kernel.variant.contract
    assert (kernel.operations, kernel.variant.device) == ((operation,), "cpu")
    assert (dict(contract.scalars) if contract else {}) == fixed
    x = np.arange(1.0, 10).reshape(3, 3) if operation == "matmul" else np.arange(1.0, 10)
    scalars = {"alpha": 1.5, "beta": 0.5} | fixed if operation == "matmul" else {}
    product = scalars.get("alpha", 0) * (x @ x) + scalars.get("beta", 0) * 8
    wanted = {"matmul": product, "vector_add": x + x, "sum": x.sum()}[operation]
    given = dict.fromkeys(returning.inputs(OPERATIONS[operation]), x)
    (result,) = (each.name for each in OPERATIONS[operation].operands if each.role != "in")
    given[result] = np.full_like(wanted, 8)
    kernel.variant.function(stream=None, **given, **scalars)
    np.testing.assert_array_equal(given[result], wanted)


def test_an_exit_of_a_function_is_an_error_and_one_by_a_signal_ends_the_job(tmp_path):
    for code, expected in ((3, HpcmmError), (ENDED, SystemExit)):
        kernel = read(tmp_path, f"def sum(x): raise SystemExit({code})")
        with pytest.raises(expected, match=f"^{'it ends the process: SystemExit: 3' if code == 3 else code}$"):
            kernel.variant.function(stream=None, x=np.ones(3), result=np.zeros(1))


def test_a_function_with_unknown_parameters_names_those_that_it_may_have(tmp_path):
    message = r"of_test.py.*matmul\(A, n, m, B\).*allowed: matmul\(A, B\), matmul\(A, B, C\)"
    with pytest.raises(HpcmmError, match=message):
        read(tmp_path, "def matmul(A, n, m, B): return A @ B")


def test_arrays_of_a_package_for_gpus_are_on_a_gpu(tmp_path, monkeypatch):
    (tmp_path / "cupy.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert read(tmp_path, "import cupy\ndef matmul(a, b): return a @ b").variant.device == "cuda"
    assert read(tmp_path, "# hpcmm:\n#   device: cpu\nimport cupy\ndef matmul(a, b): pass").variant.device == "cpu"


NUMBA = """
import numpy as np
class Kernel:  # as numba.cuda's dispatcher
    forall = None
    def __init__(self, function):
        self.py_func, self.__name__, self.__module__ = function, function.__name__, function.__module__
    def __getitem__(self, launch):
        assert launch == ((3, 3), (16, 16)), launch
        return self.py_func
    def __call__(self, *arrays):
        raise TypeError("no launch")
@Kernel
def matmul_kernel(A, B, C):
    np.matmul(A, B, out=C)
def run(n):
    return n
"""


def test_a_kernel_of_numba_is_found_by_its_name_and_its_three_arrays(tmp_path):
    """It is launched on blocks that cover the result."""
    function, result = read(tmp_path, NUMBA).variant.function, np.empty((40, 3))
    function(A=np.ones((40, 2)), B=np.ones((2, 3)), C=result, alpha=1, beta=0, stream=None)
    assert (result == 2).all()
    with pytest.raises(HpcmmError, match="by name and arguments: none; name one of them matmul"):
        read(tmp_path, "def twice(x):\n    return 2 * x")


def test_the_source_of_a_function_has_what_it_uses():
    names: dict = {}
    exec(source_of(product, {"device": "cpu"}), names)
    a, b = np.random.default_rng(0).normal(size=(2, 5, 5))
    np.testing.assert_allclose(names["product"](a, b), a @ b)


def test_a_file_that_is_no_kernel_fails_with_its_reason(tmp_path):
    (tmp_path / "text.txt").touch()
    found = hpcmm.bench(tmp_path / "text.txt")
    assert not found.passed and "not a kernel file" in repr(found)
    with pytest.raises(HpcmmError, match=r"none.txt: No such file"):
        hpcmm.bench("none.txt")
    with pytest.raises(HpcmmError, match="--sizes"):
        hpcmm.bench(product, sizes=["many"])
    for without in (np.matmul, lambda a, b: a @ b, functools.partial(product)):
        with pytest.raises(HpcmmError, match="not a function that is written with def"):
            hpcmm.bench(without)
    exec("def unseen(a, b): return a @ b", names := {})
    with pytest.raises(HpcmmError, match="unseen: no source"):
        hpcmm.bench(names["unseen"])


@pytest.mark.parametrize(("how", "arithmetic"), [("", {"float32": "TF32"}), (', input_precision="ieee"', {})])
def test_products_of_triton_round_float32_to_tf32_by_default(tmp_path, how, arithmetic):
    assert read(tmp_path, f"# tl.dot(a, b{how})\ndef matmul(a, b): return a @ b").variant.arithmetic == arithmetic


OF_PACKAGE = """
import sys
sys.path.insert(0, {folder!r})
import numba
def matmul(a, b):
    return numba.product(a, b)
"""


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ("def product(a, b): raise {error}", "cannot run here: AttributeError: NumPy has no such function"),
        ("raise {error}", "cannot run here: AttributeError: NumPy has no such function"),
        ("class TypingError(Exception): pass\ndef product(a, b): raise TypingError('i is not defined')", "FAIL"),
        ("def __getattr__(name): raise AttributeError(f'no attribute {{name!r}}')", "FAIL"),
        ("def product(a, b): return getattr(a, b'new'.decode())", "cannot run here: AttributeError: "),
    ],
    ids=["in a call", "in an import", "the code that it compiles", "a wrong name", "a name of its own"],
)
def test_a_package_that_does_not_work_here_is_no_mistake_of_the_kernel(
    tmp_path, command, forgotten, monkeypatch, package, says
):
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "site-packages"
    (folder / "numba").mkdir(parents=True)
    (folder / "numba" / "__init__.py").write_text(package.format(error="AttributeError('NumPy has no such function')"))
    (tmp_path / "mine.py").write_text(OF_PACKAGE.format(folder=str(folder)))
    done = command("bench", "mine.py", "--sizes", "8", folder=tmp_path)
    sys.modules.pop("numba", None)
    assert says in done.stdout and done.returncode == (1 if says == "FAIL" else 3), done.stderr


def test_a_file_that_imports_from_its_package_is_not_tested(tmp_path, command, forgotten):
    (tmp_path / "mine.py").write_text("from .base import Backend\ndef matmul(a, b): return a @ b")
    assert "not tested: imports from its package" in command("bench", "mine.py", folder=tmp_path).stdout
