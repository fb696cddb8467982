"""A batch and what was measured of it, for the tests of journals and files."""

import hashlib

import numpy as np

from hpcmm.bench.journal import Journal
from hpcmm.model import Verdict
from hpcmm.model.measurement import Batch, Measurement, Point, Sample
from hpcmm.model.quantities import PHASES

HOST = {"host": "here", "ranks": [{"node": "node0", "device": "GPU-0"}, {"node": "node0", "device": "GPU-1"}]}
RIGHT = Verdict(True, 1e-8, 1e-7, "componentwise, float64")
WRONG = Verdict(False, float("nan"), 1e-7, "componentwise, float64", "0:3: nan - 1 = nan")


def batch_of(
    sizes, variant: str = "tiled_padded", operation: str = "matmul", source: str = "s1", tile: int = 0, **scalars
) -> Batch:
    """A batch of one variant whose fingerprints follow from the points and from ``source``."""
    dimensions = 3 if operation == "matmul" else 1
    points = tuple(Point(operation, variant, (size,) * dimensions, "float32", 2, scalars, tile=tile) for size in sizes)
    return together(points, source)


def together(points, source: str = "s1", part: int = 1) -> Batch:
    operation = points[0].operation
    fingerprints = tuple(f"{source} {point.key}" for point in points)
    whole = hashlib.sha256("".join(fingerprints).encode()).hexdigest()
    predicted = (1.0,) * len(points)
    return Batch(
        f"{operation}-sweep", operation, "cuda", 2, part, points, fingerprints, predicted, sum(predicted), whole
    )


BATCH = batch_of([8, 16, 32], alpha=1.5, tile=8)


def measured(point: Point, seconds: float = 0.5, verdict: Verdict = RIGHT) -> list[Measurement]:
    """What a point and its baseline may have given: two repetitions on two ranks; none where it failed."""
    samples = tuple(
        Sample(repetition, rank, call, dict.fromkeys(PHASES if call else ["kernel"], seconds), {"power": 300.0})
        for repetition in range(2)
        for rank in range(2)
        for call in (True, False)
    )
    return [
        Measurement(point, point.variant, False, verdict, 100, 200, samples if verdict.passed else (), clock=1.7e9),
        Measurement(point, "library", True, RIGHT, 100, 200, samples, clock=1.6e9),
    ]


def of(point: Point, batch: Batch = BATCH) -> str:
    """The fingerprint of one of the batch's points."""
    return batch.fingerprints[batch.points.index(point)]


def assert_same(groups, others) -> None:
    """Check that two files have the same groups, columns, types and values."""
    for group, columns in groups.items():
        assert list(others[group]) == list(columns)
        for name, values in columns.items():
            np.testing.assert_array_equal(others[group][name], values)
            assert others[group][name].dtype == values.dtype


def filled(path, points=BATCH.points) -> Journal:
    journal = Journal(path, BATCH, HOST)
    for i, point in enumerate(points):
        journal.append(point, measured(point, seconds=i + 0.25))
    return journal


def reopened(path, batch: Batch = BATCH, host: str = "here") -> Journal:
    """A journal as the next process finds it, closed again."""
    journal = Journal(path, batch, HOST | {"host": host})
    journal.close()
    return journal


def stored(path, batch: Batch = BATCH, host: str = "here"):
    """A complete file of a batch."""
    journal = Journal(path.with_suffix(".journal"), batch, HOST | {"host": host})
    for point in batch.points:
        journal.append(point, measured(point))
    journal.complete()
    return path
