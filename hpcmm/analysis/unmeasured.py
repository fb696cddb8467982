"""Points that the configs of a file's runs request, and that no run of the file measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpcmm.analysis.tidy import Columns, mapping, runs
from hpcmm.experiment import plan
from hpcmm.model import spread_name
from hpcmm.reader import ConfigError
from hpcmm.store.schema import RENAMED


def unmeasured(columns: Columns) -> list[dict[str, Any]]:
    """Return rows for the group ``omitted``: points that the config of a run requests and the file lacks.

    A merged file may hold single jobs of an experiment, whose other jobs no file lists as left out.

    Parameters
    ----------
    columns : mapping
        A file, or several files joined.

    Returns
    -------
    list of dict
        Sweep, variant, number of ranks, and the reason, which names the revision of the run. A config that this
        version cannot read, or one with extensions, is a row without a variant.
    """
    rows, omitted = columns["measurements"], columns["omitted"]
    measured = zip(rows["sweep"], rows["variant"], rows["algorithm"], rows["ranks"], strict=True)
    known = {(sweep, spread_name(variant, algorithm), int(ranks)) for sweep, variant, algorithm, ranks in measured}
    known |= set(zip(omitted["sweep"], omitted["variant"], map(int, omitted["ranks"]), strict=True))
    found: dict[tuple, str] = {}
    for source, planned in plans(columns):
        if isinstance(planned, ConfigError):
            found.setdefault((source, "", 0), f"not compared with its results: {planned.problems[0]}")
            continue
        for key in planned_points(planned):
            if key not in known:
                found.setdefault(key, f"the {source} requests it, and no merged file has it")
    return [
        {"sweep": sweep, "variant": variant, "ranks": ranks, "reason": reason}
        for (sweep, variant, ranks), reason in found.items()
    ]


def plans(columns: Columns) -> Iterator[tuple[str, plan.Plan | ConfigError]]:
    """Yield the revision of each different config of a file's runs, and its plan or why this version has none."""
    texts = set()
    every = runs(columns)
    for run in np.unique(columns["measurements"]["run"]):  # a profile has a config too, but measures nothing
        provenance = every[run]["provenance"]
        config = mapping(provenance.get("config"))
        text = json.dumps(config, sort_keys=True)
        if not config or text in texts:
            continue
        texts.add(text)
        source = f"config of revision {str(provenance.get('revision') or 'unknown')[:7]}"
        try:
            if config.get("extensions"):  # files of another machine, whose code must not run here
                raise ConfigError("it has extensions")
            for old, new in RENAMED.items():
                text = text.replace(json.dumps(old), json.dumps(new))
            yield source, plan.make(json.loads(text))
        except ConfigError as error:
            yield source, error


def planned_points(planned: plan.Plan) -> Counter[tuple[str, str, int]]:
    """Return the number of points of each sweep, variant (with its algorithm) and number of ranks."""
    return Counter(
        (batch.sweep, spread_name(point.variant, point.algorithm), batch.ranks)
        for batch in planned.to_measure
        for point in batch.points
    )
