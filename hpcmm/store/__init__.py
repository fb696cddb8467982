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
from hpcmm.store.merge import joined, merged, select
from hpcmm.store.rows import columns_of, write_profiles
from hpcmm.store.schema import DIMENSIONS, GROUPS, IDENTITY, MEASUREMENTS, PROFILES, SCHEMA_VERSION, Groups
