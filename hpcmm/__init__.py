"""Benchmarks of matrix product, reduction and vector sum: ladders of kernels on CPUs and GPUs, across MPI ranks."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas
    import xarray


def load(path: str | PathLike[str]) -> pandas.DataFrame:
    """Return the measured points of a timings file, one row per point.

    Parameters
    ----------
    path : path-like
        HDF5 file of a job or an experiment, or the folder of a run.

    Returns
    -------
    DataFrame
        The columns of ``hpcmm export``, among them ``gpu``, ``rate``, ``ratio`` with ``ratio_low`` and ``ratio_high``,
        and ``pick``. If a point was measured several times, the newest measurement.

    Raises
    ------
    HpcmmError
        If the file cannot be read.
    """
    from hpcmm import store
    from hpcmm.model.measurement import timings_file
    from hpcmm.report import export

    return export.points(store.read(timings_file(path)))


def open(path: str | PathLike[str]) -> xarray.DataTree:
    """Open a timings file with its raw samples, as stored; values are read when they are used.

    Parameters
    ----------
    path : path-like
        HDF5 file of a job or an experiment, or the folder of a run.

    Returns
    -------
    DataTree
        One dataset per group, such as ``open(path)["samples"]``. It is a context manager, which closes the file.

    Raises
    ------
    HpcmmError
        If xarray is not installed, or the file cannot be read.
    """
    from hpcmm.model.measurement import timings_file
    from hpcmm.store import StoreError, read

    try:
        import h5netcdf
        import xarray
    except ImportError as error:
        raise StoreError(f"{error.name} is not installed: pip install 'hpcmm[analysis]'") from error
    path = timings_file(path)
    read(path)  # its checksum is right
    try:
        return xarray.open_datatree(path, engine=h5netcdf.__name__)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be opened by xarray: {error}") from error


def __getattr__(name: str) -> object:
    """Import ``hpcmm.bench`` when it is first used."""
    if name == "bench":
        import importlib

        return importlib.import_module("hpcmm.bench")
    raise AttributeError(f"module 'hpcmm' has no attribute {name!r}")
