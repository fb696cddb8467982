"""Verify a kernel once more: in padded arrays between guards, with other scalars, a C kernel also unoptimized."""

from __future__ import annotations

import dataclasses

import numpy as np

from hpcmm.backends.cpu.memory import empty
from hpcmm.kernels import modules
from hpcmm.model import Task
from hpcmm.operations import guards

PADDING = tuple(each for each in guards.COLUMNS if each)
UNOPTIMIZED = ("-O0",)  # the last option of its kind counts
PATTERN = "-ftrivial-auto-var-init=pattern"  # of GCC 12: variables without a value have no zeros by chance


def mistake(backend, task: Task) -> str:
    """Return the first fault on padded arrays of a kernel that passed without padding; empty if it has none.

    Further runs are on other inputs in the same memory: a kernel may keep results or copies of its inputs.
    """
    rng = np.random.default_rng(task.shape)
    places = guards.layout(task, rng, task.variant.function is None, PADDING)  # Python may need contiguous arrays
    memory = empty((places[-1].end,), np.uint8)  # aligned, as vector instructions need it
    other = guards.with_other_scalars(task)
    others = [(other, f"with {', '.join(f'{name} {value:g}' for name, value in other.scalars.items())}: ")]
    for one, how in ((task, ""), (task, "with other inputs: "), *(others if other != task else ())):
        if found := once(backend, one, places, memory, rng):
            return how + found
    if not (backend.in_host_memory and task.variant.compiled):
        return ""
    options = *task.variant.options, *UNOPTIMIZED, *filter(modules.takes, [PATTERN])
    variant = dataclasses.replace(task.variant, options=options)
    found = once(backend, dataclasses.replace(task, variant=variant), places, memory, rng)
    return f"{found} (compiled with -O0; with optimization the result is right by chance)" if found else ""


def once(backend, task: Task, places, memory: np.ndarray, rng: np.random.Generator) -> str:
    inputs, output = guards.drawn(task, rng), task.operation.output
    guards.fill(memory, places, task, inputs, rng)
    before = memory.copy()
    placed = guards.Placed(backend, task, places, memory)
    placed.run.whole()
    backend.synchronize()
    placed.fetch()
    left = placed.run.complaint() if backend.in_host_memory else ""  # before the reference, which computes, too
    if wrong := left or guards.trespass(before, memory, places, task):
        return wrong
    place = next(place for place in places if place.name == output.name)
    verdict = task.operation.reference(task, inputs)(place.of(memory))
    padded = "with padded rows: " if len(output.dimensions) > 1 and place.region[1] > place.shape[1] else ""
    return "" if verdict.passed else f"{padded}{verdict.where}"
