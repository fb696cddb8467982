"""The time left, replayed with the points of a whole run of ``make run`` on two cores that other processes shared."""

import csv
import itertools
import math
import re
import types
from pathlib import Path

import pytest

from hpcmm.bench import job
from hpcmm.bench.pace import LATER, LAUNCH_SECONDS, TIMED, Pace, Record
from hpcmm.bench.status import Elsewhere
from hpcmm.experiment.durations import STARTUP_SECONDS, expected_share

VISITS = 3
TIMES = Path(__file__).with_name("run_times.csv")  # predicted: upper bound of all visits; seconds: of this visit


UNITS = {"s": 1, "min": 60, "h": 3600}


def test_from_the_first_tenth_on_the_time_left_is_in_its_range_or_right_within_a_factor_of_two(monkeypatch, capsys):
    with TIMES.open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row |= {"seconds": float(row["seconds"]), "bound": float(row["predicted"])}
    whole, done, now = sum(row["seconds"] for row in rows), 0.0, [0.0]
    monkeypatch.setattr(job.time, "perf_counter", lambda: now[0])
    bounds = {}
    for row in rows:
        if row["visit"] == "0":
            bounds.setdefault(row["batch"], []).append(row["bound"])
    batches = {
        row["batch"]: types.SimpleNamespace(name=row["batch"], operation=row["operation"], device="cpu", points=[])
        for row in rows
    }
    for name, batch in batches.items():
        batch.predicted, batch.seconds = bounds[name], sum(bounds[name]) + VISITS * STARTUP_SECONDS
    records, durations, ranges = [], [], []
    for (name, visit), group in itertools.groupby(rows, lambda row: (row["batch"], int(row["visit"]))):
        points, pace = list(group), Pace(records)
        others = [batch for batch in batches.values() if batch.name != name and sum(batch.predicted)]
        guessed = sum(pace.seconds(batch) for batch in others if not pace.knows(batch))
        elsewhere = Elsewhere(0, 1, sum(pace.seconds(batch) for batch in others), guessed, pace)
        progress = job.Progress(batches[name], [row["bound"] for row in points], elsewhere, visit, VISITS)
        for row in points:
            now[0] += row["seconds"]
            done += row["seconds"]
            progress.done("point")
            text = capsys.readouterr().out
            if "less than a minute left" in text:
                assert whole - done < 2 * 60
                continue
            text = re.search(r"about (.*) left", text)[1]
            said = [float(amount) * UNITS[unit] for amount, unit in map(str.split, text.split(" to "))]
            if 0.1 < done / whole < 0.97:  # then seconds are left, rounded to whole ones
                (durations if len(said) == 1 else ranges).append([each / (whole - done) for each in said])
        batch, left = batches[name], VISITS - visit - 1
        batch.predicted = [bound * left / VISITS for bound in bounds[name]]
        batch.seconds = sum(batch.predicted) + left * STARTUP_SECONDS
        bound = sum(row["bound"] for row in points) / VISITS
        records.append(Record(name, batches[name].operation, "cpu", bound, sum(row["seconds"] for row in points)))
    assert len(durations) > 500 and ranges
    assert min(durations)[0] > 0.5 and max(durations)[0] < 2
    assert all(low <= 1 <= high for low, high in ranges)


def test_visits_are_expected_to_take_what_the_own_last_one_took_or_first_ones_of_others():
    batch = types.SimpleNamespace(name="a", operation="sum", device="cpu", predicted=[300.0], seconds=390.0)
    others = [Record("b", "sum", "cpu", 100.0, 50.0, 0.0), Record("b", "sum", "cpu", 100.0, 10.0, 0.0, visit=1)]
    first = 100 * math.sqrt(0.5 * expected_share("cpu"))
    assert Pace(others).seconds(batch) == pytest.approx(3 * LAUNCH_SECONDS + first * (1 + 2 * LATER))
    timed = [*others, Record("c", "dot", "cpu", 100.0, 90.0, 0.0, timed=9.0), Record("d", "sum", "cuda", 1.0, 1.0)]
    later = TIMED * 0.1
    assert Pace(timed).seconds(batch) == pytest.approx(3 * LAUNCH_SECONDS + first * (1 + 2 * later))
    own = [*others, Record("a", "sum", "cpu", 100.0, 20.0, 0.0)]
    batch.predicted, batch.seconds = [200.0], 260.0
    assert Pace(own).seconds(batch) == pytest.approx(2 * LAUNCH_SECONDS + 2 * 20 * LATER)
    own += [Record("a", "sum", "cpu", 100.0, 15.0, 0.0, visit=1)]
    batch.predicted, batch.seconds = [100.0], 130.0
    assert Pace(own).seconds(batch) == pytest.approx(LAUNCH_SECONDS + 15)
