"""Sentences that explain why each rung of a ladder is faster or slower than the one before it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hpcmm.analysis.why import Evidence, Step
from hpcmm.devices import DEVICES
from hpcmm.operations import OPERATIONS
from hpcmm.report import findings, formats


def count(value: float) -> str:
    """Format a number that is often whole, ``"8"`` or ``"15.5"``."""
    return formats.whole(value) if value == round(value) else formats.number(value)


FORMS = {"number": formats.number, "percent": formats.percent, "count": count, "amount": formats.amount}
ELSEWHERE = "The difference is in instructions or in waiting; the file counts neither."
UNEXPLAINED = {
    "counters": "The reason is not known: no counter and no resource in the file differs in this direction.",
    "resources": "The reason is not known: the file lacks counters of one rung, and the resources do not explain it.",
    "nothing": "The reason is not known: this device has neither counters nor resources.",
}


def clause(evidence: Evidence) -> str:
    """Return the clause of an evidence with its numbers."""
    return evidence.text.format(*(FORMS[form](value) for value, form in evidence.numbers))


def effect(step: Step) -> str:
    """Return the ratio of the times with its interval and the verdict, ``"1.10× (1.09 to 1.12), faster"``."""
    ends = f" ({formats.number(step.low)} to {formats.number(step.high)})" if math.isfinite(step.low) else ""
    return f"{formats.times(step.ratio)}{ends}, {verdict(step)}"


def verdict(step: Step) -> str:
    """Return the verdict in words. A difference that is significant but below 1 % is called that."""
    if step.verdict == "same":
        if math.isfinite(step.low) and step.low <= 1 <= step.high:
            return findings.SAME
        return f"less than 1 % {'faster' if step.ratio > 1 else 'slower'}"
    return "no interval: less than a factor of 2 is not judged" if step.verdict == "unclear" else step.verdict


def reason(step: Step) -> str:
    """Return the sentences that explain a step."""
    reasons, despite = ("; ".join(map(clause, each)) for each in (step.reasons, step.despite))
    parts = []
    if step.source == "resources" and step.reasons:
        parts.append("From the resources, without counters:")
    if step.counted:
        parts.append(f"By the counters of {step.counted}:")
    if step.verdict in ("faster", "slower"):
        if reasons:
            parts.append(f"{reasons}." if parts else _sentence(reasons))
        elif step.same:
            parts.append(f"The accesses to memory are the same: {clause(step.same)}. {ELSEWHERE}")
        else:
            parts.append(UNEXPLAINED[step.source])
        if reasons and despite:
            parts.append(f"Against it: {despite}.")
    elif reasons:
        effect = "What changed: " if step.verdict == "unclear" else "Changes without significant effect: "
        parts.append(f"{effect}{reasons}.")
    elif step.source != "nothing":
        parts.append(f"No {step.source.removesuffix('s')} differs by more than 10 %.")
    return " ".join(parts)


def sentence(step: Step) -> str:
    """Return everything about a step."""
    limit = _sentence(clause(step.limit)) if step.source != "nothing" else ""
    return " ".join(filter(None, (f"{effect(step)}.", reason(step), limit)))


def rows(steps: Sequence[Step]) -> list[dict[str, str]]:
    """Return the lines of a ladder: names of both rungs, what changes, the sentences, and the page of the rung."""
    return [
        {
            "rung": step.rung["rung"],
            "below": step.below["rung"],
            "change": change(step.rung),
            "text": sentence(step),
            "page": page_of(step.rung["operation"], step.rung["variant"], step.rung["device"]),
        }
        for step in steps
    ]


def page_of(operation: str, variant: str, device: str) -> str:
    """Return the name of the page of a rung in the documentation."""
    return f"{OPERATIONS[operation].kernels}-{variant}" + ("" if DEVICES[device].accelerator else f"-{device}")


def change(row: Mapping[str, Any]) -> str:
    """Return the change in the record of a rung; empty for a rung that was removed since."""
    ladder = OPERATIONS[row["operation"]].ladder
    return next((variant.change for variant in ladder if variant.name == row["variant"]), "")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
