"""MPI messages between arrays in host memory, and in device memory by a CUDA-aware MPI library."""

import ctypes

from mpi4py import MPI

from hpcmm.parallel.collectives import posted
from hpcmm.parallel.transports.base import Transport

COLLECTIVES = {  # MPI's names
    "gather": "Gather",
    "all_gather": "Allgather",
    "reduce_scatter": "Reduce_scatter_block",
    "all_reduce": "Allreduce",
}


class Mpi(Transport):
    name = "mpi"

    def start(self, arrivals, departures, after):
        self.backend.finish(after)
        return posted(self.comm, [(arrival.source, arrival.target) for arrival in arrivals], departures)

    def wait(self, ticket):
        MPI.Request.Waitall(ticket)

    def collect(self, pattern, x, y):
        if pattern == "broadcast":
            self.comm.Bcast(x if self.comm.rank == 0 else y)
        else:
            getattr(self.comm, COLLECTIVES[pattern])(x, y)


class MpiCuda(Mpi):
    name, in_host_memory = "mpi_cuda", False

    @staticmethod
    def missing(comm, backend):
        try:
            aware = bool(ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support())
        except (OSError, AttributeError):
            aware = False
        return "" if comm.allreduce(aware, op=MPI.LAND) else "this MPI library does not report CUDA support"
