"""MPI messages between arrays in device memory, staged through page-locked host memory."""

from collections import deque
from collections.abc import Iterator

import numpy as np
from mpi4py import MPI

from hpcmm.parallel.transports.base import Transport

CHUNK = 4 << 20  # bytes of a message


class Pinned(Transport):
    """MPI messages through page-locked host memory, in chunks; each flow is double-buffered.

    The host copies and sends the chunks in ``wait``; kernels launched before it run at the same time.
    """

    name, in_host_memory = "pinned", False

    def __init__(self, comm, backend):
        super().__init__(comm, backend)
        self.copies = backend.stream()
        self.free: list[np.ndarray] = []
        self.flow_comm = comm.Dup()  # so that no other message matches a message of the flows

    def start(self, arrivals, departures, after):
        return arrivals, departures, after

    def wait(self, ticket):
        arrivals, departures, after = ticket
        self.backend.wait(after, self.copies)
        flows = [self._receive(arrival.source, arrival.target) for arrival in arrivals if arrival.target.size]
        flows += [self._send(rank, array) for rank, array in departures if array.size]
        exhausted = object()
        while flows:
            flows = [flow for flow in flows if next(flow, exhausted) is not exhausted]
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
            requests[i % 2] = self.flow_comm.Isend(host, rank)
        while not MPI.Request.Testall(requests):
            yield
        self.free += buffers

    def _receive(self, rank: int, array) -> Iterator[None]:
        buffers, posted = self._buffers(), deque()
        for i, piece in enumerate(pieces(array)):
            if len(posted) == 2:
                yield from self._complete_receive(posted)
            host = buffers[i % 2][: piece.size]
            posted.append((self.flow_comm.Irecv(host, rank), host, piece))
        while posted:
            yield from self._complete_receive(posted)
        self.free += buffers

    def _complete_receive(self, posted: deque) -> Iterator[None]:
        request, host, piece = posted.popleft()
        while not request.Test():
            yield
        self._copy(host, piece)

    def close(self):
        self.flow_comm.Free()


def pieces(array) -> Iterator:
    """Yield the bytes of a contiguous array, ``CHUNK`` at a time."""
    flat = array.reshape(-1).view(np.uint8)
    return (flat[first : first + CHUNK] for first in range(0, flat.size, CHUNK))
