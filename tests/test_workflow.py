"""The whole way from a config to the report, through the Snakemake that is installed (and a 7 beside it)."""

import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

from hpcmm import backends, store

pytestmark = pytest.mark.timeout(600)  # each starts Snakemake several times

ROOT = Path(__file__).parents[1]
SNAKEMAKES = {"9": shutil.which("snakemake"), "7": os.environ.get("SNAKEMAKE_7")}
MISSING = {"9": "snakemake is not on PATH", "7": "SNAKEMAKE_7 names no Snakemake of version 7"}

CONFIG = {
    "scale": "quick",
    "backends": "cpu",
    "measuring": {
        "warmups": 1,
        "min_repetitions": 3,
        "max_repetitions": 6,
        "max_seconds": 0.05,
        "relative_interval": 0.05,
        "cache": "cold",
        "seed": 1,
    },
    "sweeps": {
        "small": {
            "operation": "matmul",
            "variants": ["serial", "numpy", "naive"],
            "sizes": [7, 32],
            "dtypes": ["float32"],
            "ranks": [1, 2],
        },
        "sum": {"operation": "sum", "variants": ["serial"], "sizes": [1000], "ranks": [2]},
    },
}


@pytest.fixture(params=sorted(SNAKEMAKES, reverse=True))
def snakemake(request, tmp_path):
    """Run Snakemake on a config in a folder of its own; returns the finished process."""
    program = SNAKEMAKES[request.param]
    if program is None:
        pytest.skip(
            {"9": "snakemake is not on PATH", "7": "SNAKEMAKE_7 names no snakemake of version 7"}[request.param]
        )

    def run(config, *arguments):
        file = tmp_path / "experiment.yaml"
        file.write_text(yaml.safe_dump(config))
        command = [program, "--snakefile", ROOT / "Snakefile", "--directory", tmp_path, "--configfile", file]
        environment = {k: v for k, v in os.environ.items() if k != "HPCMM_BACKENDS"}
        run = subprocess.run(
            [*command, "--cores", "2", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        run.folder = tmp_path
        return run

    run.version = request.param
    return run


def changed(**sweep):
    return CONFIG | {"sweeps": CONFIG["sweeps"] | {"small": CONFIG["sweeps"]["small"] | sweep}}


def planned(output):
    """Batches that a dry run would measure."""
    return set(re.findall(r"^\s*output: results/raw/(\S+)\.h5", output, re.MULTILINE))


def test_from_config_to_report_and_only_what_changed_again(snakemake):
    first = snakemake(CONFIG)
    assert first.returncode == 0, first.stdout
    results = first.folder / "results"
    batches = {"small/cpu-r1-1", "small/cpu-r2-1", "sum/cpu-r2-1"}
    for batch in batches:
        assert "PASS" in (results / "logs" / f"{batch}.log").read_text()
        assert not (results / "raw" / f"{batch}.journal").exists()

    columns = store.read(results / "timings.h5")
    measured = set(zip(*(columns["measurements"][c] for c in ("sweep", "variant", "ranks")), strict=True))
    small = {("small", variant, ranks) for variant in ("serial", "numpy") for ranks in (1, 2)}
    assert measured == small | {("sum", "serial", 2)}
    assert columns["measurements"]["passed"].all()
    assert set(columns["omitted"]["variant"]) == {"naive"}
    page = (results / "report.html").read_text()
    assert "backends: cpu" in page, "the report says why naive is missing"
    assert (results / "tables" / "small.csv").exists() and (results / "tables" / "small.md").exists()

    assert "not asked for: make profile" in page, "the report says why nothing was profiled"

    again = snakemake(CONFIG)
    assert again.returncode == 0 and "PASS" not in again.stdout
    assert "Nothing to be done" in again.stdout

    if snakemake.version == "9":  # 7 loads what its report needs from the network
        packed = snakemake(CONFIG, "--report", "report.zip")
        assert packed.returncode == 0, packed.stdout
        with zipfile.ZipFile(first.folder / "report.zip") as file:
            pages = [name for name in file.namelist() if name.endswith("/report.html")]
            assert [file.read(name).decode() for name in pages if "Benchmark report" in file.read(name).decode()] == [
                page
            ]

    other = changed(ranks=[1, 2, 3])
    other["sweeps"]["sum"] = CONFIG["sweeps"]["sum"] | {"sizes": [1001]}
    assert planned(snakemake(other, "--dry-run").stdout) == {"small/cpu-r3-1", "sum/cpu-r2-1"}


def test_a_new_variant_is_measured_and_the_others_are_kept(snakemake, tmp_path):
    first = snakemake(CONFIG)
    assert first.returncode == 0, first.stdout
    before = store.read(tmp_path / "results" / "timings.h5")

    second = snakemake(changed(variants=["serial", "openmp", "numpy", "naive"], sizes=[32, 7]))
    assert second.returncode == 0, second.stdout
    log = (tmp_path / "results" / "logs" / "small" / "cpu-r1-1.log").read_text()
    assert "4 points were measured before and are kept" in log
    assert set(re.findall(r"cpu-r1-1 (\w+) .* PASS", log)) == {"openmp"}
    after = store.read(tmp_path / "results" / "timings.h5")
    assert len(after["measurements"]["m"]) == len(before["measurements"]["m"]) + 2 * 2 * 2
    assert times(before).items() <= times(after).items()


def times(columns):
    """Of each point of serial, the kernel times."""
    rows, samples = columns["measurements"], columns["samples"]
    found = {}
    for i in np.flatnonzero(rows["variant"] == "serial"):
        place = tuple(rows[name][i] for name in ("sweep", "contender", "m", "n", "ranks", "dtype"))
        found[place] = tuple(
            samples["kernel"][samples["measurement"] == i][samples["call"][samples["measurement"] == i] == 0]
        )
    return found


def test_a_wrong_config_is_refused_before_anything_runs(snakemake):
    run = snakemake(changed(dtypes=["float16"]))
    assert run.returncode != 0
    assert "sweeps.small.dtypes: 'float16'; allowed: float32, float64" in run.stdout
    assert not (run.folder / "results").exists()


def test_a_config_file_without_sweeps_is_not_taken_for_ours(snakemake):
    run = snakemake({name: value for name, value in CONFIG.items() if name != "sweeps"}, "--dry-run")
    assert run.returncode != 0
    assert "hpcmm: error: config: top level: key 'sweeps' is missing" in run.stdout


@pytest.mark.skipif(not backends.cuda_missing(), reason="this machine has a GPU")
def test_cuda_without_a_gpu_is_a_plain_error_and_the_rest_goes_on(snakemake):
    run = snakemake(CONFIG | {"backends": "cuda"}, "--keep-going")
    assert run.returncode != 0
    assert "this batch needs a GPU, but CUDA shows none here" in run.stdout
    assert "Traceback" not in run.stdout.split("localrule")[-1]
    assert not (run.folder / "results" / "timings.h5").exists()


def test_a_profile_is_a_job_an_operation_and_never_beside_a_measurement(snakemake):
    sweeps = {"sweeps": {name: sweep | {"variants": ["naive"]} for name, sweep in CONFIG["sweeps"].items()}}
    sweeps["sweeps"]["sum"] |= {"variants": ["cub"], "ranks": [1]}
    run = snakemake(CONFIG | sweeps | {"backends": "cuda"}, "--dry-run", "--printshellcmds", "--config", "profile=true")
    assert run.returncode == 0, run.stdout
    outputs = set(re.findall(r"^\s*output: results/profiles/(\S+)\.h5", run.stdout, re.MULTILINE))
    assert outputs == {"matmul", "sum"}
    commands = re.findall(r"^.*/(?:measure|profiling)\.py .*$", run.stdout, re.MULTILINE)
    assert len(commands) == 5
    assert all("$HPCMM_ALONE " in command for command in commands), commands
