"""Timings files: groups of columns in HDF5. h5py is imported nowhere else."""

from hpcmm.store.file import (
    StoreError,
    checksum,
    fingerprints,
    make_folder,
    page_source,
    read,
    replacing,
    require_writable,
    source,
    write_groups,
    write_text,
)
from hpcmm.store.merge import distinct, joined, merged, select
from hpcmm.store.rows import as_groups, columns_of, placed, write_profiles
from hpcmm.store.schema import (
    DIMENSIONS,
    FORMAT,
    GROUPS,
    IDENTITY,
    MEASUREMENTS,
    PROFILES,
    SAMPLES,
    SCHEMA_VERSION,
    UNMEASURED,
    Groups,
    as_column,
)
