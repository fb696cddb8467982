"""MPI messages between arrays in host memory."""

from __future__ import annotations

from mpi4py import MPI

from hpcmm.parallel.collectives import message
from hpcmm.parallel.transports.base import Transport

COLLECTIVES = {  # MPI's names
    "gather": "Gather",
    "all_gather": "Allgather",
    "reduce_scatter": "Reduce_scatter_block",
    "all_reduce": "Allreduce",
}


class Mpi(Transport):
    """Nonblocking MPI sends and receives on the arrays themselves."""

    name = "mpi"

    def start(self, arrivals, departures, after):
        self.backend.finish(after)
        requests = []
        for post, pairs in (
            (self.comm.Irecv, [(arrival.source, arrival.target) for arrival in arrivals]),
            (self.comm.Isend, departures),
        ):
            for rank, array in pairs:
                if array.size:
                    buffer = message(array)
                    requests.append(post(buffer, rank))
                    buffer[2].Free()  # MPI keeps the datatype until the message is complete
        return requests

    def wait(self, ticket):
        MPI.Request.Waitall(ticket)

    def collect(self, pattern, x, y):
        if pattern == "broadcast":
            self.comm.Bcast(x if self.comm.rank == 0 else y)
        else:
            getattr(self.comm, COLLECTIVES[pattern])(x, y)
