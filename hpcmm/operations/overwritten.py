"""Inputs that a kernel overwrites: it gets a copy of them, which is made before each run and is not timed."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hpcmm.model import Task
from hpcmm.model.launch import Run
from hpcmm.operations.guards import ELEMENTS


class Copied(NamedTuple):
    """The arrays for a kernel, and the copies before and after it, each from one array to another."""

    arrays: Mapping[str, Any]
    before: list[tuple[Any, Any]]
    after: list[tuple[Any, Any]]


def copied(task: Task, arrays: Mapping[str, Any], empty: Callable[[tuple[int, ...], Any], Any]) -> Copied:
    """Return the arrays of a task with a copy in place of the input that its kernel overwrites.

    The copy of a vector lies between NaN, so that a result that depends on elements beyond it is wrong.
    """
    contract = task.variant.contract
    name, output = contract.overwrites if contract else "", task.operation.output.name
    if not name:
        return Copied(arrays, [], [])
    given, result = arrays[name], arrays[output]
    if contract.in_place and result.shape == given.shape:
        return Copied({**arrays, name: result}, [(given, result)], [])
    if len(given.shape) == 1:
        memory = empty((given.shape[0] + 2 * ELEMENTS,), given.dtype)
        memory.fill(task.element.poison)
        copy = memory[ELEMENTS : ELEMENTS + given.shape[0]]
    else:
        copy = empty(given.shape, given.dtype)
    after = [(copy[:1].reshape(result.shape), result)] if contract.in_place and given.shape[0] else []
    return Copied({**arrays, name: copy}, [(given, copy)], after)


def copy(pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
    for source, target in pairs:
        target[...] = source


def on_copy(backend: Any, task: Task, arrays: Mapping[str, Any]) -> Run:
    """Return a run of a kernel on a copy of the input that it overwrites."""
    own, before, after = copied(task, arrays, backend.empty)
    contract = dataclasses.replace(task.variant.contract, overwrites="")
    run = backend.prepare(dataclasses.replace(task, variant=dataclasses.replace(task.variant, contract=contract)), own)
    return dataclasses.replace(
        run,
        before=lambda: [backend.copy(*each) for each in before],
        after=lambda: [backend.copy(*each) for each in after],
        copies={"copy": own[task.variant.contract.overwrites]},
    )
