"""NCCL between GPUs."""

import cupy
from cupy.cuda import nccl

COLLECTIVES = {"all_gather": "allGather", "reduce_scatter": "reduceScatter", "all_reduce": "allReduce"}  # CuPy's names
MOST_ELEMENTS = 1 << 30  # of a broadcast: CuPy counts them in 32 bits


class NcclLink:
    def __init__(self, size: int, identity: bytes, rank: int):
        self.comm = nccl.NcclCommunicator(size, identity, rank)

    def exchange(self, receives, sends, stream: cupy.cuda.Stream) -> None:
        """Enqueue all transfers as one group; each is a pair (rank, contiguous array)."""
        nccl.groupStart()
        for transfer, pairs in ((self.comm.recv, receives), (self.comm.send, sends)):
            for rank, array in pairs:
                if array.size:
                    transfer(array.data.ptr, array.nbytes, nccl.NCCL_UINT8, rank, stream.ptr)
        nccl.groupEnd()

    def all_reduce(self, array: cupy.ndarray, result: cupy.ndarray, combination: str) -> None:
        """Enqueue an all-reduce of the ranks' arrays on the main stream; ``result`` may be the array itself."""
        dtype = getattr(nccl, f"NCCL_{array.dtype.name.upper()}")
        how = {"sum": nccl.NCCL_SUM, "minimum": nccl.NCCL_MIN, "maximum": nccl.NCCL_MAX}[combination]
        stream = cupy.cuda.get_current_stream().ptr
        self.comm.allReduce(array.data.ptr, result.data.ptr, array.size, dtype, how, stream)

    def collect(self, pattern: str, x: cupy.ndarray, y: cupy.ndarray) -> None:
        """Enqueue a collective from ``x`` to ``y`` on the main stream; see ``Transport.collect``."""
        stream = cupy.cuda.get_current_stream()
        root, kind = self.comm.rank_id() == 0, getattr(nccl, f"NCCL_{x.dtype.name.upper()}")
        if pattern == "broadcast":
            whole = x if root else y
            for first in range(0, whole.size, MOST_ELEMENTS):
                part = whole[first : first + MOST_ELEMENTS]
                self.comm.bcast(part.data.ptr, part.size, kind, 0, stream.ptr)
        elif pattern == "gather":
            self.exchange(enumerate(y.reshape(-1, x.size)) if root else (), [(0, x)], stream)
        else:
            call = getattr(self.comm, COLLECTIVES[pattern])
            how = (nccl.NCCL_SUM,) if "reduce" in pattern else ()
            call(x.data.ptr, y.data.ptr, min(x.size, y.size), kind, *how, stream.ptr)

    def close(self) -> None:
        self.comm.destroy()

    def abort(self) -> None:
        """End all transfers that are underway. Every rank has to call this."""
        self.comm.abort()
