"""Pick the rung of a product: the one with the shortest predicted time.

The predictions use the shape, the type, whether C is read (beta != 0) and the SM count of the GPU, so the same product
always runs on the same rung of a GPU. Their constants are fits to times of an H200, in float64 mostly of an H100,
without the launch of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hpcmm.model import Picks, Task, Variant
from hpcmm.operations import choice, tables
from hpcmm.operations.builds import Build
from hpcmm.operations.split_k import MAX_NARROW
from hpcmm.operations.tma import aligned

BYTES_PER_SECOND = 4.6e12  # rate that reads of the memory reached


def seconds_to_read_c(task: Task) -> float:
    """Return the seconds that reading C takes at the rate of the memory; 0 if beta is 0."""
    m, n, _ = task.shape
    return m * n * task.element.itemsize / BYTES_PER_SECOND if task.scalars.get("beta") else 0.0


class Model:
    """Predicts the time of a rung."""

    def seconds(self, task: Task) -> float:
        """Return the predicted seconds of a task."""
        raise NotImplementedError

    def able(self, task: Task) -> bool:
        """Return whether the prediction holds, so that the rung may be picked by it."""
        return True


@dataclass(frozen=True)
class Waves(Model):
    """The model of a rung with one tile of C per block.

    Parameters
    ----------
    rate : float
        Multiply-adds per second of an SM in the mainloop.
    overhead : float
        Seconds of prologue and epilogue per wave.
    resident : int
        Blocks per SM.
    partial : float
        Time of a mainloop, relative to the others, if tiles at the edges of C are partial.
    unaligned : float
        The same if rows of A or B do not start at multiples of 16 bytes.
    alone : float
        Time of a block that is alone on its SM, relative to its share of the time of ``resident`` blocks.
    exposed : float
        Time that reading C adds, relative to the time at the rate of the memory.
    """

    rate: float
    overhead: float
    resident: int = 1
    partial: float = 1.0
    unaligned: float = 1.0
    alone: float = 1.0
    exposed: float = 0.0

    def seconds(self, task: Task) -> float:
        m, n, k = task.shape
        rows, columns = task.geometry.covered(task)
        blocks = math.prod(task.geometry.over_c(task))
        waves, rest = divmod(-(-blocks // task.sms), self.resident)  # of the SM with the most blocks
        of_sm = waves * self.resident + (max(rest, self.alone) if rest else 0)
        mainloop = of_sm * rows * columns * k / self.rate
        if not aligned(task, n, k):
            mainloop *= self.unaligned
        elif m % rows or n % columns:
            mainloop *= self.partial
        seconds = mainloop + (waves + (rest > 0)) * self.overhead + self.exposed * seconds_to_read_c(task)
        return max(seconds, task.bytes / BYTES_PER_SECOND)


@dataclass(frozen=True)
class SharedTiles(Model):
    """The model of a rung whose blocks divide the steps of tiles (stream-K).

    Parameters
    ----------
    rate : float
        Multiply-adds per second of an SM in the mainloop.
    overhead : float
        Seconds of prologue and epilogue per tile of a block.
    fix_up : float
        Seconds for adding up the parts of a tile, if tiles are divided.
    """

    rate: float
    overhead: float
    fix_up: float

    def seconds(self, task: Task) -> float:
        geometry = task.geometry
        depth, tiles = geometry.phase(task).depth, math.prod(geometry.over_c(task))
        steps, blocks = max(1, -(-task.shape[2] // depth)), max(1, *geometry.blocks(task))
        divided = tiles % blocks > 0
        waves = -(-tiles // min(blocks, task.sms))
        of_block = -(-tiles * steps // blocks) if divided else waves * steps
        mainloop = of_block * math.prod(geometry.covered(task)) * depth / self.rate
        seconds = mainloop + waves * self.overhead + divided * self.fix_up
        return max(seconds, task.bytes / BYTES_PER_SECOND)


@dataclass(frozen=True)
class OwnPrediction(Model):
    """The model of a rung whose geometry predicts its time, to choose a tile.

    Parameters
    ----------
    overhead : float
        Seconds that the prediction lacks, for every tile.
    exposed : float
        Time that reading C adds, relative to the time at the rate of the memory.
    wait : float
        Seconds that blocks wait for C, if it is read.
    max_terms : int, optional
        The rung is not picked for longer sums: its blocks share less in the L2 cache than those of other rungs.
    """

    overhead: float = 0.0
    exposed: float = 0.0
    wait: float = 0.0
    max_terms: int | None = None

    def seconds(self, task: Task) -> float:
        reading = seconds_to_read_c(task)
        seconds = task.geometry.seconds(task) + self.overhead + self.exposed * reading + self.wait * (reading > 0)
        least = task.bytes / BYTES_PER_SECOND
        return max(seconds, least + 0.01 * (seconds - least))  # of two that memory limits, the smaller prediction

    def able(self, task: Task) -> bool:
        return self.max_terms is None or task.shape[2] <= self.max_terms


@dataclass(frozen=True)
class Narrow(Model):
    """The model of a rung for few rows or columns, which reads the large operand once for each row of tiles.

    Parameters
    ----------
    bytes_per_second : float
        Rate of the loads of the large operand.
    overhead : float
        Seconds of prologue and epilogue per wave of blocks.
    max_rows, max_columns : int
        The rung is not picked for more rows and more columns of C.
    """

    bytes_per_second: float
    overhead: float
    max_rows: int = MAX_NARROW
    max_columns: int = MAX_NARROW

    def seconds(self, task: Task) -> float:
        m, n, k = task.shape
        tile, parts = task.geometry.chosen(task)
        waves = -(-math.prod(task.geometry.over_c(task)) * parts // (task.sms * tile.resident))
        passes, large = (-(-m // tile.rows), n) if tile.few_rows else (-(-n // tile.columns), m)
        return waves * self.overhead + passes * large * k * task.element.itemsize / self.bytes_per_second

    def able(self, task: Task) -> bool:
        m, n, _ = task.shape
        return m <= self.max_rows or n <= self.max_columns


@dataclass(frozen=True)
class Fastest(Picks):
    """Picks the rung with the shortest predicted time; of several, the first.

    Parameters
    ----------
    models : mapping of str to mapping of str to Model
        By element type and rung.
    sustained : mapping of str to float
        Operations per second at the power limit of the GPU, by element type. A rung that would be faster at the maximum
        clock lowers the clock. Types without a value are not limited.
    """

    models: Mapping[str, Mapping[str, Model]]
    sustained: Mapping[str, float] = field(default_factory=dict)

    def rungs(self, dtype: str) -> tuple[str, ...]:
        return tuple(self.models[dtype])

    def seconds(self, task: Task) -> dict[str, float]:
        """Return the predicted seconds of each rung for a task."""
        models = self.models[task.dtype]
        tasks = {name: replace(task, variant=task.operation.variant(name)) for name in models}
        least = task.flops / self.sustained.get(task.dtype, math.inf)
        return {
            name: max(model.seconds(tasks[name]), least) if model.able(tasks[name]) else math.inf
            for name, model in models.items()
        }

    def rung(self, task: Task) -> str:
        if not task.shape:
            return self.rungs(task.dtype)[0]
        seconds = self.seconds(task)
        return min(seconds, key=seconds.__getitem__)


class Measured(Fastest):
    """The same, corrected by measured times: the tables of the GPU choose the build of a kernel (``choice``)."""

    def build(self, task: Task) -> Build | None:
        """Return the build that tables choose; none if the models choose."""
        if not (task.shape and task.gpu):
            return None
        version = tables.version(task.gpu)
        key = task.operation.name, task.variant.name, task.shape, task.dtype, choice.reads_c(task), task.gpu, task.sms
        if (version, key) not in _builds:
            by_models = replace(task, variant=super().variant(task))
            name = ", ".join(filter(None, (by_models.variant.name, by_models.geometry.pick(by_models))))
            _builds[version, key] = choice.chosen(task, name, self.seconds_of_build)
        return _builds[version, key]

    def seconds_of_build(self, task: Task) -> float:
        """Return the predicted seconds of a build of a rung."""
        return self.models[task.dtype][task.variant.name].seconds(task)

    def variant(self, task: Task) -> Variant:
        build = self.build(task)
        return build.task.variant if build else super().variant(task)

    def by(self, task: Task) -> str:
        return "by table" if self.build(task) else ""

    def times(self, dtype: str) -> list:
        return tables.of_type(dtype, choice.OTHERS.get(dtype))


_builds: dict[tuple, Build | None] = {}  # chosen before
