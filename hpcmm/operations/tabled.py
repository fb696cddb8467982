"""Blocks whose tile of C, and the division of its terms, are those of a table: ``matmul_tiles.yaml``."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hpcmm.model import Task
from hpcmm.model.launch import Boxes, Launch, Workspace
from hpcmm.model.records import beside
from hpcmm.operations import choice, trials
from hpcmm.operations.blocks import OverC, Staged, of_type
from hpcmm.operations.copies import copied, copied_rows, may_overlap
from hpcmm.operations.heads import MOST, number
from hpcmm.operations.waves import Work, resident_blocks

TABLE = beside(__file__, "matmul_tiles.yaml")
MIN_SAVED_STEPS = 4  # minimum steps per block that dividing tiles must save, because the parts must be added up
MIN_STEPS = 2  # minimum steps of a part of a tile
NEAR = 4  # launches between two blocks that share reads of the L2 cache, at most; measured on an H200
CACHED_BYTES = 100e6  # of A and B, twice the L2 cache of an H100 or H200; beyond, most reads are from memory


def stream_k(tiles: int, steps: int, most: int) -> int:
    """Return the number of blocks for ``tiles`` tiles of ``steps`` steps each, if at most ``most`` are resident.

    There is one block per tile if dividing tiles saves less than adding up the parts costs. Otherwise the blocks divide
    the tiles so that no resident block is idle.
    """
    idle = -tiles % most  # idle blocks in the last wave if no tile is divided
    if idle * steps <= MIN_SAVED_STEPS * most:
        return tiles
    return min(most, max(tiles, tiles * steps // MIN_STEPS))


def alike(tiles: int, steps: int, most: int) -> int:
    """Return the number of blocks if all tiles are divided among the resident blocks."""
    return max(1, min(most // tiles * tiles if 2 * tiles <= most else most, tiles * steps))


def groups(tiles: int, steps: int, slices: int, parts: int, most: int) -> int:
    """Return the clusters of ``parts`` blocks that divide a tile of ``steps`` steps, if at most ``most`` blocks run.

    >>> groups(3, 476, 1, 8, 132), groups(3, 476, 1, 8, 60), groups(3, 40, 1, 8, 132)
    (5, 2, 2)
    """
    return max(1, min(resident_blocks(parts, most) // parts // max(tiles, 1), steps // (MIN_STEPS * slices * parts)))


def even(tiles: int, most: int) -> int:
    """Return the least number of blocks that compute so many tiles in as few waves as ``most`` blocks.

    Idle SMs free power for the busy ones. On an H200, TF32 at 8192 is 2 % faster on 128 SMs than on 132.

    >>> even(512, 132), even(100, 132)
    (128, 100)
    """
    return -(-tiles // -(-tiles // most))


def near(tiles_of_n: int, most: int = NEAR) -> int:
    """Return the rows of tiles in a group of the rasterization order, for blocks that are not in clusters.

    Blocks reuse a tile of A from L2 only if they are launched within ``NEAR`` of each other. With fewer columns of
    tiles, blocks that share a tile of B are as near.
    """
    return max(1, min(most, tiles_of_n // 2))


def beyond_cache(bytes_of_factors: int, tiles_of_n: int, rows: int) -> int:
    """Return twice as many rows of tiles in a group of the rasterization order if A and B exceed ``CACHED_BYTES``.

    Waves of tiles then read less of B from memory. A narrow C keeps ``rows``.
    """
    return 2 * rows if bytes_of_factors > CACHED_BYTES and tiles_of_n >= 4 * rows else rows


def fitted(m: int, tiles_of_n: int, most: int, columns: int, sms: int, multiple: int = 16) -> int:
    """Return the rows of tiles with which the SM with the most tiles takes the least time.

    They are a multiple of ``multiple``, at most ``most``; of several, the largest. The time of a tile is proportional
    to its rows and half its columns: narrow tiles load more for each product.

    >>> fitted(133, 117, 192, 192, 132), fitted(2048, 20, 256, 128, 132), fitted(245, 38, 128, 64, 132, 8)
    (144, 160, 88)
    """

    def time(rows: int) -> int:
        return -(-(-(-m // rows) * tiles_of_n) // sms) * (2 * rows + columns)

    return min(range(most // multiple * multiple, 0, -multiple), key=time)


FUNCTIONS = {each.__name__: each for each in (fitted, stream_k, alike, groups, even, near, beyond_cache)}


@dataclass(frozen=True)
class Tile:
    """The numbers of a build by name; those in capitals are macros of the source, and attributes are lower-case."""

    numbers: tuple[tuple[str, int], ...]

    def __getattr__(self, name: str) -> int:
        for each, value in object.__getattribute__(self, "numbers"):
            if each.lower() == name:
                self.__dict__[name] = value  # at once the next time: choices ask many builds
                return value
        raise AttributeError(name)


def tiles_of(record: Mapping[str, Any]) -> tuple[Tile, ...]:
    """Return the builds of a record of the table, by tile and then by the division of its terms."""
    found = []
    for row in record["tiles"]:
        given = dict(record.get("constants", {}))
        for division, several in (record.get("division") or {"": [0]}).items():
            *values, last = row
            values, several = (values, last) if isinstance(last, list) else (row, several)
            given |= zip(record["fields"], values, strict=False)
            for parts in several:
                numbers = {**given, **({division: parts} if division else {})}
                with_copies = [{"COPIED": 0}, {"COPIED": 1}][: 2 if parts <= 1 else 1]
                for copies in with_copies if record.get("copied") else [{}]:
                    build = {**numbers, **copies}
                    found.append(Tile(tuple((build if "fitted" in record else _with_values(record, build)).items())))
    return tuple(found)


def _with_values(record: Mapping[str, Any], numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of a build with those that the table computes from them."""
    found = dict(numbers)
    for name, expression in record.get("values", {}).items():
        found[name] = number(expression, found)
    return found


class Names(dict):
    """The names of an expression about a task: its SM count is asked for only if the expression has it."""

    def __init__(self, task: Task, tile: Tile):
        m, n, k = task.shape or (MOST, MOST, 0)  # without a shape, C is large
        of_n = -(-n // tile.columns)
        itemsize = task.element.itemsize
        of_task = {"m": m, "n": n, "k": k, "itemsize": itemsize, "tiles_of_n": of_n, "tiles": -(-m // tile.rows) * of_n}
        super().__init__({**dict(tile.numbers), **of_task, "bytes_of_factors": (m + n) * k * itemsize, **FUNCTIONS})
        self.task = task

    def __missing__(self, name: str) -> int:
        if name == "sms":
            return self.task.sms
        raise KeyError(name)


@dataclass(frozen=True)
class Tabled(OverC):
    """Blocks with one of several tiles of C, each a build of the kernel; ``hpcmm.operations.choice`` chooses one."""

    record: Mapping[str, Any] = field(hash=False)  # of the table
    choices: tuple[Tile, ...]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Tabled":
        return cls(record, tiles_of(record))

    @property
    def several(self) -> bool:
        """Whether it has several builds, and none is chosen."""
        return len(self.choices) > 1

    def builds(self) -> "tuple[Tabled, ...]":
        return tuple(replace(self, choices=(tile,)) for tile in self.choices)

    def chosen(self, task: Task) -> Tile:
        tile = choice.chosen(task).build.task.geometry.choices[0] if self.several else self.choices[0]
        if "fitted" not in self.record:
            return tile
        return self._fitted(tile, task.shape, task.sms) if task.shape else self._fitted(tile, (MOST, 1, 0), 1)

    @functools.lru_cache(4096)  # noqa: B019 - geometries live as long as the process
    def _fitted(self, tile: Tile, shape: tuple[int, ...], sms: int) -> Tile:
        """Return a build with the numbers that depend on the shape and the SM count."""
        m, n, _ = shape
        of_task = {"m": max(m, 1), "sms": sms, "tiles_of_n": max(-(-n // tile.columns), 1)}
        numbers = dict(tile.numbers)
        names = {**FUNCTIONS, **numbers, **of_task}
        numbers |= {name: number(each, names) for name, each in self.record["fitted"].items()}
        return Tile(tuple(_with_values(self.record, numbers).items()))

    def by(self, task: Task) -> str:
        return choice.chosen(task).by if self.several else ""

    def decide(self, backend: Any, task: Task) -> None:
        trials.decide(backend, task)

    def suits(self, task: Task) -> bool:
        able = self.record.get("able")
        return able is None or bool(number(able, Names(task, self.chosen(task))))

    def pick(self, task: Task) -> str:
        tile = self.chosen(task)
        names, details = dict(tile.numbers), self.record.get("details", {}).items()
        shown = [text.format(**names) for text, condition in details if number(condition, names)]
        if len(self.record["tiles"]) > 1:
            rows = f"up to {tile.up_to}" if "fitted" in self.record else tile.rows
            shown.insert(0, f"{rows}x{tile.columns}")
        return ", ".join(shown)

    def covered(self, task: Task) -> tuple[int, int]:
        tile = self.chosen(task)
        return tile.rows, tile.columns

    def phase(self, task: Task) -> Staged | None:
        tile = self.chosen(task)
        return Staged(tile.rows, tile.columns, tile.depth)

    def work(self, task: Task) -> Work:
        return _work(self.chosen(task), *self.record["work"].items())

    def macros(self, task: Task) -> dict[str, int]:
        tile = self.chosen(task)
        names, of_task = Names(task, tile), self.record.get("of_task", {}).items()
        defines = {name: value for name, value in tile.numbers if name.isupper()}
        return {**of_type(task), **defines, **{name: number(expression, names) for name, expression in of_task}}

    def workspace(self, task: Task) -> dict[str, Workspace]:
        copies = copied_rows(task, self.record["line"]) if "line" in self.record else {}
        return copies if copies and self._copies(self.chosen(task)) else {}

    def _copies(self, tile: Tile) -> bool:
        """Return whether a launch before the product copies rows that are not aligned."""
        return "line" in self.record and bool(dict(tile.numbers).get("COPIED", True))

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        return self.launched(task, arrays, self.chosen(task)) if all(self.over_c(task)) else []

    def launched(self, task: Task, arrays: Mapping[str, Any], tile: Tile) -> list[Launch]:
        before, arguments = [], task.operation.arguments(task, arrays)
        if self._copies(tile):
            before, arguments = copied(task, arrays, tile.copy_block)
            arrays = arrays | {"A": arguments[4], "B": arguments[6]}
        overlaps = bool(before) and self.record["waits"] and may_overlap(task)
        boxes = self.boxes(task, tile, arrays, self.record.get("tensor_type", task.dtype))
        return [*before, self.product(task, tile, (*arguments, *boxes), overlaps)]

    def boxes(self, task: Task, tile: Tile, arrays: Mapping[str, Any], dtype: str) -> list[Boxes]:
        names, maps = dict(tile.numbers), self.record.get("tensor_maps", {})
        return [Boxes(arrays[name], *(number(size, names) for size in box), dtype) for name, box in maps.items()]

    def product(self, task: Task, tile: Tile, arguments: tuple[Any, ...], overlaps: bool = False) -> Launch:
        names = Names(task, tile)
        grid = tuple(number(blocks, names) for blocks in self.record["grid"])
        return Launch(grid, (tile.block,), arguments, tile.shared_bytes, overlaps=overlaps)


@functools.lru_cache(4096)
def _work(tile: Tile, *expressions: tuple[str, Any]) -> Work:
    names = dict(tile.numbers)
    return Work(tile.rows, tile.columns, tile.depth, **{name: number(each, names) for name, each in expressions})
