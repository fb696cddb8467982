"""List the C kernels that the package's build compiles, for CMakeLists.txt: ``python -m hpcmm.operations.built``.

Each line has the folder, the name of the module, the source, its checksum and the macros, separated by bars.
"""

from collections.abc import Iterator

from hpcmm import kernels
from hpcmm.kernels.modules import checksum
from hpcmm.model import Operation, Task, Variant
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS


def compiled() -> Iterator[tuple[Operation, Variant, str]]:
    """Yield the operation, variant and element type of each module."""
    for operation in OPERATIONS.values():
        for variant in operation.ladder:
            if not (variant.library or DEVICES[variant.device].accelerator):
                for dtype in operation.dtypes_of(variant):
                    yield operation, variant, dtype


def main() -> None:
    for operation, variant, dtype in compiled():
        macros = Task(operation, variant, (), dtype).macros
        source = kernels.source(operation, variant).relative_to(kernels.FOLDER.parents[1])
        fields = [operation.name, f"{variant.name}-{dtype}", str(source), checksum(kernels.source(operation, variant))]
        print("|".join([*fields, *(f"{k}={macros[k]}" for k in macros)]))


if __name__ == "__main__":
    main()
