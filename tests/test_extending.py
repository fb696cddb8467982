"""Additions from outside the package: each a file of some 60 lines, from the config to the report."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timings
import yaml
from tasks import CONFIGS

from hpcmm import store
from hpcmm.experiment import extensions
from hpcmm.experiment.extensions import ExtensionError

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).with_name("extensions")
FILES = sorted(FOLDER.glob("*.py"))

CONFIG = CONFIGS["extending"] | {"extensions": [f"added/{path.name}" for path in FILES]}


@pytest.mark.parametrize("path", [*FILES, *FOLDER.glob("*.c")], ids=lambda path: path.name)
def test_an_addition_is_small(path):
    assert len(path.read_text().splitlines()) <= 65


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder in which Snakemake has run the experiment, and its output."""
    program = shutil.which("snakemake", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        pytest.skip("snakemake is not on PATH")
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(FOLDER, folder / "added")
    (folder / "experiment.yaml").write_text(yaml.safe_dump(CONFIG))
    command = [program, "--snakefile", ROOT / "Snakefile", "--directory", folder, "--cores", "2"]
    command += ["--configfile", folder / "experiment.yaml"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.mark.slow
def test_additions_run_from_the_config_to_the_report(finished):
    rows = store.read(finished / "results/timings.h5")["measurements"]
    found = {
        (rows["sweep"][i], rows["contender"][i], rows["dtype"][i], rows["contender_algorithm"][i], rows["ranks"][i])
        for i in range(len(rows["sweep"]))
        if rows["passed"][i]
    }
    assert found >= {
        ("kernel", "row_axpy", "float64", "scatter", 1),
        ("kernel", "numpy", "float64", "scatter", 1),
        ("element", "serial", "half", "scatter", 1),
        ("element", "widened", "half", "scatter", 1),
        ("operation", "by_rows", "float32", "scatter", 2),
        ("operation", "numpy", "float64", "scatter", 2),
        ("algorithm", "numpy", "float64", "replicated", 2),
    }
    assert rows["passed"].all()
    at = rows["operation"] == "matvec"
    assert (rows["m"][at] == 100).all() and (rows["n"][at] == 37).all() and (rows["k"][at] == 0).all()
    page = timings.page_of(finished / "results/report.html")
    for text in ("row_axpy", "half", "matvec", "100 × 37", "numpy replicated", "over what rounding may cause"):
        assert text in page, text
    assert (finished / "results/figures/extension-errors-matvec.svg").exists()


def test_a_result_in_half_is_held_to_its_rounding():
    """Sums in float16 itself fail, sums in float64 pass: the bound is not so wide that it lets anything by."""
    program = f"""
import dataclasses, numpy as np
from hpcmm.experiment import extensions
extensions.load([{str(FOLDER / "element_type.py")!r}])
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.model import Task
from hpcmm.operations import OPERATIONS
matmul = OPERATIONS["matmul"]
task = Task(matmul, matmul.variant("serial"), (40, 30, 500), "half", matmul.scalars)
arrays = matmul.draw(np.random.default_rng(0), task)
judge = matmul.reference(task, arrays)
got = {{name: array.copy() for name, array in arrays.items()}}
CpuBackend(1).prepare(task, got)()
narrow = arrays["C"] * np.float16(0.5)
for column, row in zip(arrays["A"].T, arrays["B"]):
    narrow += np.float16(1.5) * np.outer(column, row)
print(judge(got["C"]).passed, judge(narrow).passed)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such Python file"),
        ("x = 1", "adds nothing; it may define OPERATIONS, VARIANTS, DTYPES, ALGORITHMS, FIGURES"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("VARIANTS = {'matmal': ()}", "'matmal' is unknown; allowed: matmul, sum,"),
        ("from hpcmm.operations.matmul import *\nOPERATIONS = [MATMUL]", "'matmul' exists already"),
        ("from hpcmm.operations.matmul import *\nVARIANTS = {'matmul': LADDER[:1]}", "has a variant 'serial' already"),
    ],
)
def test_an_extension_that_cannot_be_loaded_is_an_error_that_names_it(tmp_path, text, message):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ExtensionError, match=re.escape(message)) as error:
        extensions.load([path])
    assert str(path) in str(error.value)
    assert path not in extensions.LOADED


def test_random_inputs_of_another_type_are_uniform():
    from hpcmm.model.dtypes import DTYPES
    from hpcmm.operations.matmul import draw_into

    x = np.empty((300, 200), np.float16)
    draw_into(x, np.random.default_rng(0), DTYPES["float16"])
    assert -1 <= x.min() < -0.99 and 0.99 < x.max() <= 1 and abs(x.astype(float).mean()) < 0.02


def test_a_rung_of_the_package_is_its_source_and_its_name_in_the_list(tmp_path):
    """In a copy of the package, two files change; the record follows from them."""
    copy = tmp_path / "hpcmm"
    shutil.copytree(ROOT / "hpcmm", copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    rungs, (source,) = copy / "operations" / "ladders.yaml", copy.glob("kernels/matmul/*/coalesced.cu")
    text = source.read_text().replace("counterpart: uncoalesced", "counterpart: coalesced")
    source.with_stem("again").write_text(text)
    text = rungs.read_text()
    assert text.count("- coalesced\n") == 1
    rungs.write_text(text.replace("- coalesced\n", "- coalesced\n  - again\n"))
    program = """
import sys
sys.meta_path[:] = [each for each in sys.meta_path if isinstance(each, type)]  # without that of the editable install
sys.path.insert(0, ".")
from hpcmm import kernels
from hpcmm.operations import OPERATIONS
ladder = OPERATIONS["matmul"].ladder
(again, coalesced) = (OPERATIONS["matmul"].variant(name) for name in ("again", "coalesced"))
names = [each.name for each in ladder]
print(names.index("again") - names.index("coalesced"), again.counterpart, again.shelf, again.change == coalesced.change)
print(kernels.source(OPERATIONS["matmul"], again))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["1 coalesced lesson True", str(source.with_stem("again"))], done.stderr
