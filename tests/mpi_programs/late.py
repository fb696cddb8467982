"""Rank 1 of three comes too late: ``late.py KIND SECONDS``, the seconds that all are given.

KIND is why. Before a barrier: ``asleep`` in Python, or ``locked``, asleep in a library that holds Python's lock.
Before the end of MPI: ``asleep_at_end``, ``stopped``, ``killed``, or ``orphaned``, when the launcher's process on the
node is killed. After it: ``asleep_after``, in a library while Python ends. Or ``in_time``.
"""

import atexit
import ctypes
import os
import signal
import sys
import time

from mpi4py import MPI

from hpcmm.parallel import world


def asleep() -> None:
    time.sleep(600)


def locked() -> None:
    ctypes.PyDLL(None).sleep(600)


kind, seconds = sys.argv[1], float(sys.argv[2])
at_end = {
    "asleep_at_end": asleep,
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "orphaned": lambda: os.kill(os.getppid(), signal.SIGKILL),
}
late = MPI.COMM_WORLD.rank == 1
print(f"process {os.getpid()}", flush=True)
if kind != "in_time":
    world.SECONDS_TO_END = 2
if kind == "asleep_after" and late:
    atexit.register(locked)
MPI.COMM_WORLD.Barrier()  # all have come so far, however long each took to start
with world.Watchdog(MPI.COMM_WORLD, patience=seconds / 2) as watchdog:
    watchdog.expect("the test", seconds / 2)
    if late and kind in ("asleep", "locked"):
        {"asleep": asleep, "locked": locked}[kind]()
    MPI.COMM_WORLD.Barrier()
    if late and kind in at_end:
        watchdog.expect("the test", 600)
        at_end[kind]()
if kind == "in_time":
    time.sleep(seconds + 1)
print("done")
