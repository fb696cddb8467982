"""Rank 1 of three comes too late to a barrier: ``late.py KIND SECONDS``, the seconds that all are given.

KIND is why: asleep in Python, or asleep in a library that holds Python's lock; or in_time.
"""

import ctypes
import sys
import time

from mpi4py import MPI

from hpcmm.parallel import world


def asleep() -> None:
    time.sleep(600)


def locked() -> None:
    ctypes.PyDLL(None).sleep(600)


kind, seconds = sys.argv[1], float(sys.argv[2])
MPI.COMM_WORLD.Barrier()  # all have come so far, however long each took to start
with world.Watchdog(MPI.COMM_WORLD, patience=seconds / 2) as watchdog:
    watchdog.expect("the test", seconds / 2)
    if MPI.COMM_WORLD.rank == 1 and kind != "in_time":
        {"asleep": asleep, "locked": locked}[kind]()
    MPI.COMM_WORLD.Barrier()
if kind == "in_time":
    time.sleep(seconds + 1)
print("done")
