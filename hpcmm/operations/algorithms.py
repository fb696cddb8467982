"""How work is spread over ranks: the records of the algorithms, of which each is a module in ``parallel/``."""

from hpcmm.model import TEXTBOOK, Algorithm

SCATTER = Algorithm(
    TEXTBOOK,
    "block rows scattered, the rest broadcast, results gathered, one after the other",
    source="the user's card",
)

# The order here is the order in which each does more than the one before it.
PRODUCTS = (
    SCATTER,
    Algorithm(
        "staged",
        "each rank moves only its share between rank 0's memory and its device, and all of it overlaps",
        measures=("call",),
    ),
    Algorithm(
        "resident",
        "A, B and C stay on the devices by block rows; B is gathered while it is multiplied",
        measures=("kernel",),
    ),
    Algorithm(
        "ring",
        "B is never whole anywhere: its block rows go round the ranks while they are multiplied",
        measures=("kernel",),
    ),
    Algorithm(
        "summa",
        "a grid of ranks: panels of A along its rows, panels of B along its columns",
        source="van de Geijn and Watts 1997",
        measures=("kernel",),
    ),
    Algorithm(
        "cublasmp",
        "NVIDIA's cuBLASMp, through nvmath-python, in place of all of it",
        measures=("kernel",),
        variants=("cublas",),
        package="nvmath",
    ),
)

REDUCTIONS = (
    SCATTER,
    Algorithm(
        "all_reduce",
        "the vector stays on the devices by parts, whose results are combined on all of them",
        measures=("kernel",),
        transport="nccl",
    ),
)
