"""The rooms of the house: imports go one way, and each heavy library is imported in one room."""

import ast
import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import hpcmm

PACKAGE = Path(hpcmm.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
JOBS = sorted((PACKAGE.parent / "jobs").glob("*.py"))

# A room may import from those before it.
ORDER = [
    "model",
    "interval",
    "limits",
    "kernels",
    "operations",
    "config",
    "durations",
    "plan",
    "site",
    "slurm",
    "provenance",
    "backends",
    "parallel",
    "store",
    "journal",
    "measure",
    "job",
    "profiling",
    "analysis",
    "occupancy",
    "scaling",
    "compare",
    "report",
    "status",
    "doctor",
    "__main__",
]

# library -> the only place that may import it, in the package and in jobs/
HEAVY = {
    "cupy": "backends/cuda.py",
    "cupy_backends": "backends/cuda.py",
    "cupyx": "backends/cuda.py",
    "pynvml": "backends/cuda.py",
    "mpi4py": "parallel/",
    "nvmath": "parallel/cublasmp.py",
    "h5py": "store.py",
    "vl_convert": "report/",
    "matplotlib": "report/",
}


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


def imports(path: Path) -> set[str]:
    """Dotted names of all that a file imports, wherever in the file; names from a package are joined to it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno}: import by the full name"
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return found


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_imports_go_one_way(path):
    inside = {each.split(".")[1] for each in imports(path) if each.startswith("hpcmm.")}
    if path == PACKAGE / "__init__.py":
        assert not inside
        return
    assert room(path) in ORDER, f"{name(path)} has no place in the order of the rooms"
    allowed = ORDER[: ORDER.index(room(path)) + 1]  # a room's own modules too
    assert inside <= set(allowed)


@pytest.mark.parametrize("path", [*MODULES, *JOBS], ids=name)
def test_each_heavy_library_has_one_room(path):
    inside = str(path.relative_to(PACKAGE)) if PACKAGE in path.parents else name(path)
    for library in {each.split(".")[0] for each in imports(path)} & set(HEAVY):
        assert inside.startswith(HEAVY[library]), f"{library} belongs in {HEAVY[library]}"


def test_the_reading_of_imports_sees_imports_in_functions(tmp_path):
    path = PACKAGE / "backends" / "__init__.py"
    assert "hpcmm.backends.cuda.CudaBackend" in imports(path)


def test_module_names_say_what_is_inside():
    vague = {"utils", "util", "common", "helper", "helpers", "manager", "data"}
    assert not [name(path) for path in MODULES if {path.stem, *path.relative_to(PACKAGE).parts} & vague]


def test_planning_and_reading_load_neither_mpi_nor_cupy():
    program = "import sys, hpcmm.plan, hpcmm.store, hpcmm.operations; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "hpcmm.store" in loaded
    assert not {"mpi4py", "cupy", "pynvml", "vl_convert", "matplotlib"} & set(loaded)


@pytest.mark.parametrize("path", [path for path in MODULES if ">>>" in path.read_text()], ids=name)
def test_examples_in_docstrings(path):
    module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
