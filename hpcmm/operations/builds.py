"""The builds of the kernels of a product: a rung with one tile and one division of its terms."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hpcmm.model import Task


@dataclass(frozen=True)
class Build:
    """A kernel that can run a task.

    Parameters
    ----------
    name : str
        The rung, and what distinguishes the build from others of the rung, as ``Task.pick`` has it.
    task : Task
        The task with a variant that always runs this build.
    """

    name: str
    task: Task


def builds_of(task: Task, rung: str) -> list[Build]:
    """Return the builds of a rung that can run a task."""
    variant = task.operation.variant(rung)
    found = []
    for geometry in variant.geometry_of(task.dtype).builds(task):
        of_build = replace(task, variant=replace(variant, geometry=geometry))
        found.append(Build(", ".join(filter(None, (rung, geometry.pick(of_build)))), of_build))
    return found


def builds(task: Task) -> list[Build]:
    """Return the builds that a task's variant picks from; those of its own rung if it picks none."""
    rungs = task.variant.picks.rungs(task.dtype) if task.variant.picks else (task.variant.name,)
    return [build for rung in rungs for build in builds_of(task, rung)]
