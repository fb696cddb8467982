"""Derive medians, intervals, rates and ratios from the raw times of a timings file."""

from hpcmm.analysis.levels import levels
from hpcmm.analysis.tidy import (
    Columns,
    gpus_of,
    is_own,
    machines,
    mapping,
    measurements,
    medians,
    on_accelerator,
    points,
    precisions,
    profiles,
    row_dicts,
    runs,
    slowest_ranks,
    split_by_machine,
    throttling_names,
    unprofiled,
)
from hpcmm.analysis.views import (
    Roof,
    Series,
    Summary,
    activities,
    at_size,
    clock_samples,
    ladder,
    largest,
    phases,
    pitch_pairs,
    rooflines,
    series,
    shapes,
    sizes,
    summary,
)
