"""Speedup and efficiency over ranks, and predictions of the cost model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, prod
from operator import itemgetter
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis import Columns, by_size, grouped, is_own, mapping, points, row_dicts, runs, values
from hpcmm.analysis.views import Row
from hpcmm.model import ALONE, TEXTBOOK
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import DTYPES
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.parallel import ALGORITHMS, cost
from hpcmm.parallel.all_reduce import combining, is_reduction


def base_columns() -> list[str]:
    """Return the columns with the size on one rank that a speedup is relative to."""
    return [f"base_{dimension}" for dimension in dimensions()]


ALIKE = ["operation", "device", "machine", "dtype", "arithmetic", "setting"]  # equal for points and their base


def speedups(frame: pd.DataFrame) -> pd.DataFrame:
    """Return speedup and efficiency of each point on several ranks, and of the same label on one rank.

    Cards of one model differ by several percent. The kernel alone is therefore relative to one rank on every card at
    once, if any sweep of the file has it: ``TEXTBOOK`` on as many ranks, with the first dimension multiplied by their
    number, computes the problem of one rank on each. Without it, the base is one rank alone on its card, and so it is
    for end-to-end times and for ``TEXTBOOK`` itself.

    The columns are those of ``measurements`` and

    - ``kind``: "strong" (same size on one rank) or "weak" (same work per rank);
    - ``base_m``, ``base_n``, ``base_k``: the size on one rank;
    - ``base_ranks``: the ranks of the base of the kernel alone: as many as cards, or 1; ``base_card``: the card of one
      rank alone, empty for a CPU or if it is not known;
    - ``speedup``: work per second of the kernel alone, divided by that of a rank of the base, the highest of any rung
      or baseline on that device with the same ``arithmetic``; medians over all visits of a point. Of several ranks, the
      mean of their rates counts;
    - ``efficiency``: ``speedup`` divided by ranks; ``efficiency_low`` and ``efficiency_high`` follow from the intervals
      of both times; ``efficiency_of_slowest``: relative to the slowest rank of the base, NaN if it is one rank alone;
    - ``call_speedup``, ``call_efficiency`` and so on: the same end to end.
    """
    rows = frame[~frame["superseded"] & (frame["result"] == "PASS") & (frame["algorithm"] != ALONE)]
    rows = rows[rows["seconds"].notna() | rows["call_seconds"].notna()]
    rows = rows.assign(work=_work(rows), own=is_own(rows))
    needed = [*ALIKE, *dimensions(), *NEEDED, *(f"{prefix}pooled_{end}" for prefix in ("", "call_") for end in POOLED)]
    listed = row_dicts(rows[needed].assign(row=rows.index))
    on_cards = (row for row in listed if row["contender_algorithm"] == TEXTBOOK and row["seconds"] > 0)
    together = grouped((row for row in on_cards if row["ranks"] > 1), *ALIKE, "ranks", *dimensions())
    placed = []
    for group in grouped(listed, "sweep", *ALIKE).values():
        one = by_size(row for row in group if row["ranks"] == 1)
        more = (row for row in group if row["own"] and row["ranks"] > 1)
        first = dimensions().index(OPERATIONS[group[0]["operation"]].dimensions[0])
        for (ranks, *shape), there in grouped(more, "ranks", *dimensions()).items():
            for kind, base_shape, single in _bases(one, there[0], tuple(shape)):
                whole = [size * ranks if i == first else size for i, size in enumerate(base_shape)]
                base = together.get((*values(group[0], ALIKE), ranks, *whole), single)
                labels = {row["label"] for row in there}
                alone = [row for row in single if row["own"] and row["label"] in labels]
                place = {"kind": kind, **dict(zip(base_columns(), base_shape, strict=True)), **_base(single, "call_")}
                # TEXTBOOK exchanges nothing: it would be its own base
                textbook = [row for row in there if row["algorithm"] == TEXTBOOK]
                others = [row for row in there if row["algorithm"] != TEXTBOOK]
                for points_there, of in ((textbook, single), (others, base), (alone, single)):
                    if of and points_there:
                        shared = place | _base(of)
                        placed += [{"row": row["row"]} | shared for row in points_there]
    bases = [f"{prefix}least_{end}" for prefix in ("", "call_") for end in POOLED]
    names = ["row", "kind", *base_columns(), *bases, "evenness", "base_ranks", "base_card"]
    gains = pd.DataFrame(placed, columns=names)
    rows = rows.loc[gains["row"]].reset_index(drop=True)
    rows = rows.assign(**gains[["kind", *base_columns(), "base_ranks", "base_card"]])
    for prefix in ("", "call_"):
        for end, of_base, of_point in zip(("", "_low", "_high"), POOLED, ("seconds", "high", "low"), strict=True):
            seconds = rows[f"{prefix}pooled_{of_point}"]
            of_all = gains[f"{prefix}least_{of_base}"] * rows["work"] / seconds
            rows[f"{prefix}efficiency{end}"] = of_all / rows["ranks"]
        rows[f"{prefix}speedup"] = rows[f"{prefix}efficiency"] * rows["ranks"]
    rows["efficiency_of_slowest"] = rows["efficiency"] / gains["evenness"].where(rows["base_ranks"] > 1)
    keys = ["kind", "sweep", "operation", "device", "dtype", "setting", *dimensions(), "label", "ranks"]
    return rows.drop(columns=["work", "own"]).drop_duplicates(keys).reset_index(drop=True)


def _bases(
    one: Mapping[tuple, Sequence[Row]], there: Row, shape: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...], Sequence[Row]]]:
    """Yield each kind of scaling of a point, its size on one rank, and the rows of one rank alone at that size."""
    yield "strong", shape, one.get(shape, ())
    same = [at for at, rows in one.items() if 0.98 <= rows[0]["work"] * there["ranks"] / there["work"] <= 1.02]
    if same:
        yield "weak", same[0], [row for at in same for row in one[at]]


POOLED = ("seconds", "low", "high")  # a time over all visits, and the ends of its interval
NEEDED = ("sweep", "label", "algorithm", "contender_algorithm", "own", "ranks", "card", "seconds", "work", "evenness")


def _base(rows: Sequence[Row], prefix: str = "") -> dict[str, Any]:
    """Return the least seconds of the mean rank for a unit of work, with the ends of their interval, and its card."""
    units = [row["evenness"] * row["ranks"] / row["work"] for row in rows]
    known = [(row[f"{prefix}pooled_seconds"] * unit, row, unit) for row, unit in zip(rows, units, strict=True)]
    _, row, unit = min((each for each in known if each[0] > 0), key=itemgetter(0), default=(0, None, 0))
    if not row:
        return {}
    least = {f"{prefix}least_{end}": row[f"{prefix}pooled_{end}"] * unit for end in POOLED}
    card = row["card"] if row["ranks"] == 1 else ""
    return least | ({} if prefix else {"evenness": row["evenness"], "base_ranks": row["ranks"], "base_card": card})


def _work(rows: pd.DataFrame) -> pd.Series:
    return rows["flops"].where(rows["operation"].map(lambda name: OPERATIONS[name].metric) == "flops", rows["bytes"])


MOVES = ("scatter", "broadcast", "upload", "download", "gather")
REACH = 8  # predictions go to this many times the measured ranks


def predictions(columns: Columns, frame: pd.DataFrame) -> pd.DataFrame:
    """Predict the points of each algorithm, and end-to-end times of ``TEXTBOOK``, with the cost models.

    The lines of a model are fitted to measurements of this file with the same variant and type. Local work and copies
    come from ``TEXTBOOK``, exchanges from the run of the point. The time of combining the results of ranks is that of
    the shortest vector less its local part. The largest problem is also predicted from the most ranks that it was
    measured on, for one rank to ``REACH`` times as many: its measured time is multiplied with the ratio that the model
    gives.

    The columns are ``NAMES``, ``held_out`` and ``noise``. ``work`` is in operations or bytes, ``of`` is "end to end" or
    "kernel alone", ``seconds`` are measured, if ``ranks`` equals ``measured_ranks``. ``held_out`` is the median error,
    relative, and ``noise`` the median noise of predictions of the same algorithm and type that were held against
    measurements, from the function ``held_out``. There are only points that a model can predict.
    """
    models, rows = models_of(columns, frame), []
    # one rank exchanges nothing, so it cannot predict several
    several = sorted((each for each in models if each.row["ranks"] > 1), key=lambda each: each.size)
    last = {values(model.row, ONE): model for model in several}
    for model in models:
        measured = model.row["ranks"]
        largest = last.get(values(model.row, ONE)) is model
        further = [2**power for power in range((REACH * measured).bit_length())] if largest else []
        for ranks in sorted({measured, *further}):
            seconds = model.seconds if ranks == measured else np.nan
            predicted = model.predict(ranks) if ranks == measured else model.scaled(ranks)
            rows.append(model.predicted(ranks, predicted, seconds))
    errors = held_out(models)
    errors["held_out"] = (errors["predicted_seconds"] / errors["seconds"] - 1).abs()
    table = pd.DataFrame(rows, columns=list(NAMES)).dropna(subset="predicted_seconds").reset_index(drop=True)
    return table.join(errors.groupby(ALGORITHM)[["held_out", "noise"]].median(), on=ALGORITHM)


ONE = ["sweep", "operation", "variant", "algorithm", "label", "place", "device", "dtype"]
NAMES = (*ONE, *dimensions(), "work", "of", "measured_ranks", "ranks", "predicted_seconds", "seconds")
ALGORITHM = ["operation", "algorithm", "device", "dtype"]
Copies = Mapping[int, Mapping[str, cost.Line]]  # the lines of the phases of ``TEXTBOOK``, by number of ranks


@dataclass(frozen=True)
class Model:
    """The cost model of a measured point; ``noise`` is half the interquartile range of its repetitions, relative."""

    row: Mapping[str, Any]
    machine: cost.Machine
    copies: Copies
    noise: float

    @property
    def kernel(self) -> bool:
        return ALGORITHMS[self.row["algorithm"]].measures[0] == "kernel"

    @property
    def seconds(self) -> float:
        return self.row["seconds" if self.kernel else "call_seconds"]

    @property
    def size(self) -> tuple[float, int]:
        return self.row["work"], self.row["ranks"]

    def predicted(self, ranks: int, predicted: float, seconds: float) -> dict[str, Any]:
        """Return a row of a table of predictions from this point."""
        known = {name: self.row[name] for name in (*ONE, *dimensions(), "work")}
        known |= {"of": "kernel alone" if self.kernel else "end to end", "measured_ranks": self.row["ranks"]}
        return known | {"ranks": ranks, "predicted_seconds": predicted, "seconds": seconds}

    def predict(self, ranks: int) -> float:
        row, machine = self.row, self.machine
        if row["algorithm"] != TEXTBOOK:  # it would be predicted from itself
            machine = replace(machine, moves=self.copies.get(ranks, machine.moves))
        shape, element = [int(row[d]) for d in dimensions() if row[d]], DTYPES[row["dtype"]]
        operation = OPERATIONS[row["operation"]]
        variant = operation.find(row["variant"])
        predict = ALGORITHMS[row["algorithm"]].of(element, bool(variant and variant.invariant)).predict
        return predict(operation, shape, element.itemsize, ranks, machine)

    def scaled(self, ranks: int) -> float:
        """Predict other ranks: the measured time, multiplied with the ratio of the model's times."""
        if self.machine.combine:  # a short reduction varies by more than its model
            return self.predict(ranks)
        return self.seconds * self.predict(ranks) / self.predict(self.row["ranks"])


def models_of(columns: Columns, frame: pd.DataFrame) -> list[Model]:
    """Return the models of the points that algorithms with a cost model have; none without ``TEXTBOOK`` beside it."""
    frame = frame[frame["pinned"] != 0]  # pageable memory has other rates
    frame = frame[~frame["superseded"] & (frame["result"] == "PASS")]
    alike = ["operation", "contender", "dtype", "device", "machine"]
    timed = [*alike, "contender_algorithm", "ranks", *dimensions(), "seconds", "call_seconds", "call_kernel"]
    comparable = grouped(row_dicts(frame[[*timed, *(f"call_{phase}" for phase in MOVES)]]), *alike)
    current = points(frame)
    others = current["algorithm"] != TEXTBOOK
    at = [current[name] for name in ("sweep", "operation", "variant", "dtype")]
    compared = others.groupby(at).transform("any") & (current["ranks"].groupby(at).transform("max") > 1)
    current = current[others | compared]
    current = current.assign(work=_work(current))
    exchanges = [mapping(run.get("exchanges")) for run in runs(columns)]
    shortest = frame.groupby(["device", "machine"])["seconds"].min()
    noise = _noise(columns, current)
    copies: dict[tuple, Copies] = {}
    machines: dict[tuple, cost.Machine | None] = {}
    models = []
    for index, row in zip(current.index, row_dicts(current), strict=True):
        operation, algorithm = OPERATIONS[row["operation"]], ALGORITHMS[row["algorithm"]]
        if algorithm.predict is None:
            continue
        kind = values(row, ("operation", "variant", "dtype", "device", "machine"))
        # each reduction has its own cost of combining
        lines = (*kind, row["ranks"], row["run"], algorithm.name if is_reduction(operation) else "")
        if lines not in machines:
            same, least = comparable.get(kind, []), float(shortest[row["device"], row["machine"]])
            if kind not in copies:
                copies[kind] = _copies(same, DTYPES[row["dtype"]].itemsize, least)
            machines[lines] = _machine(same, row, exchanges[int(row["run"])], least, copies[kind])
        if machine := machines[lines]:
            call = int(algorithm.measures[0] == "call")
            models.append(Model(row, machine, copies[kind], float(noise.get((index, call), np.nan))))
    return _combined_alike(models)


def _combined_alike(models: Sequence[Model]) -> list[Model]:
    """Give all variants of a reduction one time of combining, their median: they exchange the same numbers."""
    seconds: dict[tuple, dict[tuple, float]] = {}
    keys, alike = [], ("operation", "algorithm", "device", "machine", "ranks")
    for model in models:
        row, combine = model.row, model.machine.combine
        keys.append((*values(row, alike), combine and _how_combined(row)))
        if combine:
            seconds.setdefault(keys[-1], {})[row["variant"], row["dtype"]] = combine(row["ranks"])
    combine = {key: combining(median(own.values()), *key[-2:]) for key, own in seconds.items()}
    return [
        replace(model, machine=replace(model.machine, combine=combine[key])) if key in combine else model
        for model, key in zip(models, keys, strict=True)
    ]


def _noise(columns: Columns, rows: pd.DataFrame) -> pd.Series:
    """Return half the interquartile range over the median of the repetitions, by measurement and end to end or not."""
    keys = ["measurement", "call", "run", "visit", "repetition"]
    samples = pd.DataFrame({name: columns["samples"][name] for name in (*keys, "kernel", "total")})
    samples = samples[samples["measurement"].isin(rows.index)]
    seconds = samples["total"].where(samples["call"] == 1, samples["kernel"]).groupby([samples[key] for key in keys])
    quartiles = seconds.max().groupby(level=keys[:2]).quantile([0.25, 0.5, 0.75]).unstack()
    quartiles = quartiles.reindex(columns=[0.25, 0.5, 0.75])  # there may be no samples
    return (quartiles[0.75] - quartiles[0.25]) / 2 / quartiles[0.5]


def held_out(models: Sequence[Model]) -> pd.DataFrame:
    """Predict measured points on several ranks from the same problem on fewer ranks, as ``predictions`` does for more.

    No point is predicted from itself. One rank exchanges nothing, so it predicts no others. Ranks of a node share its
    memory, so copies to and from devices have the rates that ``TEXTBOOK`` has on the predicted number of ranks, if it
    was measured there. Its own times are predicted without them.

    The columns are ``NAMES``; ``ranks`` and ``seconds`` are those of the predicted point; and ``noise``, half the
    interquartile range of the repetitions, relative to the median, of both points together.
    """
    alike, names = {}, (*ALGORITHM, "variant", "machine", "setting", *dimensions())
    for model in models:
        if model.row["ranks"] > 1 and model.seconds > 0:
            alike.setdefault(values(model.row, names), []).append(model)
    rows = []
    for group in alike.values():
        for model in group:
            ranks = model.row["ranks"]
            fewer = (each for each in group if each.row["ranks"] < ranks)
            if known := max(fewer, key=lambda each: each.row["ranks"], default=None):
                noise = hypot(known.noise, model.noise)
                rows.append(known.predicted(ranks, known.scaled(ranks), model.seconds) | {"noise": noise})
    table = pd.DataFrame(rows, columns=[*NAMES, "noise"])
    return table.dropna(subset="predicted_seconds").reset_index(drop=True)


def machine_of(columns: Columns, frame: pd.DataFrame, dtype: str) -> cost.Machine | None:
    """Return the lines of the largest product on the most GPUs of an element type; None if none was measured."""
    candidates = [
        each for each in models_of(columns, frame) if each.row["ranks"] > 1 and each.machine.exchange.per_unit
    ]
    candidates = [each for each in candidates if (each.row["operation"], each.row["dtype"]) == ("matmul", dtype)]
    candidates = [each for each in candidates if DEVICES[each.row["device"]].accelerator]
    best = max(candidates, key=lambda model: (model.row["ranks"], model.row["work"]), default=None)
    return best.machine if best else None


def _copies(rows: Sequence[Mapping[str, Any]], itemsize: int, shortest: float) -> Copies:
    """Fit the lines of the copies of ``TEXTBOOK``; ``shortest`` is the time of the shortest kernel."""
    timed: dict[int, dict[str, list[tuple[int, float]]]] = {}
    for row in rows:
        if row["contender_algorithm"] == TEXTBOOK and row["call_seconds"] > 0:
            of_phases = timed.setdefault(row["ranks"], {})
            for phase in MOVES:
                if (seconds := row["call_" + phase]) >= 0:
                    size = cost.moved(phase, [row[name] for name in dimensions()], itemsize, row["ranks"])
                    of_phases.setdefault(phase, []).append((size, seconds))
    copies: dict[int, dict[str, cost.Line]] = {}
    for ranks, of_phases in timed.items():
        sent = {phase: pairs for phase, pairs in of_phases.items() if any(size for size, _ in pairs)}  # not by one rank
        copies[ranks] = {phase: cost.fit(*zip(*each, strict=True), most=shortest) for phase, each in sent.items()}
    return copies


def _machine(
    same: Sequence[Row], row: Row, exchanges: Mapping[str, Any], shortest: float, copies: Copies
) -> cost.Machine | None:
    """Fit the lines of the cost model for a point; None without ``TEXTBOOK``.

    ``same`` has what passed with the operation, variant, element type, device and machine of the point.
    """
    here = [each for each in same if each["ranks"] == row["ranks"]]
    textbook = [each for each in here if each["contender_algorithm"] == TEXTBOOK]
    products = [(_local_work(each), each["seconds"]) for each in textbook if each["seconds"] > 0]
    if not products:  # a batch timed end to end only: use the kernel phase
        products = [(_local_work(each), each["call_kernel"]) for each in textbook if each["call_seconds"] > 0]
    if not products:
        return None
    exchange = cost.fit(exchanges["bytes"], exchanges["seconds"]) if exchanges.get("bytes") else cost.Line(0.0, 0.0)
    # a fit takes rates that differ with the size for a latency, but no kernel is shorter than its latency
    local, combine = cost.fit(*zip(*products, strict=True), most=shortest), None
    if is_reduction(OPERATIONS[row["operation"]]) and row["algorithm"] != TEXTBOOK and row["ranks"] > 1:
        combined = (each for each in here if each["contender_algorithm"] == row["algorithm"] and each["seconds"] > 0)
        least = min(combined, key=lambda each: each["n"])  # where combining takes most of the time
        seconds = max(0.0, least["seconds"] - local(_local_work(least)))
        combine = combining(seconds, int(row["ranks"]), _how_combined(row))
    return cost.Machine(local, exchange, copies.get(row["ranks"], {}), combine)


def _how_combined(row: Mapping[str, Any]) -> str:
    """Return how an all-reduce combines: a variant with a tree of combinations does so in host memory."""
    if not DEVICES[row["device"]].accelerator:
        return "mpi"
    tree = OPERATIONS[row["operation"]].variant(row["variant"]).leaf_bytes
    return "nccl" if row["transport"] == "nccl" and not tree else "copies"


def _local_work(row: Mapping[str, Any]) -> int:
    """Return the work of the largest share: operations of a product, or elements of a vector."""
    first, *others = (int(row[d]) for d in dimensions() if row[d])
    share = -(-first // int(row["ranks"]))
    return 2 * share * prod(others) if others else share
