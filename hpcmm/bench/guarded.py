"""Verify a kernel once more: in padded arrays between guards, and a C kernel also without optimization."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from hpcmm.backends.cpu.memory import empty
from hpcmm.model import Task
from hpcmm.operations import guards

PADDING = tuple(each for each in guards.COLUMNS if each)
UNOPTIMIZED = ("-O0",)  # the last option of its kind counts


def mistake(backend, task: Task) -> str:
    """Return the first fault on padded arrays of a kernel that passed without padding; empty if it has none."""
    rng = np.random.default_rng(task.shape)
    inputs = guards.drawn(task, rng)
    judge = task.operation.reference(task, inputs)
    found = once(backend, task, inputs, judge, rng)
    if found or not (backend.in_host_memory and task.variant.compiled):
        return found
    variant = dataclasses.replace(task.variant, options=(*task.variant.options, *UNOPTIMIZED))
    found = once(backend, dataclasses.replace(task, variant=variant), inputs, judge, rng)
    return f"{found} (compiled with -O0; with optimization the result is right by chance)" if found else ""


class Placed:
    """A task's run on its device, on copies of arrays between guards in the memory of the host."""

    def __init__(self, backend, task: Task, places: Sequence[guards.Guarded], memory: np.ndarray):
        self.backend, self.places, self.memory = backend, places, memory
        self.regions = {place.name: place.whole(memory) for place in places}
        for place in () if backend.in_host_memory else places:
            self.regions[place.name] = backend.empty(tuple(place.region), place.dtype)
            backend.copy(place.whole(memory), self.regions[place.name])
        self.run = backend.prepare(task, {place.name: place.inside(self.regions[place.name]) for place in places})

    def fetch(self) -> None:
        for place in () if self.backend.in_host_memory else self.places:
            self.backend.copy(self.regions[place.name], place.whole(self.memory))


def once(backend, task: Task, inputs, judge, rng: np.random.Generator) -> str:
    pitched = task.variant.function is None  # a function in Python may need contiguous arrays
    places = guards.layout(task, rng, pitched, PADDING)
    memory = empty((places[-1].end,), np.uint8)  # aligned, as vector instructions need it
    guards.fill(memory, places, task, inputs, rng)
    before = memory.copy()
    placed = Placed(backend, task, places, memory)
    placed.run.whole()
    backend.synchronize()
    placed.fetch()
    if wrong := guards.trespass(before, memory, places, task):
        return wrong
    output = task.operation.output
    verdict = judge(next(place for place in places if place.name == output.name).of(memory))
    padded = "with padded rows: " if pitched and len(output.dimensions) > 1 else ""
    return "" if verdict.passed else f"{padded}{verdict.where}"
