"""What Nsight Compute's answer says; the answer in nsight_compute.csv is of an H200, cut to fewer columns.

It is of an earlier version, which did not ask for waits, instructions and predicates.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timings
from tasks import machine
from timings import FAIL, PASS
from timings import product as point

from hpcmm import backends, store
from hpcmm.bench import profiling, tools
from hpcmm.bench.profiling import Kernel, ProfilerError
from hpcmm.experiment import plan
from hpcmm.model.measurement import Point, Profile
from hpcmm.model.quantities import COUNTERS, STALLS

ANSWER = Path(__file__).with_name("nsight_compute.csv").read_text()
OF_SUM = Point("sum", "cub", (1000,), "float64", 1)


def unprofiled(columns) -> dict[str, str]:
    """The operations without a profile, with the reason."""
    return dict(zip(columns["unprofiled"]["operation"], columns["unprofiled"]["reason"], strict=True))


def launch(name: str, blocks: int, duration: float = 1.0, **counters) -> Kernel:
    return Kernel(name, blocks, duration, counters)


# --- the answer ----------------------------------------------------------------------------------------------------


def test_a_real_answer_is_read_in_plain_units():
    """Two launches each of naive, uncoalesced, tiled, bank_conflict, asynchronous and cuBLAS at 1024."""
    kernels = profiling.kernels(ANSWER)
    assert [kernel.name for kernel in kernels[:10]] == ["matmul"] * 10
    assert all("gemm" in kernel.name for kernel in kernels[10:]) and len(kernels) == 12
    assert [kernel.blocks for kernel in kernels] == [32] * 8 + [8] * 4
    later = {"sm_active", "predicated_on_threads", "instructions", "warp_cycles", *(f"stall_{name}" for name in STALLS)}
    assert all(set(kernel.counters) == set(COUNTERS) - later for kernel in kernels)
    naive, uncoalesced, tiled, conflict, ring, library = kernels[::2]
    assert naive.nanoseconds == 340544
    assert naive.counters["achieved_occupancy"] == pytest.approx(0.9359)
    assert [kernel.counters["occupancy"] for kernel in (naive, ring, library)] == [1, 0.25, 0.125]
    assert naive.counters["global_load_bytes_per_second"] == 15777413268182.67
    assert naive.counters["dram_read_bytes_per_second"] == 36969742529.60
    assert naive.counters["sm_clock"] == 1971252235.28
    assert (naive.counters["load_sectors"], uncoalesced.counters["load_sectors"]) == (2.5, 16.51)
    assert (naive.counters["store_sectors"], uncoalesced.counters["store_sectors"]) == (4, 32)
    assert tiled.counters["shared_load_conflicts"] == 33508
    assert conflict.counters["shared_load_conflicts"] == 234900911
    loads, wavefronts = (conflict.counters[f"shared_{each}"] for each in ("loads", "load_wavefronts"))
    assert wavefronts / loads == pytest.approx(7.2, abs=0.1)
    assert all(0 <= kernel.counters[name] <= 1 for kernel in kernels for name in ("fma_pipe", "l2_hits", "shared_pipe"))


def test_a_missing_value_is_nan():
    one = ANSWER.replace('"2.50"', '"n/a"', 1)
    assert one != ANSWER
    first, second, *_ = profiling.kernels(one)
    assert math.isnan(first.counters["load_sectors"])
    assert second.counters["load_sectors"] == 2.5


@pytest.mark.parametrize(("unit", "scaled"), [("byte/s", "Gbyte/s"), ("hz", "Ghz"), ("inst", "Kinst")])
def test_a_unit_with_a_prefix_is_refused(unit, scaled):
    other = ANSWER.replace(f'"{unit}"', f'"{scaled}"')
    assert other != ANSWER
    with pytest.raises(ProfilerError, match=scaled):
        profiling.kernels(other)


def test_no_kernels_are_no_answer():
    assert profiling.kernels("==PROF== Connected\n==WARNING== No kernels were profiled.\n") == []


def test_every_counter_is_requested_once(tmp_path):
    command = profiling.command("ncu", tmp_path / "log.csv", True, ["python", "program.py"])
    assert command[-2:] == ["python", "program.py"]
    metrics = command[command.index("--metrics") + 1].split(",")
    assert sorted(metrics) == sorted({profiling.DURATION, *(metric for _, _, metric in COUNTERS.values())})
    hot = profiling.command("ncu", tmp_path / "log.csv", False, [])
    assert [command[command.index("--cache-control") + 1], hot[hot.index("--cache-control") + 1]] == ["all", "none"]


def test_a_refusal_is_distinguished_from_a_failed_program():
    permission = "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    failed = "==ERROR== The application returned an error code (1).\n"
    assert profiling.refusal(ANSWER) == ""
    assert profiling.refusal(f"==PROF== Connected\n{failed}") == ""
    assert profiling.refusal(f"==PROF== Connected\n==ERROR== {permission} \n{failed}") == permission


# --- whose kernels they are ----------------------------------------------------------------------------------------


def test_each_point_has_the_longest_of_its_kernels_and_a_wrong_one_none():
    points = [point("naive"), point("tiled_padded", tile=16), point("cublas")]
    launches = [
        *(launch("before", 9), launch("spin", 1), launch("matmul", 7, 2.0, load_sectors=4.0)),
        *(launch("spin", 3), launch("split", 1, 1.0), launch("gemm", 8, 5.0, load_sectors=8.0), launch("sum", 1, 2.0)),
    ]
    assert profiling.profiles(points, [PASS, FAIL, PASS], launches) == [
        Profile(points[0], PASS, "matmul", 1, {"load_sectors": 4.0}),
        Profile(points[1], FAIL),
        Profile(points[2], PASS, "gemm", 3, {"load_sectors": 8.0}),
    ]


def test_a_point_without_a_profile_is_an_error():
    with pytest.raises(ProfilerError, match="no kernel of cublas, float32"):
        profiling.profiles([point("naive"), point("cublas")], [PASS, PASS], [launch("spin", 1), launch("matmul", 1)])


# --- the file ------------------------------------------------------------------------------------------------------


def test_profiles_come_back_from_the_file_and_from_a_merged_one(tmp_path):
    first, second, merged = (tmp_path / name for name in ("a.h5", "b.h5", "all.h5"))
    counters = {name: float(i) for i, name in enumerate(COUNTERS)}
    found = [Profile(point("naive", tile=16), PASS, "matmul", 1, counters), Profile(point("cublas"), FAIL)]
    store.write_profiles(first, "matmul", {"host": "here"}, found)
    store.write_profiles(second, "sum", {"host": "there"}, [Profile(OF_SUM, PASS, "reduce", 2, {"l2_hits": 0.5})])
    timings.merge([first, second], merged, unprofiled=[{"operation": "vector_add", "reason": "no time"}])
    columns = store.read(merged)
    rows = columns["profiles"]
    assert list(rows["variant"]) == ["naive", "cublas", "cub"]
    assert list(rows["operation"]) == ["matmul", "matmul", "sum"]
    assert [list(rows[dimension]) for dimension in "mnk"] == [[64, 64, 0], [64, 64, 1000], [64, 64, 0]]
    assert list(rows["passed"]) == [1, 0, 1] and rows["where"][1] == FAIL.where
    assert list(rows["kernel"]) == ["matmul", "", "reduce"] and list(rows["launches"]) == [1, 0, 2]
    assert [rows[name][0] for name in COUNTERS] == list(counters.values())
    assert np.isnan([rows[name][1] for name in COUNTERS]).all()
    assert rows["l2_hits"][2] == 0.5
    assert list(rows["tile"]) == [16, 0, 0]
    hosts = [json.loads(columns["runs"]["provenance"][run])["host"] for run in rows["run"]]
    assert hosts == ["here", "here", "there"]
    assert unprofiled(columns) == {"vector_add": "no time"} and not len(columns["measurements"]["run"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
def test_the_reason_of_a_file_with_profiles_stays_in_a_merged_one(tmp_path, order):
    paths = [tmp_path / "asked.h5", tmp_path / "not.h5"]
    store.write_profiles(tmp_path / "sum.h5", "sum", {}, [Profile(OF_SUM, PASS)])
    same = [{"operation": "minimum", "reason": "same kernels as sum"}]
    timings.merge([tmp_path / "sum.h5"], paths[0], unprofiled=same)
    others = [{"operation": each, "reason": "not requested"} for each in ("minimum", "copy")]
    timings.merge([], paths[1], unprofiled=others)
    timings.merge([paths[i] for i in order], tmp_path / "all.h5")
    assert unprofiled(store.read(tmp_path / "all.h5")) == {"minimum": "same kernels as sum", "copy": "not requested"}


def test_without_nsight_compute_the_file_has_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "PLACES", ())
    output = tmp_path / "profiles" / "matmul.h5"
    reason = profiling.profile("matmul", {"part": [point("naive")]}, True, ["false"], output)
    assert reason == profiling.NOT_INSTALLED
    columns = store.read(output)
    assert unprofiled(columns) == {"matmul": reason} and not len(columns["profiles"]["variant"])


PROFILER = """#!{python}
import subprocess, sys
if sys.argv[1:] == ["--version"]:
    sys.exit(print("Version 2026.1"))
arguments = sys.argv[3:]
options = {{}}
while arguments[0].startswith("--"):
    name, value, *arguments = arguments
    options[name] = value
with open({calls!r}, "a") as file:
    print(arguments[arguments.index("--part") + 1], file=file)
status = subprocess.run(arguments).returncode
head, units, kernel, *_ = [line for line in open({answer!r}) if line.startswith('"')]
with open(options["--log-file"], "w") as log:
    log.write(head + units)
    for number in (1, 2):
        log.write(kernel.replace('"matmul"', '"spin"').replace('"(32, 32, 1)"', f'"({{number}}, 1, 1)"') + kernel)
sys.exit(status)
"""
WATCHED = """
import json, os, sys
if sys.argv[2] == "b" and os.path.exists({broken!r}):
    sys.exit(1)
verdict = {{"passed": True, "error": 0.0, "bound": 0.0, "reference": "exact"}}
json.dump({{"provenance": {{"host": sys.argv[2]}}, "verdicts": [verdict] * 2}}, open(sys.argv[3], "w"))
"""


def test_a_job_that_ended_early_goes_on_after_the_last_part(tmp_path, monkeypatch):
    calls, broken, output = (tmp_path / name for name in ("calls", "broken", "profiles/matmul.h5"))
    answer = str(Path(__file__).with_name("nsight_compute.csv"))
    program = tmp_path / "ncu"
    program.write_text(PROFILER.format(python=sys.executable, calls=str(calls), answer=answer))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "watched.py").write_text(WATCHED.format(broken=str(broken)))
    watched = [sys.executable, tmp_path / "watched.py"]
    names = ("naive", "uncoalesced", "tiled_padded", "cublas")
    points = [point(name) for name in names]
    parts = {"a": points[:2], "b": points[2:]}
    broken.touch()
    with pytest.raises(ProfilerError, match="ended with status 1"):
        profiling.profile("matmul", parts, True, watched, output)
    (kept,) = profiling.finished(output, parts)
    assert list(kept["profiles"]["variant"]) == list(names[:2]) and not output.exists()
    broken.unlink()
    assert profiling.profile("matmul", parts, True, watched, output) == ""
    assert calls.read_text().split() == ["a", "b", "b"]
    columns = store.read(output)
    rows = columns["profiles"]
    assert list(rows["variant"]) == list(names) and (rows["load_sectors"] == 2.5).all()
    provenance = [json.loads(columns["runs"]["provenance"][run]) for run in rows["run"]]
    assert [each["host"] for each in provenance] == ["a", "a", "b", "b"]


# --- the jobs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def planned(tmp_path):
    """A plan of two operations to profile, and its file."""
    measuring = {"warmups": 0, "min_repetitions": 1, "max_repetitions": 1, "max_seconds": 1.0, "visits": 1}
    rungs = ["naive", "uncoalesced", "tiled_padded", "bank_conflict", "conflict_free", "pitched", "cublas"]
    sweeps = {
        "ladder": {"operation": "matmul", "variants": rungs, "sizes": [256]},
        "sum": {"operation": "sum", "variants": ["divergent", "strided", "sequential", "cub"], "sizes": [100_000]},
    }
    config = {"backends": "cuda", "profile": True, "measuring": measuring, "sweeps": sweeps}
    made = plan.make(config, machine(gpus=1))
    made.write(tmp_path / "plan.json")
    return made, tmp_path / "plan.json"


def job(planned_file: Path, operation: str, output: Path) -> subprocess.CompletedProcess:
    program = [sys.executable, "-m", "hpcmm.jobs.profile", "--plan", planned_file]
    command = [*program, "--operation", operation, "--output", output]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_a_job_for_an_unprofiled_operation_is_refused(planned, tmp_path):
    run = job(planned[1], "vector_add", tmp_path / "vector_add.h5")
    assert run.returncode == 1
    assert "no profile of 'vector_add' is planned; planned are: matmul, sum" in run.stderr


@pytest.mark.skipif(not backends.missing("cuda"), reason="this machine has a GPU")
def test_the_program_under_the_profiler_needs_a_gpu(planned, tmp_path):
    program = [sys.executable, "-m", "mpi4py", "-m", "hpcmm.jobs.watched", "--plan", planned[1]]
    command = [*program, "--profile", "matmul", "--part", *planned[0].profile_parts("matmul"), tmp_path / "told.json"]
    edited = [*command[:-2], "0" * 64, command[-1]]  # the digest of a source that was edited since
    why = "profile of matmul: a source was edited during the run; run again"
    for started, message in ((command, "this batch needs a GPU"), (edited, why)):
        run = subprocess.run(started, capture_output=True, text=True, timeout=300)
        assert run.returncode != 0 and message in run.stderr
    assert not (tmp_path / "told.json").exists()


@pytest.mark.gpu
@pytest.mark.parametrize("operation", ["matmul", "sum"])
def test_a_real_profile_shows_what_the_rungs_teach(gpu, planned, tmp_path, operation):
    if tools.find(profiling.PROGRAM) is None:
        pytest.skip(profiling.NOT_INSTALLED)
    output = tmp_path / f"{operation}.h5"
    run = job(planned[1], operation, output)
    assert run.returncode == 0, run.stdout + run.stderr
    columns = store.read(output)
    if len(columns["unprofiled"]["reason"]):
        pytest.skip(columns["unprofiled"]["reason"][0])
    rows = columns["profiles"]
    points = planned[0].profiled[operation]
    assert list(zip(rows["variant"], rows["dtype"], strict=True)) == [(each.variant, each.dtype) for each in points]
    assert rows["passed"].all() and (rows["launches"] >= 1).all()
    assert (rows["achieved_occupancy"] > 0).all() and (rows["achieved_occupancy"] <= 1.01 * rows["occupancy"]).all()
    waits = sum(rows[f"stall_{name}"] for name in STALLS)
    assert (rows["instructions"] > 0).all() and (waits > 0).all() and (waits < 1.2 * rows["warp_cycles"]).all()
    assert (rows["predicated_on_threads"] < 1.01 * rows["active_threads"]).all()
    at = {key: i for i, key in enumerate(zip(rows["variant"], rows["dtype"], strict=True))}
    if operation == "matmul":
        names = ("naive", "uncoalesced", "tiled_padded", "bank_conflict", "conflict_free")
        naive, uncoalesced, tiled, conflict, free = (at[name, "float32"] for name in names)
        assert (rows["store_sectors"][naive], rows["store_sectors"][uncoalesced]) == pytest.approx((4, 32), abs=0.1)
        assert rows["shared_loads"][naive] == 0 < rows["shared_loads"][tiled]
        assert rows["shared_load_conflicts"][conflict] > 10 * rows["shared_load_conflicts"][free]
    else:
        # the branch of divergent shows in no count: the compiler makes predicates of it, as of those of the others
        strided, sequential = (rows["shared_load_conflicts"][at[name, "float32"]] for name in ("strided", "sequential"))
        assert strided > sequential
        assert rows["launches"][at["divergent", "float32"]] == 3
