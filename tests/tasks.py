"""Tasks, machines and configs for tests."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from hpcmm.backends.emulated.launch import COMPILER
from hpcmm.kernels import modules
from hpcmm.model import Operation, Task, Variant
from hpcmm.model.devices import Machine
from hpcmm.operations.matmul import MATMUL
from hpcmm.operations.tabled import Tabled

UMASK = os.umask(0)
os.umask(UMASK)
needs_gxx = pytest.mark.skipif(not COMPILER, reason="no g++ on this machine")
needs_compilers = pytest.mark.skipif(not (COMPILER and modules.compiler()[0]), reason="no gcc and g++ on this machine")
CONFIGS = yaml.safe_load(Path(__file__).with_name("configs.yaml").read_text())


def task(
    operation: Operation,
    shape: tuple[int, ...],
    dtype: str = "float32",
    scalars: Mapping[str, float] | None = None,
    variant: Variant | str | None = None,
    tile: int = 0,
    multiprocessors: int = 132,
) -> Task:
    """Return a task, by default on an H100; a variant may be given by its name."""
    chosen = operation.variant(variant) if isinstance(variant, str) else variant or operation.ladder[0]
    return Task(
        operation, chosen, shape, dtype, operation.scalars if scalars is None else scalars, tile, multiprocessors
    )


def tabled(name: str, *tiles: list, constants: Mapping[str, int] | None = None, **of_task: int) -> Tabled:
    """Return the geometry of a rung with other tiles, constants and macros of a task than in its table.

    Rows are copied where the constants have COPIED.
    """
    geometry = MATMUL.variant(name).geometry
    record = geometry.record | {"tiles": tiles}
    record["copied"] = False
    for key, changes in (("constants", constants), ("of_task", of_task)):
        record[key] = {**record.get(key, {}), **(changes or {})}
    return type(geometry).of(record)


def machine(missing: str = "", gpus: int = 8, cpus: int = 10**6, memory: int = 2**60) -> Machine:
    """Return a machine with these GPUs, or the reason why it can run none."""
    return Machine({"cpu": "", "cuda": missing}, {"cpu": cpus, "cuda": gpus}, {"cpu": memory, "cuda": memory}, 132)
