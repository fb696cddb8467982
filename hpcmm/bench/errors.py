"""The errors of a kernel on several kinds of data, in a pass of its own."""

from collections.abc import Callable

import numpy as np

from hpcmm.bench.inputs import computing, draw_inputs
from hpcmm.model import Task, Verdict
from hpcmm.model.quantities import DATA
from hpcmm.operations import cores
from hpcmm.operations.matmul import ROWS_OF_STREAM

SIGMA = 4.0  # standard deviation of the logarithms of graded data


def of_kind(kind: str, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Convert inputs uniform in [-1, 1) in place to a kind of ``DATA``, and return them; NaN stays NaN."""
    if kind == "uniform":
        return x

    def change(stream: np.random.Generator, part: np.ndarray) -> None:
        if kind == "positive":
            np.abs(part, out=part)
            return
        logarithms = stream.standard_normal(part.shape, x.dtype)
        np.multiply(np.sign(part), np.exp(SIGMA * logarithms), out=part)

    return cores.draw(rng, x, change, ROWS_OF_STREAM)


def has_errors(task: Task) -> bool:
    """Return whether errors are measured: the task is a product in a floating-point type with sums of that type."""
    return task.operation.metric == "flops" and not (task.element.is_integer or task.element.accumulator)


class Kinds:
    """Inputs of each kind of data for a task, and the checks of their results, which all variants share."""

    def __init__(self, backend, task: Task, seed: int):
        self.backend = backend
        self.inputs: dict[str, dict[str, np.ndarray]] = {}
        self.judges: dict[str, Callable[[np.ndarray], Verdict]] = {}
        for number, kind in enumerate(DATA):
            rng = np.random.default_rng([seed, number])
            drawn = draw_inputs(backend, task, True, seed, number)
            self.inputs[kind] = {name: of_kind(kind, x, rng) for name, x in drawn.items()}
            self.judges[kind] = task.operation.reference(task, self.inputs[kind])

    def errors(self, task: Task) -> dict[str, float]:
        values: dict[str, float] = {}
        compute = computing(self.backend, task)
        for kind, inputs in self.inputs.items():
            verdict = self.judges[kind](compute(inputs))
            values |= {f"error_{kind}": verdict.error, f"rms_{kind}": verdict.rms}
        return values
