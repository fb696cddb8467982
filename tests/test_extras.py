"""The core dependencies are enough to plan, read and compare; commands that measure name the extras that they need."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import test_check
import yaml
from packaging.requirements import Requirement
from test_main import run_of

from hpcmm.cli.arguments import COMMANDS
from hpcmm.experiment import plan
from hpcmm.model.devices import ANY
from hpcmm.parallel import INSTALL

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = PROJECT["dependencies"]
CONFIG = "sweeps: {small: {operation: sum, variants: [serial], sizes: [1000]}}\n"
RUBRIC = "exercises: {rows: {operation: matmul, file: 01_serial.c, points: 2, shapes: 1, most: 16}}\n"

# Arguments of each command that measures nothing, and what its output contains
READING = {
    "init": (["work"], "hpcmm run"),
    "plan": ([], "small"),
    "new": (["mine", "--like", "serial"], "mine.c"),
    "status": ([], "0 of 3 points"),
    "show": (["nodes/timings.h5"], "12 PASS"),
    "report": (["nodes/timings.h5", "--results", "out"], "12 PASS"),
    "merge": (["a.h5", "b.h5", "-o", "all.h5"], "2 points of 2 runs"),
    "compare": (["a.h5", "b.h5"], "1 point in both"),
    "history": (["a.h5", "b.h5"], "over 2 runs"),
    "predict": (
        ["--rate", "50", "--inside", "1us,9GB/s", "--between", "1us,1GB/s", "--ranks", "8", "--simulate", "0"],
        "closed form",
    ),
    "export": (["a.h5"], "{"),
    "occupancy": (["--tile", "16"], "8 blocks per SM"),
    "check": (["nodes/timings.h5"], "4 devices"),
    "grade": ([".", "--rubric", "rubric.yaml"], "rows: PASS 2 of 2"),
}
MEASURING = {"run": [], "bench": ["01_serial.c"], "check": ["--ranks", "2"]}


def needed(requirements: list[str], extra: str = "") -> dict[str, importlib.metadata.Distribution]:
    """Return the installed distributions that requirements name, and those that these require, by name."""
    found = {}
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            of = importlib.metadata.distribution(requirement.name)
            found |= {requirement.name: of} | needed(of.requires or [])
    return found


def environment(folder: Path, requirements: list[str]) -> Path:
    """Return Python of an environment with hpcmm and these requirements: links into the environment of the tests."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for distribution in [importlib.metadata.distribution("hpcmm"), *needed(requirements).values()]:
        for name in {path.parts[0] for path in distribution.files} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(distribution.locate_file(name))
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return environment(tmp_path_factory.mktemp("core"), CORE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A working folder with timings files, a plan, and a kernel and its rubric."""
    folder = tmp_path_factory.mktemp("work")
    run_of(folder / "a.h5", "left")
    run_of(folder / "b.h5", "right")
    (folder / "nodes").mkdir()
    test_check.run(folder / "nodes", seed=1)
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "rubric.yaml").write_text(RUBRIC)
    shutil.copy(ROOT / "tests" / "solutions" / "01_serial.c", folder)
    (folder / "results").mkdir()
    plan.make(yaml.safe_load(CONFIG), ANY).write(folder / "results" / "plan.json")
    return folder


def run(python: Path, folder: Path, *arguments, program: str = "hpcmm", **environ) -> subprocess.CompletedProcess:
    command = [python, "-m", program, *arguments]
    return subprocess.run(command, cwd=folder, env=os.environ | environ, capture_output=True, text=True, timeout=300)


def test_every_command_is_tried():
    assert {*READING, *MEASURING, "doctor", "tune"} == set(COMMANDS)  # tune is for a GPU


TRIES = """
import contextlib, io, json, sys
from hpcmm.cli.main import main
found = {}
for name, (arguments, _) in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        main([name, *arguments])
    found[name] = out.getvalue(), err.getvalue()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_commands_that_measure_nothing_need_the_core_only(python, folder):
    """In one process, whose start takes longer than most of them."""
    command, given = [python, "-c", TRIES], json.dumps(READING)
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for name, (output, errors) in json.loads(done.stdout).items():
        assert READING[name][1] in output and errors == "", (name, output, errors)


@pytest.mark.parametrize("command", MEASURING)
def test_a_command_that_measures_names_its_extras(python, folder, command):
    done = run(python, folder, command, *MEASURING[command])
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith(f"is not installed: {INSTALL}")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [{}, {"PMI_SIZE": "2"}])
def test_doctor_advises_to_install_the_extras(python, folder, ranks):
    done = run(python, folder, "doctor", "--json", **ranks)
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert (found["MPI"]["found"], found["MPI"]["advice"]) == ("mpi4py is not installed", INSTALL)
    assert found["C kernels"]["state"] == "ok"


@pytest.mark.slow
def test_the_examples_of_the_file_format_need_the_extra_analysis_only(tmp_path, folder):
    python = environment(tmp_path / "env", [*CORE, *PROJECT["optional-dependencies"]["analysis"]])
    text = (ROOT / "docs" / "file-format.md").read_text("utf-8").replace("results/timings.h5", "nodes/timings.h5")
    programs = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    done = subprocess.run([python, "-c", "\n".join(programs)], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and len(programs) == 5
    assert not {"mpi4py", "snakemake"} & {path.name for path in (tmp_path / "env").glob("lib/*/site-packages/*")}


def test_open_names_the_extra_that_it_needs(python, folder):
    opened = [python, "-c", "import hpcmm; hpcmm.open('a.h5')"]
    done = subprocess.run(opened, cwd=folder, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith("is not installed: pip install 'hpcmm[analysis]'")


@pytest.mark.slow
def test_without_the_plugin_of_cluster_generic_snakemake_runs_and_only_the_option_is_refused(tmp_path):
    """Each import of Snakemake imports our plugin."""
    pytest.importorskip("snakemake")
    python = environment(tmp_path / "env", [*CORE, "snakemake"])
    (tmp_path / "other").write_text("rule all:\n    output: 'x'\n    shell: 'touch {output}'\n")
    done = run(python, tmp_path, "--snakefile", "other", "--cores", "1", program="snakemake")
    assert done.returncode == 0 and (tmp_path / "x").exists(), done.stderr
    options = ["--snakefile", ROOT / "Snakefile", "--cluster", "sbatch", "--jobs", "4"]
    refused = run(python, tmp_path, *options, program="snakemake")
    assert refused.returncode == 1
    assert refused.stderr.startswith("hpcmm: error: --cluster needs snakemake-executor-plugin-cluster-generic")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_plugin_is_no_executor(tmp_path):
    """Snakemake registers it as one, because it has the name of a plugin."""
    pytest.importorskip("snakemake")
    (tmp_path / "Snakefile").write_text("rule all:\n    output: 'x'\n    shell: 'touch {output}'\n")
    refused = run(sys.executable, tmp_path, "--executor", "cluster", "--jobs", "1", program="snakemake")
    assert refused.returncode == 1 and "use --cluster COMMAND instead of --executor cluster" in refused.stderr


@pytest.fixture
def make(tmp_path):
    """Run ``make run`` where these programs are installed: for each its minor version of Python 3."""
    if not shutil.which("make"):
        pytest.skip("no make")
    for name in ("Makefile", "pyproject.toml", "CMakeLists.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for tool in ("sh", "expr", "nproc", "sed", "tail"):
        (tmp_path / tool).symlink_to(shutil.which(tool))

    def run(versions: dict[str, int], *variables: str) -> subprocess.CompletedProcess:
        for name, minor in versions.items():
            pretend = f"import sys; sys.version_info = (3, {minor}, 0); exec(sys.argv[1])"
            answers = f"""-c) exec '{sys.executable}' -c '{pretend}' "$2";; --version) echo Python 3.{minor}.0;;"""
            (tmp_path / name).write_text(f"#!/bin/sh\ncase $1 in {answers} *) exit 1;; esac\n")
            (tmp_path / name).chmod(0o755)
        environ = {"PATH": str(tmp_path)}
        command = [shutil.which("make"), "run", *variables]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.parametrize(
    ("versions", "chosen", "note"),
    [
        ({"python3": 11, "python3.13": 13}, "3.11", ""),
        ({"python3": 10, "python3.12": 12, "python3.11": 11}, "3.12", " (python3.12, python3 is too old)"),
        ({"python3.14": 14}, "3.14", " (python3.14, python3 is too old)"),
    ],
)
def test_make_takes_a_python_that_is_new_enough(make, versions, chosen, note):
    assert make(versions).stdout == f"creating .venv with Python {chosen}{note}\n"


@pytest.mark.parametrize("variables", [[], ["PYTHON=python3.10"]])
def test_make_names_the_version_that_it_needs(make, variables):
    done = make({"python3": 10, "python3.10": 10}, *variables)
    assert done.stdout == ""
    wrong = variables[0].removeprefix("PYTHON=") if variables else "python3"
    said = f"hpcmm needs Python 3.11 or newer, and {wrong} is Python 3.10.0: make run PYTHON=/path/to/python"
    assert done.stderr.splitlines()[0] == said
