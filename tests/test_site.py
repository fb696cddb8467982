"""Settings of a cluster, and what a batch is given by them."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tasks import machine

from hpcmm.cluster import site
from hpcmm.experiment import plan
from hpcmm.model import HpcmmError

SHIPPED = Path(__file__).parents[1] / "profiles/slurm/site.yaml"
SWEEP = {"operation": "matmul", "variants": ["serial", "naive"], "sizes": [1000], "ranks": [1, 5]}


@pytest.fixture(scope="module")
def batches():
    return plan.make({"backends": "auto", "sweeps": {"size": SWEEP}}, machine(gpus=8)).batches


def test_the_shipped_file_has_every_setting_at_its_default():
    assert site.read(SHIPPED) == site.Site()
    keys = [line.partition(":")[0] for line in SHIPPED.read_text().splitlines() if line[:1].isalpha()]
    assert keys == [field.name for field in dataclasses.fields(site.Site)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partitoin: gpu", "site.yaml: unknown key 'partitoin'; allowed: partition, account"),
        ("cpus_per_rank: many", "site.yaml: cpus_per_rank: 'many'; allowed: an integer"),
        ("memory_mb: lots", "site.yaml: memory_mb: 'lots'; allowed: an integer of at least 0 or none"),
        ("patience: -1", "site.yaml: patience: -1; allowed: an integer of at least 0"),
        ("modules: cuda", "site.yaml: modules: 'cuda'; allowed: a list"),
        ("account: 12", "site.yaml: account: 12; allowed: a string"),
        ("[1, 2]", "site.yaml: .*allowed: keys with values"),
        ("a: [", "site.yaml: "),
        ("cpus_per_rank: 0", "site.yaml: cpus_per_rank: 0; allowed: an integer of at least 1"),
        ("slurm_patience: 0", "site.yaml: slurm_patience: 0; allowed: an integer of at least 1"),
        ("qos: long\nqos: short", "site.yaml: line 2, column 1: key 'qos' appears twice"),
        ("account: 2026-13-01", "site.yaml: line 1, column 10: not a value: month must be in 1..12"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_allowed(tmp_path, text, message):
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(HpcmmError, match=message):
        site.read(path)


@given(ranks=st.integers(1, 200), ranks_per_node=st.integers(0, 16))
def test_nodes_are_enough_and_none_is_too_many(ranks, ranks_per_node):
    here = site.Site(ranks_per_node=ranks_per_node)
    nodes, first = here.nodes(ranks), here.ranks_on_first(ranks)
    assert nodes * first >= ranks
    if ranks_per_node:
        assert first <= ranks_per_node
        assert (nodes - 1) * ranks_per_node < ranks
    else:
        assert nodes == 1


def test_resources_of_a_batch(batches):
    here = site.Site(gpu="gpu:h200", ranks_per_node=4)
    for batch in batches:
        several = batch.ranks == 5
        assert here.gres(batch) == ("" if batch.device == "cpu" else "gpu:h200:3" if several else "gpu:h200:1")
        assert here.extra(batch.ranks) == ("--ntasks-per-node=3" if several else "")
        matrices = 3 * 1000 * 1000 * 8 / 1e6
        assert here.mem_mb(batch, plan.largest_bytes(batch)) > 4 * matrices
        assert dataclasses.replace(here, memory_mb=123).mem_mb(batch, plan.largest_bytes(batch)) == 123
        assert 60 * here.minutes(batch) >= batch.seconds + here.patience
    assert {(batch.device, batch.ranks) for batch in batches} == {(d, r) for d in ("cpu", "cuda") for r in (1, 5)}


def test_none_requests_neither_gres_nor_memory(batches, tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("gpu: none\nmemory_mb: none\n")
    here = site.read(path)
    assert {(here.gres(batch), here.mem_mb(batch, plan.largest_bytes(batch))) for batch in batches} == {("", 0)}
    assert (here.gpus(1), here.memory(16000)) == ("", 0)
