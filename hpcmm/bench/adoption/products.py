"""The search for the head of a product of matrices.

A block runs alone first: the elements of C that it writes are its tile, and a second block in x or y shows the
direction of the grid. Products of small matrices of three different sizes then decide the arguments.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hpcmm.backends.emulated.launch import on_device
from hpcmm.bench.adoption.search import (
    WIDE,
    WRONG,
    Candidate,
    Compiled,
    Kernel,
    NotAdopted,
    OtherOperation,
    Search,
)
from hpcmm.bench.adoption.signatures import SLOTS, assignments, hint
from hpcmm.bench.adoption.trials import LEAST, least_multiples
from hpcmm.experiment.calls import default_scalars
from hpcmm.experiment.functions import RETURNED
from hpcmm.experiment.hosted import PREFIXES
from hpcmm.experiment.returning import NAMES

SIDES = (64, 128, 256)  # of square matrices in which a block runs alone
SIDES_ON_CPU = (16, 128, 240)  # divide the sizes of trials on the CPU
ALPHA, BETA = 2.0, 3.0  # of trials
TOLERANCES = {"float64": 1e-9, "float32": 1e-4}  # ... and of an element over the root of k; else
COARSE = 3e-2
TRANSPOSED = re.compile(r"(_|gemm)(nt|tn|t)$|trans|linear|backward", re.IGNORECASE)  # names of products of transposes
# Types to which a kernel of float32 rounds A and B, by words of its text
ROUNDED = {"TF32": "tf32", "FP16 inputs": r"\b(__)?half2?\b|float2half", "BF16 inputs": "bfloat16|bf16"}
OF_VECTOR = re.compile(r"gemv|mat\w*vec|(^|_)mv", re.IGNORECASE)  # names of products of a matrix and a vector
PART = re.compile(r"(^|_)(start|begin|offset|chunk|first|last|rank|tile|step)|(Start|Begin|Offset)$")  # integers
BY_THREADS = re.compile(r"\bstd::(thread|jthread|async)\b|pthread_create|omp_get_(num|max)_threads")
MOST_OF = 0.98  # of a tile of elements with few values that changed


@dataclasses.dataclass(frozen=True)
class Trial:
    """A product that a kernel computed: its shape, A, B, C before and after, and the beta that it received."""

    shape: tuple[int, int, int]
    a: np.ndarray
    b: np.ndarray
    before: np.ndarray
    after: np.ndarray
    beta: float


class ProductSearch(Search):
    """The search for the head of a product. ``columns``: whether trials pass leading dimensions of columns."""

    def __init__(self, kernel: Kernel, kind: str):
        super().__init__(kernel, kind)
        self.columns, self.by_columns = False, False  # the latter: also if most elements of C are right by columns
        self.other = ""  # what a trial computed instead
        rounded = (name for name, pattern in ROUNDED.items() if re.search(pattern, self.body, re.IGNORECASE))
        self.arithmetic = next(rounded, "") if self.dtype == "float32" else ""
        self.ways = assignments(self.integers)
        self.of_vector = bool(OF_VECTOR.search(self.function.name))
        # dimensions of size 1 to try, if any: a vector has one column, or one row
        self.ones = ("n", "m") if self.of_vector else ("", *("nm" if len(self.integers) < 3 else ""))
        # whether matrices are arrays of rows, whose addresses follow from the sizes themselves
        self.of_rows = RETURNED in self.function.written
        self.of_rows |= any(each.pointers == 2 or each.structure or each.vector for each in self.arrays)

    def named(self, inputs: list[str], written: str) -> dict[str, str]:
        if [PREFIXES.sub("", each.lower())[:1] for each in inputs] == ["b", "a"]:
            inputs.reverse()
        return dict(zip([*inputs, written], "ABC", strict=True))

    def called(self, run: Compiled, template: str) -> dict[str, Any]:
        for side in SIDES_ON_CPU:
            candidate = Candidate(run, template, rows=side, columns=side)
            self.likely = self.likely or self.unproven(candidate)
            for one in self.ones:
                if found := self.proven(candidate, one):
                    return found
                self.reason = self.reason or self.why  # of the most plausible arguments
        return self.refused()

    def launched(self, run: Compiled, template: str) -> dict[str, Any] | None:
        for block, shared in self.blocks(template):
            candidate = Candidate(run, template, block, shared)
            if "blockIdx" not in self.body and (found := self.alone(candidate)):
                return found
            self.likely = self.likely or self.unproven(candidate)
            for one in self.ones:
                for each in self.by_vector(candidate, one) if one else self.tiles(candidate):
                    if not self.ran:
                        self.ran, self.likely = True, self.unproven(each)
                    if found := self.proven(each, one):
                        return found
        return None

    def by_vector(self, candidate: Candidate, one: str) -> Iterator[Candidate]:
        """Yield the launch of a product with a vector, from what one block writes, if it does not fail."""
        shape = tuple(1 if each == one else max(SIDES) for each in "mnk")
        trial = self.multiply(candidate, self.ways_of(one)[0], shape, (1,))
        count = 0 if trial is None else int(np.count_nonzero(trial.before != trial.after))
        count = candidate.threads if count == max(SIDES) else count
        if count and one == "n":
            yield replace(candidate, rows=count, grid=(f"ceil(m / {count})",))
        elif count:
            yield replace(candidate, columns=count, grid=(f"ceil(n / {count})",))

    def ways_of(self, one: str) -> list[tuple[str, ...]]:
        """Return which size each integer may be; a product with a vector, whose dimension ``one`` is 1, has no such."""
        ways = (tuple("k" if each == one else each for each in way) for way in self.ways)
        return list(dict.fromkeys(ways))

    def alone(self, candidate: Candidate) -> dict[str, Any] | None:
        """Return the head of a block that computes a whole product; None if it does not."""
        whole = replace(candidate, rows=min(SIDES_ON_CPU), columns=min(SIDES_ON_CPU), grid=("1", "1"))
        if found := self.proven(whole):  # of any size
            return found
        side = candidate.block[0]
        keys = self.meaning(self.multiply(whole, self.ways[0], (side,) * 3))
        if keys is None or candidate.threads != side**2:
            return None
        only = dict.fromkeys("mnk", side)
        return self.described(whole, self.ways[0], keys | {"square": True, "least": only, "most": only})

    def refused(self) -> dict[str, Any]:
        self.check_other()
        products = {name for name in self.kernel.source.functions if re.search(NAMES["matmul"], name.lower())}
        beside = products and self.function.name not in products and not self.of_vector
        if self.likely and self.stated() and not beside:
            self.guessed = True
            return self.likely | ({"layout": "columns"} if self.by_columns else {})
        why = self.last_trial()
        unknown = self.function.dynamic and "of shared memory" in why  # its bytes
        # of a product, which needs more to be one
        parts = any(PART.search(each.name) for each in self.integers) or self.of_fixed_rows()
        keys = "call, block and grid" if self.device.accelerator else "call"
        error = (OtherOperation if beside else NotAdopted)(
            f"{self.path.name}: {self.function} gave no C = A B in trials on the host{why}; give "
            f"{'shared_bytes, ' * unknown}{keys} in a head"
        )
        error.tested = not (unknown or parts or beside)
        raise error

    def of_fixed_rows(self) -> bool:
        """Return whether a product with a vector may have a number of columns that is a constant of the file."""
        fixed = (re.search(rf"<\s*{each}\b", self.body) for each in self.kernel.source.constants())
        return self.of_vector and len(self.integers) == 1 and any(fixed)

    def stated(self) -> bool:
        """Return whether names or the file's launch state the arguments, so that a kernel may be judged as wrong."""
        named = [hint(each.name) for each in self.integers] == list(self.ways[0]) or len(self.integers) == 1
        if not (self.function.multiplies or "mma" in self.kernel.text) or self.of_fixed_rows():
            return False
        launched = any(site.function == self.function.name for site in self.kernel.source.launches)
        return named or launched or "block" in self.kernel.given

    def mixes(self, candidate: Candidate, shape: tuple[int, int, int]) -> bool:
        """Return whether a kernel that is right for square matrices only, such as of ``shape``, is wrong.

        So is one that receives m, n and k. One of two sizes may be that of a tile, or two dimensions may have one size.
        """
        if set("mnk") <= set(self.ways[0]) or all(each.structure for each in self.arrays):
            lengths = re.search(r"[\])]\.size\(|\.front\(", self.body)  # of rows, beside their number
            return not all(each.vector for each in self.arrays) or bool(lengths)
        if len(self.integers) != 2 or self.of_rows:
            return False
        m, n, k = (each + self.function.guarded for each in oblong(candidate))
        partly = itertools.product(self.ways, ((m, n, n), (m, n, m), (m, m, k)))
        tried = [*partly, (("n", "half"), shape), (("half", "n"), shape)]
        return all(self.meaning(self.multiply(candidate, way, one)) is None for way, one in tried)

    # --- products

    def multiply(
        self,
        candidate: Candidate,
        way: Sequence[str],
        shape: tuple[int, int, int],
        grid: Sequence[int] = (),
        fill: float | None = None,
    ) -> Trial | None:
        """Multiply matrices of a shape by a kernel; None if it failed.

        By default the grid covers C. With ``fill``, C holds this value before, and beta is 0.
        """
        if self.of_rows and not self.device.accelerator:
            candidate = replace(candidate, run=self.compiled(candidate.template, way))
        sizes = dict(zip("mnk", shape, strict=True))
        m, n, k = shape
        sizes |= {"half": m // 2}
        sizes |= dict(zip(("lda", "ldb", "ldc"), (m, k, m) if self.columns else (k, n, n), strict=True))
        values = [sizes[each] for each in (SLOTS if self.of_rows else way) if each in sizes]
        slots = dict(zip(SLOTS, map(np.int32, [*values, *[0] * len(SLOTS)]), strict=False))
        rng = np.random.default_rng(0)
        drawn = [rng.uniform(-1, 1, size).astype(np.float32) for size in (m * k, k * n, m * n)]
        if self.element.is_integer:
            drawn = [np.round(9 * each) for each in drawn]
        types = self.element, self.element, self.element.results
        a, b, before = (of.stored(each).astype(of.storage) for of, each in zip(types, drawn, strict=True))
        beta = BETA if fill is None else 0.0
        if fill is not None:
            before[...] = fill
        x, y, z = map(on_device, (a, b, before))
        scalar = self.element.sums.storage.type
        arguments = (
            *(slots["m"], slots["n"], slots["k"], scalar(ALPHA), x, slots["lda"], y, slots["ldb"]),
            *(scalar(beta), z, slots["ldc"]),
        )
        after = self.attempt(candidate, arguments, z, grid or candidate.blocks(shape))
        return None if after is None else Trial(shape, a, b, before, after, beta)

    def meaning(self, trial: Trial | None) -> dict[str, Any] | None:
        """Return the keys that explain a product: layout and whether it adds; None if it is none."""
        if trial is None:
            return None
        m, n, k = trial.shape
        x, y = (self.element.numbers(each).astype(np.float64) for each in (trial.a, trial.b))
        old, new = (self.element.results.numbers(each).astype(np.float64) for each in (trial.before, trial.after))
        old = np.where(np.isnan(old), 0, old)  # not read
        names = self.scalars()
        alpha = ALPHA if "alpha" in names else 1.0
        tolerance = (COARSE if self.arithmetic else TOLERANCES.get(self.dtype, COARSE)) * np.sqrt(k)
        products = {"rows": x.reshape(m, k) @ y.reshape(k, n), "columns": y.reshape(n, k) @ x.reshape(k, m)}
        by_rows, by_columns = (
            max(np.isclose(new, alpha * product.ravel() + beta * old, COARSE, COARSE).sum() for beta in (0.0, 1.0))
            for product in products.values()
        )
        self.by_columns = self.by_columns or by_columns > by_rows
        betas = (trial.beta,) if "beta" in names else (0.0, 1.0)
        with np.errstate(all="ignore"):
            for layout, product in products.items():
                for beta in betas:
                    right = alpha * product.ravel() + beta * old
                    if np.allclose(new, right, tolerance, tolerance):
                        keys = {} if layout == "rows" else {"layout": "columns"}
                        near = 3 * self.element.unit_roundoff
                        narrow = self.element.accumulator and not self.element.result
                        if narrow and not np.allclose(new, right, near, 1e-4):
                            self.arithmetic = "narrow sums"
                        return keys | ({"adds": True} if beta and "beta" not in names else {})
            for stored, by_columns, product in (  # in terms of a C by rows, and by columns
                ("A B'", "A' B", x.reshape(m, k) @ y.reshape(n, k).T),
                ("A' B", "A B'", x.reshape(k, m).T @ y.reshape(k, n)),
                *([("A + B", "A + B", (x + y).reshape(m, n))] if m == n == k else ()),
            ):
                for (turned, name), beta in itertools.product(((product, stored), (product.T, by_columns)), betas):
                    if np.allclose(new, alpha * turned.ravel() + beta * old, tolerance, tolerance):
                        self.other = name
        return None

    def check_other(self) -> None:
        """Raise an error for a kernel that reads one of its matrices by rows and another by columns."""
        if self.other == "A + B":
            raise self.is_other("the sum of two matrices")
        if self.other:
            error = OtherOperation if TRANSPOSED.search(self.function.name) else NotAdopted
            raise error(
                f"{self.path.name}: {self.function.name} computes {self.other}: it reads one matrix by rows and the "
                "other by columns; allowed: A, B and C by rows, or all by columns"
            )

    def proven(self, candidate: Candidate, one: str = "") -> dict[str, Any] | None:
        """Return the head of a launch if it gives a right product; ``one`` is a dimension of size 1."""
        square = tuple(1 if each == one else max(SIDES[0], candidate.rows, candidate.columns) for each in "mnk")
        ways = self.ways_of(one)
        trial = self.multiply(candidate, ways[0], square)
        keys = self.meaning(trial)
        if keys is None:
            self.why = f"{WRONG} of C = A B" if trial else self.why
            return None
        self.columns = keys.get("layout") == "columns"
        if one and len(self.integers) == 1:  # whose other size may be a constant
            larger = tuple(each if each == 1 else 3 * each for each in square)
            if self.meaning(self.multiply(candidate, ways[0], larger)) != keys:
                return None
        if self.columns and not one:
            candidate = transposed(candidate)
        most = {"most": {exchanged(one) if self.columns else one: 1}} if one else {}
        if len(self.integers) != 1:
            shape = tuple(1 if each == one else size for each, size in zip("mnk", oblong(candidate), strict=True))
            for each in ways:
                if self.meaning(self.multiply(candidate, each, shape)) == keys:
                    return self.described(candidate, each, keys | most)
            if one:
                return None
            if self.mixes(candidate, square):
                self.guessed = True
                return self.unproven(candidate)
            keys |= {"square": True}
        return self.described(candidate, ways[0], keys | most)

    # --- the head

    def unproven(self, candidate: Candidate) -> dict[str, Any]:
        """Return the usual head of a kernel for which no trial was right, so that the verdict can say what is wrong."""
        columns, rows = (candidate.columns, candidate.rows) if candidate.grid else (*candidate.block, 1)[:2]
        call = self.call(self.ways_of("n" * self.of_vector)[0], candidate.template)
        found: dict[str, Any] = {"call": call} | ({"most": {"n": 1}} if self.of_vector else {})
        if self.device.accelerator:
            found |= candidate.keys() | {"rows": rows, "columns": columns}
            grid = candidate.grid or ((1, 1) if "blockIdx" not in self.body else ())
            found |= {"grid": list(grid)} if grid else {}
        if names := default_scalars(call):
            found["scalars"] = names
            square = (max(64, rows, columns),) * 3
            drawn, zero = (self.multiply(candidate, self.ways[0], square, fill=each) for each in (None, 0.0))
            adds = drawn and zero and (drawn.after != zero.after)[drawn.before != drawn.after].any()
            found |= {"adds": True} if adds else {}
        if self.device.accelerator and not (self.function.guarded or self.of_vector) and "blockIdx" in self.body:
            least = (rows, columns, max(64, min(rows, columns))) if candidate.grid else (max(64, rows, columns),) * 3
            found["multiples"] = dict(zip("mnk", least, strict=True))
        return found | ({"square": True} if len(self.integers) == 1 else {})

    def described(self, candidate: Candidate, way: Sequence[str], keys: dict[str, Any]) -> dict[str, Any]:
        """Return the head of a launch that gave a right product."""
        square = len(self.integers) == 1 or keys.pop("square", False)
        call = self.call(way, candidate.template)
        found: dict[str, Any] = {"call": call}
        if self.device.accelerator:
            launch = transposed(candidate) if self.columns else candidate  # in terms of the operation's C
            found |= launch.keys()
            if not any("m * n" in each or each == "1" for each in launch.grid):
                found |= {"rows": launch.rows, "columns": launch.columns}
            found["grid"] = list(launch.grid)
        found |= {"scalars": names} if (names := default_scalars(call)) else {}
        found |= keys
        if "beta" in self.scalars():
            trial = self.multiply(
                candidate, way, (128,) * 3 if square else oblong(candidate), fill=self.element.results.poison
            )
            found |= {"reads": True} if trial and self.meaning(trial) is None else {}
        found |= {"arithmetic": self.arithmetic} if self.arithmetic else {}
        found |= {"square": True} if square else {}
        multiples = {} if found.get("least") else self.multiples(candidate, way, square, found.get("most", ()))
        self.any_size = not multiples
        own = tuple(map(exchanged, way)) if self.columns else way  # in terms of the operation's C
        launched = self.own_launch(own, candidate.template)[1]
        if any(size % multiples.get(each, 1) for each, size in launched.items()):
            multiples = {}  # its own sizes are none
        if self.device.accelerator:
            found["grid"] = self.own_grid(own, candidate.template, launch.grid, multiples) or found["grid"]
        return found | ({"multiples": multiples} if multiples else {})

    def multiples(self, candidate: Candidate, way: Sequence[str], square: bool, ones: Iterable[str]) -> dict[str, int]:
        """Return the divisors of the sizes that a kernel without bounds checks takes; empty if it takes any."""
        if self.function.remainders:
            return {}
        # whether it is only the store that is checked
        tiles = self.function.whole_tiles or "load_matrix_sync" in self.kernel.text
        checked = self.function.guarded and not tiles
        if checked and not WIDE.search(self.body):
            return {}
        base, tile, tries = oblong(candidate), (1, 1, 1), [LEAST] * 3
        if candidate.grid:
            base, tile = (*base[:2], 32), (candidate.rows, candidate.columns, 1)
            tries = [(1, max(tile) if square else each, *LEAST) for each in tile]  # most likely the tile or any size
        if checked:
            tries = [LEAST[:4]] * 3  # of one access

        ones = [exchanged(each) if self.columns else each for each in ones]

        def right(shape: tuple[int, ...]) -> bool:
            shape = tuple(1 if each in ones else size for each, size in zip("mnk", shape, strict=True))
            return self.meaning(self.multiply(candidate, way, shape)) is not None

        found = least_multiples(right, base, square, tries)
        found |= dict.fromkeys(ones if found else (), 1)
        if not found and checked:
            return {}
        if self.function.guarded and self.function.whole_tiles:
            ragged = (max(base) + 1,) * 3 if square else tuple(size + 1 for size in base)
            if self.multiply(candidate, way, ragged):  # loads are checked, too: tiles should be rounded up
                return {}
        if not found:
            raise NotAdopted(
                f"{self.path.name}: {self.function.name} is right at few sizes only; give multiples in a head"
            )
        of_rows = square or sorted(found.values())[1] == 1
        if of_rows and BY_THREADS.search(self.body) and not WIDE.search(self.body):
            return {}  # the rest belongs to no thread
        if self.columns:
            found = {exchanged(name): each for name, each in found.items()}
        return {name: found[name] for name in "mnk"} if max(found.values()) > 1 else {}

    # --- the tile of a block

    def tiles(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yield the launch with the tile of a block and the grid that covers C, where they are clear."""
        if found := self.tile(candidate):
            yield replace(candidate, rows=found[0], columns=found[1], grid=found[2])
        if self.function.strides and len(candidate.block) > 1:  # the grid gives the width of a matrix
            columns, rows = candidate.block[:2]
            yield replace(candidate, rows=rows, columns=columns, grid=(f"ceil(n / {columns})", f"ceil(m / {rows})"))

    def tile(self, candidate: Candidate) -> tuple[int, int, tuple[str, ...]] | None:
        """Return the tile of a block, and the grid; None if they are unclear."""
        for side in SIDES:  # a larger tile exceeds the matrix, or fills it
            first = self.written(candidate, side, (1, 1))
            if first is None:
                continue
            if not first.any():
                self.why = "a block writes no element of C"
                return None
            if extents(first) == (side, side):
                if self.function.strides:
                    return 1, candidate.threads, (f"ceil(m * n / {candidate.threads})",)
                continue
            along = [self.written(candidate, side, grid) for grid in ((2, 1), (1, 2))]
            if along[0] is None or along[1] is None:
                continue
            if (found := self.covering(candidate, side, first, *along)) or side not in extents(first):
                return found
        return None

    def written(self, candidate: Candidate, side: int, grid: tuple[int, int]) -> np.ndarray | None:
        """Return which elements of a square C blocks write; None if they fail."""
        trial = self.multiply(candidate, self.ways[0], (side,) * 3, grid)
        return None if trial is None else (trial.before != trial.after).reshape(side, side)

    def covering(
        self, candidate: Candidate, side: int, first: np.ndarray, along_x: np.ndarray, along_y: np.ndarray
    ) -> tuple[int, int, tuple[str, ...]] | None:
        """Return the tile of a block and the grid, from what one block and two of them in x and in y write."""
        rows, columns = extents(first)
        few_values = self.element.results.itemsize < 4 or self.element.is_integer
        if few_values and first[:rows, :columns].mean() > MOST_OF:  # some were equal by chance
            first[:rows, :columns] = True
        flat = int(first.sum())
        whole = 1, flat, (f"ceil(m * n / {flat})",)
        one_row = extents(along_y) == (rows, columns) and np.flatnonzero(first).max() + 1 == flat
        if flat % side and one_row:  # by the index in all of C
            return whole
        if not first[:rows, :columns].all():
            self.why = "a block leaves elements of its tile unwritten"
            return None
        further = [extents(each) for each in (along_x, along_y)]
        if any(
            rows < taller < min(2 * rows, side) or columns < wider < min(2 * columns, side) for taller, wider in further
        ):
            self.why = f"blocks of {candidate.threads} threads write the same elements"
            return None
        x, y = ("m" if taller > rows else "n" if wider > columns else "" for taller, wider in further)
        per = {"m": f"ceil(m / {rows})", "n": f"ceil(n / {columns})"}
        if columns == side and rows < side and flat == candidate.threads and x == "m":
            return whole
        if x and y and x != y:
            return rows, columns, (per[x], per[y])
        if columns == side and x == "m":
            wider = self.written(candidate, 2 * side, (1, 1))  # whole rows, or as many elements of longer ones
            return whole if wider is not None and MOST_OF < wider.sum() / flat <= 1 else (rows, 1, (per["m"],))
        if rows == side and x == "n":
            return 1, columns, (per["n"],)
        if x and not y:  # blocks of all tiles along x
            return rows, columns, (f"{per['m']} * {per['n']}",)
        self.why = f"a block writes {rows} x {columns} elements of C, two blocks do not write twice as many"
        return None


def oblong(candidate: Candidate) -> tuple[int, int, int]:
    """Return a shape of three sizes that the tile of a launch divides; k is a multiple of 32, 64 or 128."""
    rows, columns = candidate.rows, candidate.columns
    m = rows * -(-32 // rows)
    n = columns * -(-32 // columns)
    n *= 1 + (m == n)
    k = 3 * min(max(32, min(rows, columns)), 64 if candidate.grid else max(SIDES_ON_CPU))
    return m, n, 2 * k if k in (m, n) else k


def extents(written: np.ndarray) -> tuple[int, int]:
    """Return the rows and columns from the first element to the last one that is set."""
    rows, columns = np.nonzero(written)
    return (int(rows.max()) + 1, int(columns.max()) + 1) if len(rows) else (0, 0)


def transposed(candidate: Candidate) -> Candidate:
    """Return the launch in terms of the transpose of C."""
    grid = tuple(map(exchanged, candidate.grid))
    return replace(candidate, rows=candidate.columns, columns=candidate.rows, grid=grid)


def exchanged(text: str) -> str:
    return re.sub(r"\b[mn]\b", lambda x: {"m": "n", "n": "m"}[x[0]], text)
