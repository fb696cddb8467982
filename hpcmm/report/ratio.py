"""The speed of one point relative to another, with its interval, in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpcmm.analysis.tidy import ENDS
from hpcmm.analysis.views import Row
from hpcmm.report import formats
from hpcmm.system.text import number

SAME = "no significant difference"
UNKNOWN = "no interval: the spread between visits is unknown or too large"
LIBRARIES = {"ratio": "library", "tuned_ratio": "tuned_library"}  # a column of speeds: that of the library's name


@dataclass(frozen=True)
class Ratio:
    """Speed of one point relative to another, with an interval.

    The ends of the interval come from the 95 % intervals of both times. It is therefore conservative: what it excludes
    is excluded with more than 90 % confidence. If a time has no interval, the ends are NaN.

    ``arithmetics`` names the arithmetic of both points if they differ, ``"three TF32 products against float32"``.
    """

    value: float
    low: float
    high: float
    arithmetics: str = ""

    @classmethod
    def of(cls, fast: Row, slow: Row, seconds: str = "seconds") -> Ratio:
        """Return the seconds of ``slow`` divided by those of ``fast``."""
        return cls(*(slow[seconds + one] / fast[seconds + other] for one, other in ENDS), differing(fast, slow))

    @classmethod
    def to_library(cls, row: Row, column: str = "ratio") -> Ratio:
        """Return the speed of a point relative to a library, from columns of its row; it computes in the type."""
        ends = (row.get(f"{column}_{end}", math.nan) for end in ("low", "high"))
        return cls(row[column], *ends, differing(row, {"dtype": row["dtype"]}))

    @property
    def known(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def faster(self) -> bool:
        return self.low > 1

    @property
    def slower(self) -> bool:
        return self.high < 1

    @property
    def ends(self) -> str:
        """The interval, ``"1.39 to 1.41"``; empty if it is not known."""
        return f"{number(self.low)} to {number(self.high)}" if self.known else ""

    def over(self, name: str = "", level: str = "") -> str:
        """Say how fast a point is, ``"1.40× naive (1.39 to 1.41)"``; ``level`` is the text ahead of the interval."""
        note = level + self.ends if self.known else UNKNOWN
        if self.known and not (self.faster or self.slower):
            note += f", {SAME}"
        notes = "; ".join(filter(None, (self.arithmetics, note)))
        return f"{formats.times(self.value)} {name}".rstrip() + f" ({notes})"

    @property
    def short(self) -> str:
        """The factor without its interval, ``"2.16× (three TF32 products against float32)"``; empty for NaN."""
        factor = formats.times(self.value)
        return f"{factor} ({self.arithmetics})" if factor and self.arithmetics else factor

    def __str__(self) -> str:
        return self.over()


def is_itself(row: Row, column: str = "ratio") -> bool:
    """Return whether a row is of the library that a column compares with."""
    return row[LIBRARIES[column]].partition(" ")[0] == row["contender"]


def arithmetic_of(row: Row) -> str:
    """Return the arithmetic of a point in one phrase: that of its element type, or the one that its record names."""
    return (row.get("arithmetic") or row.get("dtype", "")).partition(",")[0]


def differing(one: Row, other: Row) -> str:
    """Name the arithmetic of two points, ``"three TF32 products against float32"``; empty if it is the same."""
    own, against = arithmetic_of(one), arithmetic_of(other)
    return f"{own} against {against}" if own != against else ""
