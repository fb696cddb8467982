"""Direct copies between the memories of GPUs of one node, through CUDA IPC."""

from mpi4py import MPI

from hpcmm.parallel.transports.base import Transport, on_all_ranks


class Peer(Transport):
    """Device memory of the node's other processes, mapped through CUDA IPC and read by copy engines.

    The owner takes no part in a copy, and copies occupy no SM. A shared array must not change while others may read
    it: the caller places a barrier before and after.
    """

    name, in_host_memory, one_sided = "peer", False, True

    def __init__(self, comm, backend):
        super().__init__(comm, backend)
        self.copies = backend.stream()
        self.remote: dict[str, list] = {}

    @staticmethod
    def missing(comm, backend):
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        one_node = comm.allreduce(node.size == comm.size, op=MPI.LAND)
        node.Free()
        return "" if one_node else "the ranks are on several nodes"

    def share(self, name, array):
        exported = on_all_ranks(self.comm, lambda: (self.backend.export(array), array.shape, str(array.dtype)))
        everyone = self.comm.allgather(exported)
        self.remote[name] = [array if rank == self.comm.rank else None for rank in range(self.comm.size)]

        def open_all() -> None:
            for rank, each in enumerate(everyone):
                if rank != self.comm.rank:
                    self.remote[name][rank] = self.backend.open_peer(*each)

        on_all_ranks(self.comm, open_all)

    def unshare(self):
        self.backend.synchronize()
        self.comm.Barrier()
        for arrays in self.remote.values():
            for rank, array in enumerate(arrays):
                if rank != self.comm.rank and array is not None:
                    self.backend.close_peer(array)
        self.remote = {}
        self.comm.Barrier()  # no rank frees memory that another one has mapped

    def fence(self, event):
        self.backend.finish(event)
        self.comm.Barrier()

    def start(self, arrivals, departures, after):
        self.backend.wait(after, self.copies)
        for arrival in arrivals:
            self.backend.copy_async(
                self.remote[arrival.name][arrival.source][arrival.index], arrival.target, self.copies
            )
        return self.backend.mark(self.copies)
