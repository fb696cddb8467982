"""How a task runs on a device: its launches, the arrays that they need, and a run of them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Boxes:
    """A matrix that a kernel copies in boxes by TMA: the argument of a launch that becomes a tensor map."""

    matrix: Any  # row-major, on the device
    # rows, columns: of a box. A row of a box is 128 bytes: they are stored in shared memory with the swizzle of 128
    # bytes.
    rows: int
    columns: int
    dtype: str  # name of the element type


@dataclass(frozen=True)
class Workspace:
    """An array that a kernel needs besides its operands."""

    shape: tuple[int, ...]
    dtype: str  # name of its NumPy type

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def placeholder(self) -> np.ndarray:
        """An array of this shape and type without memory of its own."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


@dataclass(frozen=True)
class Launch:
    """One kernel launch: grid, block, arguments, bytes of dynamic shared memory, and the function of the source.

    Arguments are arrays, NumPy scalars and ``Boxes``. The function is named as the operation's folder of kernels if
    ``function`` is empty. ``task`` is the one whose source has the function, if it is another rung's. A launch that
    ``overlaps`` may begin before the one before it has ended; its kernel waits for the results that it reads
    (programmatic dependent launch).
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    shared_bytes: int = 0
    function: str = ""
    task: Any = None
    overlaps: bool = False


@dataclass(eq=False)
class Run:
    """A variant, or a distributed algorithm, bound to its arrays: call it to run its kernel once."""

    once: Callable[[], Any]  # enqueues the kernel. Its result keeps the arrays alive, or has the times of the phases.
    # before, after: they copy data on the device between the arrays and buffers of the variant. They are a phase of the
    # end-to-end call and not part of the kernel's time.
    before: Callable[[], Any] | None = None
    after: Callable[[], Any] | None = None
    # Returns what makes the last run invalid besides its result, such as writes outside its arrays; empty if nothing
    # does
    complaint: Callable[[], str] = str
    copies: Mapping[str, Any] = field(default_factory=dict)  # arrays that take the place of operands
    choice: str = ""  # the algorithm that a library took after trials
    launches: str = ""  # the launches, for messages
    spins: int = 1  # spin kernels before a timed run: more after the host was late

    @classmethod
    def of(cls, function: Callable[[], Any]) -> "Run":
        """Return the run of a function, which may be one already: extensions return either."""
        return function if isinstance(function, cls) else cls(function)

    def __call__(self) -> Any:
        return self.once()

    def whole(self) -> None:
        """Run once with the copies before and after."""
        for step in (self.before, self.once, self.after):
            if step:
                step()
