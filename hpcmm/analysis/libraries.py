"""The libraries that rungs are compared with: their versions, and ratios to a library whose algorithm was tuned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis import visits
from hpcmm.model import TEXTBOOK, Operation
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import ALGORITHMS

Provenance = Mapping[str, Any]


def mapping(value: Any) -> Provenance:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def gpus_of(provenance: Provenance) -> list[Provenance]:
    """Return the GPU record of each rank of a run."""
    gpus = provenance.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []


def _gpu(provenance: Provenance) -> Provenance:
    return next(iter(gpus_of(provenance)), {})


def short(version: Any) -> str:
    """Return a version with at most three numbers, without zeros at the end.

    >>> short("14.2.0"), short("0.3.31.188.0"), short("13.0.0"), short(None)
    ('14.2', '0.3.31', '13.0', '')
    """
    numbers = re.match(r"\d+(?:\.\d+){0,2}", str(version or ""))
    return re.sub(r"(\.\d+)\.0$", r"\1", numbers[0]) if numbers else ""


def numbered(provenance: Provenance, name: str, major: int) -> str:
    """Return the version of a library that reports it as one number, with ``major`` times its first part.

    >>> numbered({"gpus": [{"cublas": 130100, "cub": 300102}]}, "cublas", 10_000)
    '13.1'
    """
    number = _gpu(provenance).get(name)
    return short(f"{number // major}.{number % major // 100}.{number % 100}") if isinstance(number, int) else ""


def package(provenance: Provenance, names: Sequence[str]) -> str:
    """Return the version of a package whose name begins with one of some names."""
    packages = {**mapping(provenance.get("installed")), **mapping(provenance.get("packages"))}
    return next((short(packages[name]) for name in packages if name.startswith(tuple(names))), "")


def blas(provenance: Provenance) -> str:
    """Return the name and version of the BLAS of NumPy, ``"OpenBLAS 0.3.31"``."""
    found = re.match(r"(\w+) ([\d.]+)", str(mapping(provenance.get("cpu")).get("blas") or ""))
    names = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS"}
    return f"{names.get(found[1], found[1])} {short(found[2])}" if found else ""


def cupy(provenance: Provenance) -> str:
    return short(_gpu(provenance).get("cupy"))


def numpy(provenance: Provenance) -> str:
    return short(mapping(provenance.get("packages")).get("numpy"))


# Provider of a library call, as the records of variants and algorithms name it: the words before its version, which the
# calls that bear its name do without, and the function that finds the version
VERSIONS: dict[str, tuple[str, Callable[[Provenance], str]]] = {
    "cublas": ("of cuBLAS", partial(numbered, name="cublas", major=10_000)),
    "cub": ("of CUB", partial(numbered, name="cub", major=100_000)),
    "cublasmp": ("of cuBLASMp", partial(package, names=("nvidia-cublasmp",))),
    "cupy": ("of CuPy", cupy),
    "numpy": ("of NumPy", numpy),
    "blas": ("with", blas),
    "mkl": ("of MKL", partial(package, names=("mkl",))),
    "onednn": ("of oneDNN", partial(package, names=("onednn", "onednn-cpu-gomp"))),
}


def named(name: str, provider: str, provenance: Provenance) -> str:
    """Return the name of a library call with the version of its library, as far as it is known.

    >>> provenance = {"gpus": [{"cublas": 130100, "cupy": "14.2.0"}]}
    >>> named("cublas", "cublas", provenance), named("geam", "cublas", provenance), named("cub", "cub", {})
    ('cublas 13.1', 'geam of cuBLAS 13.1', 'cub')
    """
    words, find = VERSIONS.get(provider, ("", lambda provenance: ""))
    version = find(provenance)
    parts = [name, "" if name.startswith(provider) else words, version]
    return " ".join(filter(None, parts)) if version else name


def library_of(operation: Operation, device: str, dtype: str, provenance: Provenance, tuned: bool = False) -> str:
    """Return the name and version of the baseline, or of its tuned call; empty if there is none."""
    call = operation.tuned(device, dtype) if tuned else operation.baseline(device, dtype)
    return named(call.name, call.provider, provenance) if call else ""


def of_algorithm(name: str, provenance: Provenance) -> str:
    """Return the name of a distributed algorithm, with the version of its library if it is one."""
    return named(name, ALGORITHMS[name].provider, provenance)


def put(frame: pd.DataFrame, provenances: Sequence[Provenance], added: Sequence[str]) -> None:
    """Add the columns about libraries that ``analysis.measurements`` describes.

    The ratio to the tuned library is the ratio of two ratios to the baseline, of the same problem in the same job: the
    baseline took turns with both. Its interval combines those of both ratios as independent errors of logarithms. It is
    conservative, as the errors of the baseline are in both.
    """
    keys = ["run", "operation", "device", "dtype"]
    for column, tuned in (("library", False), ("tuned_library", True)):
        names = {
            key: library_of(OPERATIONS[key[1]], *key[2:], provenances[key[0]], tuned)
            for key in set(frame[keys].itertuples(index=False, name=None))
        }
        frame[column] = [names[key] for key in frame[keys].itertuples(index=False, name=None)]
    frame["algorithm_library"] = [
        of_algorithm(*pair) for pair in zip(frame["algorithm"], (provenances[run] for run in frame["run"]), strict=True)
    ]
    plain = ((frame["algorithm"] == TEXTBOOK) & (frame["contender_algorithm"] == TEXTBOOK)).to_numpy()
    tuned = {
        (operation.name, variant.name)
        for operation in OPERATIONS.values()
        for variant in operation.ladder
        if variant.tunes
    }
    is_tuned = np.array([pair in tuned for pair in zip(frame["operation"], frame["contender"], strict=True)], bool)
    is_tuned &= plain & (frame["variant"] == frame["contender"]).to_numpy() & frame["ratio"].notna().to_numpy()
    problem = frame.groupby(["run", "device", *visits.PROBLEM, *added], dropna=False, sort=False).ngroup().to_numpy()
    of_problem = pd.Series(np.flatnonzero(is_tuned), index=problem[is_tuned])
    partner = of_problem[~of_problem.index.duplicated()].reindex(problem).to_numpy(float)
    known = plain & np.isfinite(partner)
    beside = np.where(known, partner, 0).astype(int)
    ratios = {end: np.log(frame[f"ratio{end}"].to_numpy(float)) for end in ("", "_low", "_high")}
    width = (ratios["_high"] - ratios["_low"]) / 2
    middle = np.where(known, ratios[""] - ratios[""][beside], np.nan)
    width = np.where(is_tuned, 0.0, np.hypot(width, width[beside]))
    for end, sign in (("", 0.0), ("_low", -1.0), ("_high", 1.0)):
        frame[f"tuned_ratio{end}"] = np.exp(middle + (sign * width if sign else 0.0))
        lead = np.minimum(frame[f"ratio{end}"], frame[f"tuned_ratio{end}"])
        frame[f"lead{end}"] = np.where(known, lead, np.where(plain, frame[f"ratio{end}"], np.nan))
    behind = (frame["tuned_ratio"] < frame["ratio"]).to_numpy()
    frame["leader"] = np.where(behind, frame["tuned_library"], frame["library"]).astype(object)
