"""Why a rung is faster or slower: the reasons follow from the numbers, and change when they do."""

import ctypes
import math
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import timings
from hypothesis import given
from hypothesis import strategies as st
from timings import HOPPER, kernel, timed

from hpcmm import analysis, kernels
from hpcmm.analysis import why
from hpcmm.model.quantities import COUNTERS
from hpcmm.operations import OPERATIONS
from hpcmm.report.chapters import why as steps

HOOKS = Path(__file__).with_name("kernels") / "accesses.c"  # counts accesses of a kernel
FLAT = (0.99, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.01)
STEADY = tuple(1 + 1e-5 * i for i in range(9))
WIDE = (0.9, 0.9, 0.95, 1.0, 1.0, 1.0, 1.05, 1.1, 1.1)
N, SMS, CLOCK = 64, 4, 1e9
GPU = {"name": "GPU", "compute_capability": "90", "memory_bytes_per_second": 1e9}
GPU |= {"multiprocessors": SMS, "max_sm_clock": CLOCK}
WARPS = N**3 / 32  # multiply-adds of whole warps


def product(variant, seconds, spread=FLAT, dtype="float32", ranks=1, **rest):
    return timed(timings.product(variant, N, dtype, ranks), seconds, spread=spread, **rest)


def total(variant, seconds, ranks=1, **rest):
    return timed(timings.total(variant, 2**20, ranks=ranks), seconds, spread=FLAT, **rest)


def counted(operation, variant, dtype="float32", n=N, launches=1, **counters):
    """A row of profiles; every counter that is not given is as in an idle kernel."""
    dimensions = {"m": n, "n": n, "k": n} if operation == "matmul" else {"m": 0, "n": n, "k": 0}
    common = dimensions | {
        **{"run": 0, "operation": operation, "variant": variant, "tile": 0, "dtype": dtype, "kernel": operation},
        **{"launches": launches, "passed": 1, "where": "", "alpha": 1.5, "beta": 0.5},
    }
    return common | dict.fromkeys(COUNTERS, 0.0) | {"sm_clock": CLOCK, "load_sectors": 4.0} | counters


def explained(rows, profiles=(), **provenance):
    columns, frame = timings.analysed(({"gpus": [GPU], **provenance}, {"size": rows}))
    if profiles:
        columns["profiles"] = {name: np.array([row[name] for row in profiles]) for name in profiles[0]}
    known = why.Known.of(columns, frame)
    (series,) = analysis.series(frame)
    return why.steps(series.rows, known)


def climbed(*rungs, names=("tiled_padded", "register_1d", "register_2d"), dtype="float32"):
    """Return the steps between products, each with its seconds and counters."""
    named = [(name, *rung) for name, rung in zip(names, rungs, strict=False)]
    rows = [product(name, seconds, dtype=dtype) for name, seconds, _ in named]
    return explained(rows, [counted("matmul", name, dtype, **counters) for name, _, counters in named])


def loads(per_multiply_add, sectors, seconds):
    """Counters of global loads."""
    nbytes = per_multiply_add * WARPS * sectors * 32
    return {"load_sectors": sectors, "global_load_bytes_per_second": nbytes / seconds}


def test_wider_loads_are_not_called_uncoalesced():
    (step,) = climbed((2e-3, loads(2, 4.0, 2e-3)), (1e-3, loads(0.5, 16.0, 1e-3)))
    text = steps.sentence(step)
    assert text.startswith("2.00× (") and "), faster. " in text
    assert "A thread executes 0.500 global loads per multiply-add instead of 2.00" in text
    assert "sectors" not in text


def test_a_kernel_that_loads_by_tma_alone_has_no_counted_loads():
    counters = (1e-3, loads(2, 4.0, 1e-3)), (0.5e-3, {"load_sectors": 0.0})
    (step,) = climbed(*counters, names=("tma", "persistent"), dtype="float16")
    assert step.verdict == "faster" and "oad" not in " ".join(map(str, step.reasons))


def shared(wavefronts, accesses, seconds):
    """Counters of shared memory: wavefronts, some of them conflicts, and accesses per warp-wide multiply-add."""
    counters = {"shared_load_wavefronts": wavefronts * WARPS, "shared_loads": accesses * WARPS}
    counters |= {"shared_load_conflicts": max(wavefronts - accesses, 0) * WARPS, "load_sectors": math.nan}
    return counters | {"shared_pipe": counters["shared_load_wavefronts"] / (seconds * CLOCK * SMS)}


def test_bank_conflicts_are_wavefronts_of_as_many_accesses():
    rungs = (2.5e-5, 11.0, 1.3), (5e-6, 1.6, 1.3), (4e-6, 0.8, 0.65)
    conflicts, fewer = climbed(*((time, shared(*of, time)) for time, *of in rungs))
    assert "ank conflicts multiply the wavefronts of shared memory by 1.23 instead of 8.46" in steps.sentence(conflicts)
    assert "hared memory takes 1.60 wavefronts per 32 multiply-adds instead of 11.0" in steps.sentence(conflicts)
    assert "onflicts" not in steps.sentence(fewer)
    assert "accesses shared memory 0.650 times per multiply-add instead of 1.30" in steps.sentence(fewer)


def test_fewer_wavefronts_of_as_many_loads_are_those_of_fewer_warps_with_an_active_thread():
    """As from the divergent sum to the strided one, which has bank conflicts."""
    conflicts = {"shared_load_wavefronts": 0.9 * WARPS, "shared_load_conflicts": 0.5 * WARPS}
    (step,) = climbed((4e-6, shared(1.2, 3.0, 4e-6)), (2e-6, shared(0.4, 3.0, 2e-6) | conflicts))
    text = steps.sentence(step)
    assert "by warps with an active thread take 0.400 wavefronts per 32 multiply-adds instead of 1.20, bank" in text


def test_a_change_without_effect_names_the_idle_unit():
    rows = [product("tiled_padded", 1e-3), product("register_1d", 1e-3, WIDE)]
    profiles = [
        counted("matmul", name, l2_hits=hits, dram_read_bytes_per_second=2e8, global_load_bytes_per_second=1.0)
        for name, hits in (("tiled_padded", 0.5), ("register_1d", 0.8))
    ]
    (step,) = explained(rows, profiles)
    text = (
        "Changes without significant effect: 80 % of the accesses to L2 hit instead of 50 % (DRAM is only 20 % busy)."
    )
    assert step.verdict == "same" and text in steps.sentence(step)


def waiting(cycles, scoreboard, barrier):
    """Counters of waiting, in cycles per instruction issued."""
    stalls = {"stall_long_scoreboard": scoreboard, "stall_barrier": barrier}
    return {"instructions": 8 * WARPS, "warp_cycles": cycles, **stalls}


def test_a_longer_wait_is_the_reason_and_a_larger_share_of_a_shorter_time_is_not():
    before, after = (4e-3, waiting(10.0, 5.0, 1.0)), (2e-3, waiting(5.0, 0.5, 0.9))
    faster, slower = climbed(before, after, (6e-3, waiting(15.0, 1.5, 9.0)))
    text = steps.sentence(faster)
    assert "Warps wait for global or local memory 10 % of their time instead of 50 %" in text
    assert "barrier" not in text.partition("No counted unit")[0]  # 18 % of 2 ms are less than 10 % of 4 ms
    text = steps.sentence(slower)
    assert "slower. Warps wait for other warps at a barrier 60 % of their time instead of 18 %" in text
    assert "warps wait longest for other warps at a barrier, 60 % of their time" in text


def test_fewer_instructions_and_more_true_predicates_are_reasons():
    before = {"instructions": 12 * WARPS, "predicated_on_threads": 16.0, "active_threads": 32.0}
    (step,) = climbed((2e-3, before), (1e-3, before | {"instructions": 6 * WARPS, "predicated_on_threads": 31.0}))
    text = steps.sentence(step)
    assert "31.0 of 32 threads have a true predicate per instruction of a warp instead of 16.0" in text
    assert "a warp executes 6.00 instructions per 32 multiply-adds instead of 12.0" in text.lower()
    assert "32.0 of 32 threads are active" not in text


def test_a_rung_in_the_arithmetic_of_the_type_is_slower_for_it():
    (step,) = explained([product("tensor_core", 1e-3), product("split_k_dmma", 4e-3)])
    assert "slower" in steps.effect(step)
    assert "t computes with float32 arithmetic instead of three TF32 products" in steps.sentence(step)


def test_a_rung_that_runs_another_one_is_no_step():
    rows = [product("large_thread_tile", 2e-3), product("stream_k_fma", 1e-3), product("best", 1e-3)]
    assert [step.rung["variant"] for step in explained(rows)] == ["stream_k_fma"]


def test_a_step_that_nothing_else_explains_has_a_unit_that_works_more_of_the_time():
    names, busy = ("warp_specialized", "persistent"), {"instructions": 1e6, "sm_throughput": 0.94}
    (step,) = climbed((4e-3, busy | {"sm_throughput": 0.78}), (3e-3, busy), names=names)
    assert (step.verdict, step.source) == ("faster", "counters")
    assert "faster. The busiest unit of the SM is busy 94 % of the time instead of 78 %." in steps.sentence(step)
    (step,) = climbed((4e-3, busy), (3e-3, busy), names=names)
    assert "The reason is not known" in steps.sentence(step)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("share", [0.7, 1.4])
@pytest.mark.parametrize("shared", [False, True])
def test_the_rate_of_several_ranks_is_a_share_of_all_their_gpus(ranks, share, shared):
    gpus = [GPU | {"uuid": "same" if shared else str(i)} for i in range(ranks)]
    peak = 256 * SMS * CLOCK * len({gpu["uuid"] for gpu in gpus})
    rows = [product(name, 2 * N**3 / peak / of, ranks=ranks) for name, of in (("naive", 0.1), ("coalesced", share))]
    (step,) = explained(rows, gpus=gpus)
    assert step.facts["of_fma"] == pytest.approx(share)
    assert ("so tensor cores compute it" in steps.sentence(step)) is (share > 1)


def test_counters_of_one_rank_do_not_explain_several():
    few, many = (kernel(HOPPER, (8, 8), resident, registers=32) for resident in (8, 32))
    rungs = ("tiled_padded", 1e-3, 2.5, few), ("register_1d", 4e-3, 16.5, many)
    rows = [product(name, seconds, ranks=2, resources=of) for name, seconds, _, of in rungs]
    profiles = [counted("matmul", name, **loads(2, sectors, seconds)) for name, seconds, sectors, _ in rungs]
    (step,) = explained(rows, profiles, gpus=[GPU | {"uuid": str(i)} for i in range(2)])
    assert step.source == "resources" and math.isnan(step.facts["load_sectors"])
    assert "sectors" not in steps.sentence(step)


def test_resources_are_matched_by_ranks():
    held = {ranks: kernel(HOPPER, (256, 1), 8, registers=32, grid_x=2**12 // ranks, grid_y=1) for ranks in (1, 2)}
    rows = [total("sequential", 1e-3, ranks=ranks, resources=own) for ranks, own in held.items()]
    columns, frame = timings.analysed(({"gpus": [GPU | {"uuid": uuid} for uuid in "ab"]}, {"size": rows}))
    known = why.Known.of(columns, frame)
    facts = {row["ranks"]: known.facts(row) for row in analysis.row_dicts(frame)}
    assert {ranks: each["grid_x"] for ranks, each in facts.items()} == {1: 2**12, 2: 2**11}
    assert {each["elements_per_thread"] for each in facts.values()} == {1.0}


def test_a_small_difference_is_named_by_its_significance():
    small = [product("tiled_padded", 1e-3, STEADY), product("register_1d", 1.005e-3, STEADY)]
    (step,) = explained(small)
    assert (step.verdict, steps.verdict(step)) == ("same", "less than 1 % slower")
    (step,) = explained([product("tiled_padded", 1e-3, WIDE), product("register_1d", 1.005e-3)])
    assert (step.verdict, steps.verdict(step)) == ("same", "no significant difference")
    (step,) = explained([product("tiled_padded", 1e-3, (1.0,)), product("register_1d", 1.5e-3, (1.0,))])
    assert step.verdict == "unclear"
    assert steps.effect(step).endswith("no interval: less than a factor of 2 is not judged")


def test_without_counters_resources_explain_or_nothing_does():
    rungs = ("sequential", 2e-3, 2**10), ("first_add", 1e-3, 2**9), ("last_warp", 0.5e-3, 2**9)
    held = {blocks: kernel(HOPPER, (256, 1), 8, registers=32, grid_x=blocks, grid_y=1) for *_, blocks in rungs}
    first, last = explained([total(name, seconds, resources=held[blocks]) for name, seconds, blocks in rungs])
    assert first.source == "resources"
    assert "without counters: a thread takes 8 elements instead of 4." in steps.sentence(first)
    assert last.reasons == () and "the file lacks counters of one rung" in steps.sentence(last)


def test_a_processor_has_no_counters_but_threads():
    rows = [total("serial", 8e-3), total("openmp", 1e-3)]
    (step,) = explained(rows, gpus=[], cpu={"threads_per_rank": 8})
    assert steps.cause(step) == "8 threads compute instead of 1."
    (step,) = explained(rows, gpus=[], cpu={"threads_per_rank": 1})
    assert "neither the traffic of the source nor the number of threads explains it" in steps.sentence(step)
    (step,) = explained(rows, gpus=[], cpu={"threads_per_rank": 2})
    assert steps.cause(step) == ""  # a factor of 8


def test_a_step_of_a_processor_is_explained_by_its_cache_lines():
    rows = [product("parallel_for", 8e-3), product("openmp", 1e-3)]
    (step,) = explained(rows, gpus=[], cpu={"threads_per_rank": 2})
    assert steps.cause(step) == "Each multiply-add touches 12.0 B of cache lines instead of 68.0 B."
    rows = [product("serial", 8e-3), product("avx", 1e-3)]
    (step,) = explained(rows, gpus=[], cpu={"simd": {"matmul/avx": "avx2"}})
    assert "an instruction computes 8 elements instead of 1" in steps.sentence(step)


@pytest.mark.parametrize("name", ["serial", "serial_double", "unrolled", "parallel_for", "pthread", "openmp"])
def test_the_stated_traffic_is_that_of_the_source(tmp_path, name):
    """The compiler reports each access of the kernel: its operand, and whether it is to another line."""
    variant = OPERATIONS["matmul"].variant(name)
    source = kernels.FOLDER / "matmul" / "lessons" / f"{name}.c"
    flags = ["-O1", "-shared", "-fPIC", "-pthread", "-fopenmp", "-DREAL=float", "-DACCUMULATOR=float"]
    objects = [tmp_path / "kernel.o", tmp_path / "hooks.o"]
    for path, own, to in ((source, ["-fsanitize=thread"], objects[0]), (HOOKS, [], objects[1])):
        subprocess.run(["gcc", *flags[:1], *flags[2:], *own, "-c", path, "-o", to], check=True)
    # hooks of its own, also after the emulation of CUDA, which has hooks of these names, was loaded
    subprocess.run(["gcc", *flags, "-Wl,-Bsymbolic", *objects, "-o", tmp_path / "kernel.so"], check=True)
    library, n = ctypes.CDLL(str(tmp_path / "kernel.so")), 64
    arrays = [np.zeros((n, n), np.float32) for _ in range(3)]
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in arrays]
    for i, each in enumerate(arrays):
        library.watch(i, pointers[i], ctypes.c_long(each.nbytes))
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    library.matmul(n, n, n, one, pointers[0], n, pointers[1], n, zero, pointers[2], n, 1)
    lines, elements = (ctypes.c_long.in_dll(library, each).value / n**3 for each in ("lines", "elements"))
    stated = variant.traffic
    assert lines == pytest.approx(stated["lines"], abs=0.25)
    assert elements == pytest.approx(stated["lines"] + stated["elements"], abs=0.1)


def test_counters_of_a_type_of_the_same_size_are_named():
    rows = [total("strided", 2e-3), total("sequential", 1e-3)]
    profiles = [
        counted("sum", name, n=2**20, launches=3, dram_read_bytes_per_second=4 * 2**20 / time, active_threads=active)
        for name, time, active in (("strided", 2e-3, 16.0), ("sequential", 1e-3, 32.0))
    ]
    (step,) = explained(rows, profiles)
    text = "By the counters of float32: 32.0 of 32 threads are active per instruction of a warp instead of 16.0"
    assert step.counted == "float32" and text in steps.sentence(step)


@given(st.floats(0.01, 100), st.floats(1.0, 1.5), st.floats(1.0, 1.5))
def test_the_verdict_mirrors_and_an_interval_with_one_is_no_difference(ratio, below, above):
    low, high = ratio / below, ratio * above
    verdict = why._verdict(ratio, low, high)
    mirrored = {"faster": "slower", "slower": "faster"}
    assert why._verdict(1 / ratio, 1 / high, 1 / low) == mirrored.get(verdict, verdict)
    if low <= 1 <= high:
        assert verdict == "same"
    if verdict == "faster":
        assert low > 1


@pytest.mark.slow
def test_every_step_of_the_published_ladders_has_a_sentence():
    columns, frame = timings.published_run()
    known = why.Known.of(columns, frame)
    ladders = [each for each in analysis.series(frame) if each.sweep in ("ladder", "reduction_ladder")]
    assert len(ladders) >= 5
    for each in ladders:
        found = why.steps(each.rows, known)
        assert len(found) > 8
        for step in found:
            text = steps.sentence(step)
            assert re.match(r"[\d.]+×( \([\d.]+ to [\d.]+\))?, ", text)
            assert "{" not in text and "nan" not in text
            for reason in (*step.reasons, *step.despite):
                assert re.search(r"\d.* instead of .*\d|computes with|so tensor cores", reason)


def test_of_many_steps_those_beside_the_climb_are_aside():
    climb = ["naive_unguarded", "naive", "tiled_padded", "register_1d", "register_2d", "vectorized"]
    beside = ["uncoalesced", "coalesced", "tiled_exact", "tiled_uncoalesced", "corner_turned", "tiled_overrun"]
    beside += ["tiled_guarded", "tiled_remainder", "bank_conflict", "conflict_free"]

    def aside(names: list[str]) -> set[str]:
        seconds = {name: 8e-3 if name in beside else 4e-3 / (1 + climb.index(name)) for name in names}
        found = steps.rows(explained([product(name, time, STEADY) for name, time in seconds.items()]))
        assert {row["rung"] for row in found} >= {*names} - {climb[0]}
        return {row["rung"] for row in found if row["aside"]}

    assert aside(climb + beside) == set(beside)
    assert aside(climb) == set()
