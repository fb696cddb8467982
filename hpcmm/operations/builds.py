"""The builds of the kernels of a product: a rung with one tile and one division of its terms."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hpcmm.model import Task, Variant


@dataclass(frozen=True)
class Build:
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
    """Return the builds that a task's variant picks from, those of its own rung if it picks none.

    They are those that suit the task; all if none does.
    """
    own = task.variant
    rungs = map(task.operation.variant, own.picks.rungs(task.dtype)) if own.picks else [own]
    every = [Build(name, replace(task, variant=one)) for rung in rungs for name, one in variants(rung, task.dtype)]
    suited = [each for each in every if each.task.geometry.suits(each.task)] if task.shape else []
    return suited or every
