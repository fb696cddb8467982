"""Derive medians, intervals, rates and ratios from the raw times of a timings file."""

from hpcmm.analysis.levels import levels
from hpcmm.analysis.tidy import (
    Columns,
    gpus_of,
    is_own,
    machines,
    mapping,
    measurements,
    on_accelerator,
    points,
    profiles,
    row_dicts,
    runs,
    split_by_machine,
    throttling_names,
    unprofiled,
)
from hpcmm.analysis.views import (
    Series,
    Summary,
    activities,
    by_size,
    climbs,
    clock_samples,
    grouped,
    ladder,
    largest,
    noises,
    phases,
    pitch_pairs,
    pooled,
    rooflines,
    series,
    summary,
    values,
)
