"""Timings files as xarray: values are read when they are used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpcmm.store.file import StoreError, require_readable

if TYPE_CHECKING:
    import xarray


def open_tree(path: Path) -> xarray.DataTree:
    """Open all groups of a file after checking that it can be read.

    Raises
    ------
    StoreError
        If xarray is not installed, or the file is missing, damaged, or not a timings file.
    """
    try:
        import h5netcdf
        import xarray
    except ImportError as error:
        raise StoreError(f"{error.name} is not installed: pip install 'hpcmm[analysis]'") from error
    require_readable(path)
    try:
        return xarray.open_datatree(path, engine=h5netcdf.__name__)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be opened by xarray: {error}") from error
