"""Compare each repetition's result bitwise with the verified one, to detect a rare race."""

from __future__ import annotations

import dataclasses

from hpcmm.model import ONE_CALL, Variant, Verdict

NAMED = 5  # maximum number of repetitions that a verdict lists


def why_uncompared(variant: Variant, algorithm: str) -> str:
    """Return the reason why the bits of repetitions may differ; empty if they must be equal."""
    if not variant.deterministic:
        return f"{variant.name} does not promise the same bits in every run"
    if algorithm not in ONE_CALL and not (variant.leaf_bytes or variant.invariant):
        return f"{algorithm} does not fix the order of partial sums over ranks"
    return ""


class Bits:
    """The checksums of one contender's results on this rank.

    ``skipped`` is the reason why results are not compared, from ``why_uncompared``; empty if they are.
    """

    def __init__(self, skipped: str = ""):
        self.skipped = skipped
        self.expected: int | None = None
        self.compared = 0
        self.changed: list[int] = []

    def look(self, checksum: int) -> None:
        """Keep the checksum of the verified result, which is the first, and compare each later one with it."""
        if self.skipped:
            return
        if self.expected is None:
            self.expected = checksum
            return
        if checksum != self.expected:
            self.changed.append(self.compared)
        self.compared += 1

    def judge(self, comm, verdict: Verdict | None) -> Verdict | None:
        """Return a verdict that fails if the bits changed on any rank; None without a verdict. Collective."""
        changed = sorted(set().union(*comm.allgather(self.changed)))
        if verdict is None or not verdict.passed or not changed:
            return verdict
        which = ", ".join(map(str, changed[:NAMED])) + (", ..." if len(changed) > NAMED else "")
        where = f"bits differ from the verified result in {len(changed)} of {self.compared} repetitions: {which}"
        return dataclasses.replace(verdict, passed=False, where=where)
