"""MPI messages between arrays in device memory, by a CUDA-aware MPI library."""

from __future__ import annotations

import ctypes

from mpi4py import MPI

from hpcmm.parallel.transports.mpi import Mpi


class MpiCuda(Mpi):
    name, in_host_memory = "mpi_cuda", False

    @staticmethod
    def missing(comm, backend):
        try:
            aware = bool(ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support())
        except (OSError, AttributeError):
            aware = False
        return "" if comm.allreduce(aware, op=MPI.LAND) else "this MPI library does not report CUDA support"
