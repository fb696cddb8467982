"""Tidy tables from the columns of a timings file: medians, intervals, rates and ratios.

Units are seconds, counts and plain ratios. The report formats GFLOP/s, GB/s and significant digits.
"""

import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis import libraries, limits, visits
from hpcmm.analysis.libraries import gpus_of, mapping
from hpcmm.model import TEXTBOOK, UNCHECKED, contender_name
from hpcmm.model.devices import DEVICES
from hpcmm.model.measurement import Point
from hpcmm.model.quantities import COUNTERS, PHASES
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.parallel import ALGORITHMS, algorithms_of
from hpcmm.store import IDENTITY, MEASUREMENTS, PROFILES, StoreError
from hpcmm.system.text import printable

Columns = Mapping[str, Mapping[str, np.ndarray]]

DEPTH = 20  # provenance nested deeper is not read; runs write fewer than 10 levels
MISSING = "not measured"  # result of a point that failed to run in every attempt

ENDS = (("", ""), ("_low", "_high"), ("_high", "_low"))  # a rate and its interval, from the seconds and theirs
SHORT = 10  # empty pairs of CUDA events: the events themselves affect shorter times

# NVML throttle reasons that disturb a measurement. Idle (0x1) and clocks set by a user or the driver (0x2, 0x10, 0x100)
# are conditions of the run.
THROTTLING = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
}


def row_dicts(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a mapping per row. ``DataFrame.to_dict`` takes ten times as long for a few wide rows."""
    names = list(rows.columns)
    return [dict(zip(names, values, strict=True)) for values in rows.to_numpy(object).tolist()]


def measurements(columns: Columns) -> pd.DataFrame:
    """Derive all numbers of a timings file, one row per measurement; ``columns`` are from ``store.read``.

    The columns are those of group measurements and

    - ``rung``: the contender and its tile width; ``memory``: pinned or pageable, if the sweep sets it; ``label``: both;
      ``place``: position of the label in the order of the ladder; ``precision``: that of the element type among those
      of the operation, unknown types are last; ``setting``: parameters of the operation;
      ``arithmetic``: of the contender, if it is not that of the element type; ``role``: whether the contender is a
      ``"rung"``, a ``"baseline"``, or a library for ``"context"``;
    - ``result``: PASS, FAIL, or ``MISSING`` for a point that could not be measured. Only a PASS has the numbers below;
      ``expected``: whether a FAIL is of a kernel that cannot be right at this size;
    - ``gpu`` and ``machine``, from ``machines``; ``superseded``: whether a later run on the same kind of machine
      measured the same point; ``multiprocessors``: SM count of the GPU, 0 if unknown; ``card``: UUID of the GPU of rank
      0;
    - ``seconds`` with the ends ``_low`` and ``_high`` of its interval, ``repetitions``: kernel alone, slowest rank of
      each repetition. With several visits, the median over visits of the times that ``visits`` gives them; with one
      visit, the median over repetitions. The interval is that of ``noise``; NaN if the file does not show how visits
      scatter;
    - ``visits``: their number; ``spread``: relative standard deviation between visits of one job, of this point,
      moderated by those of the file; ``spread_of_jobs``: that between jobs, of points with a similar time; NaN if
      unknown;
    - ``pooled_seconds``, ``pooled_low``, ``pooled_high``, ``pooled_visits``: the same over all visits of the contender
      at this problem on this kind of machine, in any sweep or run, and next to any variant. The visits of one process
      at the points of a batch count as one;
    - ``evenness``: seconds of the mean rank, of the kernel alone, over those of the slowest. The mean is that of the
      rates;
    - ``call_seconds`` and so on: the same end to end; ``call_scatter`` ... ``call_gather``: medians of its phases [s];
    - ``flops_per_second``, ``bytes_per_second`` with their ends, also with ``call_``;
    - ``ratio`` with its ends: seconds of the baseline over seconds of the variant. With several visits, the median over
      all visits of the baseline for the problem in the run, over that of the variant; with one visit, paired by
      repetition;
    - ``library``, ``tuned_library``, ``algorithm_library``, ``tuned_ratio`` and ``lead``, also with ``pooled_``: see
      ``libraries.put``;
    - ``peak_flops_per_second`` at the maximum clock and ``peak_bytes_per_second``, summed over all GPUs; ``fraction``:
      the least seconds that these allow, divided by ``seconds``; ``ceiling``: the name of the limit, which is that of
      the contender's arithmetic; NaN and "" if unknown;
    - ``event_seconds``: an empty pair of CUDA events on the slowest GPU of its run; ``short``: whether ``seconds`` is
      below ``SHORT`` of them;
    - ``watts``: power of the device in the pass for energy; ``flops_per_joule`` and ``bytes_per_joule``: the rate in
      that pass over this power;
    - ``schedule``, ``huge_pages``, ``huge_pages_most`` and ``steal``, from ``visits.states``;
    - ``throttled`` and ``throttle_reasons``: the bits of ``THROTTLING`` that any sample has.

    Raise StoreError if the file has an operation, element type, algorithm or device that this package does not know.
    """
    # texts as objects, as at the end: reading them one by one is ten times as fast
    series = {name: pd.Series(of, dtype=of.dtype) for name, of in columns["measurements"].items()}
    frame = _known(pd.DataFrame(series))
    added = sorted(set(frame.columns) - set(MEASUREMENTS))  # scalars, and dimensions of other operations
    _describe(frame, added)
    _place(columns, frame, added)
    _add_times(columns, frame, added)
    frame = frame.copy()  # else pandas warns of the many columns that were inserted
    libraries.put(frame, runs(columns), added)
    _limit(columns, frame)
    _add_circumstances(columns, frame)
    # texts as objects, and a copy: selecting rows is ten times as fast from contiguous columns
    return frame.astype({name: object for name in frame if not pd.api.types.is_numeric_dtype(frame[name])}).copy()


def _known(frame: pd.DataFrame) -> pd.DataFrame:
    known: set[tuple] = set()
    for operation in OPERATIONS.values():
        names = [algorithm.name for algorithm in algorithms_of(operation)]
        known.update(itertools.product([operation.name], operation.dtypes, names, DEVICES))
    columns = (frame[name] for name in ("operation", "dtype", "algorithm", "device"))
    if unknown := set(zip(*columns, strict=True)) - known:
        raise StoreError(f"{', '.join(min(unknown))}: a measurement unknown to this version: upgrade hpcmm")
    return frame.assign(**{name: 0 for name in dimensions() if name not in frame})


def _add_times(columns: Columns, frame: pd.DataFrame, added: Sequence[str]) -> None:
    """Add times, intervals and ratios of the kernel alone and end to end, and the phases of calls."""
    baselines, jobs = is_own(frame) & (frame["baseline"] == 1), jobs_of(columns)
    for prefix, phase, call, further in (("", "kernel", 0, ()), ("call_", "total", 1, PHASES[:-1])):
        seconds, ratio = f"{prefix}seconds", f"{prefix}ratio"
        part = slowest_ranks(columns, frame, call, [*further, phase])
        repetitions = part.groupby("measurement")
        for name in further:
            frame[f"call_{name}"] = repetitions[name].median().reindex(frame.index)
        frame[seconds] = repetitions[phase].median().reindex(frame.index)
        frame[f"{prefix}repetitions"] = repetitions[phase].count().reindex(frame.index, fill_value=0)
        frame[ratio] = _paired(frame, added, part, phase)
        taken = visits.of_rows(part, phase).join(jobs, on="run")
        taken["process"] = taken.groupby(["run", "visit"]).ngroup()  # the visits of a process at the points of a batch
        visits.put(frame, added, taken, prefix)
        frame.loc[baselines & frame[seconds].notna(), [ratio, f"{ratio}_low", f"{ratio}_high"]] = 1.0
        for count in ("flops", "bytes"):
            for end, opposite in ENDS:
                frame[f"{prefix}{count}_per_second{end}"] = frame[count] / frame[seconds + opposite]


def _add_circumstances(columns: Columns, frame: pd.DataFrame) -> None:
    """Add evenness, energy, the time of events, the card, states and throttling."""
    wrong = frame[frame["result"] == "FAIL"]
    must_fail = [at for at, row in zip(wrong.index, row_dicts(wrong), strict=True) if _must_fail(row)]
    frame["expected"] = frame.index.isin(must_fail)
    frame["evenness"] = _evenness(columns, frame)
    gpus = list(map(gpus_of, runs(columns)))
    cards = [str(each[0].get("uuid") or "") if each else "" for each in gpus]
    frame["card"] = [cards[run] for run in frame["run"]]
    frame["watts"] = frame["energy"] / frame["energy_seconds"]
    for count in ("flops", "bytes"):
        frame[f"{count}_per_joule"] = frame[count] * frame["energy_runs"] / frame["energy"]
    costs = [[cost for gpu in each if isinstance(cost := gpu.get("empty_event_pair_seconds"), float)] for each in gpus]
    events = np.array([*(max(each, default=np.nan) for each in costs), np.nan])  # with one entry at least
    frame["event_seconds"] = np.where(on_accelerator(frame), events[frame["run"]], np.nan)
    frame["short"] = frame["seconds"] < SHORT * frame["event_seconds"]
    states = visits.states(columns, len(frame))
    frame[list(states)] = states
    samples, counted = columns["samples"], passed_samples(columns, frame)
    reasons, bits = np.nan_to_num(np.asarray(samples["throttle_reasons"], float)), np.zeros(len(frame), np.int64)
    bits_of_samples = reasons.astype(np.int64)[counted] & sum(THROTTLING)
    np.bitwise_or.at(bits, samples["measurement"][counted], bits_of_samples)
    frame["throttle_reasons"], frame["throttled"] = bits, bits != 0


def _describe(frame: pd.DataFrame, added: Sequence[str]) -> None:
    """Add the columns that name a measurement, from ``rung`` to ``result``."""
    records = {(of.name, each.name): (i, each) for of in OPERATIONS.values() for i, each in enumerate(of.ladder)}
    algorithms = {name: i for i, name in enumerate(ALGORITHMS)}
    defaults = {"pinned": -1, "baseline": 0}  # profiles have no such columns
    named, places, precisions = [], [], []
    names = ["operation", "contender", "variant", "contender_algorithm", "dtype", "tile", *defaults, *added]
    complete = frame.assign(**{name: frame.get(name, value) for name, value in defaults.items()})
    distinct, which = visits.kinds(complete, names)
    for row in row_dicts(distinct):
        operation, contender, algorithm = row["operation"], row["contender"], row["contender_algorithm"]
        own = contender == row["variant"]  # tile and memory belong to the variant, not to its baseline
        tile = row["tile"] if own else 0
        rung = contender_name(contender, algorithm) + (f" {tile}" if tile else "")
        memory = {1: "pinned", 0: "pageable"}.get(row["pinned"], "") if own else ""
        given = [name for name in OPERATIONS[operation].scalars if name in row and not np.isnan(row[name])]
        setting = ", ".join(f"{name} {row[name]:g}" for name in sorted(given))
        ladder, record = records.get((operation, contender), (np.inf, None))
        arithmetic = record.arithmetic.get(row["dtype"], "") if record else ""
        role = "baseline" if row["baseline"] else "context" if record and record.context else "rung"
        dtypes = [*OPERATIONS[operation].dtypes, row["dtype"]]
        named.append((rung, memory, setting, arithmetic, role, " ".join(filter(None, (rung, memory)))))
        precisions.append(dtypes.index(row["dtype"]))
        turn = algorithms.get(algorithm, np.inf)
        places.append((ladder, contender, turn, algorithm, {"pageable": 0, "pinned": 1}.get(memory, 0), tile))
    order = {place: i for i, place in enumerate(sorted(set(places)))}
    names = ["rung", "memory", "setting", "arithmetic", "role", "label"]
    frame[names] = pd.DataFrame(named, columns=names, dtype=object).iloc[which].set_axis(frame.index)
    frame["place"] = np.array([order[place] for place in places], int)[which]
    frame["precision"] = np.array(precisions, int)[which]
    wrong = np.where(frame["reference"] == UNCHECKED, MISSING, "FAIL") if "reference" in frame else "FAIL"
    frame["result"] = np.where(frame["passed"] == 1, "PASS", wrong)


def _must_fail(row: Mapping[str, Any]) -> bool:
    """Whether a contender must fail: its kernel needs sizes that the tile divides."""
    variant = OPERATIONS[row["operation"]].find(row["contender"])
    if variant is None or not variant.exact or not row["tile"]:
        return False
    shape = tuple(int(row[dimension]) for dimension in dimensions() if row[dimension])
    point = Point(row["operation"], variant.name, shape, row["dtype"], int(row["ranks"]), tile=int(row["tile"]))
    return not point.divides_into_tiles


def _place(columns: Columns, frame: pd.DataFrame, added: Sequence[str]) -> None:
    where = pd.DataFrame(machines(columns), columns=["gpu", "machine"]).reindex(frame["run"]).to_numpy()
    frame["gpu"], frame["machine"] = where[:, 0], where[:, 1]
    provenances = runs(columns)
    utc = [str(run.get("utc") or "") for run in provenances]
    keys = [*IDENTITY, *added, "machine"]
    age = np.argsort(np.argsort(np.array(utc, object), kind="stable"))  # position of each run in the order of time
    by_age = np.argsort(age[frame["run"]], kind="stable")
    frame["superseded"] = frame[keys].iloc[by_age].duplicated(keep="last")
    counts = [(gpus_of(run) or [{}])[0].get("multiprocessors") for run in provenances]
    known = np.array([count if isinstance(count, int) and count > 0 else 0 for count in counts], np.int64)
    frame["multiprocessors"] = np.where(on_accelerator(frame), known[frame["run"]], 0)


def machines(columns: Columns) -> list[tuple[str, str]]:
    """Return the GPU of each run, and its kind of machine: CPU, number of cores, GPU, and "hot caches" if so.

    A run on the CPU alone gets the GPU of other runs of this revision on such a CPU, else that of any other ones, if
    these have the same GPU. If not, and if it had a part of the CPU, that part is named instead of the number of cores.
    """
    kinds = []
    for run in runs(columns):
        cpu, measuring = (mapping(run.get(name)) for name in ("cpu", "measuring"))
        cores = f"{cpu['cores']} cores" if cpu.get("cores") else ""
        gpu = " and ".join(dict.fromkeys(str(gpu["name"]) for gpu in gpus_of(run) if gpu.get("name")))
        hot = "hot caches" if measuring.get("cache") == "hot" else ""
        limit = str(mapping(mapping(run.get("surroundings")).get("limits")).get("CPU affinity") or "")
        kinds.append((str(cpu.get("model") or ""), cores, gpu, hot, limit, run.get("revision")))
    named = []
    for model, cores, gpu, hot, limit, revision in kinds:
        same_cpu = [other for other in kinds if other[:2] == (model, cores) and other[2]]
        gpus = {other[2] for other in same_cpu if other[-1] == revision} or {other[2] for other in same_cpu}
        known = gpu or (gpus.pop() if len(gpus) == 1 else "")
        part = "" if known else limit  # GPUs are measured beside any part of a CPU
        named.append((gpu, ", ".join(filter(None, (model, part or cores, known, hot)))))
    return named


def jobs_of(columns: Columns) -> pd.DataFrame:
    """Number the job of each run, and its code: columns ``job`` and ``code``."""
    provenances = runs(columns)
    # without a job's name, as outside of the workflow, its processes have the same arguments
    jobs = [str(run.get("job") or (run.get("host"), run.get("arguments"))) for run in provenances]
    code = [str(run.get("source_sha256") or run.get("revision")) for run in provenances]
    return pd.DataFrame(
        {"job": pd.factorize(np.array(jobs, object))[0], "code": pd.factorize(np.array(code, object))[0]}
    )


def split_by_machine(frame: pd.DataFrame) -> pd.DataFrame:
    """Split sweeps that were measured on several kinds of machine, named as ``"size (CPU, GPU)"``."""
    several = frame.groupby("sweep", sort=False)["machine"].transform("nunique") > 1
    return frame.assign(sweep=frame["sweep"].where(~several, frame["sweep"] + " (" + frame["machine"] + ")"))


def passed_samples(columns: Columns, frame: pd.DataFrame) -> np.ndarray:
    """Return a mask of the samples that belong to a measurement that passed."""
    return frame["passed"].to_numpy()[columns["samples"]["measurement"]] == 1


def slowest_ranks(columns: Columns, frame: pd.DataFrame, call: int, phases: Sequence[str]) -> pd.DataFrame:
    """Return the maximum over ranks of some phases, of calls or of kernels alone, one row per repetition that passed.

    The other columns are ``measurement``, ``run``, ``visit`` and ``repetition``.
    """
    keys, samples = ["measurement", "run", "visit", "repetition"], columns["samples"]
    taken = passed_samples(columns, frame) & (samples["call"] == call)
    several = (frame["ranks"] > 1).to_numpy()[samples["measurement"]]
    single, of_ranks = (
        pd.DataFrame({name: samples[name][rows] for name in (*keys, *phases)}, copy=False)
        for rows in (taken & ~several, taken & several)
    )
    return pd.concat([single, of_ranks.groupby(keys, as_index=False)[[*phases]].max()], ignore_index=True)


def _evenness(columns: Columns, frame: pd.DataFrame) -> np.ndarray:
    """Return the time of the mean rank of each measurement, of the kernel alone, over that of the slowest rank."""
    samples = pd.DataFrame({name: columns["samples"][name] for name in ("measurement", "rank", "call", "kernel")})
    several = (frame["ranks"] > 1).to_numpy()[samples["measurement"]] & passed_samples(columns, frame)
    of_ranks = samples[several & (samples["call"] == 0)].groupby(["measurement", "rank"])["kernel"].median()
    rates = (1 / of_ranks).groupby(level="measurement").agg(["mean", "min"])
    return (rates["min"] / rates["mean"]).reindex(range(len(frame)), fill_value=1.0).to_numpy()


def _paired(frame: pd.DataFrame, added: Sequence[str], slowest: pd.DataFrame, phase: str) -> pd.Series:
    """Return the median of baseline over variant of the repetitions that both have, at the same point of a job."""
    repetitions, beside = slowest[["measurement", "repetition", phase]], visits.beside(frame, added)
    variants = repetitions.assign(partner=beside[repetitions["measurement"]])
    variants = variants[(variants["partner"] >= 0) & (variants["partner"] != variants["measurement"])]
    keys = {"left_on": ["partner", "repetition"], "right_on": ["measurement", "repetition"]}
    both = variants.merge(repetitions, **keys, suffixes=("", "_base"))
    return (both[f"{phase}_base"] / both[phase]).groupby(both["measurement"]).median().reindex(frame.index)


def _limit(columns: Columns, frame: pd.DataFrame) -> None:
    provenances = runs(columns)
    gpus = list(map(gpus_of, provenances))
    hot = [mapping(p.get("measuring")).get("cache") == "hot" for p in provenances]
    distinct, which = visits.kinds(frame, ["device", "run", "dtype", "arithmetic", "ranks", "operation"])
    peaks_of = []
    for row in row_dicts(distinct):
        device, run, dtype, arithmetic, ranks, operation = row.values()
        if DEVICES[device].accelerator:
            flops, units, nbytes = limits.peaks(gpus[run], dtype, arithmetic, ranks)
            # with hot caches the data may not come from memory
            in_memory = not (hot[run] or OPERATIONS[operation].cached)
        else:  # the bandwidth of a host's memory is unknown
            flops, units = limits.cpu_peak(mapping(provenances[run].get("cpu")), dtype, arithmetic, ranks)
            nbytes, in_memory = np.nan, False
        other = arithmetic.partition(",")[0]
        name = f"{other} on {units}" if other else f"{dtype} {units}"
        peaks_of.append((flops, nbytes, name if OPERATIONS[operation].metric == "flops" else "", in_memory))
    peaks = pd.DataFrame(peaks_of, columns=["flops", "bytes", "name", "in_memory"])
    peaks = peaks.astype({"flops": float, "bytes": float}).iloc[which].set_axis(frame.index)
    of_flops, of_bytes = (frame["flops"] / peaks["flops"]).to_numpy(), (frame["bytes"] / peaks["bytes"]).to_numpy()
    computes, in_memory = (peaks["name"] != "").to_numpy(), peaks["in_memory"].to_numpy(bool)
    known = (computes | in_memory) & (np.isfinite(of_flops) | ~computes) & (np.isfinite(of_bytes) | ~in_memory)
    by_memory = in_memory & ~(computes & (of_flops >= of_bytes))
    frame["peak_flops_per_second"], frame["peak_bytes_per_second"] = peaks["flops"], peaks["bytes"]
    frame["fraction"] = np.where(known, np.where(by_memory, of_bytes, of_flops) / frame["seconds"], np.nan)
    known &= np.isfinite(frame["seconds"].to_numpy())
    frame["ceiling"] = np.where(known, np.where(by_memory, "memory", peaks["name"]), "").astype(object)


def throttling_names(bits: int) -> str:
    """Name the throttle reasons, ``"power cap, power brake"``."""
    return ", ".join(name for bit, name in THROTTLING.items() if bits & bit)


def profiles(columns: Columns) -> pd.DataFrame:
    """Return the profiler counters, one row for each operation, label and dtype, in the order of the ladder.

    The columns are those of group profiles; ``label``, ``place``, ``setting`` and ``result`` as in ``measurements``;
    and ``load_conflict_factor`` and ``store_conflict_factor``: wavefronts of shared memory over those that the same
    accesses take without bank conflicts, NaN without accesses. A FAIL has no counters.
    """
    rows = pd.DataFrame(dict(columns["profiles"]))
    rows = rows[rows["operation"].isin(OPERATIONS)].reset_index(drop=True)
    rows = rows.assign(contender=rows["variant"], contender_algorithm=TEXTBOOK)
    _describe(rows, sorted(set(rows.columns) - {*PROFILES, "contender", "contender_algorithm"}))
    kinds = machines(columns)
    rows["gpu"] = [kinds[run][0] for run in rows["run"]]
    rows.loc[rows["result"] == "FAIL", list(COUNTERS)] = np.nan
    for kind in ("load", "store"):
        # not over instructions, which also count if no thread of the warp takes part
        wavefronts = rows[f"shared_{kind}_wavefronts"]
        free = wavefronts - rows[f"shared_{kind}_conflicts"]
        rows[f"{kind}_conflict_factor"] = wavefronts / free.where(free > 0)
    rows = rows.assign(position=pd.factorize(rows["operation"])[0])
    return rows.sort_values(["position", "place", "precision"], kind="stable", ignore_index=True)


def unprofiled(columns: Columns) -> dict[str, str]:
    """Return the reason for each measured operation without a profile."""
    given = dict(zip(columns["unprofiled"]["operation"], columns["unprofiled"]["reason"], strict=True))
    measured = dict.fromkeys(columns["measurements"]["operation"])
    without = [name for name in measured if name not in set(columns["profiles"]["operation"])]
    return {name: given.get(name, "the timings file has no profile") for name in without}


def points(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the newest row of each point of a sweep, without baselines measured together with another variant."""
    return frame[is_own(frame) & ~frame["superseded"]]


def on_accelerator(frame: pd.DataFrame) -> pd.Series:
    """Return whether each row was measured on an accelerator."""
    return frame["device"].map({name: each.accelerator for name, each in DEVICES.items()}).astype(bool)


def is_own(frame: pd.DataFrame) -> pd.Series:
    """Return whether each row is the variant of its point, and not the baseline measured with it."""
    return (frame["contender"] == frame["variant"]) & (frame["contender_algorithm"] == frame["algorithm"])


def runs(columns: Columns) -> list[dict[str, Any]]:
    """Return the provenance of each run, which is not to be changed; empty if it cannot be read."""
    return list(map(_provenance, columns["runs"]["provenance"]))


@functools.lru_cache(1024)  # several parts of a report read the provenance of the same runs
def _provenance(text: str) -> dict[str, Any]:
    try:
        provenance = _plain(json.loads(text), DEPTH)
    except (ValueError, RecursionError):
        provenance = {}
    return provenance if isinstance(provenance, dict) else {}


def _plain(value: Any, depth: int) -> Any:
    """Remove control characters, which JSON can escape, and values nested deeper than ``depth``."""
    if isinstance(value, str):
        return "\n".join(map(printable, value.splitlines()))
    if not isinstance(value, (dict, list)):
        return value
    if depth == 0:
        return None
    if isinstance(value, list):
        return [_plain(each, depth - 1) for each in value]
    return {printable(name): _plain(each, depth - 1) for name, each in value.items()}
