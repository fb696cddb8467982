"""Upper bounds of the time of planned work, and durations formatted for a reader."""

import dataclasses
import math

from hpcmm.model import TEXTBOOK, Task
from hpcmm.model.devices import DEVICES
from hpcmm.model.measurement import Measuring, Point
from hpcmm.model.quantities import DATA
from hpcmm.operations import OPERATIONS, choice, task_of
from hpcmm.operations.accuracy import COMPONENTWISE_LIMIT
from hpcmm.parallel import algorithm_of

# Upper bounds in seconds. They must hold on a slow machine, so they are large; the length of jobs, the time limit
# requested from a cluster and the deadline of a point follow from them.
STARTUP_SECONDS = 30  # Python, MPI and the device, from a busy file system
DRAWING_SECONDS = 1e-7  # per element: drawing it and computing its reference
CHECKING_SECONDS = 1e-7  # per element and check
HOST_FLOPS_PER_SECOND = 5e9  # BLAS in float64
BITS_CALLS = 24  # calls of a comparison of bits, at most
ENERGY_SECONDS = 5  # pass for energy: a second, and two waits for the counter
COPIED_BYTES_PER_SECOND = 5e8  # from rank 0 to all and back
SLOW_FLOPS_PER_SECOND = 1e8  # of a scalar loop on matrices larger than the caches

# Expected times before the first job of a results folder has finished; hpcmm.bench.pace learns from finished jobs.
EXPECTED_SHARES = {True: 0.03, False: 0.35}  # of the upper bound of a point: on accelerators, on CPUs
EXPECTED_STARTUP_SECONDS = 1  # of a visit of a batch: its share of the start of a process


def expected_share(device: str) -> float:
    return EXPECTED_SHARES[DEVICES[device].accelerator]


def drawn(point: Point) -> Task:
    """Return the task with the arrays that one rank draws and verifies: the whole problem, or its part."""
    task, part = task_of(point), algorithm_of(OPERATIONS[point.operation], point.algorithm).part
    return dataclasses.replace(task, shape=tuple(part(task.shape, point.ranks, 0))) if part else task


def input_seconds(point: Point) -> float:
    """Return an upper bound of the seconds for drawing a point's inputs and computing their reference."""
    task = drawn(point)
    # a reference is up to eight products of the same size; one of all elements on the host has a limited size
    flops = min(8 * task.flops, 2 * 3 * COMPONENTWISE_LIMIT)
    return flops / HOST_FLOPS_PER_SECOND + elements(task) * DRAWING_SECONDS


def point_seconds(point: Point, measuring: Measuring) -> float:
    """Return an upper bound of the seconds for all visits of a point and its baseline on inputs in place."""
    task = drawn(point)
    seconds = DEVICES[task.variant.device].prepare_seconds  # later visits find the compiled kernel on disk
    seconds *= choice.TRIED if choice.open_to_times(task.variant, task.dtype) else 1
    if point.algorithm == TEXTBOOK:
        beside = task.operation.baseline(task.variant.device, task.dtype)
        contenders = list(filter(None, dict.fromkeys((task.variant, beside))))
    else:  # the baseline is the textbook algorithm with the same variant
        contenders = [task.variant] * (1 + algorithm_of(task.operation, point.algorithm).baseline)
    for variant in contenders:
        call = call_seconds(dataclasses.replace(task, variant=variant))
        # A visit is a call, then warm-ups, end-to-end calls and kernels; each may exceed its limit by one call. A call
        # that is longer than the limit has one visit.
        short = min(call, measuring.max_seconds)
        seconds += call + (measuring.visits - 1) * short + 3 * (measuring.max_seconds + measuring.visits * short)
        if measuring.energy and point.ranks == 1:
            seconds += ENERGY_SECONDS + 4 * call
        if measuring.accuracy and point.ranks == 1:
            seconds += len(DATA) * (call + elements(task) * (DRAWING_SECONDS + CHECKING_SECONDS))
        if measuring.same_bits:
            seconds += BITS_CALLS * call + elements(task) * (DRAWING_SECONDS + CHECKING_SECONDS)
        seconds += 2 * elements(task) * CHECKING_SECONDS
    if measuring.accuracy and point.ranks == 1:
        seconds += len(DATA) * input_seconds(point)
    return seconds


def call_seconds(task: Task) -> float:
    """Return an upper bound of the seconds for one end-to-end call of a task."""
    device = DEVICES[task.variant.device]
    copied = elements(task) * task.element.itemsize
    rate = device.baseline_flops_per_second if task.variant.library else device.flops_per_second
    return task.flops / (SLOW_FLOPS_PER_SECOND if task.variant.slow else rate) + copied / COPIED_BYTES_PER_SECOND


def elements(task: Task) -> float:
    return sum(math.prod(task.shape_of(operand)) for operand in task.operation.operands)


def rounded_duration(seconds: float) -> str:
    """Return seconds as text for a reader.

    >>> rounded_duration(7.4), rounded_duration(200), rounded_duration(9000)
    ('7 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def estimate(expected: float, bound: float) -> str:
    """Return an expected time with its upper bound for a reader.

    >>> estimate(200, 2000), estimate(50, 40)
    ('about 3 min (at most 33 min)', 'about 40 s (at most 40 s)')
    """
    return f"about {rounded_duration(min(expected, bound))} (at most {rounded_duration(bound)})"
