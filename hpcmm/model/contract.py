"""What a kernel of a user computes, if it is less than its operation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Contract:
    """What a kernel of a user computes, if it is less than its operation."""

    # Scalar arguments that are fixed: alpha = 1 and beta = 0 for a kernel that computes C = A B
    scalars: Mapping[str, float] = field(default_factory=dict)
    # Whether all dimensions must be equal, except those that ``most`` limits to 1. A single dimension must be a square
    # number
    square: bool = False
    # multiples, least, most: by dimension, the number that divides it, and its limits
    multiples: Mapping[str, int] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)
    reads: bool = False  # whether C is read even if beta = 0, which is then not a problem that the kernel takes
    # Whether rows have to follow each other without padding, because the kernel takes no leading dimensions
    packed: bool = False

    overwrites: str = ""  # the input that the kernel overwrites, of which it gets a copy before each run
    in_place: bool = False  # whether the result replaces this input

    def refuses(self, sizes: Mapping[str, int], scalars: Mapping[str, float]) -> str:
        """Return what of a problem the kernel does not take; empty if it takes it."""
        for name, value in self.scalars.items():
            if scalars.get(name, value) != value:
                return f"takes {name} = {value:g} only"
        if self.reads and scalars.get("beta") == 0:
            return "takes beta = 0 only if C may be read"
        if self.square and len({size for name, size in sizes.items() if self.most.get(name) != 1}) > 1:
            return "takes square matrices only"
        if self.square and len(sizes) == 1 and math.isqrt(*sizes.values()) ** 2 != sum(sizes.values()):
            return "takes square numbers only"
        for name, size in sizes.items():
            if size % self.multiples.get(name, 1):
                return f"takes multiples of {self.multiples[name]} for {name} only"
            if not self.least.get(name, 1) <= size <= self.most.get(name, size):
                least, most = self.least.get(name, 1), self.most.get(name, "any size")
                return f"takes {name} = {most} only" if least == most else f"takes {name} from {least} to {most} only"
        return ""

    def nearest(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return sizes near the given ones that the kernel takes: rounded up to multiples, within limits, square."""
        if self.square:
            common = math.lcm(*(self.multiples.get(name, 1) for name in sizes))
            if len(sizes) == 1 and math.isqrt(common) ** 2 == common:
                common = math.isqrt(common)
            largest = max(sizes.values())
            root = common * -(-(math.isqrt(largest - 1) + 1) // common) if largest else 0
            sizes = dict.fromkeys(sizes, root**2 if len(sizes) == 1 else -(-largest // common) * common)
        found = []
        for name, size in sizes.items():
            multiple = self.multiples.get(name, 1)
            size = max(self.least.get(name, 1), -(-size // multiple) * multiple)
            most = self.most.get(name, size)
            found.append(min(size, most // multiple * multiple))
        return tuple(found)

    def __str__(self) -> str:
        """Return what was verified: ``"multiples of 64 x 64 x 16, C = A B"``."""
        parts, multiples = [], list(map(str, self.multiples.values()))
        if multiples:
            one = self.square and len(set(multiples)) == 1
            parts.append(f"multiples of {multiples[0] if one else ' x '.join(multiples)}")
        limits = {name: (self.least.get(name, 1), self.most.get(name)) for name in [*self.least, *self.most]}
        parts += [f"{name} = {most}" for name, (least, most) in limits.items() if least == most]
        apart = {name: ends for name, ends in limits.items() if len(set(ends)) > 1}
        parts += [f"{name} from {least}" + (f" to {most}" if most else "") for name, (least, most) in apart.items()]
        parts += ["square"] if self.square else []
        if fixed := self.scalars:
            product = "A B" if fixed.get("alpha") == 1 else "alpha A B"
            parts.append({0: f"C = {product}", 1: f"C += {product}"}.get(fixed.get("beta"), f"C = {product} + beta C"))
        parts += ["beta not 0"] if self.reads else []
        parts += ["packed rows"] if self.packed else []
        if self.overwrites:
            how = "in place: the result replaces" if self.in_place else "overwrites"
            parts.append(f"{how} {self.overwrites}, which is copied before each run, untimed")
        return ", ".join(parts)
