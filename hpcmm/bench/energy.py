"""The energy of a kernel, from the energy counter of its device, in a pass of its own."""

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from hpcmm.model import DeviceError

PASS_SECONDS = 1.0  # minimum duration of a pass
BATCH_SECONDS = 0.01  # of kernels that are queued together
TICK_SECONDS = 2.0  # maximum time between two values of a counter


def why_unreadable(backend) -> str:
    try:
        backend.energy()
    except DeviceError as error:
        return str(error)
    return ""


def energy_of(backend, run: Callable[[], Any], seconds: float) -> dict[str, float]:
    """Repeat a kernel for a second or more; return ``quantities.ENERGY`` of the pass.

    ``run`` queues the kernel once, which takes ``seconds``. The counter changes some ten times a second. A pass begins
    and ends at a change, so energy and time refer to the same interval; without a change it raises DeviceError. The
    next kernels are queued before the counter is read: the device never waits for it.
    """
    count = max(1, math.ceil(BATCH_SECONDS / seconds))
    queued, done = deque(), 0

    def work() -> float:
        """Queue kernels, read the counter, and wait for the kernels queued before."""
        nonlocal done
        for _ in range(count):
            run()
        queued.append(backend.mark())
        joules = backend.energy()
        if len(queued) > 1:
            backend.finish(queued.popleft())
            done += count
        return joules

    def tick(since: float) -> tuple[float, float, int]:
        """Work until the counter changes; return its value, the time and the finished kernels."""
        last = work()
        while (now := work()) == last:
            if time.perf_counter() - since > PASS_SECONDS + TICK_SECONDS + 2 * count * seconds:
                raise DeviceError(f"the energy counter of {backend.uuid or 'the CPU'} does not change")
        return now, time.perf_counter(), done

    first = tick(time.perf_counter())
    while time.perf_counter() - first[1] < PASS_SECONDS:
        work()
    last = tick(first[1] + PASS_SECONDS)
    backend.synchronize()
    joules, length, runs = (float(end - start) for start, end in zip(first, last, strict=True))
    return {"energy": joules, "energy_seconds": length, "energy_runs": runs}
