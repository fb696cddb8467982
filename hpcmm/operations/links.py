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
    """Draw numbers of both signs with all bits of the type: parts of ranks differ, and a maximum is no sum with zeros.

    No integer is the minimum of the type, the poison of outputs. No number is -0, whose sign is lost in a sum with 0.
    """
    fill = cores.integers(1 - 2**31, 2**31) if task.element.is_integer else cores.uniform
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
