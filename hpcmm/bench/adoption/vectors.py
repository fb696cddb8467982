"""The search for the head of a kernel on vectors: a sum, an addition or a copy."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from hpcmm.backends.emulated.launch import on_device
from hpcmm.bench.adoption.search import (
    WIDE,
    WRONG,
    Candidate,
    Compiled,
    Kernel,
    NoKernel,
    NotAdopted,
    OtherOperation,
    Search,
)
from hpcmm.bench.adoption.signatures import multiplies, overwritten
from hpcmm.experiment import calls
from hpcmm.experiment.writes import elements
from hpcmm.operations import OPERATIONS

ADDITION = re.compile("add|sum|plus", re.IGNORECASE)  # in names
EXTREMES = {"maximum": "max|largest|biggest|greatest", "minimum": "min|least|smallest|lowest"}
CALLS_OF_EXTREMES = re.compile(r"atomicM(?:ax|in)|\bf?m(?:ax|in)f?(?=\([^;]*\[)")
LIMITS = ("least", "most")  # keys of a length that is fixed
# Of the vectors of trials, square numbers; the longer ones for blocks that take all of the others
LENGTHS, RAGGED = (4096, 16384, 262144), 961
ROW = re.compile(r"\*\s*(6[4-9]|[7-9]\d|[1-4]\d\d|50\d|51[0-2])\b")  # a row of 64 to 512 elements in an index
WIDTHS = (2, 4, 8, 16)  # elements of one access
ABOVE = 16  # more than any element of a trial


class VectorSearch(Search):
    """The search for the head of a kernel on vectors."""

    sizes: tuple[str, ...]  # what each integer is
    initial = 0  # of results in trials, whose elements are 1 to 9
    of_last = False  # whether the last block has the result of a reduction, and the others left theirs beside it

    def __init__(self, kernel: Kernel, kind: str):
        super().__init__(kernel, kind)
        if kind == "reduction" and not ADDITION.search(self.function.name):
            texts = self.function.name, " ".join(CALLS_OF_EXTREMES.findall(self.body))
            named = (name for text in texts for name, words in EXTREMES.items() if re.search(words, text.lower()))
            self.operation = OPERATIONS[next(named, "sum")]
            self.initial = ABOVE if self.operation.name == "minimum" and "atomicAdd" not in self.body else 0
        changed = overwritten(kernel.source, kernel.function) if kind != "copy" else ""  # which may copy either way
        self.overwrites = self.operands.get(changed, "")
        self.in_place = bool(self.overwrites) and not {"z", "result"} & {*self.operands.values()}
        self.sizes = self.lengths()[0] if self.device.accelerator else ("n",) * len(self.integers)

    def named(self, inputs: list[str], written: str) -> dict[str, str]:
        if self.kind == "reduction":
            return dict(zip(filter(None, [*inputs, written]), ["x", "result"], strict=False))
        return dict(zip([*inputs, written], "xyz" if self.kind == "vector_add" else "xy", strict=False))

    def scalars(self) -> list[str]:
        return ["identity" if self.kind == "reduction" else "1"] * len(self.reals)

    def head(self) -> dict[str, Any]:
        found = super().head()
        if self.reals and self.kind == "vector_add":
            self.notes.append(f"{' and '.join(each.name for each in self.reals)} = 1 only")
        return found | ({"overwrites": self.overwrites} if self.overwrites else {})

    def called(self, run: Compiled, template: str) -> dict[str, Any]:
        candidate = Candidate(run, template)
        self.likely = {"call": self.call(self.sizes, template)}
        for each in (1,) if self.function.remainders else (1, *WIDTHS):
            n = each * -(-RAGGED // each)
            trial = self.run(candidate, n, 1)
            if trial and self.right(trial, n):
                return self.likely | ({"multiples": {"n": each}} if each > 1 else {})
            self.why = self.why if trial is None else f"{WRONG} of {self.operation.name}"
        return self.refused()

    def launched(self, run: Compiled, template: str) -> dict[str, Any] | None:
        flat = self.function.flat
        if not flat and self.kind == "reduction":
            self.why = "it uses threads in y, blocks of vectors have threads in x"
            return None
        for sizes, (block, shared) in ((x, y) for x in self.lengths() for y in self.blocks(template)):
            if flat == (len(block) > 1):
                continue
            if sizes != self.sizes:
                self.sizes, run = sizes, None
            run = run or self.compiled(template)
            candidate = Candidate(run, template, block, shared)
            self.of_last = False
            found = self.measured(candidate) if flat else self.covers(candidate)
            if found is not None and self.of_last:
                return self.through_workspace(candidate, found)
            head = {"call": self.call(self.sizes, template)} | candidate.keys()
            head |= {"square": True} if "sqrt(n)" in self.sizes else {}
            if found is not None:
                return head | found
            ran = bool(re.search(f"^{WRONG}|race in global memory", self.why))
            if not self.likely or (ran and not self.ran):
                self.likely, self.ran = head | self.least(candidate), ran
                if self.why.startswith("ascending order: race in global memory"):  # of blocks; one alone may be right
                    one = self.run(candidate, candidate.threads, 1)
                    self.likely |= self.combines(candidate, one, 1) if one and self.right(one, len(one[0])) else {}
        return None

    def through_workspace(self, candidate: Candidate, found: dict[str, Any]) -> dict[str, Any]:
        """Return the keys of a kernel whose blocks leave their results beside the one that the last block makes."""
        _, template, values = calls.parts_of(self.call(self.sizes, candidate.template))
        outside = len(values) - len(self.function.parameters)  # sizes of the file
        passed = ", ".join("parts" if value == "result" else value for _, value in values[outside:])
        self.added = calls.TABLES["launcher"].format(
            name=f"launch_{self.function.name}",
            real=self.element.c_of(self.device.name),
            taken=candidate.threads * found.pop("per_thread", 1),
            kernel=self.function.name + template,
            threads=candidate.threads,
            shared=candidate.shared,
            passed=passed,
        )
        sizes = ", ".join(f"{name}={value}" for name, value in [("n", "n"), *values[:outside]])
        more = ", identity=identity" * bool(self.reals)
        return {"host": f"launch_{self.function.name}({sizes}{more})"} | found

    def least(self, candidate: Candidate) -> dict[str, Any]:
        """Return the keys of the least length that one block takes, of a kernel that is given none, or of a grid."""
        if not self.function.flat:
            x, y = candidate.block[:2]
            return covering(x, x if self.function.looped else y) | (
                {} if self.function.guarded else {"multiples": {"n": max(x, y) ** 2}}
            )
        why, found = self.why, {}
        for per_thread in (1, 2, 4, 8, 16) if not self.integers else ():
            n = candidate.threads * per_thread
            if self.run(candidate, n, 1) is not None or "out of bounds" not in self.why:
                found = {"per_thread": per_thread, "multiples": {"n": n}}
                break
        self.why = why
        return found

    def only(self, n: int) -> dict[str, Any]:
        """Return the keys of the length that one block takes; of any less, if it checks."""
        return {key: {"n": n} for key in LIMITS[bool(self.integers) and self.function.guarded :]}

    def refused(self) -> dict[str, Any]:
        sizes = "|".join(each.name for each in self.integers)
        factor = re.compile(rf"\*({sizes})\b|\b({sizes})\*")
        read = elements(self.kernel.source, self.function.name)[0] if sizes and self.kind == "reduction" else ()
        if any(self.operands.get(name) == "x" and factor.search(index) for name, index in read):
            raise OtherOperation(
                f"{self.path.name}: {self.function.name} reads a matrix, as {sizes} is a factor in its index; allowed: "
                "sums, minima and maxima of vectors"
            )
        if self.likely and not multiplies(self.function):
            self.guessed = True
            return self.likely
        raise NotAdopted(
            f"{self.path.name}: no launch of {self.function} gave the result of a {self.kind} in trials on the "
            f"host{self.last_trial()}; give call and block in a head"
        )

    def lengths(self) -> list[tuple[str, ...]]:
        """Return what the integers may be, the most likely first: the length, or the number of parts of it."""
        if not self.function.flat or len(self.integers) > 1:  # rows and columns
            return [("sqrt(n)",) * len(self.integers)]
        names = [re.escape(each.name) for each in self.integers]
        found = ["n"]
        if any(re.search(rf"\b({x}) *\* *\1\b", self.body) for x in names):
            found.insert(0, "sqrt(n)")
        if any(re.search(rf"\b{x} *\* *(grid|block)Dim", self.body) for x in names):  # of each thread
            found.insert(0, "n / (gridDim.x * blockDim.x)")
        if width := re.search(r"[a-z](\d)$", self.arrays[0].type.removesuffix("_t")):  # of float4 and its like
            found.insert(0, f"n / {width[1]}")
        return [(each,) * len(self.integers) for each in found] if self.integers else [()]

    def run(
        self, candidate: Candidate, n: int, *grid: int, initial: float | None = None, sign: int = 1
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Return two inputs, and the results after a launch; None if it failed."""
        rng = np.random.default_rng(0)
        drawn = [(sign * rng.integers(2, 9, n)).astype(np.float32) for _ in range(2)]
        for each in drawn:  # the last element is the extreme: a block that does not reach it is wrong
            each[-1] = sign * (1 if self.operation.name == "minimum" else 9)
        x, y = (on_device(self.element.stored(each).astype(self.element.storage)) for each in drawn)
        size = max(n, grid[0]) if self.kind != "reduction" else max(grid[0], 1)
        out = on_device(np.full(size, self.initial if initial is None else initial, self.element.storage))
        real, length = self.element.storage.type, np.uint64(n)
        arguments = {
            "reduction": (x, length, out, real(0)),
            "vector_add": (x, y, out, length),
            "copy": (x, out, length, real(1)),
        }[self.kind]
        out = {"x": x, "y": y}[self.overwrites] if self.in_place else out
        found = self.attempt(candidate, arguments, out, grid)
        return None if found is None else (x, y, found)

    def right(self, trial: tuple[np.ndarray, np.ndarray, np.ndarray], n: int) -> bool:
        """Return whether n elements of a trial are right; of a reduction, also note its operation."""
        x, y, out = (each[:n] for each in trial)
        if self.kind != "reduction":
            return np.array_equal(out, x + y if self.kind == "vector_add" else x)
        parts = trial[2][:1] if self.combined(trial) else trial[2]
        if self.reduced(x, parts):
            return True
        counts = "atomic" in self.body or "fetch_add" in self.body  # the blocks that have ended
        if self.kind == "reduction" and counts and len(parts) > 1 and self.reduced(x, parts[:1]):
            self.of_last = True
            return True
        if parts.sum() == (x * x).sum() or (n > 1 and parts.sum() == x.mean()):
            raise self.is_other("the sum of the squares" if parts.sum() > x.sum() else "the mean")
        return False

    def reduced(self, x: np.ndarray, parts: np.ndarray) -> bool:
        """Return whether results of blocks give the sum or an extreme of a vector, and note which."""
        if parts.sum() == x.sum():
            self.operation = OPERATIONS["sum"]
            return True
        for name, function, neutral in (("maximum", np.max, parts < 0), ("minimum", np.min, parts > ABOVE)):
            if function(parts) == function(x) and (np.isin(parts, x) | neutral).all():
                self.operation = OPERATIONS[name]
                return True
        return False

    def combined(self, trial: tuple[np.ndarray, np.ndarray, np.ndarray]) -> bool:
        """Return whether the blocks of a reduction combined their results into the first one."""
        return self.in_place or not (trial[2][1:] != self.initial).any()

    def wrong(self) -> None:
        self.why = f"{WRONG} of {self.operation.name}"

    def check_other(self, trial: tuple[np.ndarray, np.ndarray, np.ndarray], initial: float = 0) -> None:
        """Raise an error for a kernel of vectors that computes something else."""
        x, y, out = trial
        side = math.isqrt(len(x))
        square = self.kind == "copy" and len(out) == len(x) == side**2
        if square and np.array_equal(out.reshape(side, side), x.reshape(side, side).T):
            raise self.is_other("the transpose of a matrix")
        if self.kind != "vector_add":
            part = np.flatnonzero(out[: len(x)])
            images = [set(out[part][x[part] == each]) for each in set(x[part])]  # of equal elements
            mapped = len(part) > 2 * ABOVE and all(len(each) == 1 for each in images)
            if mapped and not initial and not np.array_equal(out[part], x[part]):
                raise self.is_other("a function of each element")
            if initial and np.array_equal(out[: len(x)], x + self.element.storage.type(initial)):
                raise OtherOperation(
                    f"{self.path.name}: {self.function.name} computes y = x + y in place: state call and overwrites: y "
                    "in a head"
                )
            return
        written = np.flatnonzero(out)
        added = np.array_equal(out[written], (x + y)[written])
        if not (added or initial) and out.sum() in np.cumsum(x * y)[1:] and len(written) < len(x) / 16:
            raise self.is_other("the dot product of two vectors")
        for what, other in (("products", x * y), ("differences", x - y), ("multiples", x * y[0])):
            named = what == "differences" and ADDITION.search(self.function.name)  # then it is a wrong addition
            if len(written) > 1 and not named and np.array_equal(out[written], other[written]):
                raise self.is_other(f"the {what} of elements")

    def taken(self, first: tuple[np.ndarray, np.ndarray, np.ndarray], threads: int) -> int:
        """Return how many elements one block took; 0 if that is no multiple of its threads."""
        x, y, out = first
        if self.kind == "reduction":  # a sum shows it
            sums = np.flatnonzero(np.cumsum(x) == out[0]) + 1
            return int(sums[0]) if len(sums) and not sums[0] % threads else len(x)
        self.check_other(first)
        # none: it may compare the grid with the length
        count = int(np.count_nonzero(out != y if self.in_place else out)) or threads
        return 0 if count % threads else count

    def measured(self, candidate: Candidate) -> dict[str, Any] | None:
        """Return the keys of a launch whose blocks take equal parts of vectors; None if it is wrong."""
        threads, reduces = candidate.threads, self.kind == "reduction"
        for length in LENGTHS:
            first = self.run(candidate, length, 1)
            if first is None:
                return None
            taken = self.taken(first, threads)
            if not taken:
                return self.wrong()
            if taken < length or (length > LENGTHS[0] and (self.function.strides or "blockIdx" not in self.body)):
                break
        if taken == length > LENGTHS[1]:  # and a grid of such blocks takes long
            taken = length = LENGTHS[1]
        alone = taken == length and "blockIdx" not in self.body  # one block for any length
        alone = alone and (reduces or not self.function.strides)  # a copy that uses gridDim means several
        if alone and self.right(first, length):
            return {"max_blocks": 1, **(self.combines(candidate, first, 1) if reduces else {})}
        if alone and reduces:
            taken = threads  # or more, which no extreme shows
        per_thread = max(1, taken // threads) if taken < length else 1
        n = length - length % (threads * per_thread)
        blocks = max(1 + reduces, n // (threads * per_thread))
        whole = self.run(candidate, n, blocks)
        if not whole or not self.right(whole, n):
            if whole and self.in_place and reduces and whole[2][:: n // blocks].sum() == whole[0].sum():
                raise NoKernel(
                    f"{self.path.name}: each block of {self.function.name} leaves its result in its own part of "
                    f"{self.arrays[0].name}, and nothing adds these; allowed: one result, or an array of results"
                )
            grid, given = self.own_launch(self.sizes, candidate.template)
            launched = given.get("n", length if self.integers and grid != ["1"] else taken)
            if launched <= taken < length and "blockIdx" not in self.body and self.right(first, taken):
                return {"per_thread": per_thread, **self.only(taken)}
            return self.wrong() if whole else None
        keys: dict[str, Any] = {"per_thread": per_thread} if per_thread > 1 else {}
        keys |= self.multiples(candidate, threads * per_thread)
        if reduces:
            keys |= self.combines(candidate, whole, blocks)
        elif self.kind == "copy" and (again := self.run(candidate, n, blocks, initial=5)):
            self.check_other(again, 5)
        if not reduces and not self.function.strides and "n" in self.sizes:
            own = self.own_grid(self.sizes, candidate.template, [f"ceil(n / {threads * per_thread})"])
            keys |= {"grid": own} if own else {}
        return keys

    def combines(self, candidate: Candidate, whole: tuple[np.ndarray, np.ndarray, np.ndarray], blocks: int) -> dict:
        """Return the keys of a right reduction whose blocks combine their results into the first one, else none."""
        name, n = self.operation.name, len(whole[0])
        turned = self.run(candidate, n, blocks, sign=-1) if name in EXTREMES else None
        if turned and np.array_equal(turned[2], whole[2]):
            raise self.is_other(f"the {name} of the absolute values")
        if not self.combined(whole):
            return {}
        extreme = {"maximum": ABOVE, "minimum": -ABOVE}.get(name)
        other = self.run(candidate, n, blocks, initial=extreme or ABOVE)
        added = other and other[2][0] == (extreme or whole[2][0] + ABOVE)
        return {"one_launch": True} | ({"adds": True} if added else {})

    def covers(self, candidate: Candidate) -> dict[str, Any] | None:
        """Return the keys of a launch in x and y over vectors that are square matrices; None if it is wrong."""
        x, y = candidate.block[:2]
        if "blockIdx" not in self.body and (trial := self.run(candidate, x * y, 1, 1)) and self.right(trial, x * y):
            return {"square": True, "grid": [1, 1], **self.only(x * y)}
        for columns, rows in dict.fromkeys(((x, y), (x, x), (y, x), (y, y))):
            tile = max(columns, rows)
            for side in (31, *(() if self.function.guarded else (2 * tile,))):  # without bounds checks, multiples
                trial = self.run(candidate, side**2, -(-side // columns), -(-side // rows))
                if trial is None or not self.right(trial, side**2):
                    continue
                return covering(columns, rows) | ({} if side == 31 else {"multiples": {"n": tile**2}})
            if trial:
                self.check_other(trial)
            for side in sorted({int(each) for each in ROW.findall(self.body)}):  # of rows whose length is a number
                whole = self.run(candidate, side**2, -(-side // columns), -(-side // rows))
                if whole and self.right(whole, side**2):
                    return covering(columns, rows) | self.only(side**2)
        return self.wrong() if trial else None

    def multiples(self, candidate: Candidate, taken: int) -> dict[str, Any]:
        """Return the key ``multiples`` of the length: the elements of a block or of a vector access; empty for any."""
        checks = bool(self.integers) and (self.function.guarded or (self.function.looped and self.kind != "reduction"))
        checks = (checks or self.function.remainders) and "gridDim" not in "".join(self.sizes)
        launched = self.own_launch(self.sizes, candidate.template)[1].get("n", 0)  # of no multiple: they are none
        wide = WIDTHS if WIDE.search(self.body) and not self.function.remainders else ()
        for each in (1, *wide, *(() if checks else (taken,))):
            n = each * -(-RAGGED // each)
            trial = self.run(candidate, n, -(-n // taken))
            self.any_size = each == 1 and trial is not None and self.right(trial, n)
            if trial is not None and self.right(trial, n):
                return {"multiples": {"n": each}} if each > 1 and not launched % each else {}
        return {} if checks or launched % taken else {"multiples": {"n": taken}}


def covering(columns: int, rows: int) -> dict[str, Any]:
    """Return the keys of a grid of blocks over a square matrix."""
    return {"square": True, "grid": [f"ceil(root / {columns})", f"ceil(root / {rows})"]}
