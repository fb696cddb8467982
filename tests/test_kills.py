"""Processes killed at random moments of a local run, see ``kills.py``."""

import os
import shutil

import pytest
from kills import LIMIT, campaign

ALL = os.environ.get("HPCMM_TEST_ALL") == "1"
KILLS = 34 if ALL else 2  # for each seed


@pytest.mark.skipif(not shutil.which("snakemake"), reason="snakemake is not on PATH")
@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT + 60 * KILLS)
@pytest.mark.parametrize("seed", [*([49, 50] if ALL else []), None])  # and a new one
def test_every_point_is_measured_once_after_any_kill(tmp_path, seed):
    seed = seed or int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # pytest shows it with a failure
    print(campaign(tmp_path, seed, KILLS))
