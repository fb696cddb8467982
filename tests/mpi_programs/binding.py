"""Which of its visible GPUs a rank takes, on four ranks of a node."""

from mpi4py import MPI

from hpcmm.parallel import world

comm = MPI.COMM_WORLD
rank = comm.rank
assert world.local_rank(comm) == rank
assert world.local_rank(comm, ["a", "b", "c", "d"]) == rank, "all see all"
assert world.local_rank(comm, ["abcd"[rank]]) == 0, "each sees its own"
assert world.local_rank(comm, [["a", "b"], ["c", "d"]][rank // 2]) == rank % 2, "two see the same two"
