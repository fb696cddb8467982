"""The result of a check of nodes or GPUs: devices, findings and the verdict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpcmm.system.text import plural

HISTORY = "hpcmm check history"
STANDARDS = {"peers": "its peers", "reference": "the reference"}


@dataclass(frozen=True)
class Subject:
    """A device of the run: its node, its place among the ranks of the node, and the UUID of its GPU."""

    rank: int
    node: str
    slot: int
    uuid: str

    @property
    def identity(self) -> tuple[str, str]:
        """What tells the device in another run, whose ranks may be in another order."""
        return self.node, self.uuid or str(self.slot)

    @property
    def name(self) -> str:
        return f"{self.node} slot {self.slot}" + (f" {self.uuid}" if self.uuid else "")


@dataclass(frozen=True)
class Finding:
    """One measurement of one device.

    ``source`` is the device that it received from, if the measurement is one of a link: either end may be the cause.
    ``slowdown`` is its time over that of its peers (or of the reference), less 1; NaN if it has none. ``p`` is the
    probability of such a difference by chance, for this measurement alone. ``slow`` is the verdict, at the level of the
    whole check. ``least`` is the smallest slowdown that would be called slow if other sizes have it, too. One of
    ``detectable`` is called slow in 95 % of such checks, and one of ``limit`` after any number of visits. All three are
    infinite if nothing is compared.
    """

    subject: Subject
    measurement: str
    source: Subject | None
    against: str
    seconds: float
    slowdown: float
    p: float
    slow: bool
    least: float = math.inf
    detectable: float = math.inf
    limit: float = math.inf

    @property
    def sweep(self) -> str:
        return self.measurement.partition(":")[0]


@dataclass(frozen=True)
class Check:
    """The result of a check.

    ``findings`` has one entry per measurement, device and standard (peers or reference). ``broken`` has a line for each
    fault: a wrong result, or points that were not measured. ``missing`` is the number of points of jobs that failed.
    ``notes`` are sentences about measurements that could not be compared. ``spreads`` has, by
    measurement, how three or more devices differ: variance and degrees of freedom. ``blind`` has the sweeps that cannot
    show the requested slowdown, each with the reason.
    """

    subjects: tuple[Subject, ...]
    findings: tuple[Finding, ...]
    broken: tuple[str, ...]
    notes: tuple[str, ...]
    missing: int = 0
    spreads: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    blind: Mapping[str, str] = field(default_factory=dict)

    @property
    def slow(self) -> list[Finding]:
        return sorted((each for each in self.findings if each.slow), key=lambda each: -each.slowdown)

    @property
    def verdict(self) -> str:
        """``"slow"``, also for a fault; ``"inconclusive"`` if nothing was found but could have been missed."""
        return "slow" if self.slow or self.broken else "inconclusive" if self.blind else "passed"

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"

    @property
    def detectable(self) -> dict[str, float]:
        """By sweep, the smallest slowdown that is named in 95 % of such checks, whichever device has it."""
        found: dict[tuple[str, str, str], float] = {}
        for each in self.findings:
            if math.isfinite(each.detectable):
                key = each.sweep, each.measurement, each.against
                found[key] = max(found.get(key, 0.0), each.detectable)
        sweeps: dict[str, float] = {}
        for (sweep, *_), value in found.items():
            sweeps[sweep] = min(sweeps.get(sweep, math.inf), value)
        return sweeps

    @property
    def line(self) -> str:
        named = dict.fromkeys(each.subject.name for each in self.slow if not each.source)
        links = dict.fromkeys(f"{each.source.name} to {each.subject.name}" for each in self.slow if each.source)
        measured = len({each.measurement for each in self.findings})
        tested = {each.against for each in self.findings if math.isfinite(each.p)}
        standards = [text for name, text in STANDARDS.items() if name in tested]
        what = f"no device is slower than {' or '.join(standards)}" if standards else "nothing to compare with"
        what = f"slow: {', '.join(named)}" if named else what
        what += f"; slow links: {', '.join(links)}" if links else ""
        if self.verdict == "inconclusive":
            what = f"inconclusive ({', '.join(self.blind)}): {what}"
        wrong = f"; {plural(len(self.broken), 'fault')}" if self.broken else ""
        measurements = plural(measured + self.missing, "measurement")
        counts = f"{measured} of {measurements}" if self.missing else measurements
        return f"{plural(len(self.subjects), 'device')}, {counts}: {what}{wrong}"

    def plain(self) -> dict[str, Any]:
        found = {"format": "hpcmm check", "version": 1, "passed": self.passed, "verdict": self.verdict}
        found |= {"line": self.line, "detectable": self.detectable}
        found |= {"inconclusive": self.blind, "devices": list(map(vars, self.subjects))}
        findings = [
            {**vars(finding.subject), "measurement": finding.measurement, "against": finding.against}
            | {"source": finding.source.rank if finding.source else None}
            | {name: getattr(finding, name) for name in ("seconds", "slowdown", "p", "least", "detectable", "slow")}
            for finding in self.findings
        ]
        return found | {"findings": findings, "broken": self.broken, "missing": self.missing, "notes": self.notes}

    def entry(self, utc: str) -> dict[str, Any]:
        """Return the line of this check in a history: how slow each device was in each sweep."""
        slow = {finding.subject.rank for finding in self.slow}
        sweeps: dict[int, dict[str, list[float]]] = {}
        for finding in self.findings:
            if finding.against == "peers" and math.isfinite(finding.slowdown):
                sweeps.setdefault(finding.subject.rank, {}).setdefault(finding.sweep, []).append(finding.slowdown)
        devices = []
        for subject in self.subjects:
            slowdowns = {name: float(np.median(own)) for name, own in sweeps.get(subject.rank, {}).items()}
            place = {"node": subject.node, "slot": subject.slot, "uuid": subject.uuid}
            devices.append(place | {"slow": subject.rank in slow, "slowdowns": slowdowns})
        return {"format": HISTORY, "utc": utc, "verdict": self.verdict, "devices": devices}

    def reference(self) -> dict[str, Any]:
        """Return the median time of each measurement, and how the devices differ, for checks of other machines."""
        seconds: dict[str, list[float]] = {}
        for each in self.findings:
            if each.against == "peers":
                seconds.setdefault(each.measurement, []).append(each.seconds)
        medians = {name: float(np.median(each)) for name, each in seconds.items()}
        return {"seconds": medians, "spreads": dict(self.spreads)}


def history(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the history of each device and sweep over the checks of ``Check.entry``, the latest slowdown first.

    Each has the number of ``checks``, ``since`` when, the median slowdown ``before`` the newest check (NaN if there is
    none) and ``now``, and in how many checks the device was ``slow``.
    """
    found: dict[tuple[str, ...], list[tuple[str, float, bool]]] = {}
    for entry in sorted(entries, key=lambda each: each["utc"]):
        for each in entry["devices"]:
            for sweep, slowdown in each["slowdowns"].items():
                key = each["node"], str(each["slot"]), each["uuid"], sweep
                found.setdefault(key, []).append((entry["utc"], slowdown, each["slow"]))
    rows = [
        dict(zip(("node", "slot", "uuid", "sweep"), key, strict=True))
        | {"checks": len(checks), "since": checks[0][0][:10]}
        | {"slow": sum(slow for *_, slow in checks), "now": checks[-1][1]}
        | {"before": float(np.median([slowdown for _, slowdown, _ in checks[:-1]])) if checks[1:] else math.nan}
        for key, checks in found.items()
    ]
    return sorted(rows, key=lambda row: -row["now"])
