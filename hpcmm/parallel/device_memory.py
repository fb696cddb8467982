"""A trial of whether MPI takes device memory: ``mpiexec -n 2 python -m hpcmm.parallel.device_memory``.

It runs in processes of its own, as an MPI that does not take it may well crash.
"""

import numpy as np
from mpi4py import MPI

from hpcmm.backends import open_backend
from hpcmm.parallel import world

ELEMENTS = 2**20


def main() -> None:
    """Send each rank's array to the next one, from device to device, and look at what came."""
    comm = MPI.COMM_WORLD
    backend = open_backend("cuda", 1, world.local_rank(comm), share_gpu=True)
    sent, got = backend.empty((ELEMENTS,), "float32"), backend.empty((ELEMENTS,), "float32")
    sent.fill(comm.rank + 1)
    got.fill(0)
    backend.synchronize()
    before = (comm.rank - 1) % comm.size
    comm.Sendrecv(sent, (comm.rank + 1) % comm.size, recvbuf=got, source=before)
    host = np.empty(ELEMENTS, np.float32)
    backend.copy(got, host)
    if not np.array_equal(host, np.full(ELEMENTS, before + 1, np.float32)):
        world.abort("what arrived in device memory is not what was sent")


if __name__ == "__main__":
    main()
