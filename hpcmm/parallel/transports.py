"""What carries arrays between ranks while they compute: one interface, several ways.

An exchange is started once and waited for later. Each rank names what is to arrive (whose array, which
part of it, where to) and what leaves it (to whom). Two-sided transports send what leaves; a one-sided one
reads what arrives from its owner's memory and never looks at what leaves.
"""

from __future__ import annotations

import ctypes
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcmm.model import HpcmmError
from hpcmm.parallel.block_rows import COMBINATIONS, message

CHUNK = 4 << 20  # bytes that travel through host memory at a time
ROW, TRIES = 4096, 5  # bytes of a row and repetitions of the exchanges that are measured
EXCHANGES = tuple(ROW * 4**power for power in range(8))  # 4 KiB to 64 MiB
TRIAL = 1000  # elements of the exchange that shows whether a transport works


class TransportError(HpcmmError):
    """No way to exchange arrays between these ranks, or not the one that was asked for."""


@dataclass(frozen=True)
class Arrival:
    """``target`` is to receive rank ``source``'s shared array ``name``, or the part of it at ``index``."""

    source: int
    name: str
    index: Any
    target: Any


class Transport:
    """No exchange at all: all that a single rank needs, and what the others have in common.

    Every method but ``start``, ``wait`` and ``arrived`` is collective.
    """

    name = ""
    one_sided = False
    reduces = "mpi"  # what carries an all-reduce

    def __init__(self, comm: MPI.Comm, backend):
        self.comm, self.backend = comm, backend

    @staticmethod
    def missing(comm: MPI.Comm, backend) -> str:
        """Say why these ranks cannot use it, on each rank the same; empty if a trial may tell."""
        return ""

    def share(self, name: str, array) -> None:
        """Let other ranks name this rank's array as the source of an arrival, until ``unshare``."""

    def unshare(self) -> None:
        """Forget all that is shared; the arrays may be freed then."""

    def settle(self, event) -> None:
        """Return once what ``event`` marks is done wherever an arrival could read it."""

    def start(self, arrivals: Sequence[Arrival], departures: Sequence[tuple[int, Any]], after) -> Any:
        """Begin an exchange that depends on what ``after`` marks; return a ticket for ``wait``.

        Ranks start matching exchanges in the same order and wait for them in that order.
        """
        return after

    def wait(self, ticket) -> None:
        """Let the main stream go on only when the exchange is over, both ways."""

    def all_reduce(self, array, combination: str) -> None:
        """Combine the ranks' arrays of one small size into all of them, after what the main stream was given."""
        if self.comm.size == 1:
            return
        host = np.empty(array.shape, array.dtype)
        self.backend.copy(array, host)
        self.comm.Allreduce(MPI.IN_PLACE, host, op=COMBINATIONS[combination])
        self.backend.copy(host, array)

    def close(self) -> None:
        """Give back what the transport holds."""


class Mpi(Transport):
    """MPI on the arrays themselves, which are in host memory."""

    name = "mpi"

    def start(self, arrivals, departures, after):
        self.backend.finish(after)
        requests = []
        for post, pairs in (
            (self.comm.Irecv, [(each.source, each.target) for each in arrivals]),
            (self.comm.Isend, departures),
        ):
            for rank, array in pairs:
                if array.size:
                    what = message(array)
                    requests.append(post(what, rank))
                    what[2].Free()  # MPI keeps it for as long as the message needs it
        return requests

    def wait(self, ticket):
        MPI.Request.Waitall(ticket)


class MpiRma(Transport):
    """MPI's remote memory access: each rank reads what arrives from its owner's window, in host memory."""

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

    def settle(self, event):
        for window in self.windows.values():
            window.Sync()
        self.comm.Barrier()

    def start(self, arrivals, departures, after):
        requests = []
        for each in arrivals:
            if each.target.size:
                what = message(each.target)
                place = (each.index.start or 0, *what[1:])
                requests.append(self.windows[each.name].Rget(what, each.source, place))
                what[2].Free()
        return requests

    def wait(self, ticket):
        MPI.Request.Waitall(ticket)


class MpiCuda(Mpi):
    """MPI on device memory, by a library that is built for it."""

    name = "mpi_cuda"

    @staticmethod
    def missing(comm, backend):
        try:
            aware = bool(ctypes.CDLL(MPI.__file__).MPIX_Query_cuda_support())
        except (OSError, AttributeError):
            aware = False
        return "" if comm.allreduce(aware, op=MPI.LAND) else "this MPI does not say that it takes device memory"


class Peer(Transport):
    """Device memory of other processes of the node, mapped through CUDA IPC and read by copy engines.

    An owner does nothing for it, and no multiprocessor is taken from the computation. What is shared
    must not change while others may read it: a barrier before and after is the user's.
    """

    name, one_sided = "peer", True

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
        exported = together(self.comm, lambda: (self.backend.export(array), array.shape, str(array.dtype)))
        everyone = self.comm.allgather(exported)
        self.remote[name] = [array if rank == self.comm.rank else None for rank in range(self.comm.size)]

        def open_all() -> None:
            for rank, each in enumerate(everyone):
                if rank != self.comm.rank:
                    self.remote[name][rank] = self.backend.open_peer(*each)

        together(self.comm, open_all)

    def unshare(self):
        self.backend.synchronize()
        self.comm.Barrier()
        for arrays in self.remote.values():
            for rank, array in enumerate(arrays):
                if rank != self.comm.rank and array is not None:
                    self.backend.close_peer(array)
        self.remote = {}
        self.comm.Barrier()  # nobody frees what is still mapped elsewhere

    def settle(self, event):
        self.backend.finish(event)
        self.comm.Barrier()

    def start(self, arrivals, departures, after):
        self.backend.wait(after, self.copies)
        for each in arrivals:
            self.backend.copy_async(self.remote[each.name][each.source][each.index], each.target, self.copies)
        return self.backend.mark(self.copies)

    def wait(self, ticket):
        self.backend.wait(ticket)


class Nccl(Transport):
    """Sends and receives of NCCL on a stream of their own."""

    name = reduces = "nccl"

    def __init__(self, comm, backend):
        super().__init__(comm, backend)
        self.stream = backend.stream()
        identity = comm.bcast(backend.nccl_identity() if comm.rank == 0 else None, root=0)
        self.link = backend.nccl(comm.size, identity, comm.rank)

    @staticmethod
    def missing(comm, backend):
        gpus = comm.allgather((MPI.Get_processor_name(), backend.uuid))
        if len(set(gpus)) < comm.size:
            return "ranks share a GPU, which NCCL refuses"
        return "" if comm.allreduce(backend.has_nccl, op=MPI.LAND) else "NCCL is not installed"

    def start(self, arrivals, departures, after):
        self.backend.wait(after, self.stream)
        self.link.exchange([(each.source, each.target) for each in arrivals], departures, self.stream)
        return self.backend.mark(self.stream)

    def wait(self, ticket):
        self.backend.wait(ticket)

    def all_reduce(self, array, combination):
        self.link.all_reduce(array, combination)

    def close(self):
        self.backend.synchronize()
        self.link.close()


class Pinned(Transport):
    """Plain MPI through page-locked host memory, in chunks, two of each flow on their way at a time.

    The host moves the chunks while it waits for them; kernels that were launched before run meanwhile.
    """

    name = "pinned"

    def __init__(self, comm, backend):
        super().__init__(comm, backend)
        self.copies = backend.stream()
        self.free: list[np.ndarray] = []
        self.mail = comm.Dup()  # flows of their own, which no other message between the ranks can meet

    def start(self, arrivals, departures, after):
        return arrivals, departures, after

    def wait(self, ticket):
        arrivals, departures, after = ticket
        self.backend.wait(after, self.copies)
        flows = [self._receive(each.source, each.target) for each in arrivals if each.target.size]
        flows += [self._send(rank, array) for rank, array in departures if array.size]
        over = object()
        while flows:
            flows = [flow for flow in flows if next(flow, over) is not over]
        self.backend.wait(self.backend.mark(self.copies))

    def _buffers(self) -> list[np.ndarray]:
        while len(self.free) < 2:
            self.free.append(self.backend.host_empty((CHUNK,), "uint8", True))
        return [self.free.pop(), self.free.pop()]

    def _copy(self, source, target) -> None:
        self.backend.copy_async(source, target, self.copies)
        self.backend.finish(self.backend.mark(self.copies))

    def _send(self, rank: int, array) -> Iterator[None]:
        buffers, requests = self._buffers(), [MPI.REQUEST_NULL, MPI.REQUEST_NULL]
        for i, piece in enumerate(pieces(array)):
            while not requests[i % 2].Test():
                yield
            host = buffers[i % 2][: piece.size]
            self._copy(piece, host)
            requests[i % 2] = self.mail.Isend(host, rank)
        while not MPI.Request.Testall(requests):
            yield
        self.free += buffers

    def _receive(self, rank: int, array) -> Iterator[None]:
        buffers, posted = self._buffers(), deque()
        for i, piece in enumerate(pieces(array)):
            if len(posted) == 2:
                yield from self._land(posted)
            host = buffers[i % 2][: piece.size]
            posted.append((self.mail.Irecv(host, rank), host, piece))
        while posted:
            yield from self._land(posted)
        self.free += buffers

    def _land(self, posted: deque) -> Iterator[None]:
        request, host, piece = posted.popleft()
        while not request.Test():
            yield
        self._copy(host, piece)

    def close(self):
        self.mail.Free()


def pieces(array) -> Iterator:
    """The bytes of a contiguous array, ``CHUNK`` of them at a time."""
    flat = array.reshape(-1).view(np.uint8)
    return (flat[first : first + CHUNK] for first in range(0, flat.size, CHUNK))


# Of each device, what is taken first if it works.
TRANSPORTS = {"cpu": (Mpi, MpiRma), "cuda": (Peer, Nccl, MpiCuda, Pinned)}


def together(comm: MPI.Comm, action: Callable[[], Any]) -> Any:
    """Do something on every rank; if it fails on any, all raise its error."""
    result, problem = None, ""
    try:
        result = action()
    except Exception as error:  # whatever a driver or a library says
        problem = f"rank {comm.rank}: {type(error).__name__}: {error}"
    problem = next(filter(None, comm.allgather(problem)), "")
    if problem:
        raise TransportError(problem)
    return result


def trial(transport: Transport) -> None:
    """Exchange a small array round the ranks and look at what arrived.

    Raises
    ------
    TransportError
        On every rank, if it is not on any.
    """
    comm, backend = transport.comm, transport.backend
    source, destination = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    mine, theirs = backend.shared_empty((TRIAL, 1), "float32"), backend.empty((TRIAL, 1), "float32")
    mine.fill(comm.rank)
    theirs.fill(-1)
    transport.share("trial", mine)
    transport.settle(backend.mark())

    def exchange() -> None:
        transport.wait(
            transport.start([Arrival(source, "trial", slice(None), theirs)], [(destination, mine)], backend.mark())
        )
        host = np.empty((TRIAL, 1), np.float32)
        backend.copy(theirs, host)
        if not (host == source).all():
            raise TransportError(f"what rank {source} sent did not arrive")

    try:
        together(comm, exchange)
    finally:
        transport.unshare()


def exchange_times(transport: Transport) -> dict[str, Any]:
    """Measure exchanges of several sizes, from each rank to the next, all ranks at once.

    Returns
    -------
    dict
        ``transport``; ``bytes`` and ``seconds``, the median of a few on the slowest rank, for each size.
    """
    comm, backend = transport.comm, transport.backend
    found: dict[str, Any] = {"transport": transport.name, "bytes": [], "seconds": []}
    if comm.size == 1:
        return found
    source, destination = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    rows = EXCHANGES[-1] // ROW
    mine, theirs = (backend.shared_empty((rows, ROW // 4), "float32") for _ in range(2))
    mine.fill(1)
    transport.share("trial", mine)
    transport.settle(backend.mark())
    for size in EXCHANGES:
        part = slice(0, size // ROW)

        def exchange(part=part) -> None:
            arrival = Arrival(source, "trial", part, theirs[part])
            transport.wait(transport.start([arrival], [(destination, mine[part])], backend.mark()))

        times = []
        for _ in range(TRIES):
            comm.Barrier()
            times.append(comm.allreduce(backend.seconds_alone(exchange, False, {}), op=MPI.MAX))
        found["bytes"].append(size)
        found["seconds"].append(statistics.median(times))
    transport.unshare()
    return found


def open_transport(comm: MPI.Comm, backend, wanted: str = "auto", first: str = "") -> tuple[Transport, str]:
    """Choose what carries the exchanges between these ranks.

    Parameters
    ----------
    comm : MPI.Comm
    backend : CpuBackend or CudaBackend
    wanted : str
        A transport's name; ``"auto"``, or one that the device does not have, tries all that it has.
    first : str
        The one that is tried before the others.

    Returns
    -------
    Transport
    str
        Why others were not taken; empty if the first was.

    Raises
    ------
    TransportError
        If none works, or not the one that is wanted.
    """
    if comm.size == 1:
        return Transport(comm, backend), ""
    kinds = TRANSPORTS["cpu" if backend.in_host_memory else "cuda"]
    kinds = [kind for kind in kinds if kind.name == wanted] or sorted(kinds, key=lambda kind: kind.name != first)
    reasons = []
    for kind in kinds:
        reason = kind.missing(comm, backend)
        if not reason:
            try:
                transport = together(comm, lambda kind=kind: kind(comm, backend))
                trial(transport)
                return transport, "; ".join(reasons)
            except TransportError as error:
                reason = str(error)
        reasons.append(f"{kind.name}: {reason}")
    raise TransportError(f"config: transport: {wanted!r} does not work between these ranks: {'; '.join(reasons)}")
