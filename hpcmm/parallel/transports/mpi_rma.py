"""MPI's remote memory access to arrays in host memory."""

import math

from mpi4py import MPI

from hpcmm.parallel.collectives import message
from hpcmm.parallel.transports.base import Transport


class MpiRma(Transport):
    """Each rank reads its arrivals from their owners' windows."""

    name, one_sided = "mpi_rma", True

    def __init__(self, comm, backend):
        super().__init__(comm, backend)
        self.windows: dict[str, MPI.Win] = {}

    def share(self, name, array):
        row = math.prod(array.shape[1:]) * array.itemsize
        self.windows[name] = MPI.Win.Create(array, max(1, row), comm=self.comm)
        self.windows[name].Lock_all()

    def unshare(self):
        for window in self.windows.values():
            window.Unlock_all()
            window.Free()
        self.windows = {}

    def fence(self, event):
        for window in self.windows.values():
            window.Sync()
        self.comm.Barrier()

    def start(self, arrivals, departures, after):
        requests = []
        for arrival in arrivals:
            if arrival.target.size:
                buffer = message(arrival.target)
                place = (arrival.index.start or 0, *buffer[1:])
                requests.append(self.windows[arrival.name].Rget(buffer, arrival.source, place))
        return requests

    def wait(self, ticket):
        MPI.Request.Waitall(ticket)
