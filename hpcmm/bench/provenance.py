"""Provenance: the state of the code, the machine and the job, as one JSON object."""

import functools
import hashlib
import importlib.metadata
import math
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from hpcmm.experiment.fingerprint import RECORDED, versions
from hpcmm.model import untimed
from hpcmm.model.records import beside
from hpcmm.system import surroundings

TABLES = beside(__file__)
ROOT = Path("/")  # of the files below
CPU = "sys/devices/system/cpu"


def package() -> Path:
    return Path(__file__).resolve().parents[1]


def git(*arguments: str) -> bytes | None:
    """Return the output of git in the checkout of the package; None if there is none, or git fails."""
    root = package().parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def revision() -> tuple[str, bool | None]:
    """Return the commit of the checkout, or of the build, and whether it has changes; ("", None) if unknown."""
    recorded = package() / RECORDED
    if not (package().parent / ".git").exists():
        commit, *changes = (recorded.read_text().split() if recorded.exists() else []) or [""]
        return commit, bool(changes) if commit else None
    commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain")
    if commit is None or changes is None:
        return "", None
    return commit.decode().strip(), bool(changes.strip())


def source_hash() -> str:
    """Return a SHA-256 of the names and contents of the package's source files, tracked by git or not.

    The commit that a build records is none of them.
    """
    folder, total = package(), hashlib.sha256()
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".so"))
    for path in sorted(path for path in files if path != folder / RECORDED):
        total.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


# --- the machine -----------------------------------------------------------------------------------------------------


def text(path: str) -> str:
    return (ROOT / path).read_text().strip()


def value(pattern: str, part: str = "(.+)") -> str:
    """Return the distinct values of all files that match a pattern: of each, the first that matches a part."""
    found = (re.search(part, path.read_text(), re.MULTILINE) for path in ROOT.glob(pattern))
    return ", ".join(sorted({match[1].strip() for match in found if match}))


def turbo() -> bool:
    if (ROOT / CPU / "intel_pstate/no_turbo").exists():
        return text(f"{CPU}/intel_pstate/no_turbo") == "0"
    return text(f"{CPU}/cpufreq/boost") == "1"


def numa_nodes() -> dict[str, str]:
    files = sorted(ROOT.glob("sys/devices/system/node/node[0-9]*/cpulist"))
    return {path.parent.name: path.read_text().strip() for path in files}


def hypervisor() -> bool | None:
    flags = value("proc/cpuinfo", r"^flags\s*:(.+)")
    return "hypervisor" in flags.split() if flags else None


SOURCES = {name: functools.partial(globals()[how], *of) for name, (how, *of) in TABLES["sources"].items()}


def cpu_times() -> dict[str, float]:
    ticks = [int(each) for each in text("proc/stat").splitlines()[0].split()[1:9]]
    second = os.sysconf("SC_CLK_TCK")
    return {"busy_seconds": (sum(ticks) - ticks[3] - ticks[4]) / second, "steal_seconds": ticks[7] / second}


# Counters that grow while a job runs; the difference of two readings describes the time between them
COUNTERS: dict[str, Callable[[], Any]] = {
    "load_average": lambda: os.getloadavg()[0],
    "cpu_times": cpu_times,
    "cpu_quota": surroundings.throttling,
}


def spent(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[float, float]:
    """Return the busy seconds and the stolen seconds among them between two readings; NaN if unknown."""
    try:
        busy, steal = (after["cpu_times"][key] - before["cpu_times"][key] for key in ("busy_seconds", "steal_seconds"))
    except KeyError:
        return math.nan, math.nan
    return busy, steal


def stolen(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """Return the share of CPU time between two readings that the hypervisor gave to other guests; NaN if unknown."""
    busy, steal = spent(before, after)
    return steal / busy if busy > 0 else math.nan


def throttled(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[int, int]:
    """Return how often a CPU quota stopped processes between two readings, and its periods; (0, 0) without a quota."""
    counts = [{"throttled": 0, "periods": 0} | each.get("cpu_quota", {}) for each in (before, after)]
    return tuple(counts[1][name] - counts[0][name] for name in ("throttled", "periods"))


def read(sources: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return the values of the sources, without missing, unreadable and empty ones."""
    found = {}
    for name, source in sources.items():
        try:
            value = source()
        except (OSError, ValueError, LookupError, TypeError, psutil.Error):
            continue
        if value not in ("", None, {}):
            found[name] = value
    return found


def cpu_model(cpuinfo: str) -> str:
    """Return the model of a processor; empty if it is unknown. Linux knows implementer and part of an ARM core only.

    >>> cpu_model("CPU implementer\\t: 0x41\\nCPU part\\t: 0xd4f\\n"), cpu_model("model name\\t: Xeon\\n")
    ('ARM Neoverse V2', 'Xeon')
    >>> cpu_model("CPU implementer\\t: 0x61\\nCPU part\\t: 0x022\\n\\nCPU implementer\\t: 0x61\\nCPU part\\t: 0x023\\n")
    'ARM implementer 0x61 part 0x022 and ARM implementer 0x61 part 0x023'
    """
    fields: dict[str, list[str]] = {}
    for name, _, value in (line.partition(":") for line in cpuinfo.splitlines()):
        fields.setdefault(name.strip(), []).append(value.strip())
    cores = dict.fromkeys(zip(fields.get("CPU implementer", []), fields.get("CPU part", []), strict=False))
    names = [f"ARM {TABLES['arm_cores'].get(f'{by} {part}', f'implementer {by} part {part}')}" for by, part in cores]
    return " and ".join(names) or next(iter(fields.get("model name", [])), "")


def cpu() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    model = cpu_model(cpuinfo.read_text()) if cpuinfo.exists() else ""
    model = model or platform.processor() or platform.machine()
    return {"model": model, "cores": psutil.cpu_count(logical=False), "logical_cores": psutil.cpu_count()}


def installed() -> dict[str, str]:
    packages = {}
    for distribution in importlib.metadata.distributions():
        # the standard parser reads the description too, and takes ten times as long
        head = (distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or "").partition("\n\n")[0]
        about = dict(re.findall(r"^(Name|Version): *(.*?) *$", head, re.MULTILINE))
        if "Name" in about:
            packages[about["Name"]] = about.get("Version", "")
    return dict(sorted(packages.items(), key=lambda item: item[0].lower()))


def command() -> list[str]:
    """Return this process's arguments after its program, ``"hpcmm/jobs/measure.py"`` or a file's name."""
    program = Path(sys.argv[0])
    if program.resolve().is_relative_to(package()):
        return [str(program.resolve().relative_to(package().parent)), *sys.argv[1:]]
    return [program.name, *sys.argv[1:]]


@untimed
def moment() -> dict[str, Any]:
    return {"utc": datetime.now(UTC).isoformat(timespec="seconds"), "counters": read(COUNTERS)}


def collect() -> dict[str, Any]:
    """Return the provenance of this process; without a known commit, the hash of the sources is the revision."""
    commit, dirty = revision()
    source, every = source_hash(), installed()
    return {
        **moment(),
        "host": socket.gethostname(),
        "system": platform.platform(),
        "revision": commit or f"sha256:{source}",
        "dirty": dirty,
        "source_sha256": source,
        "arguments": command(),
        "job": os.environ.get("HPCMM_JOB", ""),
        "python": platform.python_version(),
        "hpcmm": every.get("hpcmm", ""),
        "packages": versions(tuple(TABLES["packages"])),
        "installed": every,
        "cpu": cpu(),
        "machine": read(SOURCES),
        "surroundings": surroundings.describe(),
        "slurm": {key: value for key, value in os.environ.items() if key.startswith("SLURM_JOB")},
    }
