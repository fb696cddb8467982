"""Upper bounds of the time that planned work takes, and durations as a reader sees them."""

from __future__ import annotations

import dataclasses

from hpcmm.devices import DEVICES
from hpcmm.model import TEXTBOOK, Measuring, Point, Task
from hpcmm.operations import task_of
from hpcmm.operations.accuracy import COMPONENTWISE_LIMIT

# Upper bounds in seconds. A slow machine must not take longer, so these are cautious guesses; the length of jobs,
# the time limit asked of a cluster and the deadline of a point follow from them.
STARTUP_SECONDS = 30  # Python, MPI and the device, from a busy file system
DRAWING_SECONDS = 1e-7  # of an element: drawing it and computing its reference
JUDGING_SECONDS = 1e-7  # of an element, each time
HOST_FLOPS_PER_SECOND = 5e9  # BLAS in float64
COPIED_BYTES_PER_SECOND = 5e8  # from rank 0 to all and back
SLOW_FLOPS_PER_SECOND = 1e8  # of a scalar loop whose matrices fit into no cache


def placing_seconds(point: Point) -> float:
    """Return an upper bound of drawing a point's inputs and computing their reference, in seconds."""
    task = task_of(point)
    # a reference is up to seven products of the same size, but never more than what is checked elementwise
    flops = min(7 * task.flops, 2 * COMPONENTWISE_LIMIT)
    return flops / HOST_FLOPS_PER_SECOND + elements(task) * DRAWING_SECONDS


def point_seconds(point: Point, measuring: Measuring) -> float:
    """Return an upper bound of measuring a point beside its baseline on inputs in place, in seconds."""
    task = task_of(point)
    seconds = DEVICES[task.variant.device].prepare_seconds
    if point.algorithm == TEXTBOOK:
        beside = task.operation.baseline(task.variant.device, task.dtype)
        contenders = list(dict.fromkeys((task.variant, beside)))
    else:  # beside the textbook's with the same variant
        contenders = [task.variant, task.variant]
    for variant in contenders:
        call = call_seconds(dataclasses.replace(task, variant=variant))
        # the checked call, then warm-ups, whole calls and kernels, each up to the limit and over it by a call
        seconds += call + 3 * (measuring.max_seconds + min(call, measuring.max_seconds))
        seconds += 2 * elements(task) * JUDGING_SECONDS
    return seconds


def call_seconds(task: Task) -> float:
    """Return an upper bound of one whole call of a task, in seconds."""
    device = DEVICES[task.variant.device]
    rate = device.baseline_flops_per_second if task.variant.baseline else device.flops_per_second
    return task.flops / (SLOW_FLOPS_PER_SECOND if task.variant.slow else rate) + task.bytes / COPIED_BYTES_PER_SECOND


def elements(task: Task) -> float:
    """Return the number of elements that a task reads and writes."""
    return task.bytes / task.element.itemsize


def rounded_duration(seconds: float) -> str:
    """Seconds for a reader.

    >>> rounded_duration(7.4), rounded_duration(200), rounded_duration(9000)
    ('7 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
