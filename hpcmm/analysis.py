"""From the columns of a timings file to tidy tables: medians, intervals, rates and ratios.

Seconds, counts and plain ratios only; GFLOP/s, GB/s and significant digits are the report's business.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pandas as pd

from hpcmm import limits
from hpcmm.interval import interval_rank
from hpcmm.model import COUNTERS, PHASES, RESOURCES, STATES, TEXTBOOK, UNCHECKED, Device, spread_name
from hpcmm.operations import OPERATIONS
from hpcmm.store import DIMENSIONS, MEASUREMENTS, PROFILES, WHAT, StoreError

Columns = Mapping[str, Mapping[str, np.ndarray]]

MISSING = "missing"  # the result of a point that no attempt could measure
MOST_STATES = 400  # that a figure of them shows

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


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
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
    known = {
        (operation.name, dtype, algorithm.name, device)
        for operation in OPERATIONS.values()
        for dtype in operation.dtypes
        for algorithm in operation.algorithms
        for device in get_args(Device)
    }
    for kind in set(zip(*(frame[name] for name in ("operation", "dtype", "algorithm", "device")), strict=True)) - known:
        raise StoreError(f"{', '.join(kind)}: a measurement that is unknown to this package: upgrade hpcmm")
    parameters = sorted(set(frame.columns) - set(MEASUREMENTS))
    _describe(frame, parameters)
    _place(columns, frame, parameters)
    slowest = slowest_ranks(columns, frame)
    for prefix, phase, call in (("", "kernel", 0), ("call_", "total", 1)):
        part = slowest[slowest["call"] == call]
        _put(frame, prefix + "seconds", part[phase], part["measurement"])
        paired = _paired(frame, parameters, part, phase)
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
    beside = frame["ratio"] * frame["seconds"]  # of the yardstick, by pairs
    spread = is_own(frame) & (frame["algorithm"] != TEXTBOOK)
    frame["exposed_seconds"] = (frame["seconds"] - beside).where(spread)
    frame["throttle_reasons"] = _throttling(columns, frame)
    frame["throttled"] = frame["throttle_reasons"] != 0
    frame = frame.drop(columns=["ratio_count", "call_ratio_count"])
    # texts as objects, and all in a copy: columns that lie together are ten times as fast to pick rows from
    return frame.astype({name: object for name in frame if not pd.api.types.is_numeric_dtype(frame[name])}).copy()


def _describe(frame: pd.DataFrame, parameters: Sequence[str]) -> None:
    """Add what a reader calls the measurement: rung, memory, label, place, setting, arithmetic, result."""
    variants = {(of.name, each.name): i for of in OPERATIONS.values() for i, each in enumerate(of.ladder)}
    algorithms = {(of.name, each.name): i for of in OPERATIONS.values() for i, each in enumerate(of.algorithms)}
    others = {(of.name, each.name): each.arithmetic for of in OPERATIONS.values() for each in of.ladder}
    named, places = [], []
    for row in records(frame[["operation", "contender", "variant", "contender_algorithm", "dtype", *parameters]]):
        operation, contender, algorithm = row["operation"], row["contender"], row["contender_algorithm"]
        general = OPERATIONS[operation].parameters
        given = {name: row[name] for name in parameters if not np.isnan(row[name])}
        # A tile width is the variant's own: the baseline measured beside it has none.
        own = {k: v for k, v in given.items() if k not in general and contender == row["variant"]}
        widths = [f"{v:g}" if k == "tile" else f"{k} {v:g}" for k, v in own.items() if k != "pinned"]
        rung = " ".join([spread_name(contender, algorithm), *widths])
        memory = {1.0: "pinned", 0.0: "pageable"}.get(own.get("pinned"), "")
        setting = ", ".join(f"{k} {v:g}" for k, v in given.items() if k in general)
        arithmetic = others.get((operation, contender), {}).get(row["dtype"], "")
        named.append((rung, memory, setting, arithmetic, " ".join(filter(None, (rung, memory)))))
        ladder, turn = variants.get((operation, contender), np.inf), algorithms.get((operation, algorithm), np.inf)
        places.append((ladder, contender, turn, algorithm, *(own.get(k, 0.0) for k in parameters)))
    order = {place: i for i, place in enumerate(sorted(set(places)))}
    names = ["rung", "memory", "setting", "arithmetic", "label"]
    frame[names] = pd.DataFrame(named, columns=names, index=frame.index, dtype=object)
    frame["place"] = [order[place] for place in places]
    wrong = np.where(frame["reference"] == UNCHECKED, MISSING, "FAIL") if "reference" in frame else "FAIL"
    frame["result"] = np.where(frame["passed"] == 1, "PASS", wrong)


def _place(columns: Columns, frame: pd.DataFrame, parameters: Sequence[str]) -> None:
    """Add what each measurement was made on, and whether it was made again there."""
    where = pd.DataFrame(machines(columns), columns=["gpu", "machine"]).reindex(frame["run"]).to_numpy()
    frame["gpu"], frame["machine"] = where[:, 0], where[:, 1]
    utc = [str(run["provenance"].get("utc") or "") for run in runs(columns)]
    keys = [*WHAT, *parameters, "machine"]
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


def _believed(columns: Columns, frame: pd.DataFrame) -> np.ndarray:
    """Which samples count: those of a measurement that passed."""
    return frame["passed"].to_numpy()[columns["samples"]["measurement"]] == 1


def slowest_ranks(columns: Columns, frame: pd.DataFrame) -> pd.DataFrame:
    """Each phase's maximum over ranks: a row per (measurement, call, repetition)."""
    keys = ["measurement", "call", "repetition"]
    samples = pd.DataFrame({name: columns["samples"][name] for name in (*keys, *PHASES)})
    return samples[_believed(columns, frame)].groupby(keys, as_index=False)[list(PHASES)].max()


def _put(frame: pd.DataFrame, name: str, values: pd.Series, groups: pd.Series) -> None:
    found = medians(values.to_numpy(float), groups.to_numpy(np.int64), len(frame))
    for column, suffix in (("median", ""), ("low", "_low"), ("high", "_high"), ("count", "_count")):
        frame[name + suffix] = found[column].to_numpy()


def _paired(frame: pd.DataFrame, parameters: Sequence[str], slowest: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Baseline over variant for each repetition that both have, at the same point in the same job."""
    keys = ["run", "sweep", "operation", "variant", "algorithm", *DIMENSIONS, "dtype", "ranks", *parameters]
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
    alone = _believed(columns, frame) & (samples["call"] == 0)
    clocks = medians(samples["sm_clock"][alone], samples["measurement"][alone], len(frame))["median"]
    provenances = [run["provenance"] for run in runs(columns)]
    gpus = [gpus_of(provenance) for provenance in provenances]
    hot = [mapping(p.get("measuring")).get("cache") == "hot" for p in provenances]
    found = []
    names = ["device", "run", "operation", "dtype", "arithmetic", "flops", "bytes", "seconds"]
    for row, clock in zip(records(frame[names]), clocks, strict=True):
        on_gpu = row["device"] == "cuda"
        flops, units, nbytes = limits.peaks(gpus[row["run"]] if on_gpu else [], row["dtype"], clock)
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
    counted = _believed(columns, frame)
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


SERIES = ["sweep", "operation", "dtype", "ranks", "setting"]  # what the points of a series share


@dataclass(frozen=True)
class Series:
    """The points of one table: one sweep, dtype, rank count and setting of the operation's parameters.

    ``points`` are rows of ``measurements``, by size and then in the order of the ladder.
    """

    sweep: str
    operation: str
    dtype: str
    ranks: int
    setting: str
    points: pd.DataFrame

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Those of other rows that belong to this series."""
        for key in SERIES:
            rows = rows[rows[key] == getattr(self, key)]
        return rows


def points(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that a sweep asked for, the newest of each: without the baselines measured beside another variant."""
    return frame[is_own(frame) & ~frame["superseded"]]


def is_own(frame: pd.DataFrame) -> pd.Series:
    """Whether a row is its point's own, and not what was measured beside it."""
    return (frame["contender"] == frame["variant"]) & (frame["contender_algorithm"] == frame["algorithm"])


def series(frame: pd.DataFrame) -> Iterator[Series]:
    """Split the points into the tables of the report, sweeps in the order of the file, without resources."""
    rows = points(frame).drop(columns=list(RESOURCES))
    rows = rows.assign(precision=precisions(rows), position=pd.factorize(rows["sweep"])[0])
    rows = rows.sort_values(["position", "precision", "ranks", "setting", *DIMENSIONS, "place"], kind="stable")
    for (sweep, operation, dtype, ranks, setting), part in rows.groupby(SERIES, sort=False):
        part = part.drop(columns=["precision", "position"]).reset_index(drop=True).copy()
        yield Series(sweep, operation, dtype, int(ranks), setting, part)


def precisions(rows: pd.DataFrame) -> list[int]:
    """The place of each row's type among those of its operation; a type that it does not know comes last."""
    known = {name: operation.dtypes for name, operation in OPERATIONS.items()}
    pairs = [(known[operation], dtype) for operation, dtype in zip(rows["operation"], rows["dtype"], strict=True)]
    return [dtypes.index(dtype) if dtype in dtypes else len(dtypes) for dtypes, dtype in pairs]


def largest(rows: pd.DataFrame) -> pd.DataFrame:
    """The points of one operation at the size with the most work."""
    at = rows.loc[rows[OPERATIONS[rows["operation"].iloc[0]].metric].idxmax()]
    return rows[(rows[list(DIMENSIONS)] == at[list(DIMENSIONS)]).all(axis=1)]


def ladder(rows: pd.DataFrame) -> pd.DataFrame:
    """The points of one series as a ladder at each size: what each rung gains.

    CPU and GPU are ladders of their own, and so is each size. ``step`` is the seconds of the rung
    below over the rung's own, ``cumulative`` those of the first rung over its own. The baseline
    stands beside the ladder: it has no step. A FAIL has neither, nor has the step above it.
    """
    rows = rows.sort_values([*DIMENSIONS, "device", "place"], kind="stable").reset_index(drop=True)
    by = [*DIMENSIONS, "device"]
    rungs = rows.loc[rows["baseline"] == 0, [*by, "seconds"]]
    rows["step"] = rungs.groupby(by)["seconds"].shift() / rungs["seconds"]
    first = rungs.drop_duplicates(by).set_index(by)["seconds"]  # NaN where it failed
    rows["cumulative"] = first.reindex(pd.MultiIndex.from_frame(rows[by])).to_numpy() / rows["seconds"]
    return rows


def phases(rows: pd.DataFrame) -> pd.DataFrame:
    """The points that were timed as a whole call, each phase with its share of the call.

    ``share_<phase>`` is the phase's median over the call's. A phase is timed on its slowest rank, so
    the shares of several ranks may add up to more than 1.
    """
    rows = rows[rows["call_seconds"].notna()].reset_index(drop=True)
    shares = {f"share_{phase}": rows["call_" + phase] / rows["call_seconds"] for phase in PHASES[:-1]}
    return rows.assign(**shares)


PLAIN = "tiled_padded"  # what the pitched rung is without its pitch


def pitch_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """The points of pitched rungs beside those of the same kernel without pitch.

    Returns
    -------
    DataFrame
        Of ``rows`` the pitched points that have a partner, and ``gain``, ``gain_low``, ``gain_high``: the
        partner's seconds over their own, with the ends that both medians' intervals allow.
    """
    padded = {variant.name for operation in OPERATIONS.values() for variant in operation.ladder if variant.pitched}
    if not rows["variant"].isin(padded).any():
        return rows[:0].assign(gain=np.nan, gain_low=np.nan, gain_high=np.nan)
    keys = [*DIMENSIONS, "dtype", "ranks", "setting", "memory", *(["tile"] if "tile" in rows else [])]
    times = ["seconds", "seconds_low", "seconds_high"]
    passed = rows[rows["result"] == "PASS"]
    plain = passed.loc[passed["variant"] == PLAIN, [*keys, *times]].drop_duplicates(keys)
    both = passed[passed["variant"].isin(padded)].merge(plain, on=keys, suffixes=("", "_plain"))
    return both.assign(
        gain=both["seconds_plain"] / both["seconds"],
        gain_low=both["seconds_low_plain"] / both["seconds_high"],
        gain_high=both["seconds_high_plain"] / both["seconds_low"],
    ).drop(columns=[time + "_plain" for time in times])


@dataclass(frozen=True)
class Roof:
    """The rungs of one device of a machine in one type, and what bounds them.

    ``rungs`` has each rung's fastest point; ``ceilings`` are a name, operations a second and bytes a
    second: of the hardware, where they are known, and the highest that this run reached.
    """

    device: str
    machine: str
    dtype: str
    rungs: pd.DataFrame
    ceilings: list[tuple[str, float, float]]


def rooflines(frame: pd.DataFrame) -> Iterator[Roof]:
    """A roof for each device and type that a product was measured in, of the fewest ranks, if anything bounds it."""
    frame = frame[(frame["result"] == "PASS") & frame["seconds"].notna() & ~frame["superseded"]]
    metric = frame["operation"].map({name: operation.metric for name, operation in OPERATIONS.items()})
    for (device, machine), on_device in frame.groupby(["device", "machine"], sort=False):
        on_device = on_device[on_device["ranks"] == on_device["ranks"].min()]
        bandwidth = on_device.loc[metric == "bytes", "bytes_per_second"].max()
        for dtype in dict.fromkeys(on_device.loc[metric == "flops", "dtype"]):
            rows = points(on_device[on_device["dtype"] == dtype])
            products = rows[metric[rows.index] == "flops"]
            if products.empty:
                continue
            rungs = rows.loc[rows.groupby(["operation", "rung"], sort=False)["flops_per_second"].idxmax()]
            ceilings = [
                ("hardware", products["peak_flops_per_second"].median(), products["peak_bytes_per_second"].median()),
                ("highest of this run", products["flops_per_second"].max(), bandwidth),
            ]
            known = [each for each in ceilings if np.isfinite(each[1]) and np.isfinite(each[2])]
            if known:
                yield Roof(
                    device, machine, dtype, rungs.sort_values(["operation", "place"]).reset_index(drop=True), known
                )


def states(columns: Columns, frame: pd.DataFrame) -> pd.DataFrame:
    """Clocks, temperature and power of rank 0's GPU along the file: ``MOST_STATES`` medians of neighbours."""
    samples = columns["samples"]
    state = pd.DataFrame({name: np.asarray(samples[name], float) for name in STATES if name != "throttle_reasons"})
    known = state.notna().any(axis=1) & (samples["rank"] == 0)
    state = state[known].reset_index(names="sample")
    state["sweep"] = frame["sweep"].to_numpy()[samples["measurement"][known]]
    width = -(-len(state) // MOST_STATES) or 1
    by = state.groupby(state.index // width)
    return by[[name for name in STATES if name in state]].median().join(by[["sample", "sweep"]].first())


def activities(columns: Columns, frame: pd.DataFrame) -> pd.DataFrame:
    """What the whole calls spent their time on, as a profiler sums it up: a row a point and activity.

    Parameters
    ----------
    columns, frame
        A timings file and ``measurements`` of it.

    Returns
    -------
    DataFrame
        Of ``measurements``, and ``activity``, a phase; ``calls``: how often it was timed, over all
        repetitions and ranks; ``total``, ``mean``, ``least`` and ``most`` of these seconds; ``share`` of
        the seconds of the whole calls. What is left of those is waiting.
    """
    asked = points(frame)
    samples = pd.DataFrame({name: columns["samples"][name] for name in ("measurement", "call", *PHASES)})
    samples = samples[_believed(columns, frame) & (samples["call"] == 1)]
    samples = samples[samples["measurement"].isin(asked.index)]
    parts = []
    for phase in PHASES[:-1]:
        part = samples[["measurement", phase, "total"]].dropna()
        grouped = part.groupby("measurement")
        of_phase = grouped[phase].agg(calls="count", total="sum", mean="mean", least="min", most="max")
        parts.append(of_phase.assign(share=of_phase["total"] / grouped["total"].sum(), activity=phase))
    found = pd.concat(parts)
    rows = asked.loc[found.index].assign(**{name: found[name].to_numpy() for name in found})
    return rows.sort_index(kind="stable").reset_index(drop=True)


def runs(columns: Columns) -> list[dict[str, Any]]:
    """Batch and provenance of each run; provenance that cannot be read is empty."""
    result = []
    for batch, text in zip(columns["runs"]["batch"], columns["runs"]["provenance"], strict=True):
        try:
            provenance = json.loads(text)
        except ValueError:
            provenance = {}
        result.append({"batch": batch, "provenance": provenance if isinstance(provenance, dict) else {}})
    return result


def mapping(value: Any) -> Mapping[str, Any]:
    """What should be a mapping; an empty one if it is not."""
    return value if isinstance(value, Mapping) else {}


def gpus_of(provenance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a run says of the GPU of each rank."""
    gpus = provenance.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []


@dataclass(frozen=True)
class Summary:
    """What ran and what became of it, in counts of points.

    ``failures`` and ``throttlings`` are rows of ``measurements``, the baselines beside a variant
    included; ``missing`` are those that were tried in vain, and ``omitted`` has a row for each (sweep, variant,
    ranks) planned and left out. ``superseded`` counts the points that a later run measured again.
    """

    points: int
    passed: int
    failed: int
    throttled: int
    superseded: int
    machines: int
    missing: pd.DataFrame
    failures: pd.DataFrame
    throttlings: pd.DataFrame
    omitted: pd.DataFrame

    @property
    def line(self) -> str:
        """All of it in one line."""
        points = f"{self.points} point" + ("s" if self.points != 1 else "")
        counts = f"{self.passed} PASS, {self.failed} FAIL, {self.throttled} throttled, {len(self.missing)} missing"
        return f"{points}: {counts}; {len(self.omitted)} left out"


def summary(columns: Columns, frame: pd.DataFrame) -> Summary:
    """Count the points of ``frame``, which is ``measurements(columns)``."""
    rows, current = points(frame), frame[~frame["superseded"]]
    return Summary(
        points=len(rows),
        passed=int((rows["result"] == "PASS").sum()),
        failed=int((rows["result"] == "FAIL").sum()),
        throttled=int(rows["throttled"].sum()),
        superseded=int((is_own(frame) & frame["superseded"]).sum()),
        machines=frame["machine"].nunique(),
        missing=rows[rows["result"] == MISSING],
        failures=current[current["result"] == "FAIL"],
        throttlings=current[current["throttled"]],
        omitted=pd.DataFrame(dict(columns["omitted"])),
    )
