"""y = x between ranks: each rank's part of y is another rank's part of x. The algorithm determines the ranks.

The textbook algorithm moves nothing between the ranks: each copies its own part. Exchanges are compared with the
memory bandwidth of this copy.
"""

from dataclasses import replace

import numpy as np

from hpcmm.model import Task
from hpcmm.operations import cores
from hpcmm.operations.heads import ladder
from hpcmm.operations.memory import COPY, copy_of_library


def draw(rng: np.random.Generator, task: Task) -> dict[str, np.ndarray]:
    """Draw integers from 0 to 2^23 - 1, which every type holds exactly: parts of different ranks differ."""

    def fill(stream: np.random.Generator, x: np.ndarray) -> None:
        x[...] = stream.integers(0, 2**23, x.shape, np.int32)

    return {"x": cores.draw(rng, np.empty(task.shape, task.dtype), fill)}


LINKS = replace(
    COPY,
    name="links",
    kernels="links",
    dtypes=("int32", "float32", "float64"),
    ladder=ladder("links", COPY.dtypes, copy_of_library),
    draw=draw,
    macros={},
    geometry=None,
)
