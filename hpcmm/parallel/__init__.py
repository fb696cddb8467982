"""Operations distributed over MPI ranks.

Each algorithm is one module: its record, its run, its memory and its predicted time. Importing the package starts
neither MPI nor a device; ``world`` and ``transports.choice`` start MPI.
"""

from importlib.util import find_spec

from hpcmm.model import HpcmmError, Operation
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.parallel.all_reduce import ALL_REDUCE
from hpcmm.parallel.alone import ALONE
from hpcmm.parallel.collective_links import COLLECTIVE_LINKS
from hpcmm.parallel.cublasmp import CUBLASMP
from hpcmm.parallel.host_links import HOST_LINKS
from hpcmm.parallel.links import LINKS
from hpcmm.parallel.resident import RESIDENT
from hpcmm.parallel.ring import RING
from hpcmm.parallel.scatter import SCATTER
from hpcmm.parallel.staged import STAGED
from hpcmm.parallel.summa import SUMMA

INSTALL = "pip install 'hpcmm[workflow,mpich]' (workflow alone if this machine has an MPI)"

# Tables and figures use this order: the textbook algorithm first; each later product adds to the one before it.
# To add an algorithm, add its record here.
RECORDS = SCATTER, STAGED, RESIDENT, RING, SUMMA, CUBLASMP, ALL_REDUCE, ALONE, *LINKS, *COLLECTIVE_LINKS, *HOST_LINKS
ALGORITHMS = {record.name: record for record in RECORDS}


def missing() -> str:
    """Return why no rank can be started here; empty if mpi4py is installed."""
    return "" if find_spec("mpi4py") else "mpi4py is not installed"


def algorithms_of(operation: Operation) -> tuple[Algorithm, ...]:
    return tuple(algorithm for algorithm in ALGORITHMS.values() if algorithm.suits(operation))


def algorithm_of(operation: Operation, name: str) -> Algorithm:
    """Return an algorithm by name; raise HpcmmError if none of that name suits the operation."""
    suited = {algorithm.name: algorithm for algorithm in algorithms_of(operation)}
    if name not in suited:
        raise HpcmmError(f"algorithm {name!r} does not suit {operation.name}; allowed: {', '.join(suited) or 'none'}")
    return suited[name]
