"""The result of a check of nodes or GPUs: devices, findings and the verdict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

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


JUDGED = {"p": float, "slow": bool, "least": float, "detectable": float, "limit": float}
FINDING = {**dict.fromkeys(("subject", "measurement", "sweep", "source", "against"), object), "rank": int}
FINDING |= {"seconds": float, "slowdown": float, **JUDGED}  # the types of the columns of findings


@dataclass(frozen=True)
class Check:
    """The result of a check.

    ``findings`` has one row per measurement, device (``subject``, and its rank) and standard (``against``: peers or
    reference). ``source`` is the device that it received from, if the measurement is one of a link: either end may be
    the cause. ``slowdown`` is its time over that of its peers (or of the reference), less 1; NaN if it has none. ``p``
    is the probability of such a difference by chance, for this measurement alone. ``slow`` is the verdict, at the level
    of the whole check. ``least`` is the smallest slowdown that would be called slow if other sizes have it, too. One of
    ``detectable`` is called slow in 95 % of such checks, and one of ``limit`` after any number of visits. All three are
    infinite if nothing is compared.

    ``broken`` has a line for each fault: a wrong result, or points that were not measured. ``missing`` is the number of
    points of jobs that failed. ``notes`` are sentences about measurements that could not be compared. ``spreads`` has,
    by measurement, how three or more devices differ: variance and degrees of freedom. ``blind`` has the sweeps that
    cannot show the requested slowdown, each with the reason.
    """

    subjects: tuple[Subject, ...]
    findings: pd.DataFrame
    broken: tuple[str, ...]
    notes: tuple[str, ...]
    missing: int = 0
    spreads: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    blind: Mapping[str, str] = field(default_factory=dict)

    @property
    def slow(self) -> pd.DataFrame:
        return self.findings[self.findings["slow"]].sort_values("slowdown", ascending=False, kind="stable")

    @property
    def with_peers(self) -> pd.DataFrame:
        return self.findings[self.findings["against"] == "peers"]

    @property
    def verdict(self) -> str:
        """``"slow"``, also for a fault; ``"inconclusive"`` if nothing was found but could have been missed."""
        return "slow" if len(self.slow) or self.broken else "inconclusive" if self.blind else "passed"

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"

    @property
    def detectable(self) -> dict[str, float]:
        """By sweep, the smallest slowdown that is named in 95 % of such checks, whichever device has it."""
        compared = self.findings[np.isfinite(self.findings["detectable"])]
        largest = compared.groupby(["sweep", "measurement", "against"], sort=False)["detectable"].max()
        return largest.groupby("sweep", sort=False).min().to_dict()

    @property
    def line(self) -> str:
        slow = list(self.slow[["source", "subject"]].itertuples(index=False))
        named = dict.fromkeys(subject.name for source, subject in slow if not source)
        links = dict.fromkeys(f"{source.name} to {subject.name}" for source, subject in slow if source)
        measured = self.findings["measurement"].nunique()
        tested = set(self.findings.loc[np.isfinite(self.findings["p"]), "against"])
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
            {**vars(row["subject"]), "measurement": row["measurement"], "against": row["against"]}
            | {"source": row["source"].rank if row["source"] else None}
            | {name: row[name] for name in ("seconds", "slowdown", "p", "least", "detectable", "slow")}
            for row in self.findings.to_dict("records")
        ]
        return found | {"findings": findings, "broken": self.broken, "missing": self.missing, "notes": self.notes}

    def entry(self, utc: str) -> dict[str, Any]:
        """Return the line of this check in a history: how slow each device was in each sweep."""
        slow, peers = set(self.slow["rank"]), self.with_peers.dropna(subset="slowdown")
        medians = peers.groupby(["rank", "sweep"], sort=False)["slowdown"].median().unstack(sort=False)
        devices = []
        for each in self.subjects:
            place = {"node": each.node, "slot": each.slot, "uuid": each.uuid, "slow": each.rank in slow}
            slowdowns = medians.loc[each.rank].dropna().to_dict() if each.rank in medians.index else {}
            devices.append(place | {"slowdowns": slowdowns})
        return {"format": HISTORY, "utc": utc, "verdict": self.verdict, "devices": devices}

    def reference(self) -> dict[str, Any]:
        """Return the median time of each measurement, and how the devices differ, for checks of other machines."""
        medians = self.with_peers.groupby("measurement", sort=False)["seconds"].median()
        return {"seconds": medians.to_dict(), "spreads": dict(self.spreads)}


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
