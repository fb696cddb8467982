"""``--cluster``: a plugin that changes nothing for any other workflow."""

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

plugin = pytest.importorskip("snakemake_executor_plugin_cluster")

ROOT = Path(__file__).parents[1]
SAID = "hpcmm: --cluster is taken for"
OTHER = "rule all:\n    output: 'x'\n    shell: 'touch {output}'\n"


def snakemake(folder: Path, *arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "snakemake", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_examples():
    assert doctest.testmod(plugin).failed == 0


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ((ROOT / "Snakefile").read_text(), True),
        (OTHER, False),
        ("# hpcmm, from hpcmm.plan\n" + OTHER, False),
        (None, False),
    ],
)
def test_only_a_snakefile_of_hpcmm_is_ours(tmp_path, monkeypatch, capsys, text, ours):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "Snakefile").write_text(text)
    arguments = ["snakemake", "--cluster", "sbatch", "--jobs", "4"]
    monkeypatch.setattr(sys, "argv", arguments)
    plugin.main()
    assert (sys.argv != arguments) is ours
    assert capsys.readouterr().err.startswith(SAID) is ours


def test_without_the_option_nothing_is_rewritten_or_printed(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    arguments = ["snakemake", "--jobs", "4", "--cluster-generic-submit-cmd", "sbatch"]
    monkeypatch.setattr(sys, "argv", arguments)
    plugin.main()
    assert sys.argv is arguments and capsys.readouterr().err == ""


@pytest.mark.slow
def test_another_workflow_has_the_errors_and_the_output_of_snakemake_itself(tmp_path):
    (tmp_path / "Snakefile").write_text(OTHER)
    refused = snakemake(tmp_path, "--cluster", "sbatch", "--jobs", "1", "--dry-run")
    assert refused.returncode != 0 and SAID not in refused.stderr
    assert "--cluster" in refused.stderr and "cluster-generic --" not in refused.stderr
    done = snakemake(tmp_path, "--cores", "1")
    assert done.returncode == 0 and (tmp_path / "x").exists() and "hpcmm:" not in done.stderr


def test_a_dry_run_without_jobs_plans_for_the_cluster(tmp_path):
    """With ``backends: auto``, GPUs that this machine lacks are in the plan."""
    config = tmp_path / "mine.yaml"
    config.write_text("sweeps: {mine: {operation: sum, variants: [cub], sizes: [1000]}}\n")
    options = ["--snakefile", ROOT / "Snakefile", "--configfile", config, "--dry-run"]
    done = snakemake(tmp_path, *options, "--cluster", "sbatch")
    assert done.returncode == 0, done.stderr
    assert SAID in done.stderr and ".snakemake/hpcmm/done/mine/cuda-r1-1" in done.stdout + done.stderr
