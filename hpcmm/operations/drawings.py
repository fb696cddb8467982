"""Drawings of rungs, for their pages and the report: SVG from a few primitives, in the colour of the text."""

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


def numbered() -> str:
    """The last block waits for results that bear the number of the launch."""
    parts = [words(WIDTH / 2, 18, "launch 7", size=14)]
    for i in range(4):
        left = 50 + i * 108
        parts += [cell(left, 28, 90, 30, BLUE, text=f"block {i}")]
        if i == 3:
            parts.append(line(left + 45, 58, left + 45, 158))
            continue
        parts += [line(left + 45, 58, left + 45, 92), cell(left, 94, 26, 26, ORANGE if i != 1 else "")]
        parts += [cell(left + 26, 94, 64, 26, ORANGE if i != 1 else "", text=f"result {i}")]
        parts += [words(left + 13, 111.5, "7" if i != 1 else "6"), line(left + 45, 120, 300, 158, dashed=i == 1)]
    parts += [
        cell(200, 158, 264, 30, GREEN, text="block 3 waits until all have a 7"),
        words(WIDTH / 2, 210, "a word of 8 bytes holds the number and the result: no fence, no ticket"),
    ]
    label = "Three blocks store results with the number of the launch. The last block waits for those that are missing."
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


# --- a product on the CPU, and its division among threads -----------------------------------------------------------


def matrix(x: float, y: float, name: str, cells: dict[tuple[int, int], str], size: int = 18, count: int = 6) -> str:
    """Return a small matrix with coloured elements, by row and column; a trailing "-" of a colour makes it weak."""
    parts = [words(x + count * size / 2, y - 8, name)]
    for i in range(count):
        for j in range(count):
            colour = cells.get((i, j), "")
            parts.append(
                cell(x + j * size, y + i * size, size, size, colour.removesuffix("-"), not colour.endswith("-"))
            )
    return "".join(parts)


ALL = range(6)


def dot_product() -> str:
    """The triple loop: a row of A times a column of B is an element of C."""
    return drawing(
        196,
        "An element of C is the product of a row of A, read along memory, and a column of B, read across its rows.",
        matrix(30, 30, "A", {(2, j): BLUE for j in ALL}),
        words(153, 88, "×", size=18),
        matrix(180, 30, "B", {(i, 3): ORANGE for i in ALL}),
        words(306, 88, "=", size=18),
        matrix(336, 30, "C", {(2, 3): GREEN}),
        words(WIDTH / 2, 164, "the row of A lies along memory; each element of the column of B"),
        words(WIDTH / 2, 184, "is in another cache line, of which 4 or 8 bytes are used"),
    )


def partial_sums() -> str:
    """Four partial sums, each of every fourth term."""
    colours, x, size = (BLUE, ORANGE, GREEN, "currentColor"), 70, 32
    parts = [words(WIDTH / 2, 18, "terms of one element of C", size=14)]
    for i in range(12):
        parts += [cell(x + i * size, 28, size - 4, 24, colours[i % 4], text=str(i))]
    for i, colour in enumerate(colours):
        left = x + 40 + i * 80
        parts += [cell(left, 84, 64, 26, colour, text=f"sum {i}"), line(left + 32, 110, 260, 138)]
        parts.append(line(x + i * size + 14, 52, left + 32, 84))
    parts += [
        cell(220, 138, 80, 26, GREEN, text="sum"),
        words(WIDTH / 2, 186, "four additions are in flight: each waits only for its own partial sum"),
    ]
    label = "Every fourth term goes to the same one of four partial sums, which are added at the end."
    return drawing(152, label, *parts)


def rows_of_threads() -> str:
    """Each thread computes some rows of C."""
    shades = (BLUE, BLUE, ORANGE, ORANGE, GREEN, GREEN)
    rows = {(i, j): shades[i] for i in ALL for j in ALL}
    return drawing(
        196,
        "Three threads compute two rows of C each, from their rows of A and all of B.",
        matrix(30, 30, "A", rows),
        words(153, 88, "×", size=18),
        matrix(180, 30, "B, read by all", {(i, j): "currentColor-" for i in ALL for j in ALL}),
        words(306, 88, "=", size=18),
        matrix(336, 30, "C", rows),
        words(460, 54, "thread 0", "start", 12),
        words(460, 90, "thread 1", "start", 12),
        words(460, 126, "thread 2", "start", 12),
        words(WIDTH / 2, 164, "rows are independent: threads share only what they read,"),
        words(WIDTH / 2, 184, "and wait for each other once, at the end"),
    )


def simd() -> str:
    """One element of A times a vector of B, added to a vector of C."""
    x, size = 170, 34
    parts = [cell(60, 60, size, 28, BLUE, text="a"), words(132, 80, "×", size=18)]
    for i in range(8):
        parts += [cell(x + i * size, 60, size, 28, ORANGE, text=f"b{i}"), cell(x + i * size, 116, size, 28, GREEN)]
        parts.append(line(x + (i + 0.5) * size, 88, x + (i + 0.5) * size, 116))
    parts += [
        words(WIDTH / 2, 28, "one instruction, 8 multiply-adds of float32 (AVX2)", size=14),
        words(77, 50, "A"),
        words(x + 4 * size, 50, "a row of B"),
        words(60, 135, "sums of C", "start"),
        words(WIDTH / 2, 170, "neighbours of a row of B make a vector; sums stay in registers"),
    ]
    return drawing(
        184, "One element of A is multiplied by a vector of eight of B and added to eight sums of C.", *parts
    )


def loops_exchanged() -> str:
    """The inner loop runs along a row of B and a row of C."""
    return drawing(
        196,
        "One element of A times a whole row of B is added to a whole row of C.",
        matrix(30, 30, "A", {(2, 3): BLUE}),
        words(153, 88, "×", size=18),
        matrix(180, 30, "B", {(3, j): ORANGE for j in ALL}),
        words(306, 88, "+ →", size=16),
        matrix(336, 30, "C", {(2, j): GREEN for j in ALL}),
        words(WIDTH / 2, 164, "the inner loop runs along rows of B and C:"),
        words(WIDTH / 2, 184, "all bytes of a cache line are used, in the order of memory"),
    )


def panels() -> str:
    """Blocks of A and B are copied in the order of use."""
    parts = [
        matrix(24, 34, "A", {(i, j): BLUE for i in (2, 3) for j in (0, 1, 2)}),
        matrix(24, 176, "B", {(i, j): ORANGE for i in (0, 1, 2) for j in ALL}),
        line(134, 88, 196, 88),
        line(134, 206, 196, 206),
        words(165, 80, "copy"),
        words(165, 198, "copy"),
        words(300, 58, "panel of A: in the outer cache"),
        words(300, 176, "panel of B: in L2"),
    ]
    parts += [cell(200 + i * 18, 76, 18, 24, BLUE, text="") for i in range(11)]
    parts += [cell(200 + i * 18, 194, 18, 24, ORANGE, text="") for i in range(11)]
    parts += [line(404, 100, 440, 136), line(404, 194, 440, 170), cell(430, 134, 70, 38, GREEN, text="tile of C")]
    parts += [
        words(465, 192, "in registers", size=12),
        words(WIDTH / 2, 310, "copies lie in the order of the inner loop, and are used many times"),
    ]
    label = "Blocks of A and B are copied into panels in the order of use. A tile of C stays in registers."
    return drawing(324, label, *parts)


def chunks(threads: int) -> str:
    """A vector in one piece for each thread."""
    x, size, colours = 44, 36, (BLUE, ORANGE, GREEN, "currentColor")
    parts = [words(WIDTH / 2, 18, "elements in the order of memory", size=14)]
    parts += [cell(x + i * size, 28, size - 2, 26, colours[i * threads // 12]) for i in range(12)]
    width = 12 * size / threads
    parts += [words(x + (i + 0.5) * width, 74, f"thread {i}") for i in range(threads)]
    text = (
        "one loop: the bandwidth of one core"
        if threads == 1
        else "one contiguous piece per thread: the cores share the bandwidth of memory"
    )
    return drawing(
        108, f"Elements in the order of memory, divided among threads: {text}.", *parts, words(WIDTH / 2, 98, text)
    )


# --- terms and tiles divided among blocks ---------------------------------------------------------------------------


def split_terms(slices: bool = True) -> str:
    """The blocks of a cluster, and with slices the warps of a block, too, divide the terms of a tile."""
    x, width, colours = 60, 100, (BLUE, ORANGE, GREEN, "currentColor")
    parts = [words(WIDTH / 2, 18, "the k terms of one tile of C", size=14)]
    for block in range(4):
        left = x + block * width
        parts += [cell(left + i * 24, 28, 22, 22, colours[block], not slices or i % 2 == 0) for i in range(4)]
        parts += [
            line(left + 47, 50, left + 47, 80),
            cell(left + 8, 80, 78, 28, colours[block], text=f"block {block}"),
            line(left + 47, 108, 260, 146),
        ]
    parts += [
        cell(190, 146, 140, 28, GREEN, text="tile of C"),
        words(WIDTH / 2, 196, "the blocks of a cluster add up their sums through each other's shared memory"),
    ]
    if slices:
        parts.append(words(WIDTH / 2, 216, "and the slices of a block (light and dark) through their own"))
    label = "Four blocks of a cluster compute a quarter of the terms of the same tile each, and add up their sums."
    return drawing(228, label, *parts)


def narrow_product() -> str:
    """Few rows of C: the large operand B is read once."""
    parts = [
        words(60, 22, "A: few rows"),
        cell(20, 30, 80, 12, BLUE),
        words(120, 42, "×", size=18),
        words(240, 22, "B: all bytes, once"),
        *(cell(140 + i * 40, 30, 38, 110, ORANGE, strong=i % 2 == 0) for i in range(5)),
        words(362, 42, "=", size=18),
        words(440, 22, "C: few rows"),
        *(cell(380 + i * 26, 30, 25, 12, GREEN, strong=i % 2 == 0) for i in range(5)),
        words(240, 160, "columns of B divided among blocks, rows among the blocks of a cluster", size=12),
        words(WIDTH / 2, 186, "2 flops per element of B and row of A: too few to hide the loads,"),
        words(WIDTH / 2, 206, "so that memory bandwidth is the limit, and many loads must be in flight"),
    ]
    return drawing(218, "A product with few rows reads the large matrix B once, divided among all blocks.", *parts)


def waves(divided: bool) -> str:
    """Tiles in waves of blocks, with and without a last wave that leaves blocks idle."""
    x, high, blocks = 100, 26, 4
    colours = (BLUE, ORANGE)
    parts = [words(x + 180, 18, "time", size=14), line(x, 26, x + 360, 26)]
    for block in range(blocks):
        y = 36 + block * (high + 6)
        parts.append(words(12, y + 18, f"block {block}", "start"))
        parts += [cell(x + i * 120, y, 116, high, colours[i % 2], text=f"tile {4 * i + block}") for i in range(2)]
        if divided:
            parts.append(cell(x + 240, y, 56, high, GREEN, text="½ tile"))
        elif block < 2:
            parts.append(cell(x + 240, y, 116, high, GREEN, text=f"tile {8 + block}"))
        else:
            parts.append(cell(x + 240, y, 116, high, "currentColor", strong=False, text="idle"))
    end = 36 + blocks * (high + 6)
    text = (
        "ten tiles on four blocks: the last two are divided, and no block is idle"
        if divided
        else "ten tiles on four blocks: in the last wave two blocks have no tile"
    )
    return drawing(end + 36, text.capitalize() + ".", *parts, words(WIDTH / 2, end + 18, text))


def fragments(terms: int = 8) -> str:
    """A tensor core multiplies fragments that all lanes of a warp hold together."""
    size, high = 9, 9 * (terms - 8) / 2  # of B beyond 8 terms, above and below the middle
    parts = [words(WIDTH / 2, 18, "one instruction of a warp", size=14)]
    for i in range(16):
        parts += [cell(30 + j * size, 40 + i * size, size, size, BLUE, strong=(i + j) % 2 == 0) for j in range(terms)]
        parts += [cell(380 + j * size, 40 + i * size, size, size, GREEN, strong=(i + j) % 2 == 0) for j in range(8)]
    parts += [
        cell(230 + j * size, 76 - high + i * size, size, size, ORANGE, strong=(i + j) % 2 == 0)
        for i in range(terms)
        for j in range(8)
    ]
    parts += [
        words(116 + terms * size / 2, 118, "×", size=18),
        words(340, 118, "+ →", size=16),
        words(30 + terms * size / 2, 206, f"A: 16 × {terms}"),
        words(266, 206, f"B: {terms} × 8"),
        words(416, 206, "C: 16 × 8"),
        words(
            WIDTH / 2,
            234,
            f"{128 * terms:,} multiply-adds; each lane holds {terms // 2} elements of A, {terms // 4} of B and 4 of C",
        ),
    ]
    label = (
        f"A tensor core multiplies 16 by {terms} elements of A by {terms} by 8 of B, which the lanes of a warp hold in "
        "registers."
    )
    return drawing(246, label, *parts)


def swizzle() -> str:
    """Chunks of 16 bytes of eight rows of shared memory: with a swizzle, a column of them lies in all banks."""
    size, parts = 22, []
    for left, name, swizzled in ((40, "rows as they are", False), (304, "place = chunk ^ row", True)):
        parts.append(words(left + 4 * size, 18, name, size=14))
        for row in range(8):
            for place in range(8):
                chunk = place ^ row if swizzled else place
                colour, strong = (ORANGE, True) if chunk == 0 else (BLUE, False)
                parts.append(cell(left + place * size, 28 + row * size, size, size, colour, strong, str(chunk)))
    parts += [
        words(40 + 4 * size, 224, "chunks 0 lie in four banks:"),
        words(40 + 4 * size, 242, "eight accesses, one by one"),
        words(304 + 4 * size, 224, "chunks 0 lie in all 32 banks:"),
        words(304 + 4 * size, 242, "one access for all eight rows"),
    ]
    label = "Eight rows of eight chunks of 16 bytes; with a swizzle, chunk 0 of each row lies in other banks."
    return drawing(254, label, *parts)


def producer() -> str:
    """A producer fills pipeline stages, and consumers multiply them; two mbarriers per stage order both."""
    x, step, parts = 110, 64, [words(WIDTH / 2, 18, "pipeline of three stages, over time", size=14)]
    for row, (name, colour, begin) in enumerate((("producer", BLUE, 0), ("consumers", GREEN, 1))):
        y = 30 + row * 66
        parts.append(words(12, y + 20, name, "start"))
        for i in range(6 - begin):
            text = f"{'load' if row == 0 else 'mul'} {i % 3}"
            parts.append(cell(x + (i + begin) * step, y, step - 4, 30, colour, strong=i % 2 == 0, text=text))
    for i in range(5):
        parts.append(line(x + (i + 1) * step - 6, 60, x + (i + 1) * step + 4, 96))
        if i < 3:
            parts.append(line(x + (i + 2) * step - 4, 96, x + (i + 3) * step + 4, 60, dashed=True))
    parts += [
        words(WIDTH / 2, 152, "solid: the mbarrier &quot;full&quot; of a stage, when all its bytes have arrived"),
        words(WIDTH / 2, 172, "dashed: its mbarrier &quot;empty&quot;, when all consumers have read it"),
    ]
    label = "A producer loads pipeline stages while consumers multiply earlier ones; mbarriers order them per stage."
    return drawing(184, label, *parts)


def tile_after_tile() -> str:
    """Persistent blocks: the loads of the next tile of C run while the current one is written."""
    x, parts = 110, [words(WIDTH / 2, 18, "one block computes several tiles of C, over time", size=14)]
    for row, (name, starts) in enumerate((("producer", (0, 130, 260)), ("consumers", (20, 150, 280)))):
        y = 30 + row * 44
        parts.append(words(12, y + 20, name, "start"))
        for i, start in enumerate(starts):
            colour = (BLUE, ORANGE, GREEN)[i]
            if row == 0:
                parts.append(cell(x + start, y, 126, 30, colour, strong=False, text=f"load tile {i}"))
            else:
                parts += [
                    cell(x + start, y, 94, 30, colour, text=f"products {i}"),
                    cell(x + start + 94, y, 32, 30, colour, strong=False, text="C"),
                ]
    parts.append(words(WIDTH / 2, 130, "while C of a tile is written, the first stages of the next tile arrive"))
    return drawing(142, "A persistent block loads the next tile of C while it finishes the current one.", *parts)


def teams() -> str:
    """Two teams of warps with tiles of their own: one multiplies while the other one writes C."""
    x, parts = 110, [words(WIDTH / 2, 18, "two teams of one SM, over time", size=14)]
    for team, (colour, starts) in enumerate(((BLUE, (0, 136, 272)), (GREEN, (68, 204)))):
        y = 30 + team * 44
        parts.append(words(12, y + 20, f"team {team}", "start"))
        for i, start in enumerate(starts):
            parts += [
                cell(x + start, y, 100, 30, colour, text=f"products {2 * i + team}"),
                cell(x + start + 100, y, 34, 30, colour, strong=False, text="C"),
            ]
    parts.append(words(WIDTH / 2, 130, "while one team writes its tile of C, the other one multiplies"))
    label = "Two teams of warps have tiles of their own, so that one multiplies while the other one writes C."
    return drawing(142, label, *parts)


def shared_tile() -> str:
    """The blocks of a cluster load a part of B each, and TMA writes it into the shared memory of all."""
    parts = [words(WIDTH / 2, 18, "two blocks of a cluster, with the same columns of C", size=14)]
    parts += [
        cell(190, 32, 70, 30, ORANGE, text="B, part 0"),
        cell(262, 32, 70, 30, ORANGE, strong=False, text="B, part 1"),
    ]
    for block, left in enumerate((40, 300)):
        parts += [
            cell(left, 104, 180, 70, "currentColor", strong=False),
            cell(left + 10, 112, 52, 30, BLUE, text=f"A {block}"),
            cell(left + 66, 112, 52, 30, ORANGE, text="B 0"),
            cell(left + 122, 112, 52, 30, ORANGE, strong=False, text="B 1"),
            words(left + 90, 162, f"shared memory of block {block}", size=12),
            line(225, 62, left + 92, 112),
            line(297, 62, left + 148, 112, dashed=True),
        ]
    parts += [
        words(WIDTH / 2, 198, "block 0 loads part 0 and block 1 part 1; TMA writes each part to both blocks,"),
        words(WIDTH / 2, 216, "so that B is read from the L2 cache once for both"),
    ]
    label = "Each of two blocks of a cluster loads half of the tile of B, which arrives in the shared memory of both."
    return drawing(228, label, *parts)


def three_products() -> str:
    """A float32 is split into two parts of 11 bits; three products of parts are added."""
    parts = [words(WIDTH / 2, 18, "float32: 24 bits, of which a tensor core reads 11", size=14)]
    for name, y, colour in (("a", 30, BLUE), ("b", 66, ORANGE)):
        parts += [
            words(40, y + 18, name),
            cell(60, y, 150, 26, colour, text=f"{name} big: 11 bits"),
            cell(214, y, 150, 26, colour, strong=False, text=f"{name} small: 11 bits"),
            words(376, y + 18, "the rest is dropped", "start", 12),
        ]
    parts += [
        words(WIDTH / 2, 124, "a b = a small × b big + a big × b small + a big × b big"),
        words(WIDTH / 2, 146, "small × small is below the rounding error of a long sum"),
    ]
    return drawing(158, "Each number is split into a big and a small part; three of four products are added.", *parts)


def scaled_rows() -> str:
    """Each row is multiplied by a power of two, so that its largest element fits FP16."""
    parts = [words(WIDTH / 2, 18, "rows of A, drawn by the exponents of their elements", size=14)]
    rows = (("2⁴⁰", 330, 60), ("2³", 150, 120), ("2⁻²⁰", 60, 30))
    for i, (name, start, width) in enumerate(rows):
        y = 34 + i * 34
        parts += [cell(start, y, width, 22, BLUE), words(start + width + 8, y + 16, name, "start", 12)]
    parts.append(words(WIDTH / 2, 152, "↓ each row times a power of two", size=13))
    for i, (_, _, width) in enumerate(rows):
        parts.append(cell(330 - width, 166 + i * 30, width, 22, BLUE))
    parts += [
        cell(140, 160, 190, 92, ORANGE, strong=False),
        words(336, 212, "2¹⁵", "start", 12),
        words(WIDTH / 2, 274, "all rows fill the range of FP16 (orange), whose largest number is 65,504"),
    ]
    return drawing(286, "Rows of A with different exponents are scaled so that each fills the range of FP16.", *parts)


def warpgroup() -> str:
    """Products run while the same warps load and split the next tile."""
    x, parts = 110, [words(WIDTH / 2, 18, "two warpgroups of a block, over time", size=14)]
    for row, (name, colour, first) in enumerate((("tensor cores", GREEN, 0), ("warps", BLUE, -1))):
        y = 30 + row * 44
        parts.append(words(12, y + 20, name, "start"))
        for i in range(3):
            text = f"products of tile {i}" if row == 0 else f"load, split tile {i - first}"
            parts.append(cell(x + i * 132, y, 128, 30, colour, text=text))
    parts += [
        line(x + 128, 60, x + 132, 74, dashed=True),
        line(x + 260, 60, x + 264, 74, dashed=True),
        words(WIDTH / 2, 128, "a product of 64 × 128 sums is started and runs by itself;"),
        words(WIDTH / 2, 148, "meanwhile the warps load the next tile and split it into two parts"),
    ]
    label = "While the tensor cores multiply one tile, the same warps load the next one and split it."
    return drawing(160, label, *parts)


def residues() -> str:
    """A float64 product by way of int8 residues, modulus by modulus, and back."""
    parts = [words(WIDTH / 2, 18, "float64 rows and columns, scaled and rounded to integers", size=14)]
    for name, x, colour in (("A", 60, BLUE), ("B", 190, ORANGE)):
        parts.append(cell(x, 30, 90, 34, colour, text=name))
    for i in range(3):
        y = 92 + i * 34
        text = ("mod 256", "mod 255", "mod 199")[i]
        parts += [
            words(10, y + 18, text, "start", 12),
            cell(68, y, 74, 26, BLUE, strong=False, text="int8"),
            words(166, y + 18, "×"),
            cell(198, y, 74, 26, ORANGE, strong=False, text="int8"),
            words(306, y + 18, "="),
            cell(340, y, 100, 26, GREEN, strong=False, text="residues of C"),
        ]
    parts += [
        line(105, 64, 105, 92),
        line(235, 64, 235, 92),
        line(390, 186, 390, 206),
        cell(310, 206, 160, 28, GREEN, text="C, by all residues"),
        words(14, 224, "14 products, each exact, give one exact", "start", 12),
        words(14, 240, "product of integers of up to 109 bits", "start", 12),
    ]
    label = (
        "A and B are replaced by their residues modulo fourteen small numbers. The residues are multiplied as int8, "
        "and all residues of an element of C together give the element."
    )
    return drawing(254, label, *parts)


def transposed() -> str:
    """A tensor core takes 8-bit operands with their rows along k only, so B is transposed first."""
    parts = [words(WIDTH / 2, 18, "rows of both operands run along k, the terms of a sum", size=14)]
    for x, name, colour in ((40, "A", BLUE), (330, "transpose of B", ORANGE)):
        parts += [cell(x, 36 + i * 22, 150, 18, colour, strong=i == 0) for i in range(4)]
        parts.append(words(x + 75, 142, f"{name}: k to the right"))
    parts += [
        words(260, 84, "×"),
        words(WIDTH / 2, 170, "one product takes 32 bytes of a row of each;"),
        words(WIDTH / 2, 190, "columns of B are not neighbours in memory until it is transposed"),
    ]
    label = "Rows of A and rows of the transpose of B both run along k, as a product of 8-bit elements needs them."
    return drawing(202, label, *parts)


# --- lessons --------------------------------------------------------------------------------------------------------


def overrun() -> str:
    """Blocks of 32 x 32 over 641 rows: the last ones extend past the matrix."""
    size = 22
    parts = [words(160, 18, "21 × 21 blocks of 32 × 32", size=14)]
    parts += [
        cell(60 + j * size, 28 + i * size, size, size, ORANGE if 6 in (i, j) else BLUE, strong=6 not in (i, j))
        for i in range(7)
        for j in range(7)
    ]
    parts += [
        cell(60, 28, 6 * size + 3, 6 * size + 3),
        line(300, 160, 222, 176),
        words(304, 160, "31 rows behind C: the guard", "start"),
        line(300, 60, 222, 60),
        words(304, 64, "columns of the next row", "start"),
        words(WIDTH / 2, 204, "641 rows: the last blocks have one row in C, and 31 outside"),
    ]
    return drawing(216, "Blocks that cover 641 rows and columns extend 31 elements past the matrix.", *parts)


def corner() -> str:
    """Load along the rows of memory, read by columns in shared memory."""
    size = 22
    parts = []
    for name, x, along in (("global memory", 60, True), ("shared memory", 310, False)):
        parts.append(words(x + 3 * size, 18, name, size=14))
        for i in range(6):
            for j in range(6):
                on = (i == 1) if along else (j == 1)
                parts.append(cell(x + j * size, 28 + i * size, size, size, (BLUE if along else ORANGE) if on else ""))
        if not along:
            parts += [cell(x + 6 * size, 28 + i * size, size / 2, size, "currentColor", strong=False) for i in range(6)]
    parts += [
        line(200, 94, 300, 94),
        words(250, 86, "tile"),
        words(126, 184, "a warp loads a row: 4 sectors"),
        words(376, 184, "a warp reads a column: 32 banks"),
        words(WIDTH / 2, 208, "shared memory has no sectors; the padding avoids bank conflicts"),
    ]
    return drawing(
        220, "A warp loads a row of the tile from global memory, and reads a column of it from shared memory.", *parts
    )


def branch(divided: bool) -> str:
    """The four warps of a block at a branch, with the paths that each one runs."""
    x, width = 120, 90
    parts = [words(x + 2 * width, 18, "warps of a block of 128 threads", size=14)]
    for warp in range(4):
        left = x + warp * width
        parts.append(cell(left, 28, width - 8, 24, text=f"warp {warp}"))
        paths = ["one", "other"] if divided and warp == 0 else ["other" if divided or warp > 2 else "one"]
        for turn, path in enumerate(paths):
            share = 3 / 32 if divided and path == "one" else 1.0
            y = 64 + turn * 34
            parts.append(cell(left, y, width - 8, 28, BLUE if path == "one" else ORANGE, strong=False))
            parts.append(cell(left, y, max(6, (width - 8) * share), 28, BLUE if path == "one" else ORANGE))
    text = (
        "threadIdx.x &gt; 2: warp 0 runs both paths, five in all"
        if divided
        else "threadIdx.x / 32 &gt; 2: one path per warp, four in all"
    )
    parts += [words(12, 84, "first", "start"), words(WIDTH / 2, 150, text)]
    if divided:
        parts += [words(12, 118, "then", "start"), words(WIDTH / 2, 170, "in the first one, 3 of 32 lanes work")]
    return drawing(182 if divided else 162, f"Warps of a block at a branch and their paths: {text}.", *parts)


def grid_barrier() -> str:
    """All blocks wait for each other, then the first one goes on."""
    parts = [words(WIDTH / 2, 18, "one cooperative launch: all blocks are resident", size=14)]
    for i in range(4):
        left = 50 + i * 108
        parts += [cell(left, 28, 90, 30, BLUE, text=f"block {i}"), line(left + 45, 58, left + 45, 88)]
        parts += [cell(left, 88, 90, 26, ORANGE, text=f"result {i}"), line(left + 45, 114, left + 45, 136)]
    parts += [
        line(40, 138, 480, 138, 2, dashed=True),
        words(486, 134, "barrier", "end", 12),
        line(95, 140, 95, 166),
        cell(50, 166, 200, 28, GREEN, text="block 0 combines the results"),
        words(WIDTH / 2, 218, "every block waits for all others, so that all must run at the same time"),
    ]
    return drawing(
        230, "Four blocks write their results and wait at a barrier; then block 0 combines the results.", *parts
    )


# --- levels of memory -----------------------------------------------------------------------------------------------


def chase() -> str:
    """Each element is the address of the next one."""
    x, size = 40, 55
    order = (0, 3, 6, 1, 4, 7, 2, 5)
    following = {order[i]: order[(i + 1) % 8] for i in range(8)}
    parts = [words(WIDTH / 2, 18, "elements in memory; each one names the next", size=14)]
    parts += [
        cell(x + i * size, 84, size - 8, 28, BLUE if i in order[:4] else "", text=f"→ {following[i]}") for i in range(8)
    ]
    parts += [words(x + i * size + 23, 130, str(i), size=12) for i in range(8)]
    for i in range(3):
        start, stop = x + order[i] * size + 23, x + order[i + 1] * size + 23
        parts.append(
            f'<path d="M{start:g} 82 Q{(start + stop) / 2:g} {40 - 8 * (i % 2):g} {stop:g} 82" fill="none" '
            'stroke="currentColor" stroke-width="1.2"/>'
        )
    parts += [
        words(WIDTH / 2, 156, "a load cannot begin before the one before it has returned:"),
        words(WIDTH / 2, 176, "time / steps is the latency of the level that holds the elements"),
    ]
    return drawing(188, "A chase: each element is the address of the next one, in random order.", *parts)


def hierarchy(marked: str) -> str:
    """The way from a thread to DRAM, with one level marked."""
    levels = ("registers", "shared memory, L1", "L2", "DRAM")
    parts = []
    for i, name in enumerate(levels):
        width = 150 + i * 90
        parts.append(
            cell((WIDTH - width) / 2, 12 + i * 36, width, 28, BLUE if name != marked else ORANGE, name == marked, name)
        )
    parts.append(words(WIDTH / 2, 174, "each level is larger and slower than the one above it"))
    return drawing(186, f"Levels of memory from registers to DRAM; {marked} is marked.", *parts)


def stride(step: int) -> str:
    """The bytes that a warp uses of the bursts that it fetches."""
    x, size = 20, 15
    parts = [words(WIDTH / 2, 18, "32 neighbours of 4 bytes: four sectors of 32 bytes", size=14)]
    parts += [cell(x + i * size, 28, size, 28, ORANGE, strong=i % step == 0) for i in range(32)]
    parts += [cell(x + i * 8 * size, 28, 8 * size, 28) for i in range(4)]
    used = max(1, 32 // step)
    parts += [
        words(
            WIDTH / 2, 80, f"used at a time: {used} of 32 elements (dark), of {min(4, used)} sectors that are fetched"
        )
    ]
    return drawing(
        92, f"Of 32 neighbouring elements in memory, {used} are used at a time, and whole sectors are fetched.", *parts
    )


def constant(served: bool) -> str:
    """One address for all lanes, or one for each."""
    x, size = 60, 50
    parts = [words(WIDTH / 2, 18, "lanes 0 to 7 of a warp", size=14)]
    for i in range(LANES):
        target = x + 4 * size if served else x + i * size
        parts += [cell(x + i * size, 28, size - 8, 24, BLUE, text=str(i))]
        parts += [line(x + i * size + 21, 52, target + (0 if served else 21), 92)]
        if not served:
            parts.append(cell(x + i * size, 94, size - 8, 26, ORANGE, text=f"turn {i}"))
        elif i == 3:
            parts.append(cell(x + 3.5 * size, 94, size, 26, ORANGE, text="once"))
    text = (
        "one address: a single read serves all lanes"
        if served
        else "an address for each lane: one read after the other"
    )
    return drawing(156, f"Lanes of a warp that read constant memory: {text}.", *parts, words(WIDTH / 2, 144, text))


def copied() -> str:
    """Several loads of a thread are under way before its first store."""
    parts = [words(WIDTH / 2, 18, "one thread", size=14)]
    for i in range(4):
        y = 28 + i * 30
        parts += [cell(60 + i * 10, y, 190, 24, ORANGE, text=f"load {i}: 16 bytes")]
        parts += [cell(290 + i * 10, y, 150, 24, GREEN, text=f"store {i}")]
    parts.append(words(WIDTH / 2, 168, "four loads are in flight before the first store waits for one"))
    return drawing(180, "A thread starts four loads of 16 bytes before it stores the first of them.", *parts)


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


# --- for the tutorial and the pitch -------------------------------------------------------------------------------


def pitch() -> str:
    """Rows of nine elements over sectors of eight: packed, and with a pitch of two sectors."""
    size, left, parts = 15, 120, []
    for top, title, step in ((20, "packed", 9), (68, "with a pitch", 16)):
        parts.append(words(left - 12, top + 12, title, anchor="end"))
        for row in range(2):
            for i in range(9):
                x = left + (row * step + i) * size
                parts.append(cell(x, top, size, size, BLUE if row else ORANGE, text=str(row)))
        for sector in range(4):
            parts.append(line(left + 8 * sector * size, top - 8, left + 8 * sector * size, top + size + 8, dashed=True))
    parts += [
        words(WIDTH / 2, 122, "dashed: a sector of 32 bytes begins; a row has 9 elements of 4 bytes"),
        words(WIDTH / 2, 142, "packed, row 1 begins within a sector; with a pitch, at its beginning"),
    ]
    label = "Rows over sectors of memory: packed rows begin within a sector, rows with a pitch at the beginning of one"
    return drawing(152, label, *parts)


def resident() -> str:
    """Two blocks fill the threads of an SM, and little of its shared memory."""
    left, wide, parts = 150, 340, []
    for i, (name, share) in enumerate((("threads", 1.0), ("registers", 1.0), ("shared memory", 0.08))):
        y = 14 + 44 * i
        parts += [words(left - 12, y + 19, name, anchor="end"), cell(left, y, wide, 28)]
        for block, colour in enumerate((BLUE, ORANGE)):
            part = wide * share / 2
            parts.append(cell(left + block * part, y, part, 28, colour, text=f"block {block}" if part > 60 else ""))
    parts.append(words(WIDTH / 2, 164, "no thread is left for a third block: threads and registers limit the blocks"))
    label = "An SM with two blocks: all of its threads and registers are taken, and 8 percent of its shared memory"
    return drawing(174, label, *parts)


def transfers() -> str:
    """The copies around a kernel, for a small and for a large product."""
    parts = []
    for i, (name, sizes) in enumerate((("small n", (60, 60, 26, 60)), ("large n", (60, 60, 200, 60)))):
        x, y = 80, 14 + 48 * i
        parts.append(words(x - 12, y + 19, name, anchor="end"))
        steps = zip(("A", "B", "kernel" if i else "", "C"), sizes, (BLUE, BLUE, GREEN, ORANGE), strict=True)
        for text, size, colour in steps:
            parts.append(cell(x, y, size, 28, colour, text=text))
            x += size
    parts.append(words(WIDTH / 2, 128, "relative to the copies: bytes grow with n², operations with n³"))
    label = "Copies of A and B to the GPU, the kernel, and the copy of C back; for large n the kernel takes longest"
    return drawing(138, label, *parts)


# Of the tutorial and the algorithms, not of one rung
OF_STEPS = {
    **{"occupancy": [resident], "transfers": [transfers]},
    **{path.stem: [kept(path.stem)] for path in sorted(PICTURES.glob("*.svg"))},
}

# Page of a rung: its drawings
OF = {
    "matmul-serial-cpu": [dot_product],
    "matmul-serial_double-cpu": [dot_product],
    "matmul-unrolled-cpu": [partial_sums],
    "matmul-pthread-cpu": [rows_of_threads],
    "matmul-avx-cpu": [simd],
    "matmul-parallel_for-cpu": [rows_of_threads],
    "matmul-openmp-cpu": [loops_exchanged],
    "matmul-packed-cpu": [panels],
    "matmul-naive_unguarded": [kept("blocks-cover-c"), coalesced],
    "matmul-naive": [kept("blocks-cover-c"), coalesced],
    "matmul-naive_unrolled": [coalesced],
    "matmul-uncoalesced": [uncoalesced],
    "matmul-coalesced": [coalesced],
    **{
        f"matmul-{name}": [kept("tile-staging")]
        for name in ("tiled_exact", "tiled_padded", "tiled_remainder", "tiled_rolled", "tiled_unrolled")
    },
    "matmul-pitched": [pitch],
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
    "matmul-tiled_overrun": [overrun],
    "matmul-tiled_guarded": [overrun],
    "matmul-corner_turned": [corner],
    "matmul-split_k": [split_terms],
    "matmul-skinny": [narrow_product],
    "matmul-stream_k_fma": [lambda: waves(False), lambda: waves(True)],
    "matmul-tensor_core": [fragments, three_products],
    "matmul-split_k_dmma": [split_terms],
    "matmul-stream_k_dmma": [lambda: waves(False), lambda: waves(True)],
    "matmul-persistent_dmma": [producer, teams],
    "matmul-warp_mma": [lambda: fragments(16)],
    "matmul-mma_tiled": [swizzle],
    "matmul-mma_pipelined": [kept("pipeline")],
    "matmul-wgmma_shared": [swizzle],
    "matmul-tma": [swizzle],
    "matmul-warp_specialized": [producer],
    "matmul-persistent": [tile_after_tile],
    "matmul-multicast": [shared_tile],
    "matmul-split_k_wgmma": [lambda: split_terms(slices=False)],
    "matmul-tf32": [producer],
    "matmul-warpgroup": [warpgroup, three_products],
    "matmul-int8_transposed": [transposed],
    "matmul-ozaki_14": [residues],
    "matmul-ozaki_15": [residues],
    "matmul-stream_k": [lambda: waves(False), lambda: waves(True)],
    "matmul-three_fp16": [scaled_rows, three_products],
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
    "reduction-flagged": [wide, numbered],
    **{f"{name}-serial-cpu": [lambda: chunks(1)] for name in ("reduction", "vector_add", "copy")},
    **{f"{name}-openmp-cpu": [lambda: chunks(4)] for name in ("reduction", "vector_add", "copy", "bandwidth")},
    "reduction-cooperative": [grid_barrier],
    "vector_add-divergent_branch": [lambda: branch(True)],
    "vector_add-uniform_branch": [lambda: branch(False)],
    "latency-serial-cpu": [chase],
    "latency-registers": [chase, lambda: hierarchy("registers")],
    "latency-shuffle": [chase, lambda: hierarchy("registers")],
    "latency-shared": [chase, lambda: hierarchy("shared memory, L1")],
    "latency-constant": [chase, lambda: constant(True)],
    "latency-cached": [chase, lambda: hierarchy("shared memory, L1")],
    "latency-uncached": [chase, lambda: hierarchy("L2")],
    "bandwidth-registers": [lambda: hierarchy("registers")],
    "bandwidth-shared": [lambda: hierarchy("shared memory, L1")],
    "bandwidth-constant": [lambda: constant(True)],
    "bandwidth-constant_serialised": [lambda: constant(False)],
    "bandwidth-cached": [lambda: hierarchy("shared memory, L1")],
    "bandwidth-uncached": [lambda: hierarchy("L2")],
    **{f"bandwidth-stride_{step}": [lambda step=step: stride(step)] for step in (1, 2, 4, 8, 16, 32)},
    "copy-one_per_thread": [coalesced],
    "copy-vectorized": [copied],
    "vector_add-one_per_thread": [coalesced],
    "vector_add-grid_stride": [grid_stride],
    "vector_add-vectorized": [wide],
}


def of(page: str) -> Iterator[str]:
    """Yield the drawings of a rung page, or those of a name in ``OF_STEPS``."""
    for draw in (OF | OF_STEPS).get(page, ()):
        yield draw()
