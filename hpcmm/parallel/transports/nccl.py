"""NCCL between GPUs, one GPU per rank."""

from mpi4py import MPI

from hpcmm.parallel.transports.base import Transport


class Nccl(Transport):
    """NCCL sends and receives on a stream of their own."""

    name = reduces = "nccl"
    in_host_memory = False

    def __init__(self, comm, backend):
        super().__init__(comm, backend)
        self.stream = backend.stream()
        identity = comm.bcast(backend.nccl_identity() if comm.rank == 0 else None, root=0)
        self.link = backend.nccl(comm.size, identity, comm.rank)

    @staticmethod
    def missing(comm, backend):
        gpus = comm.allgather((MPI.Get_processor_name(), backend.uuid))
        if len(set(gpus)) < comm.size:
            return "ranks share a GPU; NCCL needs one GPU per rank"
        return "" if comm.allreduce(backend.has_nccl, op=MPI.LAND) else "NCCL is not installed"

    def start(self, arrivals, departures, after):
        self.backend.wait(after, self.stream)
        self.link.exchange([(arrival.source, arrival.target) for arrival in arrivals], departures, self.stream)
        return self.backend.mark(self.stream)

    def all_reduce(self, array, combination, result=None):
        self.link.all_reduce(array, array if result is None else result, combination)

    def collect(self, pattern, x, y):
        self.link.collect(pattern, x, y)

    def abandon(self):
        # Otherwise the garbage collector destroys the communicator. Ranks on a node wait for each other to do so, and
        # the collector may run at another time on each.
        self.link.abort()

    def close(self):
        self.backend.synchronize()
        self.link.close()
