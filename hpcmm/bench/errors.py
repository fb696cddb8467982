"""The errors of a kernel on several kinds of data, in a pass of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpcmm.model import Prepared, Task, Verdict
from hpcmm.operations.accuracy import in_threads
from hpcmm.operations.matmul import ROWS_OF_STREAM
from hpcmm.quantities import DATA

SIGMA = 4.0  # standard deviation of the logarithms of graded data


def of_kind(kind: str, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Change inputs that are uniform in [-1, 1) to a kind, one of ``DATA``, in place, and return them; NaN stays."""
    if kind == "uniform":
        return x
    streams = rng.spawn(-(-len(x) // ROWS_OF_STREAM))

    def change(rows: slice) -> None:
        part = x[rows]
        if kind == "positive":
            np.abs(part, out=part)
            return
        logarithms = streams[rows.start // ROWS_OF_STREAM].standard_normal(part.shape, x.dtype)
        np.multiply(np.sign(part), np.exp(SIGMA * logarithms), out=part)

    in_threads(change, len(x), ROWS_OF_STREAM)
    return x


def has_errors(task: Task) -> bool:
    """Return whether the pass measures a task: a product, in a floating-point type that is added up in itself."""
    return task.operation.metric == "flops" and not (task.element.is_integer or task.element.accumulator)


class Kinds:
    """Inputs of each kind for a task, and the checks of their results; they are the same for every variant."""

    def __init__(self, task: Task, seed: int):
        self.task = task
        self.inputs: dict[str, dict[str, np.ndarray]] = {}
        self.judges: dict[str, Callable[[np.ndarray], Verdict]] = {}
        for number, kind in enumerate(DATA):
            rng = np.random.default_rng([seed, number, *task.shape])
            drawn = task.operation.draw(rng, task)
            self.inputs[kind] = {name: of_kind(kind, x, rng) for name, x in drawn.items()}
            self.judges[kind] = task.operation.reference(task, self.inputs[kind])

    def errors(self, backend, task: Task) -> dict[str, float]:
        """Run a task of the same problem on each kind of data; return ``quantities.ERRORS``."""
        lengths = dict(zip(task.operation.dimensions, task.shape, strict=True))
        found = {}
        for kind, inputs in self.inputs.items():
            arrays: dict[str, Any] = {}
            for operand in task.operation.operands:
                content = inputs.get(operand.name)
                shape = tuple(lengths[each] for each in operand.dimensions)
                arrays[operand.name] = backend.empty(shape, task.element.storage.name)
                if content is not None:
                    backend.copy(content, arrays[operand.name])
            run = backend.prepare(task, arrays)
            prepared = run if isinstance(run, Prepared) else Prepared(run)
            for step in (prepared.before, prepared.run, prepared.after):
                if step:
                    step()
            backend.synchronize()
            (name,) = (operand.name for operand in task.operation.operands if operand.role != "in")
            result = np.empty(arrays[name].shape, task.element.storage)
            backend.copy(arrays[name], result)
            verdict = self.judges[kind](result)
            found |= {f"error_{kind}": verdict.error, f"rms_{kind}": verdict.rms}
        return found
