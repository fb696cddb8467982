"""The measurements of a check on ranks with a core or a GPU of their own; other processes may keep that of one busy.

mpiexec -n 2 python check.py FOLDER cpu|cuda [BUSY_RANK]
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from mpi4py import MPI

from hpcmm.backends import this_machine
from hpcmm.bench.job import Process, measure_batch
from hpcmm.bench.journal import kept_in
from hpcmm.cli import check
from hpcmm.experiment import plan

COMM, FOLDER, DEVICE = MPI.COMM_WORLD, Path(sys.argv[1]), sys.argv[2]
BUSY = COMM.rank == int(sys.argv[3]) if len(sys.argv) > 3 else False
LOOP = "print(flush=True)\nwhile True: pass"
PRODUCTS = """
import sys, cupy
cupy.cuda.Device(int(sys.argv[1])).use()
a = cupy.ones((8192, 8192), "float32")
b = a @ a
cupy.cuda.Device().synchronize()
print(flush=True)
while True:
    for _ in range(4):
        cupy.matmul(a, a, out=b)
    cupy.cuda.Device().synchronize()
"""
os.environ["SLURMD_NODENAME"] = f"node{COMM.rank}"
if DEVICE == "cpu":
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[COMM.rank]})
    with contextlib.suppress(PermissionError):  # other work on this machine leaves the busy node for the idle one
        os.setpriority(os.PRIO_PROCESS, 0, -10)
program, count = {"cpu": (LOOP, 12), "cuda": (PRODUCTS, 2)}[DEVICE]
others = [
    subprocess.Popen([sys.executable, "-c", program, str(COMM.rank)], stdout=subprocess.PIPE)
    for _ in range(count * BUSY)
]
try:
    for other in others:
        other.stdout.readline()
    config = check.config(COMM.size) | {"backends": DEVICE}
    # a repetition beside the busy loops takes a second, and must not be the only one
    limits = {"cpu": {"max_seconds": 20, "max_repetitions": 9}, "cuda": {"max_seconds": 0.3}}
    config["measuring"] |= {"min_repetitions": 6, **limits[DEVICE]}
    # longer than the time that a core gives to one process
    config["sweeps"]["cpu_product"]["sizes"] = [768]
    config["sweeps"].pop("cpu_links", None)  # both ends of a link wait for the slower one
    config["sweeps"]["gpu_product"] |= {"sizes": [2048], "dtypes": ["float32", "bfloat16"]}
    config["sweeps"]["gpu_memory"]["sizes"] = [2**24]
    config["sweeps"].pop("gpu_all_reduce", None)
    config["sweeps"]["gpu_links"]["sizes"] = [2**22 * COMM.size]
    planned = plan.make(config, this_machine())
    process = Process(COMM, DEVICE, False)
    for batch in planned.to_measure:
        for _ in range(planned.measuring.visits):
            output = FOLDER / f"{batch.name.replace('/', '-')}.h5"
            missing = measure_batch(process, batch, planned.measuring, kept_in(output, planned.config))
            assert missing == []
    process.close()
finally:
    for other in others:
        other.kill()
        other.wait()
