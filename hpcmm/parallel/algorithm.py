"""The record of a distributed algorithm."""

from __future__ import annotations

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
    """One way to distribute an operation over ranks; a variant computes each rank's own part.

    Parameters
    ----------
    name : str
        Key of the config, id of tests, value in HDF5 and part of labels.
    change : str
        How it differs from the previous algorithm.
    distribution : type of Distribution
        The class that distributes the arrays and runs the algorithm.
    suits : callable
        ``suits(operation)``: whether the algorithm can distribute an operation, by its operands and dimensions.
    need : callable
        ``need(operation, shape, ranks, rank)`` returns the memory of a rank, a ``Need``.
    predict : callable, optional
        ``predict(operation, shape, itemsize, ranks, machine)`` returns the seconds of the rank with the largest share,
        for the first of ``measures``; NaN if ``machine`` or the model has no line for them. None for an algorithm
        without a cost model.
    source : str
        Where it is described.
    measures : tuple of {"call", "kernel"}
        What is timed. ``"call"``: end to end, from rank 0's memory to rank 0's memory. ``"kernel"``: the computation
        with its communication, on arrays in place on the devices.
    variants : tuple of str
        The variants that can compute the ranks' parts; empty for no restriction.
    own_sums : bool
        Whether it supports only types whose sums are of the same type, as its library does.
    whole_sums : Algorithm, optional
        Its form for types that are narrower than their accumulator, and for variants whose bits depend on no partition,
        if it adds products of parts of the terms to C: C would be rounded each time.
    transport : str or None
        The transport to try first; empty for the usual order. None for an algorithm that uses no transport.
    fixed : bool
        Whether it uses this transport only, whatever that of the config.
    baseline : bool
        Whether the textbook algorithm takes turns with it as its baseline. Exchanges alone have none.
    part : callable, optional
        ``part(shape, ranks, rank)`` returns the shape of the arrays that a rank draws and verifies itself. None if rank
        0 draws the inputs of all ranks and verifies the result.
    package : str
        Import name of an extra package that it needs; empty if none.
    provider : str
        The library whose version is shown beside its name, if it is a library: a key of ``libraries.VERSIONS``.
    """

    name: str
    change: str
    distribution: type[Distribution]
    suits: Callable[[Operation], bool]
    need: Callable[[Operation, Sequence[int], int, int], Need]
    predict: Callable[[Operation, Sequence[int], int, int, Machine], float] | None = None
    source: str = ""
    measures: tuple[Literal["call", "kernel"], ...] = ("call", "kernel")
    variants: tuple[str, ...] = ()
    own_sums: bool = False
    whole_sums: Algorithm | None = None
    transport: str | None = ""
    fixed: bool = False
    baseline: bool = True
    part: Callable[[Sequence[int], int, int], Sequence[int]] | None = None
    package: str = ""
    provider: str = ""

    def takes(self, variant: Variant) -> bool:
        """Return whether a variant can compute the ranks' parts.

        All algorithms except the textbook's compute on blocks of larger arrays. Variants that need whole tiles or
        padded copies cannot do so.
        """
        if self.variants:
            return variant.name in self.variants
        return self.name in ONE_CALL or not (variant.exact or variant.pitched)

    def of(self, element: DType, invariant: bool) -> Algorithm:
        """Return the form of the algorithm for an element type, and for a variant that is ``invariant`` or not."""
        return self.whole_sums if self.whole_sums and (element.accumulator or invariant) else self

    def takes_type(self, dtype: str) -> bool:
        """Return whether the algorithm can distribute products of an element type."""
        element = DTYPES[dtype]
        return not (self.own_sums and element.accumulator) and (self.name == TEXTBOOK or not element.result)
