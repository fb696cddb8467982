"""The record of a distributed algorithm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from hpcmm.model import ONE_CALL, TEXTBOOK, Operation, Variant
from hpcmm.model.dtypes import DTYPES, DType
from hpcmm.parallel.cost import Machine
from hpcmm.parallel.distribution import Distribution
from hpcmm.parallel.memory import Need


@dataclass(frozen=True)
class Algorithm:
    """One way to distribute an operation over ranks; a variant computes each rank's own part."""

    name: str  # key of the config, id of tests, value in HDF5 and part of labels
    change: str  # how it differs from the previous algorithm
    distribution: type[Distribution]  # the class that distributes the arrays and runs the algorithm
    # ``suits(operation)``: whether the algorithm can distribute an operation, by its operands and dimensions
    suits: Callable[[Operation], bool]
    # ``need(operation, shape, ranks, rank)`` returns the memory of a rank, a ``Need``
    need: Callable[[Operation, Sequence[int], int, int], Need]
    # ``predict(operation, shape, itemsize, ranks, machine)`` returns the seconds of the rank with the largest share,
    # for the first of ``measures``; NaN if ``machine`` or the model has no line for them. None for an algorithm without
    # a cost model.
    predict: Callable[[Operation, Sequence[int], int, int, Machine], float] | None = None
    source: str = ""  # where it is described
    # What is timed. ``"call"``: end to end, from rank 0's memory to rank 0's memory. ``"kernel"``: the computation with
    # its communication, on arrays in place on the devices.
    measures: tuple[Literal["call", "kernel"], ...] = ("call", "kernel")
    variants: tuple[str, ...] = ()  # the variants that can compute the ranks' parts; empty for no restriction
    own_sums: bool = False  # whether it supports only types whose sums are of the same type, as its library does
    # Its form for types that are narrower than their accumulator, and for variants whose bits depend on no partition,
    # if it adds products of parts of the terms to C: C would be rounded each time
    whole_sums: "Algorithm | None" = None
    # The transport to try first; empty for the usual order. None for an algorithm that uses no transport.
    transport: str | None = ""
    fixed: bool = False  # whether it uses this transport only, whatever that of the config
    # Whether the textbook algorithm takes turns with it as its baseline. Exchanges alone have none.
    baseline: bool = True
    # ``part(shape, ranks, rank)`` returns the shape of the arrays that a rank draws and verifies itself. None if rank 0
    # draws the inputs of all ranks and verifies the result.
    part: Callable[[Sequence[int], int, int], Sequence[int]] | None = None
    package: str = ""  # import name of an extra package that it needs; empty if none
    # The library whose version is shown beside its name, if it is a library: a key of ``libraries.VERSIONS``
    provider: str = ""

    def takes(self, variant: Variant) -> bool:
        """Return whether a variant can compute the ranks' parts.

        All algorithms except the textbook's compute on blocks of larger arrays. Variants that need whole tiles or
        padded copies cannot do so.
        """
        if self.variants:
            return variant.name in self.variants
        return self.name in ONE_CALL or not (variant.exact or variant.on_copies)

    def of(self, element: DType, invariant: bool) -> "Algorithm":
        """Return the form of the algorithm for an element type, and for a variant that is ``invariant`` or not."""
        return self.whole_sums if self.whole_sums and (element.accumulator or invariant) else self

    def takes_type(self, dtype: str) -> bool:
        element = DTYPES[dtype]
        return not (self.own_sums and element.accumulator) and (self.name == TEXTBOOK or not element.result)
