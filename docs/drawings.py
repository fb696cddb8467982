"""Drawings of the rung pages, as SVG from a few primitives. They take the colour of the text, for light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PICTURES = Path(__file__).parent / "pictures"
BLUE, ORANGE, GREEN = "#3b82c4", "#d9822b", "#2f9e6e"
WIDTH = 520


def drawing(height: float, label: str, *parts: str) -> str:
    """Return a picture that describes itself."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'role="img" aria-label="{label}" font-family="system-ui, sans-serif" fill="currentColor">'
        + "".join(parts)
        + "</svg>"
    )


def cell(x: float, y: float, width: float, height: float, colour: str = "", strong: bool = True, text: str = "") -> str:
    """Return a rectangle, filled if it has a colour, with a text in its middle."""
    fill = f'fill="{colour}" fill-opacity="{0.5 if strong else 0.14}"' if colour else 'fill="none"'
    drawn = (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" {fill} stroke="{colour or "currentColor"}"/>'
    )
    return drawn + (words(x + width / 2, y + height / 2 + 4.5, text) if text else "")


def words(x: float, y: float, text: str, anchor: str = "middle", size: int = 13) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">{text}</text>'


def line(x1: float, y1: float, x2: float, y2: float, width: float = 1.2, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="5 3"' if dashed else ""
    return f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" fill="none" stroke="currentColor" stroke-width="{width}"{dashes}/>'


# --- accesses of a warp to global memory ---------------------------------------------------------------------------

LANES = 8  # of 32 that are drawn


def coalesced() -> str:
    """Neighbouring lanes read neighbouring elements of a row."""
    x, size = 60, 50
    parts = [words(WIDTH / 2, 18, "lanes 0 to 7 of a warp", size=14)]
    for i in range(LANES):
        parts += [
            cell(x + i * size, 28, size - 8, 24, BLUE, text=str(i)),
            line(x + i * size + 21, 54, x + i * size + 21, 92),
        ]
        parts.append(cell(x + i * size, 94, size, 26, ORANGE))
    parts += [
        cell(x, 94, size * LANES, 26),
        words(WIDTH / 2, 142, "one row in memory: 8 neighbours of 4 bytes are one sector of 32 bytes"),
        words(WIDTH / 2, 162, "32 lanes read 4 sectors, and use every byte"),
    ]
    label = "Eight neighbouring lanes of a warp read eight neighbouring elements, which are one sector of 32 bytes."
    return drawing(174, label, *parts)


def uncoalesced() -> str:
    """Neighbouring lanes read elements of different rows."""
    x, size, high = 110, 44, 20
    parts = [words(x + size * LANES / 2, 18, "rows in memory", size=14), words(50, 18, "lane", size=14)]
    for i in range(LANES):
        y = 28 + i * (high + 4)
        parts += [cell(32, y, 36, high, BLUE, text=str(i)), line(70, y + high / 2, x - 2, y + high / 2)]
        parts += [cell(x + j * size, y, size, high, ORANGE, strong=j == 0) for j in range(LANES)]
    end = 28 + LANES * (high + 4)
    parts += [
        words(WIDTH / 2, end + 16, "each lane reads another row: one sector of 32 bytes for 4 bytes of use"),
        words(WIDTH / 2, end + 36, "32 lanes read 32 sectors, and use an eighth of the bytes"),
    ]
    label = "Each lane of a warp reads another row, so each read moves a whole sector of 32 bytes for one element of 4."
    return drawing(end + 48, label, *parts)


def wide() -> str:
    """Each lane reads 16 bytes in one instruction."""
    x, size = 36, 14
    parts = [words(WIDTH / 2, 18, "lanes 0 to 7 of a warp", size=14)]
    for i in range(LANES):
        left = x + i * 4 * size
        parts += [cell(left + 8, 28, 40, 24, BLUE, text=str(i)), line(left + 28, 54, left + 28, 92)]
        parts += [cell(left + j * size, 94, size, 26, ORANGE) for j in range(4)]
    parts += [cell(x + i * 8 * size, 94, 8 * size, 26) for i in range(4)]
    parts += [
        words(WIDTH / 2, 142, "one instruction loads 4 neighbours of 4 bytes per lane"),
        words(WIDTH / 2, 162, "32 lanes read 16 sectors: a quarter of the instructions, more bytes in flight"),
    ]
    label = "Each lane of a warp loads four neighbouring elements, 16 bytes, with a single instruction."
    return drawing(174, label, *parts)


# --- banks of shared memory ----------------------------------------------------------------------------------------


def banks(padding: int) -> str:
    """A column of an 8 x 8 tile in 8 banks, with rows padded by some words."""
    x, y, width, high, count = 150, 44, 40, 22, 8
    pitch = count + padding
    parts = [words(x + width * count / 2, 18, "banks (8 of 32)", size=14)]
    parts += [words(x + (i + 0.5) * width, 38, str(i)) for i in range(count)]
    rows = -(-count * pitch // count)
    for word in range(rows * count):
        left, top = x + word % count * width, y + word // count * high
        row, column = divmod(word, pitch)
        if row < count and column == 0:
            parts.append(cell(left, top, width, high, ORANGE, text=f"lane {row}"))
        elif row < count and column < count:
            parts.append(cell(left, top, width, high))
        else:
            parts.append(cell(left, top, width, high, "currentColor", strong=False))
    end = y + rows * high
    taken = {row * pitch % count for row in range(count)}
    text = (
        "all words in one bank: 8 accesses, one after the other"
        if len(taken) == 1
        else "each word in another bank: one access"
    )
    parts += [
        words(16, y + 14, "words in", "start"),
        words(16, y + 30, "shared memory", "start"),
        words(WIDTH / 2, end + 20, "a warp reads a column of the tile"),
        words(WIDTH / 2, end + 40, text),
    ]
    if padding:
        parts.append(words(WIDTH / 2, end + 60, "each row has one word more than the tile is wide (shaded)"))
    label = f"A column of a tile whose rows have {pitch} words in 8 banks: {text}."
    return drawing(end + (72 if padding else 52), label, *parts)


# --- trees of a reduction ------------------------------------------------------------------------------------------

COUNT = 8  # elements of the block that is drawn
Node = tuple[int, int, int]  # element, its partner, and the thread that combines both


def interleaved(step: int) -> list[Node]:
    """Threads whose index is a multiple of 2 s combine elements at distance s."""
    return [(i, i + step, i) for i in range(0, COUNT, 2 * step)]


def strided(step: int) -> list[Node]:
    """The first threads combine elements 2 s t and 2 s t + s."""
    return [(i, i + step, i // (2 * step)) for i in range(0, COUNT, 2 * step)]


def sequential(step: int) -> list[Node]:
    """The first s threads combine elements t and t + s."""
    return [(i, i + step, i) for i in range(step)]


UP, DOWN = (1, 2, 4), (4, 2, 1)


def tree(
    nodes: Callable[[int], list[Node]],
    steps: Sequence[int],
    note: str,
    loaded: int = 1,
    barriers: Sequence[bool] = (True, True, True),
    place: str = "shared memory",
) -> str:
    """Draw the steps of a block: the number in an element is that of the thread that combines it.

    ``loaded`` elements are combined by each thread while loading.
    """
    x, width, high, gap = 130, 44, 24, 30
    parts, y = [], 10.0
    centre = [x + (i + 0.5) * width for i in range(COUNT)]
    if loaded > 1:
        parts.append(words(12, y + 16, "global memory", "start"))
        for _ in range(loaded):
            parts += [cell(x + i * width, y, width - 6, high - 4, ORANGE) for i in range(COUNT)]
            y += high
        parts += [line(centre[i] - 3, y - 4, centre[i] - 3, y + 8) for i in range(COUNT)]
        y += 10
    parts.append(words(12, y + 16, "each thread" if loaded > 1 else place, "start"))
    parts += [
        cell(x + i * width, y, width - 6, high, GREEN if loaded > 1 else BLUE, text=f"t{i}") for i in range(COUNT)
    ]
    for step, barrier in zip(steps, barriers, strict=True):
        below = y + high + gap
        if barrier:
            parts.append(line(x - 8, y + high + 7, x + COUNT * width, y + high + 7, dashed=True))
        parts.append(words(12, below + 16, f"s = {step}" + ("" if barrier else ", no barrier"), "start"))
        combined = {element: (partner, thread) for element, partner, thread in nodes(step)}
        for i in range(COUNT):
            if i in combined:
                partner, thread = combined[i]
                parts += [
                    line(centre[i] - 3, y + high, centre[i] - 3, below),
                    line(centre[partner] - 3, y + high, centre[i], below),
                ]
                parts.append(cell(x + i * width, below, width - 6, high, GREEN, text=f"t{thread}"))
            else:
                parts.append(cell(x + i * width, below, width - 6, high, "currentColor", strong=False))
        y = below
    parts.append(words(WIDTH / 2, y + high + 22, note))
    if any(barriers):
        parts.append(words(WIDTH / 2, y + high + 42, "dashed: a barrier of the whole block"))
    label = f"Reduction tree of eight threads in three steps, s = {', '.join(map(str, steps))}: {note}."
    return drawing(y + high + (52 if any(barriers) else 32), label, *parts)


def grid_stride() -> str:
    """Blocks stride over the input, before the tree begins."""
    x, width, high, blocks, rounds = 60, 50, 26, 8, 3
    parts = [words(WIDTH / 2, 18, "input, in the order of memory", size=14)]
    colours = (BLUE, ORANGE, GREEN, BLUE, ORANGE, GREEN, BLUE, ORANGE)
    for turn in range(rounds):
        y = 28 + turn * (high + 8)
        parts += [cell(x + i * width, y, width - 4, high, colours[i % 4], text=f"b{i % 4}") for i in range(blocks)]
    end = 28 + rounds * (high + 8)
    parts += [
        words(WIDTH / 2, end + 12, "a grid of four blocks: each adds up every fourth piece in registers,"),
        words(WIDTH / 2, end + 32, "then one tree per block, however long the input is"),
    ]
    label = "Four blocks stride over the input. Each adds up every fourth piece in registers before its only tree."
    return drawing(end + 44, label, *parts)


def ticket() -> str:
    """The block that finishes last combines the results of all."""
    parts = [words(WIDTH / 2, 18, "one launch", size=14)]
    for i in range(4):
        left = 50 + i * 108
        parts += [cell(left, 28, 90, 30, BLUE, text=f"block {i}"), line(left + 45, 58, left + 45, 92)]
        parts += [cell(left, 94, 90, 26, ORANGE, text=f"result {i}"), line(left + 45, 120, 260, 158)]
    parts += [
        cell(150, 158, 220, 30, GREEN, text="the block with the last ticket"),
        words(WIDTH / 2, 210, "it combines the results in the order of their index: no second launch"),
    ]
    label = "Four blocks write their results. The block that draws the last ticket combines all of them in fixed order."
    return drawing(222, label, *parts)


def launches() -> str:
    """Each launch combines the partial results of the one before it."""
    parts, y = [], 30.0
    for count, text in ((8, "first launch: one result per block"), (2, "second launch"), (1, "third launch")):
        width = 30
        left = 40 + (8 - count) * width / 2
        parts += [cell(left + i * width, y, width - 6, 24, BLUE if count > 1 else GREEN) for i in range(count)]
        parts.append(words(300, y + 17, text, "start"))
        if count > 1:
            parts.append(line(157, y + 28, 157, y + 48))
        y += 54
    parts += [
        words(WIDTH / 2, 18, "partial results", size=14),
        words(WIDTH / 2, y + 8, "only the end of a launch synchronizes all blocks of a grid"),
    ]
    label = "Several launches: each combines the partial results of the blocks of the launch before it."
    return drawing(y + 20, label, *parts)


# --- tiles in registers --------------------------------------------------------------------------------------------


def register_tile(high: int, wide: int) -> str:
    """The elements of C of one thread, and what a step of the k loop loads for them."""
    size = 20
    x, y = 130, 56
    parts = [words(x + wide * size / 2, 20, f"{wide} of B" if wide > 1 else "1 of B")]
    parts += [cell(x + j * size, 28, size, size, ORANGE) for j in range(wide)]
    parts += [cell(x - 30, y + i * size, size, size, BLUE) for i in range(high)]
    parts += [cell(x + j * size, y + i * size, size, size, GREEN) for i in range(high) for j in range(wide)]
    end = y + high * size
    parts += [
        words(x - 40, y + high * size / 2 + 4, f"{high} of A", "end"),
        words(x + wide * size + 12, y + high * size / 2 + 4, f"{high} × {wide} sums in registers", "start"),
        words(WIDTH / 2, end + 24, f"one step: {high} + {wide} loads from shared memory, {high * wide} multiply-adds"),
        words(WIDTH / 2, end + 44, f"{(high + wide) / (high * wide):.3g} loads per multiply-add"),
    ]
    label = f"A thread holds {high} by {wide} sums of C. A step loads {high} elements of A and {wide} of B for them."
    return drawing(end + 56, label, *parts)


def kept(name: str) -> Callable[[], str]:
    """Return a function that reads a picture of this folder."""
    return lambda: (PICTURES / f"{name}.svg").read_text("utf-8")


def half_warp() -> str:
    return tree(
        sequential,
        DOWN,
        "the last warp (here two threads) needs no barrier",
        loaded=2,
        barriers=(True, False, False),
    )


# Page of a rung: its drawings
OF = {
    "matmul-naive_unguarded": [kept("blocks-cover-c"), coalesced],
    "matmul-naive": [kept("blocks-cover-c"), coalesced],
    "matmul-naive_unrolled": [coalesced],
    "matmul-uncoalesced": [uncoalesced],
    "matmul-coalesced": [coalesced],
    **{
        f"matmul-{name}": [kept("tile-staging")]
        for name in ("tiled_exact", "tiled_padded", "tiled_remainder", "tiled_unrolled", "pitched")
    },
    "matmul-tiled_uncoalesced": [kept("tile-staging"), uncoalesced],
    "matmul-bank_conflict": [lambda: banks(0)],
    "matmul-conflict_free": [lambda: banks(1)],
    "matmul-register_1d": [lambda: register_tile(8, 1)],
    "matmul-register_2d": [lambda: register_tile(8, 8)],
    "matmul-vectorized": [wide, lambda: register_tile(8, 8)],
    "matmul-warp_tiled": [lambda: register_tile(8, 8)],
    "matmul-asynchronous": [kept("pipeline")],
    "matmul-swizzled": [kept("pipeline")],
    "matmul-large_thread_tile": [lambda: register_tile(16, 8)],
    "reduction-divergent": [
        lambda: tree(interleaved, UP, "every 2 s-th thread combines: few lanes of each warp work"),
        launches,
    ],
    "reduction-strided": [lambda: tree(strided, UP, "the first threads combine, but elements lie 2 s words apart")],
    "reduction-sequential": [
        lambda: tree(sequential, DOWN, "the first s threads combine, and elements are neighbours")
    ],
    "reduction-first_add": [
        lambda: tree(sequential, DOWN, "each thread combines two elements while loading", loaded=2)
    ],
    "reduction-last_warp": [half_warp],
    "reduction-unrolled": [half_warp],
    "reduction-several_per_thread": [grid_stride],
    "reduction-shuffle": [
        lambda: tree(
            sequential,
            DOWN,
            "lanes of a warp read each other's registers: no shared memory, no barrier",
            barriers=(False, False, False),
            place="registers",
        )
    ],
    "reduction-one_launch": [wide, ticket],
    "vector_add-one_per_thread": [coalesced],
    "vector_add-grid_stride": [grid_stride],
    "vector_add-vectorized": [wide],
}


def of(page: str) -> Iterator[str]:
    """Yield the drawings of a rung page."""
    for draw in OF.get(page, ()):
        yield draw()
