"""From the columns of a timings file to tidy tables: medians, intervals, rates and ratios.

Seconds, counts and plain ratios only; GFLOP/s, GB/s and significant digits are the report's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis import limits
from hpcmm.devices import DEVICES
from hpcmm.interval import interval_rank
from hpcmm.model import COUNTERS, PHASES, TEXTBOOK, UNCHECKED, spread_name
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.parallel import ALGORITHMS, algorithms_of
from hpcmm.store import MEASUREMENTS, PROFILES, WHAT, StoreError
from hpcmm.text import printable

Columns = Mapping[str, Mapping[str, np.ndarray]]

DEPTH = 20  # provenance nested deeper is not read; runs write fewer than 10 levels
MISSING = "missing"  # the result of a point that no attempt could measure

# NVML's reasons that slow a device down against its will. Not among them: idle (0x1) and clocks that
# a person or a driver set (0x2, 0x10, 0x100), which are conditions of the run and no disturbance.
THROTTLING = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal slowdown (software)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
}


def medians(values: np.ndarray, groups: np.ndarray, length: int) -> pd.DataFrame:
    """Median of each group with its 95 % interval.

    Parameters
    ----------
    values : ndarray of float
        NaN is no value.
    groups : ndarray of int
        The group of each value, 0 <= group < length.
    length : int
        Rows of the result.

    Returns
    -------
    DataFrame
        ``median``, ``low``, ``high`` (the interval; NaN for fewer than 6 values) and ``count``.
    """
    known = ~np.isnan(values)
    values, groups = values[known], groups[known]
    values = values[np.lexsort((values, groups))]
    count = np.bincount(groups, minlength=length)
    first = np.cumsum(count) - count
    rank = np.array([interval_rank(int(n)) for n in count], dtype=np.int64)
    median, low, high = np.full((3, length), np.nan)
    some, enough = count > 0, rank > 0
    median[some] = (values[(first + (count - 1) // 2)[some]] + values[(first + count // 2)[some]]) / 2
    low[enough] = values[(first + rank - 1)[enough]]
    high[enough] = values[(first + count - rank)[enough]]
    return pd.DataFrame({"median": median, "low": low, "high": high, "count": count})


def row_dicts(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """A mapping a row. Of a few wide rows pandas' own takes ten times as long."""
    names = list(rows.columns)
    return [dict(zip(names, values, strict=True)) for values in rows.to_numpy(object).tolist()]


def measurements(columns: Columns) -> pd.DataFrame:
    """All that is derived from a timings file, one row a measurement.

    Parameters
    ----------
    columns : mapping
        What ``store.read`` returns.

    Returns
    -------
    DataFrame
        The columns of group measurements and

        - ``rung``: the contender and its tile width; ``memory``: pinned or pageable, where a sweep says so;
          ``label``: both; ``place``: the label's place in the order of the ladder; ``setting``: the
          operation's parameters; ``arithmetic``: of the contender, where it is not that of the type;
        - ``result``: PASS, FAIL, or ``MISSING`` for a point that was tried in vain. Only a PASS has numbers
          below: samples of a FAIL are ignored;
        - ``gpu`` and ``machine``: what it was measured on, as ``machines`` has it; ``superseded``: whether a later
          run measured the same on the same kind of machine;
        - ``seconds``, ``seconds_low``, ``seconds_high``, ``repetitions``: the kernel alone, the slowest
          rank of each repetition, median over repetitions and its interval;
        - ``call_seconds`` and so on: the same of the whole call; ``call_scatter`` ... ``call_gather``:
          medians of its phases [s];
        - ``flops_per_second``, ``bytes_per_second`` with ``_low`` and ``_high``: of the kernel alone;
          ``call_flops_per_second``, ``call_bytes_per_second``: of the whole call;
        - ``ratio``, ``ratio_low``, ``ratio_high``: seconds of the baseline over seconds of the variant,
          paired by repetition (above 1: faster than the baseline); ``call_ratio`` and so on likewise;
        - ``sm_clock``: median of the clocks of the kernel alone [Hz]; ``peak_flops_per_second`` at that
          clock and ``peak_bytes_per_second`` of all GPUs together; ``fraction``: the least seconds that
          these allow over ``seconds``; ``ceiling``: which of them that is. NaN and "" where not known, and of a
          product by other arithmetic than the type's;
        - ``exposed_seconds``: of an algorithm other than the textbook's, seconds of its kernel less those of the
          textbook's beside it, the products alone: what it does not hide of its exchanges, less than nothing
          where it computes the product faster in parts;
        - ``throttled`` and ``throttle_reasons``: the bits of ``THROTTLING`` that any sample has.
    """
    frame = pd.DataFrame(dict(columns["measurements"]))
    frame = frame.assign(**{name: 0 for name in dimensions() if name not in frame})
    known = {
        (operation.name, dtype, algorithm.name, device)
        for operation in OPERATIONS.values()
        for dtype in operation.dtypes
        for algorithm in algorithms_of(operation)
        for device in DEVICES
    }
    for kind in set(zip(*(frame[name] for name in ("operation", "dtype", "algorithm", "device")), strict=True)) - known:
        raise StoreError(f"{', '.join(kind)}: a measurement that is unknown to this package: upgrade hpcmm")
    added = sorted(set(frame.columns) - set(MEASUREMENTS))  # scalars, and dimensions of other operations
    _describe(frame, added)
    _place(columns, frame, added)
    slowest = slowest_ranks(columns, frame)
    for prefix, phase, call in (("", "kernel", 0), ("call_", "total", 1)):
        part = slowest[slowest["call"] == call]
        _put(frame, prefix + "seconds", part[phase], part["measurement"])
        paired = _paired(frame, added, part, phase)
        _put(frame, prefix + "ratio", paired["ratio"], paired["measurement"])
        own = is_own(frame) & (frame["baseline"] == 1) & frame[prefix + "seconds"].notna()
        frame.loc[own, [prefix + "ratio", prefix + "ratio_low", prefix + "ratio_high"]] = 1.0
        for count in ("flops", "bytes"):
            rate = f"{prefix}{count}_per_second"
            frame[rate] = frame[count] / frame[prefix + "seconds"]
            frame[rate + "_low"] = frame[count] / frame[prefix + "seconds_high"]
            frame[rate + "_high"] = frame[count] / frame[prefix + "seconds_low"]
    frame = frame.rename(columns={"seconds_count": "repetitions", "call_seconds_count": "call_repetitions"})
    calls = slowest[slowest["call"] == 1]
    for phase in PHASES[:-1]:
        phases = medians(calls[phase].to_numpy(float), calls["measurement"].to_numpy(), len(frame))
        frame["call_" + phase] = phases["median"]
    _limit(columns, frame)
    beside = frame["ratio"] * frame["seconds"]  # of the baseline, by pairs
    spread = is_own(frame) & (frame["algorithm"] != TEXTBOOK)
    frame["exposed_seconds"] = (frame["seconds"] - beside).where(spread)
    frame["throttle_reasons"] = _throttling(columns, frame)
    frame["throttled"] = frame["throttle_reasons"] != 0
    frame = frame.drop(columns=["ratio_count", "call_ratio_count"])
    # texts as objects, and all in a copy: columns that lie together are ten times as fast to pick rows from
    return frame.astype({name: object for name in frame if not pd.api.types.is_numeric_dtype(frame[name])}).copy()


def _describe(frame: pd.DataFrame, added: Sequence[str]) -> None:
    """Add what a reader calls the measurement: rung, memory, label, place, setting, arithmetic, result."""
    variants = {(of.name, each.name): i for of in OPERATIONS.values() for i, each in enumerate(of.ladder)}
    algorithms = {name: i for i, name in enumerate(ALGORITHMS)}
    others = {(of.name, each.name): each.arithmetic for of in OPERATIONS.values() for each in of.ladder}
    pinned = frame.get("pinned", -1)  # profiles do not say
    named, places = [], []
    names = ["operation", "contender", "variant", "contender_algorithm", "dtype", "tile", "pinned", *added]
    for row in row_dicts(frame.assign(pinned=pinned)[names]):
        operation, contender, algorithm = row["operation"], row["contender"], row["contender_algorithm"]
        own = contender == row["variant"]  # tile and memory are the variant's own, not the baseline's beside it
        tile = row["tile"] if own else 0
        rung = spread_name(contender, algorithm) + (f" {tile}" if tile else "")
        memory = {1: "pinned", 0: "pageable"}.get(row["pinned"], "") if own else ""
        given = [name for name in OPERATIONS[operation].scalars if name in row and not np.isnan(row[name])]
        setting = ", ".join(f"{name} {row[name]:g}" for name in sorted(given))
        arithmetic = others.get((operation, contender), {}).get(row["dtype"], "")
        named.append((rung, memory, setting, arithmetic, " ".join(filter(None, (rung, memory)))))
        ladder, turn = variants.get((operation, contender), np.inf), algorithms.get(algorithm, np.inf)
        places.append((ladder, contender, turn, algorithm, {"pageable": 0, "pinned": 1}.get(memory, 0), tile))
    order = {place: i for i, place in enumerate(sorted(set(places)))}
    names = ["rung", "memory", "setting", "arithmetic", "label"]
    frame[names] = pd.DataFrame(named, columns=names, index=frame.index, dtype=object)
    frame["place"] = [order[place] for place in places]
    wrong = np.where(frame["reference"] == UNCHECKED, MISSING, "FAIL") if "reference" in frame else "FAIL"
    frame["result"] = np.where(frame["passed"] == 1, "PASS", wrong)


def _place(columns: Columns, frame: pd.DataFrame, added: Sequence[str]) -> None:
    """Add what each measurement was made on, and whether it was made again there."""
    where = pd.DataFrame(machines(columns), columns=["gpu", "machine"]).reindex(frame["run"]).to_numpy()
    frame["gpu"], frame["machine"] = where[:, 0], where[:, 1]
    utc = [str(run["provenance"].get("utc") or "") for run in runs(columns)]
    keys = [*WHAT, *added, "machine"]
    age = np.argsort(np.argsort(np.array(utc, object), kind="stable"))  # of runs: the place in the order of time
    by_age = np.argsort(age[frame["run"]], kind="stable")
    frame["superseded"] = frame[keys].iloc[by_age].duplicated(keep="last")


def machines(columns: Columns) -> list[tuple[str, str]]:
    """The GPU of each run, and the kind of machine: its CPU, how many cores, its GPU, and hot caches.

    Of a run on the CPU alone the GPU is that of the runs on such a CPU, if they agree.
    """
    kinds = []
    for run in runs(columns):
        cpu, measuring = (mapping(run["provenance"].get(name)) for name in ("cpu", "measuring"))
        cores = f"{cpu['cores']} cores" if cpu.get("cores") else ""
        gpu = " and ".join(dict.fromkeys(str(gpu["name"]) for gpu in gpus_of(run["provenance"]) if gpu.get("name")))
        hot = "hot caches" if measuring.get("cache") == "hot" else ""
        kinds.append((str(cpu.get("model") or ""), cores, gpu, hot))
    found = []
    for model, cores, gpu, hot in kinds:
        beside = {other[2] for other in kinds if other[:2] == (model, cores) and other[2]}
        known = gpu or (beside.pop() if len(beside) == 1 else "")
        found.append((gpu, ", ".join(filter(None, (model, cores, known, hot)))))
    return found


def apart(frame: pd.DataFrame) -> pd.DataFrame:
    """The same with a sweep for each kind of machine, where one was measured on several: ``"size (CPU, GPU)"``."""
    several = frame.groupby("sweep", sort=False)["machine"].transform("nunique") > 1
    return frame.assign(sweep=frame["sweep"].where(~several, frame["sweep"] + " (" + frame["machine"] + ")"))


def believed(columns: Columns, frame: pd.DataFrame) -> np.ndarray:
    """Which samples count: those of a measurement that passed."""
    return frame["passed"].to_numpy()[columns["samples"]["measurement"]] == 1


def slowest_ranks(columns: Columns, frame: pd.DataFrame) -> pd.DataFrame:
    """Each phase's maximum over ranks: a row per (measurement, call, repetition)."""
    keys = ["measurement", "call", "repetition"]
    samples = pd.DataFrame({name: columns["samples"][name] for name in (*keys, *PHASES)})
    return samples[believed(columns, frame)].groupby(keys, as_index=False)[list(PHASES)].max()


def _put(frame: pd.DataFrame, name: str, values: pd.Series, groups: pd.Series) -> None:
    found = medians(values.to_numpy(float), groups.to_numpy(np.int64), len(frame))
    for column, suffix in (("median", ""), ("low", "_low"), ("high", "_high"), ("count", "_count")):
        frame[name + suffix] = found[column].to_numpy()


def _paired(frame: pd.DataFrame, added: Sequence[str], slowest: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Baseline over variant for each repetition that both have, at the same point in the same job."""
    keys = ["run", *(name for name in WHAT if not name.startswith("contender")), *added]
    point = frame.groupby(keys, dropna=False, sort=False).ngroup()
    beside = (frame["baseline"] == 1) & ~is_own(frame)
    baseline_of = pd.Series(frame.index[beside], index=point[beside])
    baseline_of = baseline_of[~baseline_of.index.duplicated()]
    own = slowest.loc[~beside.to_numpy()[slowest["measurement"]], ["measurement", "repetition", phase]]
    own = own.assign(partner=point.to_numpy()[own["measurement"]])
    own["partner"] = own["partner"].map(baseline_of)
    other = slowest[["measurement", "repetition", phase]]
    both = own.dropna(subset="partner").merge(
        other, left_on=["partner", "repetition"], right_on=["measurement", "repetition"], suffixes=("", "_baseline")
    )
    return pd.DataFrame({"measurement": both["measurement"], "ratio": both[phase + "_baseline"] / both[phase]})


def _limit(columns: Columns, frame: pd.DataFrame) -> None:
    """Add the clock and what the GPUs could do at it, beside what was reached."""
    samples = columns["samples"]
    alone = believed(columns, frame) & (samples["call"] == 0)
    clocks = medians(samples["sm_clock"][alone], samples["measurement"][alone], len(frame))["median"]
    provenances = [run["provenance"] for run in runs(columns)]
    gpus = [gpus_of(provenance) for provenance in provenances]
    hot = [mapping(p.get("measuring")).get("cache") == "hot" for p in provenances]
    found = []
    names = ["device", "run", "operation", "dtype", "arithmetic", "flops", "bytes", "seconds"]
    for row, clock in zip(row_dicts(frame[names]), clocks, strict=True):
        found_there = gpus[row["run"]] if DEVICES[row["device"]].accelerator else []
        flops, units, nbytes = limits.peaks(found_there, row["dtype"], clock)
        if row["arithmetic"]:
            flops = np.nan
        least = {}
        if OPERATIONS[row["operation"]].metric == "flops":
            least[f"{row['dtype']} {units}"] = row["flops"] / flops
        if not hot[row["run"]]:  # what the caches hold need not come from memory
            least["memory"] = row["bytes"] / nbytes
        known = {name: seconds for name, seconds in least.items() if np.isfinite(seconds)}
        ceiling = max(known, key=known.get, default="") if len(known) == len(least) else ""
        found.append((flops, nbytes, known[ceiling] / row["seconds"] if ceiling else np.nan, ceiling))
    frame["sm_clock"] = clocks
    names = ["peak_flops_per_second", "peak_bytes_per_second", "fraction", "ceiling"]
    frame[names] = pd.DataFrame(found, columns=names, index=frame.index)


def _throttling(columns: Columns, frame: pd.DataFrame) -> np.ndarray:
    reasons = np.nan_to_num(np.asarray(columns["samples"]["throttle_reasons"], float)).astype(np.int64)
    counted = believed(columns, frame)
    bits = np.zeros(len(frame), np.int64)
    np.bitwise_or.at(bits, columns["samples"]["measurement"][counted], reasons[counted] & sum(THROTTLING))
    return bits


def throttling_names(bits: int) -> str:
    """The reasons in words: ``"power cap, power brake"``."""
    return ", ".join(name for bit, name in THROTTLING.items() if bits & bit)


def profiles(columns: Columns) -> pd.DataFrame:
    """What a profiler counted, one row for each operation, label and dtype, in the order of the ladder.

    Returns
    -------
    DataFrame
        The columns of group profiles, ``label``, ``place``, ``setting`` and ``result`` as ``measurements``
        has them, and ``shared_wavefronts_per_load`` and ``..._per_store``: wavefronts of shared memory for each
        instruction of a warp, NaN without such instructions. A FAIL has no counters.
    """
    rows = pd.DataFrame(dict(columns["profiles"]))
    rows = (
        rows[rows["operation"].isin(OPERATIONS)]
        .reset_index(drop=True)
        .assign(contender=lambda rows: rows["variant"], contender_algorithm=TEXTBOOK)
    )
    _describe(rows, sorted(set(rows.columns) - {*PROFILES, "contender", "contender_algorithm"}))
    kinds = machines(columns)
    rows["gpu"] = [kinds[run][0] for run in rows["run"]]
    rows.loc[rows["result"] == "FAIL", list(COUNTERS)] = np.nan
    for kind in ("load", "store"):
        instructions = rows[f"shared_{kind}s"]
        rows[f"shared_wavefronts_per_{kind}"] = rows[f"shared_{kind}_wavefronts"] / instructions.where(instructions > 0)
    rows = rows.assign(precision=precisions(rows), position=pd.factorize(rows["operation"])[0])
    rows = rows.sort_values(["position", "place", "precision"], kind="stable")
    return rows.drop(columns=["precision", "position"]).reset_index(drop=True)


def unprofiled(columns: Columns) -> dict[str, str]:
    """Why no profiler looked at an operation that was measured, by operation."""
    given = dict(zip(columns["unprofiled"]["operation"], columns["unprofiled"]["reason"], strict=True))
    measured = dict.fromkeys(columns["measurements"]["operation"])
    absent = [name for name in measured if name not in set(columns["profiles"]["operation"])]
    return {name: given.get(name, "the timings file has no profile") for name in absent}


def points(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that a sweep asked for, the newest of each: without the baselines measured beside another variant."""
    return frame[is_own(frame) & ~frame["superseded"]]


def on_accelerator(frame: pd.DataFrame) -> pd.Series:
    """Return whether each row was measured on a device beside the CPU."""
    return frame["device"].map(lambda name: DEVICES[name].accelerator).astype(bool)


def is_own(frame: pd.DataFrame) -> pd.Series:
    """Whether a row is its point's own, and not what was measured beside it."""
    return (frame["contender"] == frame["variant"]) & (frame["contender_algorithm"] == frame["algorithm"])


def precisions(rows: pd.DataFrame) -> list[int]:
    """The place of each row's type among those of its operation; a type that it does not know comes last."""
    known = {name: operation.dtypes for name, operation in OPERATIONS.items()}
    pairs = [(known[operation], dtype) for operation, dtype in zip(rows["operation"], rows["dtype"], strict=True)]
    return [dtypes.index(dtype) if dtype in dtypes else len(dtypes) for dtypes, dtype in pairs]


def runs(columns: Columns) -> list[dict[str, Any]]:
    """Batch and provenance of each run; provenance that cannot be read is empty."""
    result = []
    for batch, text in zip(columns["runs"]["batch"], columns["runs"]["provenance"], strict=True):
        try:
            provenance = _plain(json.loads(text), DEPTH)
        except (ValueError, RecursionError):
            provenance = {}
        result.append({"batch": batch, "provenance": provenance if isinstance(provenance, dict) else {}})
    return result


def _plain(value: Any, depth: int) -> Any:
    """Remove control characters, which JSON can hide from the store, and whatever is nested deeper than ``depth``."""
    if isinstance(value, str):
        return "\n".join(map(printable, value.splitlines()))
    if not isinstance(value, (dict, list)):
        return value
    if depth == 0:
        return None
    if isinstance(value, list):
        return [_plain(each, depth - 1) for each in value]
    return {printable(name): _plain(each, depth - 1) for name, each in value.items()}


def mapping(value: Any) -> Mapping[str, Any]:
    """What should be a mapping; an empty one if it is not."""
    return value if isinstance(value, Mapping) else {}


def gpus_of(provenance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a run says of the GPU of each rank."""
    gpus = provenance.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []
