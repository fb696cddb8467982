"""Variants that pick the rung of a product: the one with the fastest build for the shape, on the GPU at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcmm.model import Task, Variant
from hpcmm.operations import choice, trials


@dataclass(frozen=True)
class Fastest:
    """Picks the fastest build among rungs, the same for the same task."""

    names: Mapping[str, tuple[str, ...]] = field(hash=False)  # the rungs, by element type

    def rungs(self, dtype: str) -> tuple[str, ...]:
        return self.names[dtype]

    def variant(self, task: Task) -> Variant:
        """Return the rung that runs a task, with the geometry of one of its builds."""
        return choice.chosen(task).build.task.variant

    def by(self, task: Task) -> str:
        """Return what picks for a task, in words for the pick; empty if it is the model."""
        return choice.chosen(task).by

    def decide(self, backend: Any, task: Task) -> None:
        trials.decide(backend, task)
