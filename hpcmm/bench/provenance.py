"""Where numbers come from: the state of the code, the machine and the job, as one JSON object."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("numpy", "mpi4py", "h5py", "cupy-cuda12x", "cupy-cuda13x", "nvmath-python", "mpich", "openmpi", "snakemake")


def revision() -> tuple[str, bool | None]:
    """Return the commit of the code and whether it has changes; ("", None) if unknown.

    They are those of the checkout of an editable install, otherwise those that the build recorded.
    """
    package = Path(__file__).resolve().parents[1]
    root, recorded = package.parent, package / "revision.txt"
    if not (root / ".git").exists():
        commit, *changes = recorded.read_text().split() if recorded.exists() else [""]
        return commit, bool(changes) if commit else None
    git = ["git", "-c", f"safe.directory={root}", "-C", str(root)]
    try:
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "", None
    return commit.stdout.strip(), bool(changes.stdout.strip())


def cpu() -> dict[str, Any]:
    """Return the processor's model and its cores."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = (line.partition(":") for line in cpuinfo.read_text().splitlines())
        model = next((value.strip() for name, _, value in fields if name.strip() == "model name"), model)
    return {"model": model, "cores": psutil.cpu_count(logical=False), "logical_cores": psutil.cpu_count()}


def packages() -> dict[str, str]:
    """Return the versions of those ``PACKAGES`` that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def collect() -> dict[str, Any]:
    """Return what this process knows; the backends and MPI add their parts."""
    commit, dirty = revision()
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "system": platform.platform(),
        "revision": commit,
        "dirty": dirty,
        "arguments": sys.argv,
        "python": platform.python_version(),
        "hpcmm": importlib.metadata.version("hpcmm"),
        "packages": packages(),
        "cpu": cpu(),
        "slurm": {key: value for key, value in os.environ.items() if key.startswith("SLURM_JOB")},
    }
