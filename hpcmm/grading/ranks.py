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
from collections import defaultdict

import numpy as np

SECONDS = 5.0  # within which the other ranks reach a call; longer is a hang
TYPES = {"FLOAT": "f4", "DOUBLE": "f8", "INT": "i4", "INT32_T": "i4", "INT64_T": "i8", "LONG": "i8", "BYTE": "u1"}
IN_PLACE = "MPI.IN_PLACE"
ANY_TAG = -1


class MPIError(Exception):
    """A misuse of MPI."""


class Type(str):
    """An element type of MPI."""


class Buffer:
    """The elements of an array, and how many of them each rank has."""

    def __init__(self, given, call):
        array, *rest = given if isinstance(given, list | tuple) else [given]
        if not isinstance(array, np.ndarray):
            raise MPIError(
                f"{call}: a buffer is a NumPy array, not {type(array).__name__}; see {call.lower()} for objects"
            )
        if not array.flags.c_contiguous:
            raise MPIError(f"{call}: the array is not contiguous; send a copy, np.ascontiguousarray(...)")
        for kind in (each for each in rest if isinstance(each, Type)):
            if array.dtype != np.dtype(TYPES[kind]):
                raise MPIError(f"{call}: MPI.{kind} does not describe an array of {array.dtype}")
        rest = [each for each in rest if not isinstance(each, Type) and each is not None]
        if rest and isinstance(rest[0], tuple) and len(rest[0]) == 2 and not np.isscalar(rest[0][0]):
            rest = rest[0]
        self.flat, self.call = array.reshape(-1), call
        self.counts, self.starts = ([int(number) for number in np.atleast_1d(of)] for of in (*rest, [], [])[:2])
        if len(self.counts) == 1:
            begin = sum(self.starts)
            self.flat, self.counts, self.starts = self.flat[begin : begin + self.counts[0]], [], []

    def parts(self, size):
        """Return the part of each rank: of its count of elements, or all the same."""
        call, most, counts = self.call, self.flat.size, self.counts
        if not call.endswith("v"):
            if counts:
                raise MPIError(f"{call}: all ranks have as many elements; use {call}v for a list of counts")
            if most % size:
                raise MPIError(f"{call}: {most} elements are not a multiple of {size} ranks; use {call}v with counts")
        counts = counts or [most // size + (rank < most % size) for rank in range(size)]
        starts = self.starts or [sum(counts[:rank]) for rank in range(len(counts))]
        if len(counts) != size or len(starts) != size:
            raise MPIError(f"{call}: {len(counts)} counts for {size} ranks")
        if any(start < 0 or start + n > most for start, n in zip(starts, counts, strict=True)):
            raise MPIError(f"{call}: the counts {counts} exceed the {most} elements of the array")
        return [self.flat[start : start + n] for start, n in zip(starts, counts, strict=True)]


class World:
    """The state that all ranks share."""

    def __init__(self, size):
        self.size, self.sent = size, 0
        self.local = threading.local()
        self.change = threading.Condition()
        self.arrived, self.result, self.round = {}, None, 0
        self.messages = defaultdict(list)
        self.waiting, self.ended, self.error = {}, set(), ""

    def wait(self, call, until):
        """Wait in a call until a condition holds, or raise the error of another rank."""
        rank = self.local.rank
        self.waiting[rank] = call
        self.change.notify_all()
        if not self.change.wait_for(lambda: until() or self.error, SECONDS) and not self.error:
            others = [f"rank {other} waits in {it}" for other, it in self.waiting.items() if other != rank]
            others += [f"rank {other} has returned" for other in sorted(self.ended)]
            self.fail(f"rank {rank} waits in {call} for ever: {', '.join(others) or 'no other rank calls it'}")
        self.waiting.pop(rank, None)
        if self.error and not until():
            raise MPIError(self.error)

    def fail(self, why):
        self.error = self.error or why
        self.change.notify_all()

    def together(self, call, given, combine):
        """Meet all other ranks in a call; return the part of this rank of what ``combine`` makes of all."""
        with self.change:
            self.arrived[self.local.rank] = (call, given)
            round = self.round
            if len(self.arrived) < self.size:
                self.wait(call, lambda: self.round > round)
                return self.result[self.local.rank]
            try:
                if len({name for name, _ in self.arrived.values()}) > 1:
                    calls = ", ".join(f"rank {other} {name}" for other, (name, _) in sorted(self.arrived.items()))
                    raise MPIError(f"ranks call different functions: {calls}")
                self.result = combine({other: what for other, (_, what) in self.arrived.items()})
            except MPIError as error:
                self.fail(str(error))
                raise
            self.arrived, self.round = {}, self.round + 1
            self.change.notify_all()
            return self.result[self.local.rank]


class Communicator:
    """The part of mpi4py's ``Comm`` that distributes a product."""

    world = World(1)  # that of the run in progress

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        calls = ", ".join(sorted(call for call in vars(Communicator) if call[0] != "_" and call != "world"))
        raise MPIError(f"the grader has no Comm.{name}; it has {calls}")

    rank = property(lambda self: self.world.local.rank)
    size = property(lambda self: self.world.size)

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def Barrier(self):
        self.world.together("Barrier", None, dict.fromkeys)

    barrier = Barrier

    # ---- arrays ----

    def Bcast(self, buf, root=0):
        def moves(given):
            return ((rank, given[root].flat, each.flat) for rank, each in given.items() if rank != root)

        self._move_all("Bcast", f"from rank {root}", Buffer(buf, "Bcast"), root, moves)

    def Scatterv(self, sendbuf, recvbuf, root=0, call="Scatterv"):
        def moves(given):
            parts = given[root][0].parts(self.size)
            return ((rank, parts[rank], own.flat) for rank, (_, own) in given.items() if own)

        self._move_all(call, f"from rank {root}", self._buffers(call, sendbuf, recvbuf, root), root, moves)

    def Scatter(self, sendbuf, recvbuf, root=0):
        self.Scatterv(sendbuf, recvbuf, root, "Scatter")

    def Gatherv(self, sendbuf, recvbuf, root=0, call="Gatherv"):
        def moves(given):
            parts = given[root][0].parts(self.size)
            return ((rank, own.flat, parts[rank]) for rank, (_, own) in given.items() if own)

        self._move_all(call, f"to rank {root}", self._buffers(call, recvbuf, sendbuf, root), root, moves)

    def Gather(self, sendbuf, recvbuf, root=0):
        self.Gatherv(sendbuf, recvbuf, root, "Gather")

    def Send(self, buf, dest, tag=0):
        self.send(Buffer(buf, "Send").flat, dest, tag)

    def Recv(self, buf, source=0, tag=ANY_TAG, status=None):
        into = Buffer(buf, "Recv").flat
        _move(self.recv(None, source, tag, status, "Recv"), into, "Recv")

    def _buffers(self, call, whole, own, root):
        """Return the array of all ranks, which only the root has, and that of this one."""
        return Buffer(whole, call) if self.rank == root else None, None if own is IN_PLACE else Buffer(own, call)

    def _move_all(self, call, where, given, root, moves):
        def combine(given):
            for rank, source, target in moves(given):
                _move(source, target, call)
                self.world.sent += source.size if rank != root else 0
            return dict.fromkeys(given)

        self.world.together(f"{call} {where}", given, combine)

    # ---- objects ----

    def send(self, obj, dest, tag=0):
        with self.world.change:
            self.world.messages[self.rank, dest].append((tag, self._copied(obj, dest != self.rank)))
            self.world.change.notify_all()

    def recv(self, buf=None, source=0, tag=ANY_TAG, status=None, call="recv"):
        queue = self.world.messages[source, self.rank]

        def first():
            return next((i for i, (its, _) in enumerate(queue) if tag in (ANY_TAG, its)), None)

        with self.world.change:
            self.world.wait(f"{call} from rank {source}", lambda: first() is not None)
            return queue.pop(first())[1]

    def bcast(self, obj=None, root=0):
        def combine(given):
            return {rank: self._copied(given[root], rank != root) for rank in given}

        return self.world.together(f"bcast from rank {root}", obj, combine)

    def scatter(self, sendobj=None, root=0):
        def combine(given):
            if given[root] is None or len(given[root]) != self.size:
                raise MPIError(f"scatter: rank {root} needs a list of {self.size} objects, one for each rank")
            return {rank: self._copied(given[root][rank], rank != root) for rank in given}

        return self.world.together(f"scatter from rank {root}", sendobj, combine)

    def gather(self, sendobj, root=0):
        def combine(given):
            return dict.fromkeys(given) | {root: [self._copied(given[rank], rank != root) for rank in sorted(given)]}

        return self.world.together(f"gather to rank {root}", sendobj, combine)

    def _copied(self, obj, moved):
        self.world.sent += sum(array.size for array in _arrays(obj)) if moved else 0
        return copy.deepcopy(obj)


def _move(source, target, call):
    if source.dtype != target.dtype:
        raise MPIError(f"{call}: {source.dtype} is received as {target.dtype}")
    if source.size > target.size:
        raise MPIError(f"{call}: message truncated: {source.size} elements for a buffer of {target.size}")
    if source.size < target.size:
        raise MPIError(f"{call}: {source.size} elements for a buffer of {target.size}: its end is never written")
    target[...] = source


def _arrays(obj):
    if isinstance(obj, np.ndarray):
        yield obj
    elif isinstance(obj, list | tuple | dict):
        for part in obj.values() if isinstance(obj, dict) else obj:
            yield from _arrays(part)


def install():
    """Let ``from mpi4py import MPI`` find this module."""
    Communicator.world.local.rank = 0
    mpi = types.ModuleType("mpi4py.MPI")
    mpi.COMM_WORLD, mpi.IN_PLACE, mpi.ANY_TAG, mpi.Comm = Communicator(), IN_PLACE, ANY_TAG, Communicator
    for name in TYPES:
        setattr(mpi, name, Type(name))
    package = types.ModuleType("mpi4py")
    package.MPI = mpi
    sys.modules |= {"mpi4py": package, "mpi4py.MPI": mpi}


def run(function, size, arguments, rest):
    """Call a function, with ``arguments`` on rank 0; return the first error, and the elements sent."""
    world = Communicator.world = World(size)

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
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return world.error, world.sent
