"""Choose the build that runs a product, by a table, a trial or a model: see ``docs/ladder.md``.

A choice depends on the shape, the type, whether C is read (beta != 0), and the GPU. All builds of a variant that is
``invariant`` have the same bits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from hpcmm.model import Task, Variant
from hpcmm.operations import tables, waves
from hpcmm.operations.tables import Entry, Trial

NEAREST = 8  # shapes of a table that correct the model
UNALIKE = 2.0  # added to the distance if rows are aligned otherwise, or if only one of the products reads C
TRIED = 16  # builds of a trial

OTHERS = {"float16": "bfloat16"}  # types whose times are those of another one


@dataclass(frozen=True)
class Build:
    """A rung with one tile and one division of its terms."""

    name: str  # the rung, and what distinguishes the build from others of the rung, as ``Task.pick`` has it
    task: Task  # the task with a variant that always runs this build


_variants: dict[tuple[int, str], tuple[Variant, list[tuple[str, Variant]]]] = {}  # by identity, with the key's record


def variants(variant: Variant, dtype: str) -> list[tuple[str, Variant]]:
    """Return the name of each build of a rung, and a variant that always runs it."""
    key = id(variant), dtype
    if key not in _variants:
        records = []
        for geometry in variant.geometry_of(dtype).builds():
            one = replace(variant, geometry=geometry)
            pick = geometry.pick(Task(None, one, (), dtype))
            records.append((", ".join(filter(None, (variant.name, pick))), one))
        _variants[key] = variant, records
    return _variants[key][1]


def builds(task: Task) -> list[Build]:
    """Return the builds that a task's variant picks from, those of its own rung if it picks none."""
    own = task.variant
    rungs = map(task.operation.variant, own.picks.rungs(task.dtype)) if own.picks else [own]
    every = [Build(name, replace(task, variant=one)) for rung in rungs for name, one in variants(rung, task.dtype)]
    suited = [build for build in every if build.task.geometry.suits(build.task)] if task.shape else []
    return suited or every


def measured(task: Task, pick: str) -> Task | None:
    """Return the task that always runs the build of a recorded pick; None if there is no such build any more."""
    if not open_to_times(task.variant, task.dtype):
        return task
    name = pick.partition(", by ")[0]
    name = name if task.variant.picks else f"{task.variant.name}, {name}"
    return next((build.task for build in builds(task) if build.name == name), None)


class Chosen(NamedTuple):
    """A build, and what chose it, in words for the pick; empty for the model."""

    build: Build
    by: str = ""


def open_to_times(variant: Variant, dtype: str) -> bool:
    """Return whether measured times decide on the builds of a variant."""
    several = variant.picks or getattr(variant.geometry_of(dtype), "several", False)
    return bool(several)


def times(variant: Variant, dtype: str) -> list | None:
    """Return a digest of the measured times that decide on the builds of a variant, without trials; of JSON types."""
    types = [dtype, *filter(None, [OTHERS.get(dtype)])]
    return tables.digest(types) if open_to_times(variant, dtype) else None


def reads_c(task: Task) -> bool:
    return bool(task.scalars.get("beta"))


def key_of(task: Task) -> tables.Key:
    return tables.Key(task.dtype, task.variant.name, task.shape, reads_c(task))


def of_choice(task: Task) -> tuple:
    """Return what a choice depends on besides the shape, the type and whether C is read."""
    builds_of = task.variant.picks.rungs(task.dtype) if task.variant.picks else task.geometry
    of_gpu = tables.version(task.gpu), task.gpu, task.multiprocessors, task.clock, task.bandwidth
    return task.operation.name, task.variant.name, builds_of, *of_gpu


_chosen: dict[tuple, Chosen] = {}


def chosen(task: Task) -> Chosen:
    trial = tables.trial(task.gpu, task.multiprocessors, key_of(task)) if task.gpu else None
    key = of_choice(task), *key_of(task), trial
    if key not in _chosen:
        _chosen[key] = _choose(task, trial)
    return _chosen[key]


def _choose(task: Task, trial: Trial | None) -> Chosen:
    every = builds(task)
    if len(every) == 1 or not (task.shape and all(task.shape)):
        return Chosen(every[0])
    by_name = {build.name: build for build in every}
    if task.gpu and open_to_times(task.variant, task.dtype):
        for entry in own_entries(task):
            times = {name: entry.seconds[name] for name in by_name if name in entry.seconds}
            here = entry.shape == task.shape and bool(entry.beta) == reads_c(task)
            if here and times and all(entry.knows(build.name) for build in ranked(task)[:TRIED]):  # a trial adds none
                return Chosen(by_name[min(times, key=times.__getitem__)], "by table")
        if trial and trial.of == len(every) and trial.name in by_name:
            return Chosen(by_name[trial.name], f"{tables.TRIAL} {trial.tried}" + ("" if trial.kept else ", not kept"))
    return Chosen(ranked(task)[0])


def undecided(task: Task) -> bool:
    """Return whether a trial has to decide on the build of a task of a GPU."""
    able = task.gpu and task.shape and all(task.shape) and open_to_times(task.variant, task.dtype)
    return bool(able) and len(builds(task)) > 1 and not chosen(task).by


def candidates(task: Task) -> list[Build]:
    """Return the build that runs a task; the builds of a trial if it has to decide."""
    return ranked(task)[:TRIED] if undecided(task) else [chosen(task).build]


def keep(task: Task, name: str, tried: int) -> None:
    tables.keep(task.gpu, task.multiprocessors, key_of(task), Trial(name, tried, len(builds(task))))


def ranked(task: Task) -> list[Build]:
    """Return the builds of a task by their times as the model and the nearest entries of a table predict them."""
    every = builds(task)
    near = nearest(task) if open_to_times(task.variant, task.dtype) else []
    times = corrected({build.name: waves.seconds(build.task) for build in every}, *near)
    return sorted(every, key=lambda build: times[build.name])


Near = list[tuple[float, Mapping[str, float]]]  # weights of shapes, and ``deviations`` at them


def corrected(predicted: Mapping[str, float], *near: Near) -> dict[str, float]:
    """Return predicted seconds, corrected by the weighted mean of deviations at shapes that are near.

    The first tables that have a build correct it. Builds that none has, such as new ones, are corrected by the lower
    quartile of the others, so that trials rather have them.
    """
    factors: dict[str, float] = {}
    for entries in near:
        for name in predicted.keys() - factors.keys():
            here = [(weight, deviations[name]) for weight, deviations in entries if name in deviations]
            if here:
                total = sum(weight for weight, _ in here)
                factors[name] = math.exp(sum(weight * deviation for weight, deviation in here) / total)
    usual = sorted(factors.values())[len(factors) // 4] if factors else 1.0
    return {name: seconds * factors.get(name, usual) for name, seconds in predicted.items()}


def nearest(task: Task) -> list[Near]:
    """Return the nearest entries of the tables of the GPU, and of each of the others that correct its model."""
    found = [_nearest(task)]
    for (name, sms), clock, bandwidth in tables.REFERENCES:
        if (name, sms) != (task.gpu, task.multiprocessors):
            found.append(_nearest(replace(task, gpu=name, multiprocessors=sms, clock=clock, bandwidth=bandwidth)))
    return list(filter(None, found))


def _nearest(task: Task) -> Near:
    entries = own_entries(task)
    far = sorted((distance(task, entry), number) for number, entry in enumerate(entries))[:NEAREST]
    return [((1 + distance) ** -2, deviations(task, entries[number])) for distance, number in far]


def own_entries(task: Task) -> list[Entry]:
    found = []
    for table in tables.tables(task.gpu, task.multiprocessors):
        found += table.get(task.dtype) or table.get(OTHERS.get(task.dtype, ""), [])
    return found


def distance(task: Task, entry: Entry) -> float:
    """Return the distance of the shape of an entry, in binary orders of magnitude."""
    steps = (math.log2(x / y) for x, y in zip(task.shape, entry.shape, strict=True))
    itemsize = task.element.itemsize
    unlike = waves.alignment(task.shape, itemsize) != waves.alignment(entry.shape, itemsize)
    return math.hypot(*steps) + UNALIKE * (unlike + (reads_c(task) != bool(entry.beta)))


_deviations: dict[tuple, dict[str, float]] = {}


def deviations(task: Task, entry: Entry) -> dict[str, float]:
    """Return logarithms of measured over predicted seconds of builds at an entry, on the GPU of a task.

    The task has the same variant and type.
    """
    key = entry.shape, entry.beta, entry.least, of_choice(task), task.dtype
    if key not in _deviations:
        found = {}
        here = replace(task, shape=entry.shape, scalars={**task.scalars, "beta": entry.beta})
        for build in builds(here):
            if entry.knows(build.name):
                predicted = waves.seconds(build.task)
                took = entry.seconds.get(build.name) or max(predicted, tables.SLOW * entry.least)
                found[build.name] = math.log(took / predicted)
        _deviations[key] = found
    return _deviations[key]
