"""The record of a distributed algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from hpcmm.model import TEXTBOOK, Operation, Variant
from hpcmm.parallel.cost import Machine
from hpcmm.parallel.distribution import Distribution
from hpcmm.parallel.memory import Need


@dataclass(frozen=True)
class Algorithm:
    """One way to distribute an operation over ranks; a variant computes each rank's own part.

    Parameters
    ----------
    name : str
        Config key, test id, HDF5 value and part of labels.
    change : str
        What it does differently from the algorithm before it.
    distribution : type of Distribution
        The class that distributes the arrays and runs the algorithm.
    suits : callable
        ``suits(operation)``: whether the algorithm can distribute an operation, by its operands and dimensions.
    need : callable
        ``need(operation, shape, ranks, rank)`` returns the memory that a rank takes, a ``Need``.
    predict : callable, optional
        ``predict(operation, shape, itemsize, ranks, machine)`` returns the seconds that the rank with the largest
        share takes for the first of ``measures``; NaN where ``machine`` or the model has no line for them. None of an
        algorithm without a cost model.
    source : str
        The documents that teach it.
    measures : tuple of {"call", "kernel"}
        What is timed. ``"call"``: from rank 0's memory to rank 0's memory. ``"kernel"``: the computation with its
        communication, on arrays in place on the devices.
    variants : tuple of str
        The only variants that compute the ranks' parts; empty if any.
    transport : str
        The transport that is tried first; empty if they are tried in their usual order.
    package : str
        A further package that it needs, as Python imports it; empty if none.
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
    transport: str = ""
    package: str = ""

    def takes(self, variant: Variant) -> bool:
        """Return whether a variant can compute the ranks' parts.

        All algorithms but the textbook's compute on blocks within larger arrays. Variants that need whole tiles or
        padded copies cannot.
        """
        if self.variants:
            return variant.name in self.variants
        return self.name == TEXTBOOK or not (variant.exact or variant.pitched)
