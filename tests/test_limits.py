"""Limits of the hardware against figures that NVIDIA publishes of whole chips."""

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcmm.analysis import limits

# Published peaks: dense; that of float64 may be a 32nd or 64th of that of float32
CHIPS = list(csv.DictReader(Path(__file__).with_name("chips.csv").read_text().splitlines()))


@pytest.mark.parametrize("row", CHIPS, ids=lambda row: f"{row['chip']}-{row['dtype']}")
def test_peaks_of_known_chips(row):
    gpu = {"compute_capability": row["capability"], "multiprocessors": int(row["multiprocessors"])}
    flops, found, nbytes = limits.peaks([gpu | {"max_sm_clock": float(row["clock"])}], row["dtype"])
    assert flops / 1e12 == pytest.approx(float(row["teraflops"]), rel=0.01)
    assert found == row["units"] and math.isnan(nbytes)


def test_the_peak_of_emulated_float32_is_a_third_of_that_of_tf32():
    gpu = {"compute_capability": "90", "multiprocessors": 132, "max_sm_clock": 1.83e9}  # H100 SXM: 494.7, dense
    flops, found, _ = limits.peaks([gpu], "float32", other="three TF32 products")
    assert flops / 1e12 == pytest.approx(494.7 / 3, rel=0.01) and found == "tensor cores"
    assert math.isnan(limits.peaks([gpu], "float32", other="unknown")[0])


GPU = {"uuid": "a", "compute_capability": "90", "multiprocessors": 100, "max_sm_clock": 2e9}
GPU["memory_bytes_per_second"] = 3e12


def test_gpus_add_up_and_a_shared_one_counts_once():
    assert limits.peaks([GPU], "float32") == (100 * 256 * 2e9, "FMA units", 3e12)
    assert limits.peaks([GPU, GPU | {"uuid": "b"}], "float32")[0] == 2 * 100 * 256 * 2e9
    assert limits.peaks([GPU, GPU], "float32")[0] == 100 * 256 * 2e9
    nameless = {key: value for key, value in GPU.items() if key != "uuid"}
    assert limits.peaks([nameless, nameless], "float32")[2] == 6e12


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.floats(1e8, 1e10))
def test_the_peak_of_fma_units_is_that_of_the_gpus_of_all_ranks(gpu_of_rank, clock):
    gpus = [{"uuid": str(i), "compute_capability": "90", "multiprocessors": 132} for i in gpu_of_rank]
    peak = limits.fma_peak(gpus, "float32", clock, len(gpus))
    assert peak == pytest.approx(len(set(gpu_of_rank)) * 256 * 132 * clock)
    assert math.isnan(limits.fma_peak(gpus, "float32", clock, len(gpus) + 1)), "a rank without a record"
    assert math.isnan(limits.peaks(gpus, "float32", ranks=len(gpus) + 1)[0])
    assert math.isnan(limits.fma_peak(gpus, "float32", math.nan, len(gpus))), "no maximum clock"


@pytest.mark.parametrize("name", ["compute_capability", "multiprocessors"])
@pytest.mark.parametrize("wrong", ["31", "many", None])  # no compute capability, and no number of a driver
def test_unknown_hardware_has_no_limit(name, wrong):
    unknown = GPU | {name: wrong}
    assert math.isnan(limits.peaks([unknown], "float32")[0])
    assert math.isnan(limits.peaks([GPU, unknown | {"uuid": "b"}], "float32")[0])


def test_whole_numbers_and_no_gpu_have_no_rate():
    assert math.isnan(limits.peaks([GPU], "int32")[0])
    assert all(math.isnan(each) for each in (limits.peaks([], "float32")[0], limits.peaks([], "float32")[2]))
