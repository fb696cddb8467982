"""The copies that CPU kernels pack for AMX: panels of 32 rows of A and 32 columns of B, in steps along k."""

from dataclasses import dataclass

from hpcmm.model import Geometry, Task
from hpcmm.model.launch import Workspace
from hpcmm.operations import residues

SIDE, ROW_BYTES = 32, 64  # rows of a panel; bytes of a step along k. As in the sources.


@dataclass(frozen=True)
class Packed(Geometry):
    """Copies of A and B in ``layers`` layers of int8, or one of the elements themselves."""

    layers: int = 1
    scaled: bool = False  # whether rows of A have an exponent each, and columns of B a number

    def workspace(self, task: Task) -> dict[str, Workspace]:
        m, n, k = task.shape
        itemsize = 1 if self.scaled else task.element.itemsize
        row = max(1, -(-k * itemsize // ROW_BYTES)) * ROW_BYTES * self.layers
        rows, columns = (max(1, -(-size // SIDE)) * SIDE for size in (m, n))
        copies = {"copy_a": Workspace((rows * row,), "uint8"), "copy_b": Workspace((columns * row,), "uint8")}
        scales = {"scales_a": Workspace((rows,), "float64"), "scales_b": Workspace((columns,), "float64")}
        return copies | (scales if self.scaled else {})


@dataclass(frozen=True)
class PackedResidues(Packed):
    """The same for residues modulo each of ``layers`` moduli."""

    scaled: bool = True

    def macros(self, task: Task) -> dict[str, int | str]:
        return residues.tables(self.layers)
