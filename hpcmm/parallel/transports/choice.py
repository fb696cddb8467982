"""Choose the transport of these ranks: test each before it is used, and time the chosen one."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcmm.parallel.transports.base import Arrival, Transport, TransportError, on_all_ranks
from hpcmm.parallel.transports.mpi import Mpi
from hpcmm.parallel.transports.mpi_cuda import MpiCuda
from hpcmm.parallel.transports.mpi_rma import MpiRma
from hpcmm.parallel.transports.nccl import Nccl
from hpcmm.parallel.transports.peer import Peer
from hpcmm.parallel.transports.pinned import Pinned

TRANSPORTS = (Mpi, MpiRma, Peer, Nccl, MpiCuda, Pinned)  # in the order in which they are tried
TRIAL_ELEMENTS = 1000  # of the exchange that tests a transport
ROW_BYTES, REPETITIONS = 4096, 5  # of the exchanges that are timed
MESSAGE_BYTES = tuple(ROW_BYTES * 4**power for power in range(8))  # 4 KiB to 64 MiB


def candidates(backend) -> list[type[Transport]]:
    """Return the transports that move arrays in the backend's memory, in the order in which they are tried."""
    return [kind for kind in TRANSPORTS if kind.in_host_memory == backend.in_host_memory]


def open_transport(comm: MPI.Comm, backend, wanted: str = "auto", first: str = "") -> tuple[Transport, str]:
    """Open the first transport that works between these ranks.

    Parameters
    ----------
    comm : MPI.Comm
    backend : CpuBackend or CudaBackend
    wanted : str
        A transport's name. ``"auto"``, or a transport that does not move the backend's kind of memory, stands for all
        candidates.
    first : str
        The transport to try before the others.

    Returns
    -------
    Transport
    str
        The reasons why the transports tried before it do not work; empty if it was the first.

    Raises
    ------
    TransportError
        If none works, or the wanted one does not.
    """
    if comm.size == 1:
        return Transport(comm, backend), ""
    kinds = candidates(backend)
    kinds = [kind for kind in kinds if kind.name == wanted] or sorted(kinds, key=lambda kind: kind.name != first)
    reasons = []
    for kind in kinds:
        try:
            return _opened(kind, comm, backend), "; ".join(reasons)
        except TransportError as error:
            reasons.append(f"{kind.name}: {error}")
    raise TransportError(f"config: transport: {wanted!r} does not work between these ranks: {'; '.join(reasons)}")


def _opened(kind: type[Transport], comm: MPI.Comm, backend) -> Transport:
    """Open a transport and test it; raise a TransportError with the reason if it does not work."""
    if reason := kind.missing(comm, backend):
        raise TransportError(reason)
    transport = on_all_ranks(comm, lambda: kind(comm, backend))
    trial(transport)
    return transport


def open_one(comm: MPI.Comm, backend, name: str) -> Transport:
    """Open the transport of this name; for a single rank, the one that exchanges nothing.

    Raises
    ------
    TransportError
        On every rank, if it does not work between these ranks.
    """
    if comm.size == 1:
        return Transport(comm, backend)
    kinds = [kind for kind in candidates(backend) if kind.name == name]
    if not kinds:
        raise TransportError(f"{name} does not move arrays in this device's memory")
    return _opened(kinds[0], comm, backend)


def trial(transport: Transport) -> None:
    """Send a small array around the ranks and check the received values.

    Raises
    ------
    TransportError
        On every rank, if the wrong values arrive on any.
    """
    comm, backend = transport.comm, transport.backend
    source, destination = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    shape = (TRIAL_ELEMENTS, 1)
    mine, theirs = backend.shared_empty(shape, "float32"), backend.empty(shape, "float32")
    mine.fill(comm.rank)
    theirs.fill(-1)
    transport.share("trial", mine)
    transport.fence(backend.mark())

    def exchange() -> None:
        transport.wait(
            transport.start([Arrival(source, "trial", slice(None), theirs)], [(destination, mine)], backend.mark())
        )
        host = np.empty(shape, np.float32)
        backend.copy(theirs, host)
        if not (host == source).all():
            raise TransportError(f"wrong values arrived from rank {source}")

    try:
        on_all_ranks(comm, exchange)
    finally:
        transport.unshare()


def exchange_times(transport: Transport) -> dict[str, Any]:
    """Time exchanges of several sizes, from each rank to the next, on all ranks at once.

    Returns
    -------
    dict
        ``transport``, its name; ``bytes`` and ``seconds``, one entry for each size: the median over the repetitions
        of the slowest rank's time. Both are empty for a single rank.
    """
    comm, backend = transport.comm, transport.backend
    found: dict[str, Any] = {"transport": transport.name, "bytes": [], "seconds": []}
    if comm.size == 1:
        return found
    source, destination = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    rows = MESSAGE_BYTES[-1] // ROW_BYTES
    mine, theirs = (backend.shared_empty((rows, ROW_BYTES // 4), "float32") for _ in range(2))
    mine.fill(1)
    transport.share("trial", mine)
    transport.fence(backend.mark())
    for size in MESSAGE_BYTES:
        part = slice(0, size // ROW_BYTES)

        def exchange(part=part) -> None:
            arrival = Arrival(source, "trial", part, theirs[part])
            transport.wait(transport.start([arrival], [(destination, mine[part])], backend.mark()))

        times = []
        for _ in range(REPETITIONS):
            comm.Barrier()
            times.append(comm.allreduce(backend.seconds_alone(exchange, False, {}), op=MPI.MAX))
        found["bytes"].append(size)
        found["seconds"].append(statistics.median(times))
    transport.unshare()
    return found
