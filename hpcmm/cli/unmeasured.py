"""Points that the configs of a file's runs request, and that no run of the file measured."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpcmm.analysis.tidy import Columns, mapping, runs
from hpcmm.experiment import plan
from hpcmm.experiment.config import SCHEMA
from hpcmm.model import contender_name
from hpcmm.model.measurement import Point
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.store.rows import PINNED
from hpcmm.system.reader import ConfigError
from hpcmm.system.text import short_revision


def unmeasured(columns: Columns) -> list[dict[str, Any]]:
    """Return rows for the group ``omitted``: points that the config of a run requests and no file has.

    A merged file may hold single jobs of an experiment, whose other jobs no file lists. A config that this version
    cannot read, or one with extensions, is a row without a variant.
    """
    listed_rows = columns["omitted"]
    measured = set(_measured(columns))
    listed = set(zip(listed_rows["sweep"], listed_rows["variant"], map(int, listed_rows["ranks"]), strict=True))
    found: dict[tuple, tuple[str, int]] = {}
    for source, planned in plans(columns):
        if isinstance(planned, ConfigError):
            found.setdefault((source, "", 0), (f"not compared with its results: {planned.problems[0]}", 0))
            continue
        points = ((batch, point) for batch in planned.to_measure for point in batch.points)
        lost = ((batch, point) for batch, point in points if _identity(batch.sweep, point) not in measured)
        counts = Counter((b.sweep, contender_name(p.variant, p.algorithm), b.ranks) for b, p in lost)
        for key, count in counts.items():
            if key not in listed:
                found.setdefault(key, (f"the {source} requests it, and no merged file has it", count))
    return [
        {"sweep": sweep, "variant": variant, "ranks": ranks, "reason": reason, "points": count}
        for (sweep, variant, ranks), (reason, count) in found.items()
    ]


def _measured(columns: Columns) -> Iterator[tuple]:
    """Yield the identity of the point of each measurement, as ``_identity`` gives it."""
    rows = columns["measurements"]
    names = ("sweep", "operation", "variant", "algorithm", "dtype", "ranks", "tile", "pinned", *dimensions())
    none = np.zeros(len(rows["sweep"]), int)
    return zip(*(rows.get(name, none) for name in names), strict=True)


def _identity(sweep: str, point: Point) -> tuple:
    """Return what identifies a point in a file, apart from its scalars, which a sweep does not vary."""
    shape = dict(zip(OPERATIONS[point.operation].dimensions, point.shape, strict=True))
    lengths = (shape.get(name, 0) for name in dimensions())
    names = (sweep, point.operation, point.variant, point.algorithm, point.dtype)
    return *names, point.ranks, point.tile, PINNED[point.pinned], *lengths


def plans(columns: Columns) -> Iterator[tuple[str, plan.Plan | ConfigError]]:
    """Yield the revision of each different config of a file's runs, and its plan or why this version has none."""
    texts = set()
    every = runs(columns)
    for run in np.unique(columns["measurements"]["run"]):  # a profile has a config too, but measures nothing
        provenance = every[run]
        config = mapping(provenance.get("config"))
        text = json.dumps(config, sort_keys=True)
        if not config or text in texts:
            continue
        texts.add(text)
        source = f"config of revision {short_revision(str(provenance.get('revision') or 'unknown'))}"
        try:
            if config.get("extensions"):  # files of another machine, whose code must not run here
                raise ConfigError("it has extensions")
            keys = {key: value for key, value in json.loads(text).items() if key in SCHEMA["properties"]}
            yield source, plan.make(keys)  # of other versions too
        except ConfigError as error:
            yield source, error
