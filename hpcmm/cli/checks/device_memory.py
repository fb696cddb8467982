"""Test whether MPI accepts device memory: ``mpiexec -n 2 python -m hpcmm.cli.checks.device_memory``.

It runs in separate processes, because an MPI library without CUDA support may crash.
"""

import numpy as np

from hpcmm.backends import open_backend
from hpcmm.parallel import world

ELEMENTS = 2**20


def main() -> None:
    """Send each rank's array to the next rank, from device to device, and check the received data."""
    comm = world.world()
    backend = open_backend("cuda", 1, world.local_rank(comm), share_gpu=True)
    sent, received = backend.empty((ELEMENTS,), "float32"), backend.empty((ELEMENTS,), "float32")
    sent.fill(comm.rank + 1)
    received.fill(0)
    backend.synchronize()
    before = (comm.rank - 1) % comm.size
    comm.Sendrecv(sent, (comm.rank + 1) % comm.size, recvbuf=received, source=before)
    host = np.empty(ELEMENTS, np.float32)
    backend.copy(received, host)
    if not np.array_equal(host, np.full(ELEMENTS, before + 1, np.float32)):
        world.abort("the data received in device memory differs from the data sent")


if __name__ == "__main__":
    main()
