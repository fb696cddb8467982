"""Small examples of the page "Worked by hand", computed. The tests compare them with independent computations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tabulate import tabulate

from hpcmm.model.capabilities import CAPABILITIES, block_limits, block_on, capability

WARP, SECTOR, BANKS = 32, 32, 32


def table(rows, head, align="right") -> str:
    return tabulate(rows, head, tablefmt="pipe", colalign=["left", *[align] * (len(head) - 1)], disable_numparse=True)


def order() -> str:
    """Show that A B is not B A."""
    a, b = np.array([[1, 2], [3, 4]]), np.array([[0, 1], [1, 1]])
    rows = [[name, *(" ".join(map(str, row)) for row in value)] for name, value in products(a, b).items()]
    return table(rows, ["matrix", "row 0", "row 1"])


def products(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    return {"A": a, "B": b, "A B": a @ b, "B A": b @ a}


def phases(n: int = 4, tile: int = 2) -> list[list[str]]:
    """Return, for each thread of block (0, 0) of C = A B, what it loads and adds in each phase."""
    rows = []
    for y in range(tile):
        for x in range(tile):
            row = [f"({y}, {x})"]
            for phase in range(n // tile):
                k = [phase * tile + i for i in range(tile)]
                row.append(f"A{y}{phase * tile + x}, B{phase * tile + y}{x}")
                row.append(" + ".join(f"A{y}{each}·B{each}{x}" for each in k))
            rows.append(row)
    return rows


def staged() -> str:
    head = ["thread (y, x)", "phase 0 loads", "adds to C", "phase 1 loads", "adds to C"]
    return table(phases(), head, "left")


def blocks(size: int, tile: int) -> int:
    """Return the blocks in one dimension of a grid that is rounded up."""
    return -(-size // tile)


def grids() -> str:
    rows = []
    for size, tile in ((8, 2), (8, 4), (32, 16), (640, 32), (641, 32), (641, 16)):
        count, beyond = blocks(size, tile), (blocks(size, tile) * tile) ** 2 - size**2
        rows.append([f"{size} x {size}", f"{tile} x {tile}", f"{count} x {count}", f"{beyond:,}"])
    return table(rows, ["C", "block", "grid", "threads without an element"])


def ragged(m: int, n: int, k: int, tile: int) -> Iterator[tuple[tuple[int, int], int, int, int, int]]:
    """Yield block, phase, and the elements of its tile of A, of B and of C that lie inside the matrices."""
    for by in range(blocks(m, tile)):
        for bx in range(blocks(n, tile)):
            rows, columns = min(tile, m - by * tile), min(tile, n - bx * tile)
            for phase in range(blocks(k, tile)):
                depth = min(tile, k - phase * tile)
                yield (by, bx), phase, rows * depth, depth * columns, rows * columns


def remainders() -> str:
    rows = []
    for k in (12, 10):
        found = list(ragged(10, 11, k, 4))
        for block in ((0, 0), (2, 0), (0, 2), (2, 2)):
            last = max(phase for _, phase, *_ in found)
            (a, b, c) = next(rest for where, phase, *rest in found if where == block and phase == last)
            rows.append([f"{k}", f"{block}", f"{a} of 16", f"{b} of 16", f"{c} of 16"])
    return table(rows, ["k", "block (y, x)", "of A, last phase", "of B, last phase", "of C"])


def sectors(stride: int, itemsize: int = 4, lanes: int = WARP) -> int:
    """Return the sectors of 32 bytes that a warp touches if lane i reads element i * stride."""
    return len({lane * stride * itemsize // SECTOR for lane in range(lanes)})


def ways(stride: int) -> int:
    """Return the largest number of different words of one bank that a warp reads with a stride."""
    words = {lane * stride for lane in range(WARP)}
    return max(sum(word % BANKS == bank for word in words) for bank in range(BANKS))


def strides() -> str:
    rows = []
    for stride in (1, 2, 4, 8, 16, 17, 32, 33):
        count = sectors(stride)
        rows.append([f"{stride}", f"{count}", f"{WARP * 4 / (count * SECTOR):.1%}", f"{ways(stride)}"])
    return table(rows, ["stride in elements", "sectors", "bytes used", "shared memory: turns"])


def pitch(width: int, itemsize: int, unit: int = 512) -> int:
    """Return the bytes from row to row of a pitched allocation."""
    return -(-width * itemsize // unit) * unit


def pitches() -> str:
    rows = []
    for width, itemsize in ((11, 4), (1000, 4), (1024, 4), (1025, 4), (1025, 8)):
        row = pitch(width, itemsize)
        rows.append([f"{width}", f"{itemsize}", f"{width * itemsize:,}", f"{row:,}", f"{row // itemsize:,}"])
    return table(rows, ["columns", "element [B]", "row [B]", "pitch [B]", "ld [elements]"])


def reductions(n: int = 16) -> dict[str, list[tuple[list[int], list[int]]]]:
    """Return for each way of addressing the values and the active threads after each step."""
    ways = {
        "divergent": ([2**s for s in range(n.bit_length() - 1)], lambda t, s: t if t % (2 * s) == 0 else n),
        "strided": ([2**s for s in range(n.bit_length() - 1)], lambda t, s: 2 * s * t),
        "sequential": ([n >> (s + 1) for s in range(n.bit_length() - 1)], lambda t, s: t if t < s else n),
    }
    steps = {}
    for name, (distances, index) in ways.items():
        values, steps[name] = list(range(1, n + 1)), []
        for s in distances:
            active = [t for t in range(n) if index(t, s) < n]
            for t in active:
                values[index(t, s)] += values[index(t, s) + s]
            steps[name].append((list(values), active))
    return steps


def tree() -> str:
    rows = []
    for name, steps in reductions().items():
        for i, (values, active) in enumerate(steps):
            rows.append(
                [f"`{name}`" if i == 0 else "", f"{i + 1}", " ".join(map(str, active)), " ".join(map(str, values))]
            )
    return table(rows, ["rung", "step", "active threads", "values after the step"], "left")


def combining(name: str, threads: int = 128) -> tuple[int, int]:
    """Return the warps that combine elements in all steps of a block, and the threads that do."""
    active = [threads_of for _, threads_of in reductions(threads)[name]]
    return sum(len({t // WARP for t in step}) for step in active), sum(map(len, active))


def block_reductions() -> str:
    rows = []
    for name in ("divergent", "strided", "sequential"):
        warps, threads = combining(name)
        rows.append([f"`{name}`", f"{warps}", f"{threads / warps:.1f}", f"{2 * warps + 1}"])
    return table(rows, ["rung", "warps, over all steps", "threads per warp", "loads of warps"])


def limits() -> str:
    head = ["compute capability", "threads per block", "threads per SM", "warps per SM", "blocks per SM"]
    head += ["registers per SM", "registers per thread", "shared memory per SM [KiB]", "per block [KiB]"]
    rows = [
        [
            each.names.replace(" ", ", "),
            *map("{:,}".format, (each.block_threads, each.threads, each.warps, each.blocks, each.registers)),
            *map("{:,}".format, (each.thread_registers, each.shared, each.block_shared)),
        ]
        for each in CAPABILITIES
    ]
    return table(rows, head)


def resident(tile: int, like: str, sm_shared: int = 0) -> tuple[int, str]:
    """Return the blocks of a tiled product per SM, and what limits them."""
    device = capability(like)
    block = block_on(device, (tile, tile), 2 * tile**2 * 4, sm_shared=sm_shared)
    found = block_limits(block, device)
    least = min(found.values())
    return least, ", ".join(name for name, count in found.items() if count == least)


def occupancies() -> str:
    rows = []
    for tile in (8, 16, 32):
        for like in ("1.0", "2.0", "3.5", "9.0"):
            device = capability(like)
            if tile**2 > device.block_threads:
                rows.append([f"{tile}", like, "-", "-", "-", f"more than {device.block_threads} threads in a block"])
                continue
            count, binding = resident(tile, like)
            share = count * tile**2 / device.threads
            rows.append([f"{tile}", like, f"{count}", f"{count * tile**2:,}", f"{share:.0%}", binding])
    return table(rows, ["tile", "like", "blocks per SM", "threads", "occupancy", "limited by"])


PARTS = {
    "by_hand_order": order,
    "by_hand_phases": staged,
    "by_hand_grids": grids,
    "by_hand_remainders": remainders,
    "by_hand_strides": strides,
    "by_hand_pitches": pitches,
    "by_hand_tree": tree,
    "by_hand_block_reductions": block_reductions,
    "by_hand_limits": limits,
    "by_hand_occupancies": occupancies,
}
