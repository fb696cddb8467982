"""Sheets of questions that are answered by hand, as numbers in a file.

The answers are computed here, so neither a rubric nor the files of a course have them. A file has a line
``NAME: NUMBER`` for each question; ``#`` begins a comment.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hpcmm.model.capabilities import block_limits, block_on, capability

SUFFIX = ".txt"
MOST_BYTES = 1 << 16
TOLERANCE = 0.02  # of answers that are no whole numbers
LINE = re.compile(r"(\w+)\s*:\s*(\S*)")

SECTOR, WARP, FLOAT = 32, 32, 4  # bytes, lanes, bytes
LINK, RATE = 55e9, 50e12  # of the sheet: bytes per second between host and GPU, operations per second of the kernel
PITCH = 512  # bytes; rows that cudaMallocPitch allocates begin at multiples of it


@dataclass(frozen=True)
class Question:
    """One question."""

    answer: float
    way: str  # how it is found, for those who do not have it
    mistakes: Mapping[float, str] = field(default_factory=dict, hash=False)  # why an answer is wrong that many give

    def fault(self, given: float) -> str:
        """Return why an answer is wrong; empty if it is right."""
        if near(given, self.answer):
            return ""
        return next((why for value, why in self.mistakes.items() if near(given, value)), self.way)


def near(given: float, answer: float) -> bool:
    """Return whether two numbers are the same: whole ones exactly, others nearly.

    >>> near(6, 6), near(6.01, 6), near(0.335, 1 / 3)
    (True, False, True)
    """
    return given == answer if float(answer).is_integer() else math.isclose(given, answer, rel_tol=TOLERANCE)


def fault(path: Path, sheet: str) -> str:
    """Return the first fault of a file of answers; empty if all are right."""
    asked = SHEETS[sheet]()
    with path.open("rb") as file:
        text = file.read(MOST_BYTES).decode(errors="replace")
    answers: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        match = LINE.fullmatch(content)
        if not match or match[1] not in asked:
            return f"line {number}: {content[:80]!r} is not allowed; allowed: NAME: NUMBER, with a name of the sheet"
        if not match[2]:
            continue
        try:
            answers[match[1]] = float(match[2])
        except ValueError:
            return f"line {number}: {match[1]}: {match[2][:80]!r} is not allowed; allowed: a number"
    for name, question in asked.items():
        if name not in answers:
            return f"{name}: is not answered"
        if why := question.fault(answers[name]):
            return f"{name}: {answers[name]:g} is wrong. {why}"
    return ""


def occupancy() -> dict[str, Question]:
    """Blocks of a tiled product on an SM of compute capability 2.0, for tiles of 8, 16 and 32 float32 elements."""
    like, asked = capability("2.0"), {}
    for tile in (8, 16, 32):
        threads, shared = tile * tile, 2 * tile * tile * FLOAT
        limits = block_limits(block_on(like, (tile, tile), shared), like)
        blocks, name = min(limits.values()), f"tile_{tile}"
        others = {of: most for of, most in limits.items() if most != blocks}
        why = "is what the limit of {} alone allows; the least of the three limits counts"
        asked[f"{name}_threads_per_block"] = Question(
            threads, "The block has one thread for each element of its tile", {tile: "The tile has two dimensions"}
        )
        asked[f"{name}_shared_bytes"] = Question(
            shared,
            "A block stages a tile of A and one of B, with 4 bytes per element",
            {shared // 2: "A tile of B is staged, too", shared // FLOAT: "This counts elements, not bytes"},
        )
        ways = {
            "threads": "Threads of an SM divided by threads of a block, rounded down",
            "shared memory": "Shared memory of an SM divided by that of a block, rounded down",
        }
        for of, way in ways.items():
            asked[f"{name}_blocks_by_{of.replace(' ', '_')}"] = Question(limits[of], way)
        asked[f"{name}_blocks"] = Question(
            blocks,
            "The least of three limits: threads, shared memory, and the blocks that an SM takes at most",
            {most: f"{most} {why.format(of)}" for of, most in others.items()},
        )
        asked[f"{name}_occupancy_percent"] = Question(
            100 * blocks * threads / like.threads, "Threads of all resident blocks, divided by those an SM can have"
        )
    return asked


def transfers() -> dict[str, Question]:
    """Copies and kernel of C = A B with n = 4096 and 1024 in float32, with the rates of the sheet."""
    asked = {}
    for n in (1024, 4096):
        matrix, flops = n * n * FLOAT, 2 * n**3
        copies, kernel = 3 * matrix / LINK * 1e3, flops / RATE * 1e3
        asked |= {
            f"n_{n}_bytes_to_the_device": Question(
                2 * matrix,
                "A and B go to the GPU. C need not: the kernel writes all of it",
                {3 * matrix: "C need not go to the GPU: the kernel writes all of it", matrix: "B goes there, too"},
            ),
            f"n_{n}_bytes_back": Question(matrix, "C alone", {3 * matrix: "The host still has A and B"}),
            f"n_{n}_milliseconds_of_the_copies": Question(copies, "All bytes, divided by the rate of the link"),
            f"n_{n}_milliseconds_of_the_kernel": Question(
                kernel,
                "2 n^3 operations, divided by their rate",
                {kernel / 2: "Each multiply-add has two operations: a product and a sum"},
            ),
            f"n_{n}_percent_of_the_copies": Question(
                100 * copies / (copies + kernel),
                "Time of the copies, divided by that of copies and kernel together",
                {100 * copies / kernel: "Divide by the time of copies and kernel together"},
            ),
        }
    even = 3 * FLOAT / LINK * RATE / 2
    asked["n_of_equal_times"] = Question(
        even, "12 n^2 bytes / rate of the link = 2 n^3 operations / their rate. Divide by n^2"
    )
    return asked


def pitch() -> dict[str, Question]:
    """Rows of 1001 float32 elements, packed and with the pitch of ``cudaMallocPitch``."""
    columns = 1001
    row = columns * FLOAT
    pitched = -(-row // PITCH) * PITCH

    def sectors(begin: int) -> int:
        """Return the sectors that a warp touches from an offset on, one element per lane."""
        return (begin + WARP * FLOAT - 1) // SECTOR - begin // SECTOR + 1

    def byte(row_bytes: int) -> Question:
        way = "Row times bytes from row to row, plus column times bytes of an element"
        return Question(3 * row_bytes + 5 * FLOAT, way, {3 * row_bytes + 5: "The column counts elements of 4 bytes"})

    return {
        "packed_row_bytes": Question(row, "Columns times 4 bytes"),
        "packed_element_3_5_byte": byte(row),
        "packed_row_1_sectors": Question(
            sectors(row),
            "Row 1 does not begin at a multiple of 32 bytes: 128 bytes touch one sector more than 4",
            {4: "That is for a row that begins at a multiple of 32 bytes. Where does row 1 begin?"},
        ),
        "pitch_bytes": Question(
            pitched,
            "The next multiple of 512 bytes",
            {columns: "The pitch is in bytes", row: "A row begins at a multiple of 512 bytes"},
        ),
        "pitch_elements": Question(pitched // FLOAT, "The pitch in bytes, divided by 4: the leading dimension"),
        "pitched_element_3_5_byte": byte(pitched),
        "pitched_row_1_sectors": Question(sectors(pitched), "32 lanes read 128 bytes from a multiple of 32 bytes on"),
        "pitch_extra_percent": Question(
            100 * (pitched - row) / row, "Bytes that are added to a row, divided by the bytes of the row"
        ),
    }


def order() -> dict[str, Question]:
    """Sums of eight numbers in float32, in several orders."""
    exact = "is the sum without rounding"
    x = np.array([2**24, 1, 1, 1, -(2**24), 1, 1, 1], np.float32)

    def in_turn(terms: Sequence[np.float32]) -> np.float32:
        return functools.reduce(np.add, terms)  # NumPy's sum has an order of its own

    total, halves = int(x.astype(int).sum()), [in_turn(half) for half in (x[:4], x[4:])]
    pairs = [in_turn(pair) for pair in x.reshape(4, 2)]
    sums = {
        "left_to_right": (in_turn(x), "Round after each addition: 16777216 + 1 is 16777216"),
        "two_halves": (in_turn(halves), "The second half is -16777213: its ones are added to an odd number below 2^24"),
        "tree": (
            in_turn([in_turn(pairs[:2]), in_turn(pairs[2:])]),
            "The pairs are 16777216, 2, -16777215 and 2; then the first two and the last two of these are added",
        ),
        "even_and_odd": (in_turn([in_turn(x[::2]), in_turn(x[1::2])]), "The even places give 1, the odd ones 4"),
        "ones_first": (in_turn(sorted(x, key=abs)), "The ones give 6, and 16777216 + 6 is a float32"),
    }
    return {
        "distance_from_16777216_to_the_next": Question(
            float(np.spacing(x[0])), "24 bits hold the numbers from 2^24 on in steps of 2", {1.0: "That is below 2^24"}
        ),
        "16777216_plus_1": Question(
            float(x[0] + x[1]),
            "16777217 lies between two numbers of float32; of these, the one with an even last bit is taken",
            {2.0**24 + 1: "float32 has no such number", 2.0**24 + 2: "A tie goes to the number with an even last bit"},
        ),
        **{
            name: Question(float(value), way, {} if value == total else {float(total): f"{total} {exact}"})
            for name, (value, way) in sums.items()
        },
        "different_results": Question(len({float(value) for value, _ in sums.values()}), "Count the results above"),
    }


def pipeline() -> dict[str, Question]:
    """Stages of a pipeline, tiles of blocks that run at once, and thread tiles, with the numbers of the sheet."""
    (side, depth, stages), (rate, latency, sms), across = (128, 8, 4), (3.3e12, 800e-9, 132), 4096 // 128
    stage, needed = 2 * side * depth * FLOAT, rate * latency / sms
    copying = math.ceil(needed / stage)
    asked = {
        "bytes_of_a_stage": Question(
            stage, "A tile of A and one of B, with 4 bytes per element", {stage // 2: "A stage has a tile of B, too"}
        ),
        "bytes_under_way_with_4_stages": Question(
            (stages - 1) * stage, "Stages less one, times bytes", {stages * stage: "One of the stages is being used"}
        ),
        "bytes_under_way_to_fill_the_latency": Question(needed, "Rate times latency, divided by the SMs"),
        "stages_to_fill_the_latency": Question(
            copying + 1,
            "The bytes under way divided by those of a stage, rounded up, and one stage that is used",
            {copying: "One more stage is being used"},
        ),
        "tiles_of_132_blocks_in_rows": Question(
            math.ceil(sms / across) + across,
            "The blocks are in 5 rows of C and all 32 columns: as many tiles of A and of B",
            {2 * sms: "Blocks of a row of C read the same tile of A, those of a column the same tile of B"},
        ),
        "tiles_of_132_blocks_in_a_rectangle": Question(
            11 + 12, "11 tiles of A and 12 of B", {11 * 12: "Blocks share tiles: one of A per row, one of B per column"}
        ),
    }
    for rows, columns in ((8, 8), (16, 8)):
        asked[f"elements_per_multiply_add_{rows}_x_{columns}"] = Question(
            (rows + columns) / (rows * columns),
            "In a step of k, a thread reads a column of elements of A and a row of B, and multiplies each by each",
            {2.0: "That is a thread with one element of C"},
        )
    return asked | {
        "accumulators_16_x_8": Question(16 * 8, "One for each element of C that the thread computes"),
        "threads_by_registers": Question(65536 // 256, "65,536 registers of an SM, 256 for each thread"),
    }


SHEETS: Mapping[str, Callable[[], dict[str, Question]]] = {
    "occupancy": occupancy,
    "transfers": transfers,
    "pitch": pitch,
    "order": order,
    "pipeline": pipeline,
}
