"""The link between each device and its host, alone: upload, download, and both at once.

Each rank draws its part of x, which is in host memory, on its device, or half in each. It goes to the other side, and
all ranks copy at the same time. The result of each rank equals its part only if all of it arrived.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hpcmm.model import Operation, Task
from hpcmm.model.launch import Run
from hpcmm.parallel.distribution import OnDevices
from hpcmm.parallel.links import exchange_alone, part, rounds_of
from hpcmm.parallel.memory import Need
from hpcmm.parallel.schedules import block_row

# Direction: the elements of a part that are uploaded, and the description; the others are downloaded.
DIRECTIONS: dict[str, tuple[Callable[[int], int], str]] = {
    "upload": (lambda count: count, "each rank copies its part from host memory to its device"),
    "download": (lambda count: 0, "each rank copies its part from its device to host memory"),
    "both_ways": (lambda count: count // 2, "each rank uploads half of its part and downloads the other half"),
}


class HostLinks(OnDevices):
    """On each rank a part of x on one side of the link to its device, and y on the other side."""

    transport_name = "host"

    def __init__(self, *arguments, direction: str, **options):
        super().__init__(*arguments, **options)
        backend, dtype = self.backend, self.dtype
        source, target = self.ends
        part = self.inputs[source]
        up = DIRECTIONS[direction][0](len(part))
        (sent, self.uploaded), (self.downloaded, away) = (
            (backend.host_empty(x.shape, dtype, self.pinned), backend.empty(x.shape, dtype))
            for x in (part[:up], part[up:])
        )
        sent[...] = part[:up]
        if away.size:
            backend.copy(part[up:], away)
        ends = ((sent, self.uploaded), (away, self.downloaded))
        self.copies = [(source, to, backend.stream()) for source, to in ends if to.size]
        self.arrays, self.received = {}, [to for _, to, _ in self.copies]
        self.result[target] = np.empty(part.shape, dtype)
        self.rounds = rounds_of(block_row(self.shape[0], self.comm.size, 0)[1] * np.dtype(dtype).itemsize)

    def prepare(self, task: Task) -> Run:
        def once() -> None:
            start = self.backend.mark()
            for source, target, stream in self.copies:
                self.backend.wait(start, stream)
                for _ in range(self.rounds):
                    self.backend.copy_async(source, target, stream)
                self.backend.wait(self.backend.mark(stream))

        return Run(once)

    def fetch(self) -> None:
        (received,), up = self.result.values(), self.uploaded.size
        if up:
            self.backend.copy(self.uploaded, received[:up])
        received[up:] = self.downloaded


def need(operation: Operation, shape: Sequence[int], ranks: int, rank: int) -> Need:
    """Return the memory of a rank: its part on both sides of the link; on the host it is drawn, sent and received."""
    _, count = block_row(shape[0], ranks, rank)
    return Need(count, count, 3 * count)


HOST_LINKS = tuple(
    exchange_alone(name, f"between host and device: {text}", None, partial(HostLinks, direction=name), need, part)
    for name, (_, text) in DIRECTIONS.items()
)
