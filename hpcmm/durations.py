"""How long what is planned should take at most, and a time as a reader sees it."""

from __future__ import annotations

import numpy as np

from hpcmm.model import TEXTBOOK, Measuring, Operation, Point, Variant
from hpcmm.operations.accuracy import COMPONENTWISE_LIMIT

# What a job is given at most, in seconds. A slow machine must not take longer, so these are guesses on the
# safe side, from which follow the length of jobs, the time that a cluster is asked for and a deadline.
STARTUP_SECONDS = 30  # Python, MPI and the device, from a busy file system
POINT_SECONDS = {"cpu": 0.1, "cuda": 2}  # compiling the kernel, loading it
DRAWING_SECONDS = 1e-7  # of an element: drawing it and computing its reference
JUDGING_SECONDS = 1e-7  # of an element, each time
HOST_FLOPS_PER_SECOND = 5e9  # BLAS in float64
COPIED_BYTES_PER_SECOND = 5e8  # from rank 0 to all and back
FLOPS_PER_SECOND = {"cpu": 1e9, "cuda": 5e10}  # of our kernels
BASELINE_FLOPS_PER_SECOND = {"cpu": 5e9, "cuda": 2e11}
SLOW_FLOPS_PER_SECOND = 1e8  # of a scalar loop whose matrices fit into no cache


def placing_seconds(operation: Operation, point: Point) -> float:
    """Seconds that drawing a point's inputs and computing their reference should take at most."""
    # a reference is up to seven products of the same size, but never more than what is checked elementwise
    flops = min(7 * operation.flops(point.shape, point.parameters), 2 * COMPONENTWISE_LIMIT)
    return flops / HOST_FLOPS_PER_SECOND + elements(operation, point) * DRAWING_SECONDS


def point_seconds(operation: Operation, point: Point, measuring: Measuring) -> float:
    """Seconds that measuring a point beside its baseline should take at most, on inputs in place."""
    variant = operation.variant(point.variant)
    seconds = POINT_SECONDS[variant.device]
    if point.algorithm == TEXTBOOK:
        contenders = list(dict.fromkeys((variant, operation.baseline(variant.device))))
    else:  # beside the textbook's with the same variant
        contenders = [variant, variant]
    for contender in contenders:
        call = call_seconds(operation, contender, point)
        # the checked call, then warm-ups, whole calls and kernels, each up to the limit and over it by a call
        seconds += call + 3 * (measuring.max_seconds + min(call, measuring.max_seconds))
        seconds += 2 * elements(operation, point) * JUDGING_SECONDS
    return seconds


def call_seconds(operation: Operation, variant: Variant, point: Point) -> float:
    """Seconds that one whole call of a variant should take at most."""
    rates = BASELINE_FLOPS_PER_SECOND if variant.baseline else FLOPS_PER_SECOND
    rate = SLOW_FLOPS_PER_SECOND if variant.slow else rates[variant.device]
    copied = operation.bytes(point.shape, point.dtype, point.parameters) / COPIED_BYTES_PER_SECOND
    return operation.flops(point.shape, point.parameters) / rate + copied


def elements(operation: Operation, point: Point) -> float:
    """Elements that a point reads and writes."""
    return operation.bytes(point.shape, point.dtype, point.parameters) / np.dtype(point.dtype).itemsize


def duration(seconds: float) -> str:
    """Seconds for a reader.

    >>> duration(7.4), duration(200), duration(9000)
    ('7 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
