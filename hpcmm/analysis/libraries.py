"""The libraries that rungs are compared with: their versions, and ratios to a library whose algorithm was tuned."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis import visits
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import ALGORITHMS

Provenance = Mapping[str, Any]


def mapping(value: Any) -> Provenance:
    return value if isinstance(value, Mapping) else {}


def gpus_of(provenance: Provenance) -> list[Provenance]:
    gpus = provenance.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, Mapping)] if isinstance(gpus, list) else []


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
    number = (gpus_of(provenance) or [{}])[0].get(name)
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


# Provider of a library call, as the records of variants and algorithms name it: the words before its version, which the
# calls that bear its name do without, and the function that finds the version
VERSIONS: dict[str, tuple[str, Callable[[Provenance], str]]] = {
    "cublas": ("of cuBLAS", partial(numbered, name="cublas", major=10_000)),
    "cub": ("of CUB", partial(numbered, name="cub", major=100_000)),
    "cublasmp": ("of cuBLASMp", partial(package, names=("nvidia-cublasmp",))),
    "cupy": ("of CuPy", lambda provenance: short((gpus_of(provenance) or [{}])[0].get("cupy"))),
    "numpy": ("of NumPy", lambda provenance: short(mapping(provenance.get("packages")).get("numpy"))),
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


def put(frame: pd.DataFrame, provenances: Sequence[Provenance], added: Sequence[str]) -> None:
    """Add names and versions of libraries, and ratios to the tuned one.

    ``library`` is the baseline, ``"cublas 13.1"`` or of an algorithm ``"scatter with best"``; ``tuned_library`` the
    call of the same library whose algorithm is tuned, ``algorithm_library`` the algorithm; empty if there is none.
    ``tuned_ratio`` has the seconds of the tuned library over those of the variant; NaN if it was not measured for the
    problem in the same job. It is the ratio of two ratios to the baseline, which took turns with both. Its interval
    combines those of both ratios as independent errors of logarithms. It is conservative, as the errors of the baseline
    are in both. ``lead`` is the ratio to the faster of both libraries; NaN for algorithms other than ``TEXTBOOK``.

    ``pooled_ratio``, ``pooled_tuned_ratio`` and ``pooled_lead`` are the same over all sweeps and runs on this kind of
    machine with the same libraries: the mean, weighted by visits. Its interval has the mean width, because what shifts
    one sweep may shift all.
    """
    distinct, which = visits.kinds(frame, ["run", "operation", "device", "dtype", "algorithm"])
    calls = []
    for run, operation, device, dtype, algorithm in zip(*(distinct[name] for name in distinct), strict=True):
        of = OPERATIONS[operation]
        known = of.baseline(device, dtype), of.tuned(device, dtype), ALGORITHMS[algorithm]
        calls.append([named(each.name, each.provider, provenances[run]) if each else "" for each in known])
    names = ["library", "tuned_library", "algorithm_library"]
    frame[names] = np.array(calls, object).reshape(-1, 3)[which]
    plain = ((frame["algorithm"] == TEXTBOOK) & (frame["contender_algorithm"] == TEXTBOOK)).to_numpy()
    tuned = {
        (operation.name, each.name) for operation in OPERATIONS.values() for each in operation.ladder if each.tunes
    }
    is_tuned = np.array([pair in tuned for pair in zip(frame["operation"], frame["contender"], strict=True)], bool)
    is_tuned &= plain & (frame["variant"] == frame["contender"]).to_numpy() & frame["ratio"].notna().to_numpy()
    beside = visits.first_of(visits.numbered(frame, "run", "device", *visits.PROBLEM, *added), is_tuned)
    known = plain & (beside >= 0)
    ratios = {end: np.log(frame[f"ratio{end}"].to_numpy(float)) for end in ("", "_low", "_high")}
    width = (ratios["_high"] - ratios["_low"]) / 2
    middle = np.where(known, ratios[""] - ratios[""][beside], np.nan)
    width = np.where(is_tuned, 0.0, np.hypot(width, width[beside]))
    _interval(frame, "tuned_ratio", middle, width)
    everywhere = visits.alike(frame, added, "machine", *names)
    for column in ("ratio", "tuned_ratio"):
        low, middle, high = np.log(frame[[f"{column}_low", column, f"{column}_high"]].to_numpy(float)).T
        weights = frame["visits"].where(~frame["superseded"]).to_numpy(float)
        middle, width = (_means(values, weights, everywhere) for values in (middle, (high - low) / 2))
        _interval(frame, f"pooled_{column}", middle, width)
    for pool in ("", "pooled_"):
        both = frame[f"{pool}tuned_ratio"].notna()
        for end in ("", "_low", "_high"):
            over, tuned = (frame[f"{pool}{column}{end}"] for column in ("ratio", "tuned_ratio"))
            frame[f"{pool}lead{end}"] = np.where(both, np.minimum(over, tuned), over.where(plain))
    distributed = (frame["algorithm"] != TEXTBOOK) & (frame["library"] != "")
    frame["library"] = frame["library"].mask(distributed, f"{TEXTBOOK} with " + frame["variant"])


def _interval(frame: pd.DataFrame, column: str, middle: np.ndarray, width: np.ndarray) -> None:
    """Add a column and the ends of its interval, from a logarithm and its half-width."""
    for end, logs in (("", middle), ("_low", middle - width), ("_high", middle + width)):
        frame[f"{column}{end}"] = np.exp(logs)


def _means(values: np.ndarray, weights: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return for each value the weighted mean of its group, without NaN; NaN if nothing is left."""
    known = np.isfinite(weights * values)
    own = pd.DataFrame({"weighted": weights * values, "weights": weights})[known].groupby(groups[known]).sum()
    return (own["weighted"] / own["weights"]).reindex(groups).to_numpy()
