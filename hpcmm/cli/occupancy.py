"""``python -m hpcmm occupancy``: the blocks of a kernel that one multiprocessor has room for, worked by hand."""

import argparse

from hpcmm.model import HpcmmError
from hpcmm.model.capabilities import WARP, block_limits, block_on, capability, tile_phase
from hpcmm.model.dtypes import DTYPES
from hpcmm.system.streams import tabulated


def run(arguments: argparse.Namespace) -> int:
    like, width = capability(arguments.like), arguments.tile
    threads = (width, width) if width else (arguments.threads, 1)
    shared = arguments.shared or (2 * width**2 * DTYPES[arguments.dtype].itemsize if width else 0)
    block = block_on(like, threads, shared, arguments.registers, arguments.sm_shared)
    limits = block_limits(block, like)
    blocks = min(limits.values())
    if not blocks:
        (binding, *_) = (name for name, most in limits.items() if not most)
        raise HpcmmError(f"no block fits on an SM of compute capability {arguments.like}; it has too few {binding}")
    size = threads[0] * threads[1]
    warps = -(-size // WARP)
    rows = [["threads", f"{warps} warps = {warps * WARP}", like.threads]]
    rows += [["registers", f"{arguments.registers} per thread", like.registers]] if arguments.registers else []
    if "shared memory" in limits:
        reserved = f" + {like.reserved} B reserved" if like.reserved else ""
        rows += [["shared memory", f"{shared} B{reserved}", f"{block['sm_shared_bytes']} B"]]
    rows += [["blocks", "1", like.blocks]]
    shape = f"{width} x {width} = {size}" if width else str(size)
    print(f"A block of {shape} threads, compute capability {arguments.like}:\n")
    head = ["resource", "a block takes", "an SM has", "blocks per SM"]
    print(tabulated(head, [[*row, limits[row[0]]] for row in rows], 1, [True, False, False, False]))
    binding = " and ".join(name for name, most in limits.items() if most == blocks)
    fits = f"{blocks} block{'s' * (blocks > 1)} per SM, limited by {binding}"
    print(f"\n{fits}: {blocks * size} threads, {blocks * warps} warps, occupancy {blocks * warps / like.warps:.0%}")
    if width:
        loads, flops = tile_phase(width, width, width)
        phase = f"{loads} elements for {flops} operations, {flops // loads} per load"
        print(f"Between two barriers a block loads {phase}; an SM has up to {blocks * loads} loads in flight")
    return 0
