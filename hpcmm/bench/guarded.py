"""Verify a kernel once more: in padded arrays between guards, with other scalars, a C kernel also unoptimized."""

from __future__ import annotations

import dataclasses

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
    other = guards.with_other_scalars(task)
    if not found and other != task:
        found = once(backend, other, inputs, task.operation.reference(other, inputs), rng)
        found = found and f"with {', '.join(f'{name} {value:g}' for name, value in other.scalars.items())}: {found}"
    if found or not (backend.in_host_memory and task.variant.compiled):
        return found
    variant = dataclasses.replace(task.variant, options=(*task.variant.options, *UNOPTIMIZED))
    found = once(backend, dataclasses.replace(task, variant=variant), inputs, judge, rng)
    return f"{found} (compiled with -O0; with optimization the result is right by chance)" if found else ""


def once(backend, task: Task, inputs, judge, rng: np.random.Generator) -> str:
    pitched = task.variant.function is None  # a function in Python may need contiguous arrays
    places = guards.layout(task, rng, pitched, PADDING)
    memory = empty((places[-1].end,), np.uint8)  # aligned, as vector instructions need it
    guards.fill(memory, places, task, inputs, rng)
    before = memory.copy()
    placed = guards.Placed(backend, task, places, memory)
    placed.run.whole()
    backend.synchronize()
    placed.fetch()
    if wrong := guards.trespass(before, memory, places, task):
        return wrong
    output = task.operation.output
    verdict = judge(next(place for place in places if place.name == output.name).of(memory))
    padded = "with padded rows: " if pitched and len(output.dimensions) > 1 else ""
    return "" if verdict.passed else f"{padded}{verdict.where}"
