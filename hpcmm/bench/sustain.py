"""Sustained products on the device of each rank, all verified, with the state of the device over time.

The ranks start together and then do not wait for each other: a slow device does not slow its peers. Each rank appends
a line of JSON to a file of its own after each interval, so that a job that is ended keeps its measurements.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcmm.bench.inputs import draw_inputs
from hpcmm.bench.job import Process
from hpcmm.bench.sustained import groups_of, lines_of
from hpcmm.experiment.plan import Plan
from hpcmm.model.measurement import Batch, Point
from hpcmm.operations import task_of
from hpcmm.store import make_folder, write_groups

INTERVAL = 1.0  # seconds of one element type, after which a line is written


class Product:
    """One product of the library, repeated on the same inputs.

    With beta = 0 the inputs do not change, and C is filled with NaN before each product. The first result is
    verified by the reference. Each later one must have the same bits; if the library does not promise this, a result
    with other bits is verified by the reference, too.
    """

    def __init__(self, backend, point: Point, seed: int):
        self.backend, self.task = backend, task_of(point)
        inputs = draw_inputs(backend, self.task, True, seed)
        self.arrays = {name: backend.empty(array.shape, array.dtype) for name, array in inputs.items()}
        for name, array in inputs.items():
            backend.copy(array, self.arrays[name])
        self.judge = self.task.operation.judge(self.task, inputs, backend, INTERVAL)
        self.run = backend.prepare(self.task, self.arrays)
        self.poison = self.task.element.poison
        self.expected: int | None = None
        self.once()
        if self.is_right():
            self.expected = backend.checksum(self.arrays["C"])

    def is_right(self) -> bool:
        result = np.empty(self.arrays["C"].shape, self.task.element.storage)
        self.backend.copy(self.arrays["C"], result)
        return self.judge(result).passed

    def once(self) -> float:
        self.arrays["C"].fill(self.poison)
        return self.backend.seconds(self.run)

    def interval(self, seconds: float) -> dict[str, Any]:
        end, products, wrong, busy = time.perf_counter() + seconds, 0, 0, 0.0
        while not products or time.perf_counter() < end:
            busy += self.once()
            products += 1
            same = self.expected is not None and self.backend.checksum(self.arrays["C"]) == self.expected
            wrong += not (same or (not self.task.variant.deterministic and self.is_right()))
        row = {"dtype": self.task.dtype, "n": self.task.shape[0], "flops": self.task.flops}
        return row | {"products": products, "wrong": wrong, "busy": busy}


def sustain(
    comm,
    planned: Plan,
    batch: Batch,
    output: Path,
    stopped: Callable[[], bool] = lambda: False,
    expect: Callable[[str, float], None] = lambda doing, seconds: None,
) -> bool:
    """Repeat the products of a batch on each rank for its expected seconds, and write ``output``. Collective.

    The lines of each rank are beside ``output`` until it is complete. After each interval, ``stopped`` returns whether
    this rank must end early. Return whether no rank did; else there is no ``output``, and ``sustained.so_far`` returns
    the measurements.
    """
    seconds = sum(batch.predicted)
    expect(f"{batch.name}: start-up", batch.seconds - seconds)
    process = Process(comm, batch.device, planned.share_gpu)
    backend = process.backend
    if comm.rank == 0:
        make_folder(output.parent)
        for path in lines_of(output):
            path.unlink()
    comm.Barrier()
    lines: list[dict[str, Any]] = []
    with output.with_suffix(f".{comm.rank}.jsonl").open("w", encoding="utf-8") as file:

        def write(line: Mapping[str, Any]) -> None:
            lines.append(dict(line))
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

        first = {"rank": comm.rank, "fingerprint": batch.fingerprint}
        write(first | {"provenance": process.described, "errors": backend.errors()})
        products = [Product(backend, point, planned.measuring.seed) for point in batch.points]
        comm.Barrier()
        expect(f"{batch.name}: products", seconds)
        begin, minute = time.perf_counter(), 0
        while not stopped() and (now := time.perf_counter() - begin) < seconds:
            if comm.rank == 0 and now // 60 > minute:
                minute = int(now // 60)
                report(batch, minute, seconds, lines)
            for product in products:
                line = product.interval(INTERVAL)
                write(line | {"seconds": time.perf_counter() - begin, "vitals": backend.vitals()})
        if comm.rank == 0:
            report(batch, math.ceil((time.perf_counter() - begin) / 60), seconds, lines)
        write({"errors": backend.errors()})
        ended = stopped()
    if any(comm.allgather(ended)):
        return False
    everyone = comm.gather(lines, root=0)
    if comm.rank == 0:
        write_groups(output, groups_of(batch, everyone), source=batch.fingerprint)
        for path in lines_of(output):
            path.unlink()
    return True


def report(batch: Batch, minute: int, seconds: float, lines: Sequence[Mapping[str, Any]]) -> None:
    products, wrong = (sum(line.get(name, 0) for line in lines) for name in ("products", "wrong"))
    last = math.ceil(seconds / 60)
    place = f"[{min(minute, last):{len(str(last))}}/{last}]"
    print(f"{place} min {batch.name}: {products} products on rank 0, {wrong} wrong", flush=True)
