"""The package as built and installed elsewhere: a working folder, an experiment in it, its report."""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml
from test_workflow import CONFIG

from hpcmm import analysis, store
from hpcmm.bench import provenance
from hpcmm.cli import init, main
from hpcmm.model import HpcmmError
from hpcmm.model.dtypes import DTYPES

pytestmark = pytest.mark.timeout(1500)  # the package is built, and an experiment runs

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with an sdist of this checkout, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    environment = os.environ | {"SKBUILD_CMAKE_BUILD_TYPE": "Debug"}  # compiles in half the time
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="module")
def python(built, tmp_path_factory) -> Path:
    """Python of a fresh environment with the wheel; what else it needs comes from the environment of the tests."""
    folder = tmp_path_factory.mktemp("venv") / "it's an env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run(folder: Path, *command) -> str:
    # an MPI that is a wheel lies in the environment of the tests
    libraries = os.pathsep.join([str(Path(sys.prefix) / "lib"), os.environ.get("LD_LIBRARY_PATH", "")])
    places = os.pathsep.join([os.environ["PATH"], str(Path(sys.executable).parent)])
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=os.environ | {"LD_LIBRARY_PATH": libraries, "PATH": places},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def in_git() -> bool:
    return (ROOT / ".git").exists() and shutil.which("git") is not None


@pytest.mark.slow
def test_the_sdist_has_every_tracked_file(built):
    if not in_git():
        pytest.skip("not a git checkout")
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    tracked = run(ROOT, "git", "-c", f"safe.directory={ROOT}", "ls-files").splitlines()
    assert set(tracked) <= names


def test_the_wheel_is_for_every_python_of_its_platform():
    """The tag of this installation is that of the wheel; its C kernels use no symbol of Python."""
    distribution = importlib.metadata.distribution("hpcmm")
    platform_tag = sysconfig.get_platform().replace("-", "_")
    assert f"Tag: py3-none-{platform_tag}\n" in distribution.read_text("WHEEL")
    kernels = [path.locate() for path in distribution.files if path.suffix == ".so"]
    assert len(kernels) > len(DTYPES)
    assert not [path for path in kernels if re.search(rb"\0_?Py[A-Z_]", path.read_bytes())]


@pytest.mark.slow
def test_an_experiment_runs_in_a_working_folder_of_an_installed_wheel(python, tmp_path):
    hpcmm = python.with_name("hpcmm")
    folder = tmp_path / "it's my run"
    where = Path(run(tmp_path, python, "-c", "import hpcmm; print(hpcmm.__file__)").strip())
    assert python.parents[1] in where.parents
    said = run(tmp_path, hpcmm, "--version")
    revision = "revision [0-9a-f]{12}(, with changes)?" if in_git() else "no revision"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.fullmatch(rf"hpcmm {re.escape(version)} \({revision}\)\n", said), "of the sdist that it was built from"

    assert "&& hpcmm run" in run(tmp_path, hpcmm, "init", folder)
    sweeps = {"small": CONFIG["sweeps"]["small"] | {"sizes": [7], "ranks": [2]}}
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG | {"sweeps": sweeps}))
    output = run(folder, hpcmm, "run")
    assert " PASS." in output
    groups = store.read(folder / "results" / "timings.h5")
    assert set(groups["measurements"]["sweep"]) == {"small"} and groups["measurements"]["passed"].all()
    assert {each["python"] for each in analysis.runs(groups)} == {platform.python_version()}
    page = (folder / "results" / "report.html").read_text()
    assert "Benchmark report" in page


def test_a_working_folder_is_not_overwritten(tmp_path):
    init.write(tmp_path)
    (tmp_path / "Snakefile").unlink()
    mine = "sweeps: {}\n"
    (tmp_path / "config.yaml").write_text(mine)
    with pytest.raises(HpcmmError, match=r"exists already: config\.yaml, jobs, profiles"):
        init.write(tmp_path)
    assert (tmp_path / "config.yaml").read_text() == mine and not (tmp_path / "Snakefile").exists()


def test_a_working_folder_that_cannot_be_written_leaves_nothing(tmp_path, limited_files):
    refused = pytest.raises(HpcmmError, match=r"new: cannot be written: File too large$")
    with refused, limited_files(1024):  # config.yaml is longer
        init.write(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_working_folder_has_the_files_of_the_checkout(tmp_path):
    init.write(tmp_path / "new")
    for path in (path for path in (tmp_path / "new").rglob("*") if path.is_file()):
        original = ROOT / path.relative_to(tmp_path / "new")
        assert path.read_bytes() == original.read_bytes()
        assert os.access(path, os.X_OK) is os.access(original, os.X_OK)


@pytest.mark.parametrize(
    ("recorded", "revision", "text"),
    [
        ("0123456789abcdef", ("0123456789abcdef", False), " (revision 0123456789ab)"),
        ("0123456789abcdef changed", ("0123456789abcdef", True), " (revision 0123456789ab, with changes)"),
        (None, ("", None), " (no revision)"),
    ],
)
def test_outside_a_checkout_the_revision_is_from_the_build(tmp_path, monkeypatch, recorded, revision, text):
    (tmp_path / "hpcmm" / "bench").mkdir(parents=True)
    if recorded:
        (tmp_path / "hpcmm" / "revision.txt").write_text(recorded)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "hpcmm" / "bench" / "provenance.py"))
    assert provenance.revision() == revision
    assert main.version().endswith(importlib.metadata.version("hpcmm") + text)


def test_a_build_in_a_checkout_records_the_revision():
    distribution = importlib.metadata.distribution("hpcmm")
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    commit, *_ = Path(distribution.locate_file("hpcmm/revision.txt")).read_text().split()
    assert len(commit) == 40 and int(commit, 16)
