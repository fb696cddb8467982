"""The rooms of the house: imports go one way, and each heavy library is imported in one room."""

import ast
import doctest
import functools
import graphlib
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hpcmm
from hpcmm.cli.arguments import COMMANDS

PACKAGE = Path(hpcmm.__file__).parent
MODULES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "course"]  # exercises are no modules

# A room may import from those before it.
ORDER = [
    "model", "system", "kernels", "operations", "backends", "parallel", "experiment", "store", "bench", "analysis",
    "report", "cluster", "jobs", "grading", "cli", "__main__",
]  # fmt: skip

# library -> the only place that may import it
HEAVY = {
    "cupy": "backends/cuda/", "cupy_backends": "backends/cuda/", "cupyx": "backends/cuda/", "cuda": "backends/cuda/",
    "pynvml": "backends/cuda/", "mpi4py": "parallel/", "nvmath": "parallel/cublasmp.py", "h5py": "store/",
    "vl_convert": "report/", "matplotlib": "report/",
}  # fmt: skip


# the module of parallel/ that starts MPI when it is imported, besides those of the transports
STARTS_MPI = {"world"}


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path, top: bool = False) -> set[str]:
    """Dotted names of all that a file imports, or its top level; names from a package are joined to it."""
    found, tree = set(), parsed(path)
    for node in tree.body if top else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}:{node.lineno}: import by the full name"
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return found


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MOST_PAIRS = 69  # pairs of rooms in which one imports names of the other


def test_imports_go_one_way_along_few_paths():
    wrong, pairs = {}, set()
    for path in MODULES:
        package = path == PACKAGE / "__init__.py"  # its functions import rooms when they are called
        inside = {each.split(".")[1] for each in imports(path, top=package) if each.startswith("hpcmm.")}
        assert package or room(path) in ORDER, f"{name(path)} has no place in the order of the rooms"
        allowed = [] if package else ORDER[: ORDER.index(room(path)) + 1]  # a room's own modules too
        if upward := inside - set(allowed):
            wrong[name(path)] = upward
        if path.parent != PACKAGE:
            pairs |= {(room(path), other) for other in inside - {room(path)}}
    assert not wrong
    assert len(pairs) <= MOST_PAIRS


def test_no_files_import_each_other_in_a_circle():
    """Neither for annotations only; the face of a package imports the files whose names it hands on."""
    files = {name(path)[:-3].replace("/", "."): path for path in MODULES if path.name != "__init__.py"}
    taken = {
        own: {module for each in imports(path) for module in (each, each.rpartition(".")[0])}
        for own, path in files.items()
    }
    graphlib.TopologicalSorter({own: names & files.keys() for own, names in taken.items()}).prepare()


def test_each_heavy_library_has_one_room():
    wrong = [
        (name(path), library)
        for path in MODULES
        for library in {each.split(".")[0] for each in imports(path)} & set(HEAVY)
        if not str(path.relative_to(PACKAGE)).startswith(HEAVY[library])
    ]
    assert not wrong


DEVICE_NAMES = {"cpu", "cuda"}


def device_names_in(tree: ast.AST) -> list[int]:
    """Lines that compare something with the name of a device, match it, or look it up in a table of their own."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            values = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            values = [node.value]
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
            values = node.value.keys
        else:
            continue
        if any(isinstance(each, ast.Constant) and each.value in DEVICE_NAMES for each in values):
            found.append(node.lineno)
    return found


def test_only_backends_and_device_records_test_for_a_device():
    others = [path for path in MODULES if room(path) != "backends" and path.stem != "devices"]
    found = {name(path): device_names_in(parsed(path)) for path in others}
    assert not {path: lines for path, lines in found.items() if lines}


def test_module_names_are_specific():
    vague = {"utils", "util", "common", "helper", "helpers", "manager", "data"}
    assert not [name(path) for path in MODULES if {path.stem, *path.relative_to(PACKAGE).parts} & vague]


def loaded_by(*modules: str, then: str = "pass") -> set[str]:
    """All modules that are loaded after an import of these, and ``then`` by code, in a process of its own."""
    program = f"import sys, {', '.join(modules)}; {then}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_planning_and_reading_load_neither_mpi_nor_cupy():
    loaded = loaded_by("hpcmm.experiment.plan", "hpcmm.store", "hpcmm.operations")
    assert "hpcmm.store" in loaded
    assert not {"mpi4py", "cupy", "pynvml", "vl_convert", "matplotlib"} & loaded


def test_the_distributed_algorithms_are_imported_without_mpi_or_a_device():
    own = [each.stem for each in sorted((PACKAGE / "parallel").glob("*.py")) if each.stem not in STARTS_MPI]
    assert {"scatter", "staged", "resident", "ring", "summa", "cublasmp", "all_reduce", "preflight", "cost"} <= set(own)
    modules = [f"hpcmm.parallel.{each}" for each in own if each != "__init__"]
    loaded = loaded_by("hpcmm.parallel", *modules, "hpcmm.experiment.plan", "hpcmm.report")
    assert not {"mpi4py", "nvmath", "cupy", "pynvml"} & loaded


def test_a_command_loads_no_other_one_and_what_checks_no_config_loads_no_validator():
    loaded = loaded_by("hpcmm.cli.main", then="hpcmm.cli.main.parser('status')")
    others = {f"hpcmm.cli.{each}" for each in COMMANDS} - {"hpcmm.cli.status"}
    assert "hpcmm.cli.status" in loaded and not others & loaded
    assert not {"jsonschema", "pandas"} & (loaded | loaded_by("hpcmm.jobs.measure", "hpcmm.cluster.slurm"))


def test_the_list_of_built_kernels_needs_only_the_build_requirements():
    program = "import sys; before = set(sys.modules); import hpcmm.operations.built; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    packages = {each.partition(".")[0] for each in run.stdout.split()} - set(sys.stdlib_module_names)
    build = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["build-system"]["requires"]
    modules = {"pyyaml": ("yaml", "_yaml")}
    names = [re.match(r"[\w-]+", each)[0] for each in build]
    packages = {each for each in packages if not re.match(r"_?cython_", each)}  # PyYAML is partly compiled by Cython
    assert packages <= {"hpcmm", *(module for each in names for module in modules.get(each, (each,)))}


def test_fields_of_dataclasses_are_described_once():
    """Comments at the fields describe them; a docstring does not list them with their types again."""
    twice = []
    for path in MODULES:
        for node in (each for each in ast.walk(parsed(path)) if isinstance(each, ast.ClassDef)):
            text = ast.get_docstring(node) or ""
            fields = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]
            twice += [f"{path.name}: {node.name}.{name}" for name in fields if re.search(rf"(?m)^{name} : ", text)]
    assert twice == []


@pytest.mark.parametrize("path", [path for path in MODULES if ">>>" in path.read_text()], ids=name)
def test_examples_in_docstrings(path):
    module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
