"""Processes in which kernels run, on arrays in their shared memory."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpcmm.backends.emulated.launch import ORDERS, extent, located
from hpcmm.grading import counts
from hpcmm.grading.sandbox import NotGraded
from hpcmm.grading.session import Refused, Session
from hpcmm.grading.sources import Tools
from hpcmm.model import Task
from hpcmm.operations import cores, guards
from hpcmm.operations.guards import Guarded


class Runner:
    """A process with ``run(task, places)``, which returns seconds, and perhaps ``counted``, with counts."""

    def __init__(self, process: Session):
        self.process = process

    def ask(self, request: Any) -> float:
        """Send a request; return the seconds until the reply, or raise Refused with its error."""
        reply = self.process.ask(request)
        if reply.content:
            raise Refused(str(reply.content))
        return reply.seconds

    def located(self, message: str) -> str:
        """Return a message with lines of the source in place of addresses."""
        return message

    def arrays(self, places: Sequence[Guarded]) -> dict[str, np.ndarray]:
        return {place.name: place.of(self.process.memory) for place in places}

    def at(self, array: np.ndarray) -> int:
        return array.ctypes.data - self.process.memory.ctypes.data

    def argument(self, value: Any) -> list:
        """Return an argument for ``native``: an address in the shared memory, or a number."""
        return ["at", self.at(value)] if isinstance(value, np.ndarray) else [value.dtype.str[1:], value.item()]


class Native(Runner):
    def run(self, task: Task, places: Sequence[Guarded]) -> float:
        values = [*task.operation.arguments(task, self.arrays(places)), np.int32(cores.count())]
        return self.ask([{"arguments": [self.argument(value) for value in values]}])


class Emulated(Runner):
    """A CUDA kernel in the host emulation, with the threads of a block in a random order."""

    def __init__(self, process: Session, rng: np.random.Generator, tools: Tools):
        super().__init__(process)
        self.rng, self.tools = rng, tools
        self.grid = 0  # number of blocks of each launch; 0: as the geometry says

    def run(self, task: Task, places: Sequence[Guarded]) -> float:
        try:
            return self.ask(self._launches(task, places, counted=False))
        except Refused as refused:
            raise Refused(self.located(str(refused))) from None

    def counted(self, task: Task, places: Sequence[Guarded]) -> counts.Counts:
        launches = self._launches(task, places, counted=True)
        self.ask(launches)
        return counts.read(self.process.ask(["counts"]).content, len(launches))

    def located(self, message: str) -> str:
        return located(message, self.tools.library, self.tools.source, self._output_of)

    def _launches(self, task: Task, places: Sequence[Guarded], counted: bool) -> list[dict]:
        further = workspace(task, places[-1].end)
        for place in further:
            place.whole(self.process.memory).fill(task.element.poison)
        launches = task.geometry.launches(task, self.arrays([*places, *further]))
        return [
            {
                "arguments": [self.argument(value) for value in launch.arguments],
                "grid": (self.grid,) if self.grid else launch.grid,
                "block": launch.block,
                "bounds": [
                    [self.at(value), self.at(value) + extent(value)]
                    for value in launch.arguments
                    if isinstance(value, np.ndarray)
                ],
                "order": int(self.rng.integers(len(ORDERS))),
                "counted": counted,
                "dynamic_bytes": launch.shared_bytes,
            }
            for launch in launches
        ]

    def _output_of(self, command: Sequence[str]) -> str:
        try:
            return self.tools.run(command, read=[self.tools.library])[0].decode(errors="replace")
        except (Refused, NotGraded):
            return ""


class Interpreted(Runner):
    """A function of a Python file, which each of several MPI ranks calls, if there are some."""

    def __init__(self, process: Session, ranks: Sequence[int]):
        super().__init__(process)
        self.ranks, self.runs = ranks or (0,), 0

    def run(self, task: Task, places: Sequence[Guarded]) -> float:
        self.runs += 1
        return self._run(task, places, self.ranks[self.runs % len(self.ranks)])

    def counted(self, task: Task, places: Sequence[Guarded]) -> counts.Counts:
        self._run(task, places, max(self.ranks))
        return counts.read(self.process.ask(["counts"]).content, 1)

    def _run(self, task: Task, places: Sequence[Guarded], ranks: int) -> float:
        arrays = self.arrays(places).items()
        given = {name: [self.at(array), array.shape, array.strides, array.dtype.str] for name, array in arrays}
        try:
            return self.ask([{"arguments": {**given, **task.scalars}, "ranks": ranks}])
        except Refused as refused:
            raise Refused(f"{refused}, with {ranks} ranks," if ranks else str(refused)) from None


class OnDevice(Runner):
    """A variant of this package on any device, or a kernel on a GPU."""

    def run(self, task: Task, places: Sequence[Guarded]) -> float:
        place = {"place": [dataclasses.astuple(place) for place in places], "shape": task.shape, "dtype": task.dtype}
        self.ask([{**place, "scalars": dict(task.scalars), "tile": task.tile}])
        reply = self.process.ask(["run"])
        try:  # on a GPU the process replies with the time between events; it runs no submitted code on the CPU
            seconds = float(reply.content) if reply.content else reply.seconds
        except ValueError:
            raise Refused(reply.content) from None
        self.ask(["fetch"])
        return seconds


def workspace(task: Task, begin: int) -> list[Guarded]:
    """Return the places of the arrays that a kernel needs besides its operands."""
    places = []
    for name, needed in task.workspace.items():
        begin = -(-begin // guards.ALIGNMENT) * guards.ALIGNMENT
        (count,) = needed.shape
        places.append(Guarded(name, begin, (count + 2 * guards.ELEMENTS,), (count,), needed.dtype))
        begin = places[-1].end
    return places
