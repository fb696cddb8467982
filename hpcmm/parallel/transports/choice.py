"""Open the transports of these ranks: test each before it is used, and time the chosen one."""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.distribution import QUEUE_SPINS
from hpcmm.parallel.transports.base import Arrival, Transport, TransportError, on_all_ranks
from hpcmm.parallel.transports.mpi import Mpi, MpiCuda
from hpcmm.parallel.transports.mpi_rma import MpiRma
from hpcmm.parallel.transports.nccl import Nccl
from hpcmm.parallel.transports.peer import Peer
from hpcmm.parallel.transports.pinned import Pinned

TRANSPORTS = (Mpi, MpiRma, Peer, Nccl, MpiCuda, Pinned)  # in the order in which they are tried
TRIAL_ELEMENTS = 1000  # of the exchange that tests a transport
ROW_BYTES, REPETITIONS = 4096, 5  # of the exchanges that are timed
MESSAGE_BYTES = tuple(ROW_BYTES * 4**power for power in range(8))  # 4 KiB to 64 MiB


def candidates(backend) -> list[type[Transport]]:
    return [kind for kind in TRANSPORTS if kind.in_host_memory == backend.in_host_memory]


class Connections:
    """The transports between the ranks of a process. Each is opened and tested once, when it is first needed.

    All methods are collective. ``wanted`` is the transport of the config. ``"auto"``, or a transport that does not move
    the backend's kind of memory, stands for all candidates.
    """

    def __init__(self, comm: MPI.Comm, backend, wanted: str = "auto"):
        self.comm, self.backend, self.wanted = comm, backend, wanted
        self.opened: dict[str, Transport] = {}
        self.start_afresh()

    def start_afresh(self) -> None:
        """Continue after an error without pending messages: no transport is open.

        Open transports are abandoned instead of closed, because a rank might wait for a pending message of another one.
        """
        for transport in self.opened.values():
            transport.abandon()
        # A duplicate of ``comm`` for the exchanges, and for other messages of a measurement
        self.ranks = self.comm.Dup()
        self.opened = {}
        self.reasons: dict[str, str] = {}  # why a transport does not work; empty if it is open
        self.times: dict[str, dict[str, Any]] = {}

    def missing(self, name: str) -> str:
        """Return why a transport does not work between these ranks; empty if it works."""
        if name not in self.reasons:
            try:
                self.opened[name], self.reasons[name] = self._open(name), ""
            except TransportError as error:
                self.reasons[name] = str(error)
        return self.reasons[name]

    def _open(self, name: str) -> Transport:
        """Open a transport and test it; raise a TransportError on every rank if it does not work."""
        comm, backend = self.ranks, self.backend
        if comm.size == 1:
            return Transport(comm, backend)
        kinds = [kind for kind in candidates(backend) if kind.name == name]
        if not kinds:
            raise TransportError(f"{name} does not move arrays in this device's memory")
        if reason := kinds[0].missing(comm, backend):
            raise TransportError(reason)
        transport = on_all_ranks(comm, lambda: kinds[0](comm, backend))
        trial(transport)
        return transport

    def of(self, algorithm: Algorithm) -> tuple[Transport | None, str]:
        """Return the transport of an algorithm: its own if it is fixed, that of the config, or the first that works.

        Also return why those tried before it do not work. Every rank raises TransportError if none works.
        """
        if algorithm.transport is None:
            return None, ""
        names = [kind.name for kind in candidates(self.backend)]
        if algorithm.fixed:
            names = [algorithm.transport]
        elif self.wanted in names:
            names = [self.wanted]
        else:
            names.sort(key=lambda name: name != algorithm.transport)
        reasons = []
        for name in names:
            if not self.missing(name):
                return self.opened[name], "; ".join(reasons)
            reasons.append(f"{name}: {self.reasons[name]}")
        if algorithm.fixed:
            raise TransportError(self.reasons[algorithm.transport])
        raise TransportError(
            f"config: transport: {self.wanted!r} does not work between these ranks: {'; '.join(reasons)}"
        )

    def times_of(self, transport: Transport) -> dict[str, Any]:
        if transport.name not in self.times:
            self.times[transport.name] = exchange_times(transport)
        return self.times[transport.name]

    def close(self) -> None:
        for transport in self.opened.values():
            transport.close()
        self.ranks.Free()


def around(transport: Transport, shape: tuple[int, int]) -> tuple[Any, Callable[[slice], None]]:
    """Share an array with the number of its rank; return an array, and what copies rows of the next rank's into it."""
    comm, backend = transport.comm, transport.backend
    source, destination = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    mine, theirs = (backend.shared_empty(shape, "float32") for _ in range(2))
    mine.fill(comm.rank)
    theirs.fill(-1)
    on_all_ranks(comm, lambda: transport.share("trial", mine))
    transport.fence(backend.mark())

    def exchange(rows: slice) -> None:
        arrival = Arrival(source, "trial", rows, theirs[rows])
        transport.wait(transport.start([arrival], [(destination, mine[rows])], backend.mark()))

    return theirs, exchange


def trial(transport: Transport) -> None:
    """Send a small array around the ranks and check the received values; raise TransportError on every rank."""
    comm = transport.comm
    theirs, exchange = around(transport, (TRIAL_ELEMENTS, 1))

    def check() -> None:
        exchange(slice(None))
        host = np.empty(theirs.shape, np.float32)
        transport.backend.copy(theirs, host)
        if not (host == (comm.rank + 1) % comm.size).all():
            raise TransportError(f"wrong values arrived from rank {(comm.rank + 1) % comm.size}")

    try:
        on_all_ranks(comm, check)
    finally:
        transport.unshare()


def exchange_times(transport: Transport) -> dict[str, Any]:
    """Time exchanges of several sizes, from each rank to the next, on all ranks at once.

    Return the median over repetitions of the seconds of the slowest rank, for each size in bytes.
    """
    comm, backend = transport.comm, transport.backend
    found: dict[str, Any] = {"transport": transport.name, "bytes": [], "seconds": []}
    if comm.size == 1:
        return found
    _, exchange = around(transport, (MESSAGE_BYTES[-1] // ROW_BYTES, ROW_BYTES // 4))
    for size in MESSAGE_BYTES:
        times, run = [], partial(exchange, slice(0, size // ROW_BYTES))
        for _ in range(REPETITIONS):
            comm.Barrier()
            times.append(comm.allreduce(backend.seconds_alone(run, False, {}, QUEUE_SPINS), op=MPI.MAX))
        found["bytes"].append(size)
        found["seconds"].append(statistics.median(times))
    transport.unshare()
    return found
