"""MPI for one process: ``from mpi4py import MPI`` finds this module, and ranks are threads.

Messages are copied, collective calls must agree, and buffers are checked: a call that hangs or corrupts memory on a
cluster is an error here. It has the standard library and NumPy only: it runs in isolation beside submitted code.

A buffer is an array, or ``[array, type]``, ``[array, counts]``, ``[array, counts, displacements, type]`` or the same
with ``(counts, displacements)``, as in mpi4py.
"""

import copy
import sys
import threading
import types
from collections import defaultdict, deque

import numpy as np

SECONDS = 5.0  # within which the other ranks reach a call; longer is a hang
TYPES = {
    "FLOAT": "f4",
    "DOUBLE": "f8",
    "INT": "i4",
    "INT32_T": "i4",
    "INT64_T": "i8",
    "LONG": "i8",
    "BYTE": "u1",
}
IN_PLACE = "MPI.IN_PLACE"
ANY_TAG = -1


class MPIError(Exception):
    """A misuse of MPI."""


class Type(str):
    """An element type of MPI."""


class Buffer:
    """An array with the part of each rank."""

    def __init__(self, given, size, call):
        parts = list(given) if isinstance(given, list | tuple) else [given]
        self.array = parts[0]
        if not isinstance(self.array, np.ndarray):
            raise MPIError(
                f"{call}: a buffer is a NumPy array, not {type(self.array).__name__}; see {call.lower()} for objects"
            )
        if not self.array.flags.c_contiguous:
            raise MPIError(f"{call}: the array is not contiguous; send a copy, np.ascontiguousarray(...)")
        for kind in (each for each in parts[1:] if isinstance(each, Type)):
            if self.array.dtype != np.dtype(TYPES[kind]):
                raise MPIError(f"{call}: MPI.{kind} does not describe an array of {self.array.dtype}")
        rest = [each for each in parts[1:] if not isinstance(each, Type) and each is not None]
        if rest and isinstance(rest[0], tuple) and len(rest[0]) == 2 and not np.isscalar(rest[0][0]):
            rest = list(rest[0])
        self.flat = self.array.reshape(-1)
        self.counts = [int(each) for each in np.atleast_1d(rest[0])] if rest else None
        self.starts = [int(each) for each in np.atleast_1d(rest[1])] if len(rest) > 1 else None
        if self.counts and len(self.counts) == 1 and size > 1:
            self.flat, self.counts = self.flat[: self.counts[0]], None

    def parts(self, size, call, even):
        """Return the part of each rank: of ``counts`` elements, or all the same."""
        counts = self.counts
        if even and counts is not None:
            raise MPIError(f"{call}: all ranks have as many elements; use {call}v for a list of counts")
        if counts is None:
            if even and self.flat.size % size:
                raise MPIError(
                    f"{call}: {self.flat.size} elements are not a multiple of {size} ranks; use {call}v with counts"
                )
            counts = [self.flat.size // size + (rank < self.flat.size % size) for rank in range(size)]
        starts = self.starts or [sum(counts[:rank]) for rank in range(len(counts))]
        if len(counts) != size or len(starts) != size:
            raise MPIError(f"{call}: {len(counts)} counts for {size} ranks")
        if any(start < 0 or start + n > self.flat.size for start, n in zip(starts, counts, strict=True)):
            raise MPIError(f"{call}: the counts {counts} exceed the {self.flat.size} elements of the array")
        return [self.flat[start : start + n] for start, n in zip(starts, counts, strict=True)]


class World:
    """The state that all ranks share."""

    def __init__(self, size):
        self.size, self.sent = size, 0
        self.local = threading.local()
        self.change = threading.Condition()
        self.arrived, self.result, self.round = {}, None, 0
        self.messages = defaultdict(deque)
        self.waiting, self.ended, self.error = {}, set(), ""

    def wait(self, call, until):
        """Wait in a call until a condition holds, or raise the error of another rank."""
        rank = self.local.rank
        self.waiting[rank] = call
        self.change.notify_all()
        if not self.change.wait_for(lambda: until() or self.error, SECONDS) and not self.error:
            others = [f"rank {each} waits in {it}" for each, it in self.waiting.items() if each != rank]
            others += [f"rank {each} has returned" for each in sorted(self.ended)]
            self.fail(f"rank {rank} waits in {call} for ever: {', '.join(others) or 'no other rank calls it'}")
        self.waiting.pop(rank, None)
        if self.error and not until():
            raise MPIError(self.error)

    def fail(self, why):
        self.error = self.error or why
        self.change.notify_all()

    def together(self, call, given, combine):
        """Meet all other ranks in a call; return the part of this rank of what ``combine`` makes of all."""
        rank = self.local.rank
        with self.change:
            self.arrived[rank] = (call, given)
            round = self.round
            if len(self.arrived) == self.size:
                if len({name for name, _ in self.arrived.values()}) > 1:
                    calls = ", ".join(f"rank {each} {name}" for each, (name, _) in sorted(self.arrived.items()))
                    self.fail(f"ranks call different functions: {calls}")
                    raise MPIError(self.error)
                try:
                    self.result = combine({each: what for each, (_, what) in self.arrived.items()})
                except MPIError as error:
                    self.fail(str(error))
                    raise
                self.arrived, self.round = {}, self.round + 1
                self.change.notify_all()
            else:
                self.wait(call, lambda: self.round > round)
            return self.result[rank]


class Communicator:
    """The part of mpi4py's ``Comm`` that distributes a product."""

    def __init__(self, world):
        self.world = world

    @property
    def rank(self):
        return self.world.local.rank

    @property
    def size(self):
        return self.world.size

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def Barrier(self):
        self.world.together("Barrier", None, lambda given: dict.fromkeys(given))

    barrier = Barrier

    def _move(self, source, target, call):
        if source.dtype != target.dtype:
            raise MPIError(f"{call}: {source.dtype} is received as {target.dtype}")
        if source.size > target.size:
            raise MPIError(f"{call}: message truncated: {source.size} elements for a buffer of {target.size}")
        if source.size < target.size:
            raise MPIError(f"{call}: {source.size} elements for a buffer of {target.size}: its end is never written")
        target[...] = source

    def Bcast(self, buf, root=0):
        def combine(given):
            source = given[root].flat
            for rank, each in given.items():
                if rank != root:
                    self._move(source, each.flat, "Bcast")
                    self.world.sent += source.size
            return dict.fromkeys(given)

        self.world.together(f"Bcast from rank {root}", Buffer(buf, self.size, "Bcast"), combine)

    def _scatter(self, name, sendbuf, recvbuf, root):
        size = self.size
        send = Buffer(sendbuf, size, name) if self.rank == root else None
        into = None if recvbuf is IN_PLACE else Buffer(recvbuf, 1, name)

        def combine(given):
            parts = given[root][0].parts(size, name, even=name == "Scatter")
            for rank, (_, to) in given.items():
                if to is not None:
                    self._move(parts[rank], to.flat[: (to.counts or [to.flat.size])[0]], name)
                self.world.sent += parts[rank].size if rank != root else 0
            return dict.fromkeys(given)

        self.world.together(f"{name} from rank {root}", (send, into), combine)

    def _gather(self, name, sendbuf, recvbuf, root):
        size = self.size
        send = None if sendbuf is IN_PLACE else Buffer(sendbuf, 1, name)
        into = Buffer(recvbuf, size, name) if self.rank == root else None

        def combine(given):
            parts = given[root][1].parts(size, name, even=name == "Gather")
            for rank, (source, _) in given.items():
                if source is not None:
                    self._move(source.flat[: (source.counts or [source.flat.size])[0]], parts[rank], name)
                self.world.sent += parts[rank].size if rank != root else 0
            return dict.fromkeys(given)

        self.world.together(f"{name} to rank {root}", (send, into), combine)

    def Scatter(self, sendbuf, recvbuf, root=0):
        self._scatter("Scatter", sendbuf, recvbuf, root)

    def Scatterv(self, sendbuf, recvbuf, root=0):
        self._scatter("Scatterv", sendbuf, recvbuf, root)

    def Gather(self, sendbuf, recvbuf, root=0):
        self._gather("Gather", sendbuf, recvbuf, root)

    def Gatherv(self, sendbuf, recvbuf, root=0):
        self._gather("Gatherv", sendbuf, recvbuf, root)

    def _post(self, content, dest, tag):
        with self.world.change:
            self.world.messages[self.rank, dest].append((tag, _Message(self._copied(content, dest != self.rank))))
            self.world.change.notify_all()

    def _take(self, source, tag, call):
        queue = self.world.messages[source, self.rank]
        with self.world.change:
            self.world.wait(f"{call} from rank {source}", lambda: any(tag in (ANY_TAG, each) for each, _ in queue))
            found = next(each for each in queue if tag in (ANY_TAG, each[0]))
            queue.remove(found)
            return found[1]

    def Send(self, buf, dest, tag=0):
        self._post(Buffer(buf, self.size, "Send").flat, dest, tag)

    def Recv(self, buf, source=0, tag=ANY_TAG, status=None):
        self._move(self._take(source, tag, "Recv").content, Buffer(buf, self.size, "Recv").flat, "Recv")

    def send(self, obj, dest, tag=0):
        self._post(obj, dest, tag)

    def recv(self, buf=None, source=0, tag=ANY_TAG, status=None):
        return self._take(source, tag, "recv").content

    def _copied(self, obj, moved=True):
        """Return a copy, and count the elements of its arrays."""
        if moved:
            self.world.sent += sum(each.size for each in _arrays(obj))
        return copy.deepcopy(obj)

    def bcast(self, obj=None, root=0):
        return self.world.together(
            f"bcast from rank {root}",
            obj,
            lambda given: {rank: self._copied(given[root], rank != root) for rank in given},
        )

    def scatter(self, sendobj=None, root=0):
        def combine(given):
            if given[root] is None or len(given[root]) != self.size:
                raise MPIError(f"scatter: rank {root} needs a list of {self.size} objects, one for each rank")
            return {rank: self._copied(given[root][rank], rank != root) for rank in given}

        return self.world.together(f"scatter from rank {root}", sendobj, combine)

    def gather(self, sendobj, root=0):
        def combine(given):
            all_of_them = [self._copied(given[rank], rank != root) for rank in range(self.size)]
            return {rank: all_of_them if rank == root else None for rank in given}

        return self.world.together(f"gather to rank {root}", sendobj, combine)


class _Message:  # compared by identity
    def __init__(self, content):
        self.content = content


def _arrays(obj):
    if isinstance(obj, np.ndarray):
        yield obj
    elif isinstance(obj, list | tuple | dict):
        for each in obj.values() if isinstance(obj, dict) else obj:
            yield from _arrays(each)


class CurrentWorld:
    """``MPI.COMM_WORLD``: that of the run in progress."""

    world = World(1)

    def __getattr__(self, name):
        return getattr(Communicator(CurrentWorld.world), name)


def install():
    """Let ``from mpi4py import MPI`` find this module."""
    CurrentWorld.world.local.rank = 0
    mpi = types.ModuleType("mpi4py.MPI")
    mpi.COMM_WORLD, mpi.IN_PLACE, mpi.ANY_TAG, mpi.Comm = CurrentWorld(), IN_PLACE, ANY_TAG, Communicator
    for name in TYPES:
        setattr(mpi, name, Type(name))
    package = types.ModuleType("mpi4py")
    package.MPI = mpi
    sys.modules |= {"mpi4py": package, "mpi4py.MPI": mpi}


def run(function, size, arguments, rest):
    """Call a function on each rank: with ``arguments`` on rank 0, with ``rest`` on others.

    Returns
    -------
    str
        The first error; empty if there is none.
    int
        Elements that one rank sent to another.
    """
    world = CurrentWorld.world = World(size)

    def of_rank(rank):
        world.local.rank = rank
        why = ""
        try:
            function(**(arguments if rank == 0 else rest))
        except MPIError as error:
            why = str(error)
        except BaseException as error:
            why = f"rank {rank} raised {type(error).__name__}: {error}"[:2000]
        with world.change:
            world.ended.add(rank)
            if why:
                world.fail(why)
            world.change.notify_all()

    threads = [threading.Thread(target=of_rank, args=(rank,)) for rank in range(size)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return world.error, world.sent
