"""What a measuring process inherits: variables and limits that change a number or break a run.

No library is imported that reads a variable when it is loaded.
"""

import contextlib
import ctypes
import functools
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

ROOT = Path("/")  # of the files below
CONTROLLER = "cpu"  # of control groups of version 1
RECORD = "HPCMM_SURROUNDINGS"  # the inherited values that were replaced, cleared or warned about, as JSON

SET, DEFAULT, CLEARED, OF_LAUNCH = "set", "set unless inherited", "cleared", "cleared for another launch"
WARNED, RECORDED, KEPT = "warned about", "recorded", "kept"


@dataclass(frozen=True)
class Variable:
    """Environment variables with one reason."""

    names: list[str]  # names, or patterns with ``*``
    # ``SET``, ``DEFAULT``, ``CLEARED``, ``WARNED``, ``RECORDED``, ``KEPT`` without a record, or ``OF_LAUNCH``: a
    # launcher sets it for the processes of one job, and another job must not inherit it
    action: str
    why: str
    part: str  # "threads", "GPU", "MPI" or "system"
    value: str = ""  # what it is set to
    only: str = ""  # for "root", on the "local" machine and not in a Slurm job, or if process_vm_readv is "forbidden"

    def applies(self, local: bool) -> bool:
        """Return whether the record applies; ranks start ``local`` or in a Slurm job."""
        if self.only == "forbidden":
            return reading_is_forbidden()
        return {"": True, "local": local, "root": os.getuid() == 0}[self.only]

    @property
    def title(self) -> str:
        return self.names[0]

    @property
    def done(self) -> str:
        """What is done about it."""
        return f"{self.action} to {self.value}" if self.action == SET else self.action


@dataclass(frozen=True)
class Condition:
    """An inherited limit that is no variable. ``look`` returns what was found; empty if there is nothing to say."""

    title: str
    done: str
    why: str
    look: Callable[[], str]


# --- limits of this process -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quota:
    """CPUs that a control group may use at the same time, on average over a period, and its file of counters."""

    cpus: float
    statistics: Path


def control_groups() -> Iterator[Path]:
    """Yield the folders of the control groups that may limit this process: version 2, and the CPU time of version 1."""
    with contextlib.suppress(OSError):
        for line in (ROOT / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and CONTROLLER not in controllers.split(","):
                continue
            group = PurePosixPath(path)
            for mounted in (controllers, CONTROLLER) if controllers else ("", "unified"):
                for each in (group, *group.parents):  # in a container, the group may be mounted at the top
                    yield ROOT / "sys/fs/cgroup" / mounted / str(each).lstrip("/")


def quota() -> Quota | None:
    """Return the smallest CPU quota of this process's control groups; None without one."""
    found = []
    for folder in control_groups():
        with contextlib.suppress(OSError, ValueError):
            if (folder / "cpu.max").exists():
                limit, period = (folder / "cpu.max").read_text().split()
            else:
                limit, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            if limit != "max" and int(limit) > 0:
                found.append(Quota(int(limit) / int(period), folder / "cpu.stat"))
    return min(found, key=lambda each: each.cpus, default=None)


def throttling() -> dict[str, float]:
    """Return the periods of the CPU quota so far, those in which it stopped processes, and for how many seconds.

    Empty without a quota.
    """
    limit = quota()
    if limit is None:
        return {}
    counted = {name: int(value) for name, value in map(str.split, limit.statistics.read_text().splitlines())}
    seconds = counted.get("throttled_usec", 0) * 1e-6 + counted.get("throttled_time", 0) * 1e-9
    return {"periods": counted["nr_periods"], "throttled": counted["nr_throttled"], "seconds": seconds}


def cpus() -> int:
    """Return the number of CPUs that this process may use: those of its affinity mask, within its CPU quota."""
    limit = quota()
    return max(1, math.floor(min(len(os.sched_getaffinity(0)), limit.cpus if limit else math.inf)))


def look_at_quota() -> str:
    limit = quota()
    return f"{limit.cpus:.3g} of {len(os.sched_getaffinity(0))} CPUs" if limit else ""


def look_at_affinity() -> str:
    allowed, every = len(os.sched_getaffinity(0)), os.cpu_count() or 0
    return f"{allowed} of {every} CPUs" if allowed < every else ""


def look_at_priority() -> str:
    policies = {os.SCHED_OTHER: "", os.SCHED_BATCH: "SCHED_BATCH", os.SCHED_IDLE: "SCHED_IDLE"}
    policy, nice = policies.get(os.sched_getscheduler(0), "real time"), os.getpriority(os.PRIO_PROCESS, 0)
    return ", ".join(filter(None, (policy, f"nice {nice}" if nice else "")))


def look_at_memory_policy() -> str:
    with contextlib.suppress(OSError, IndexError):
        policy = (ROOT / "proc/self/numa_maps").read_text().split(maxsplit=2)[1]
        return "" if policy in ("default", "local") else policy
    return ""


@functools.cache
def reading_is_forbidden() -> bool:
    """Return whether the system forbids to read the memory of a process, here of this one, by process_vm_readv."""

    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    libc = ctypes.CDLL(None)
    source, target = ctypes.create_string_buffer(b"x", 1), ctypes.create_string_buffer(1)
    remote, local = (ctypes.byref(Vector(ctypes.addressof(buffer), 1)) for buffer in (source, target))
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    return getattr(libc, "process_vm_readv", lambda *_: 1)(os.getpid(), local, one, remote, one, none) != 1


def look_at_reading() -> str:
    return "forbidden" if reading_is_forbidden() else ""


# --- the table --------------------------------------------------------------------------------------------------------


_TEXT = Path(__file__).with_suffix(".yaml").read_text("utf-8")
_TABLE = yaml.load(_TEXT, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
_CONDITIONS = _TABLE.pop("conditions")
# The first record that matches a variable counts.
VARIABLES = tuple(Variable(part=part, **record) for part, records in _TABLE.items() for record in records)

CONDITIONS = tuple(
    Condition(*about, globals().get(f"look_at_{name}", lambda: "")) for name, about in _CONDITIONS.items()
)


def record_of(name: str, local: bool = True) -> Variable | None:
    """Return the record of a variable; None if it changes nothing that is known."""
    for each in VARIABLES:
        # by the beginning first: to compile all patterns took a tenth of the start of a process
        begun = (pattern for pattern in each.names if name.startswith(pattern.partition("*")[0]))
        if any(fnmatchcase(name, pattern) for pattern in begun) and each.applies(local):
            return each
    return None


def settings(part: str) -> dict[str, str]:
    """Return the variables of one part of the table that are always set."""
    return {name: each.value for each in VARIABLES if each.part == part and each.action == SET for name in each.names}


def launcher_is_gone(inherited: Mapping[str, str]) -> bool:
    """Return whether this process inherited the variables of a launcher without its socket, as from a saved shell."""
    number = inherited.get("PMI_FD", "")
    with contextlib.suppress(OSError, OverflowError):
        return number.isdecimal() and not stat.S_ISSOCK(os.fstat(int(number)).st_mode)
    return True


def measuring(inherited: Mapping[str, str], launched: bool = False, local: bool = True) -> dict[str, str]:
    """Return the environment with which a process that measures starts.

    It is ``launched`` if it belongs to the job of the launcher that started this process, and ``local`` if its ranks
    start on this machine, and not in a Slurm job.
    """
    found, before, gone = {}, remembered(inherited), record_of("PMI_FD") if launcher_is_gone(inherited) else None
    for name, value in inherited.items():
        record = record_of(name, local)
        action = "" if record is None else CLEARED if record is gone else record.action
        if action in (CLEARED, WARNED) or (action == SET and value != record.value):
            before.setdefault(name, value)
        if not (action == CLEARED or (action == OF_LAUNCH and not launched)):
            found[name] = value
    for record in VARIABLES:
        if record.action in (SET, DEFAULT) and record.applies(local):
            values = dict.fromkeys(record.names, record.value)
            found = found | values if record.action == SET else values | found
    return found | ({RECORD: json.dumps(before)} if before else {})


def enter(launched: bool = True, local: bool = False) -> dict[str, str]:
    """Give this process the environment of a measuring process, before libraries are loaded.

    Return the inherited values that this call replaced, cleared or kept with a warning.
    """
    known, found = remembered(os.environ), measuring(os.environ, launched, local)
    for name in set(os.environ) - set(found):
        del os.environ[name]
    os.environ.update(found)
    return {name: value for name, value in remembered(os.environ).items() if name not in known}


def remembered(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the inherited values that this process or one before it replaced, cleared or kept with a warning."""
    return json.loads(environment.get(RECORD, "{}"))


def say(found: Mapping[str, str] | None = None) -> None:
    """Print which inherited variables measuring processes do not get, and which they get although they change times."""
    found = remembered(os.environ) if found is None else found
    warned = {name: record for name in found if (record := record_of(name)) and record.action == WARNED}
    if others := [f"{name}={value}" for name, value in found.items() if name not in warned]:
        print(f"hpcmm: not passed on to measurements: {', '.join(others)}; hpcmm doctor says why", file=sys.stderr)
    for name, record in warned.items():
        print(f"hpcmm: warning: {name}={found[name]}: {record.why}", file=sys.stderr)


def findings() -> Iterator[tuple[Variable | Condition, str]]:
    """Yield each record of the table that this process inherited something of, and what it inherited."""
    everything = {**os.environ, **remembered(os.environ)}
    records = {name: record_of(name) for name in everything}
    for record in VARIABLES:
        own = {name: value for name, value in everything.items() if records[name] is record}
        if record.action == KEPT:
            continue
        if record.action in (SET, DEFAULT):
            own = {name: value for name, value in own.items() if value != record.value}
        shown = own if record.action == OF_LAUNCH else [f"{name}={value}" for name, value in own.items()]
        if own:
            yield record, ", ".join(shown)
    for condition in CONDITIONS:
        if found := condition.look():
            yield condition, found


def describe() -> dict[str, Any]:
    """Return the provenance: variables of this process, what it inherited instead, and limits."""
    known = ((name, record_of(name)) for name in os.environ)
    return {
        "variables": {name: os.environ[name] for name, each in known if each and each.action not in (OF_LAUNCH, KEPT)},
        "inherited": remembered(os.environ),
        "limits": {each.title: found for each in CONDITIONS if (found := each.look())},
    }
