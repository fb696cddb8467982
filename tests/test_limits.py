"""Limits of the hardware against figures that NVIDIA publishes of whole chips."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcmm.analysis import limits


@pytest.mark.parametrize(
    ("capability", "dtype", "units", "clock", "teraflops", "name"),
    [
        ("90", "float32", 132, 1.98e9, 66.9, "FMA units"),  # H100 SXM: 66.9
        ("90", "float64", 132, 1.98e9, 66.9, "tensor cores"),
        ("90", "int8", 132, 1.83e9, 1979, "tensor cores"),  # dense
        ("90", "float8_e4m3", 132, 1.83e9, 1979, "tensor cores"),
        ("80", "float32", 108, 1.41e9, 19.5, "FMA units"),  # A100: 19.5, and by tensor cores 19.5
        ("80", "float64", 108, 1.41e9, 19.5, "tensor cores"),
        ("70", "float32", 80, 1.53e9, 15.7, "FMA units"),  # V100 SXM2: 15.7 and 7.8
        ("70", "float64", 80, 1.53e9, 7.8, "FMA units"),
        ("61", "float32", 28, 1.582e9, 11.34, "FMA units"),  # GTX 1080 Ti
        ("61", "float64", 28, 1.582e9, 0.354, "FMA units"),
        ("60", "float32", 56, 1.48e9, 10.6, "FMA units"),  # P100 SXM2: 10.6 and 5.3
        ("60", "float64", 56, 1.48e9, 5.3, "FMA units"),
        ("50", "float32", 5, 1.085e9, 1.389, "FMA units"),  # GTX 750 Ti: 640 cores, and a 32nd in float64
        ("50", "float64", 5, 1.085e9, 1.389 / 32, "FMA units"),
        ("52", "float32", 16, 1.216e9, 4.98, "FMA units"),  # GTX 980
        ("52", "float64", 16, 1.216e9, 4.98 / 32, "FMA units"),
        ("86", "float32", 82, 1.695e9, 35.6, "FMA units"),  # RTX 3090: 35.6, and a 64th in float64
        ("86", "float64", 82, 1.695e9, 35.6 / 64, "FMA units"),
        ("89", "float32", 128, 2.52e9, 82.6, "FMA units"),  # RTX 4090
        ("89", "float64", 128, 2.52e9, 1.29, "FMA units"),
        ("75", "float32", 40, 1.59e9, 8.1, "FMA units"),  # T4
        ("75", "float64", 40, 1.59e9, 0.254, "FMA units"),
        ("100", "float32", 148, 1.965e9, 75, "FMA units"),  # B200
        ("100", "float64", 148, 1.965e9, 37, "FMA units"),
        ("120", "float32", 170, 2.407e9, 104.8, "FMA units"),  # RTX 5090: 104.8, and a 64th in float64
        ("120", "float64", 170, 2.407e9, 104.8 / 64, "FMA units"),
    ],
)
def test_peaks_of_known_chips(capability, dtype, units, clock, teraflops, name):
    gpu = {"compute_capability": capability, "multiprocessors": units, "max_sm_clock": clock}
    flops, found, nbytes = limits.peaks([gpu], dtype)
    assert flops / 1e12 == pytest.approx(teraflops, rel=0.01)
    assert found == name and math.isnan(nbytes)


def test_the_peak_of_emulated_float32_is_a_third_of_that_of_tf32():
    gpu = {"compute_capability": "90", "multiprocessors": 132, "max_sm_clock": 1.83e9}  # H100 SXM: 494.7, dense
    flops, found, _ = limits.peaks([gpu], "float32", other="three TF32 products")
    assert flops / 1e12 == pytest.approx(494.7 / 3, rel=0.01) and found == "tensor cores"
    assert math.isnan(limits.peaks([gpu], "float32", other="unknown")[0])


GPU = {"uuid": "a", "compute_capability": "90", "multiprocessors": 100, "max_sm_clock": 2e9} | {
    "memory_bytes_per_second": 3e12
}


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


@pytest.mark.parametrize(
    "wrong",
    [
        {"compute_capability": "31"},
        {"compute_capability": None},
        {"multiprocessors": None},
        {"multiprocessors": "many"},
    ],
)
def test_unknown_hardware_has_no_limit(wrong):
    assert math.isnan(limits.peaks([GPU | wrong], "float32")[0])
    assert math.isnan(limits.peaks([GPU, GPU | wrong | {"uuid": "b"}], "float32")[0])


def test_whole_numbers_and_no_gpu_have_no_rate():
    assert math.isnan(limits.peaks([GPU], "int32")[0])
    assert all(math.isnan(each) for each in (limits.peaks([], "float32")[0], limits.peaks([], "float32")[2]))
