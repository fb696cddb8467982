"""Python functions with signatures of their own: they return their result, or Numba launches them on a grid."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from hpcmm.model import HpcmmError, Operation
from hpcmm.model.contract import Contract
from hpcmm.operations import OPERATIONS

LEADERBOARD = "custom_kernel"  # takes a tuple of its inputs
NAMES = {"matmul": r"mat_?mul|gemm|\bmm\b|matrix_?mult", "vector_add": r"add", "sum": r"sum|reduc", "copy": r"copy"}
FOR_GPUS = ("cupy", "torch", "triton", "numba.cuda", "jax", "cuda")  # packages whose arrays are on a GPU
NUMBA_BLOCK = 16  # threads in x and y of a block of a product
SCALARS = {"alpha": 1.0, "beta": 0.0}


def functions(module: ModuleType, wanted: str = "") -> Iterator[tuple[Operation, Callable[..., Any]]]:
    """Yield the functions of a module that compute an operation, with the operation.

    ``wanted`` is the operation in the file's head. The last function with as many arguments as inputs then computes it.
    """
    named = [
        (each, getattr(module, name)) for name, each in OPERATIONS.items() if callable(getattr(module, name, None))
    ]
    if named:
        yield from named
        return
    own = {
        name: each
        for name, each in vars(module).items()
        if callable(each) and not name.startswith("_") and getattr(each, "__module__", "") == module.__name__
    }
    if wanted in OPERATIONS and LEADERBOARD not in own:
        count = len(inputs(OPERATIONS[wanted]))
        fitting = [each for each in own.values() if len(required(each)) == count + is_launched(each)]
        yield from ((OPERATIONS[wanted], each) for each in fitting[-1:])
        return
    if LEADERBOARD in own:
        yield OPERATIONS["matmul"], own[LEADERBOARD]
        return
    candidates = [
        (OPERATIONS[operation], each)
        for name, each in own.items()
        for operation, pattern in NAMES.items()
        if re.search(pattern, name.lower())
        and len(required(each)) == len(inputs(OPERATIONS[operation])) + is_launched(each)
    ]
    candidates = [
        each for each in candidates if not is_launched(each[1])
    ] or candidates  # beside the kernels that they launch
    of_kernels = [of for of, pattern in NAMES.items() if any(re.search(pattern, name.lower()) for name in own)]
    for of in of_kernels[:1] if not candidates else ():  # a function of any name that launches them
        fitting = (function for function in own.values() if len(required(function)) == len(inputs(OPERATIONS[of])))
        candidates = [(OPERATIONS[of], function) for function in fitting if inspect.isfunction(function)]
    if len(candidates) == 1:
        yield from candidates
    elif own:
        names = ", ".join(each.__name__ for _, each in candidates) or "none"
        raise HpcmmError(
            f"functions that compute a product, a sum, an addition or a copy, by name and arguments: {names}; name one "
            "of them matmul, sum, vector_add or copy, or state operation: matmul in a head"
        )


def arithmetic_of(text: str) -> dict[str, str]:
    """Return the arithmetic of products in Triton, which rounds float32 to TF32 unless the source says otherwise."""
    exact = re.search(r"ieee|allow_tf32\s*=\s*False", text)
    return {"float32": "TF32"} if re.search(r"\btl\.dot\(", text) and not exact else {}


def is_launched(function: Callable[..., Any]) -> bool:
    """Return whether a function is a kernel of Numba, which takes its result, too."""
    return hasattr(function, "forall") and hasattr(function, "__getitem__")


def inputs(operation: Operation) -> list[str]:
    return [operand.name for operand in operation.operands if operand.role == "in"]


def required(function: Callable[..., Any]) -> list[str]:
    """Return the parameters of a function without defaults; none if they are unknown."""
    try:
        parameters = inspect.signature(getattr(function, "py_func", function)).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        parameter.name for parameter in parameters if parameter.default is parameter.empty and parameter.kind in (0, 1)
    ]


def is_by_name(function: Callable[..., Any], operation: Operation) -> bool:
    """Return whether a function takes the operands, the scalars and the stream by name."""
    names = [operand.name for operand in operation.operands]
    try:
        inspect.signature(function).bind(**dict.fromkeys([*names, *operation.scalars, "stream"]))
    except TypeError:
        return False
    except ValueError:  # it has no signature
        pass
    return True


def device_of(module: ModuleType, devices: list[str]) -> str:
    """Return the device of a module's arrays: that of a GPU if it imports a package for GPUs."""
    used = {each.__name__ for each in vars(module).values() if isinstance(each, ModuleType)}
    used |= {getattr(each, "__module__", None) or "" for each in vars(module).values()}
    gpu = any(name == each or name.startswith(f"{each}.") for name in used for each in FOR_GPUS)
    return devices[0] if gpu else devices[1]


def by_name(function: Callable[..., Any], operation: Operation, module: ModuleType) -> Callable[..., None]:
    """Return a function that takes the operands by name, and writes the result in place.

    Arrays are those of torch if the module imports it.
    """
    (result,) = (operand.name for operand in operation.operands if operand.role != "in")
    torch = getattr(module, "torch", None)

    def converted(x: Any) -> Any:
        return torch.from_dlpack(x) if torch else x

    def run(stream: Any = None, **given: Any) -> None:
        arrays = [converted(given[name]) for name in inputs(operation)]
        if is_launched(function):
            launch(function, operation, arrays, given[result])
        elif getattr(function, "__name__", "") == LEADERBOARD:
            given[result][...] = function(tuple(arrays))
        else:
            given[result][...] = function(*arrays)

    return run


def launch(kernel: Any, operation: Operation, arrays: list[Any], result: Any) -> None:
    """Launch a kernel of Numba on blocks that cover the result."""
    if len(result.shape) == 2:
        blocks = -(-max(result.shape) // NUMBA_BLOCK)
        kernel[(blocks, blocks), (NUMBA_BLOCK, NUMBA_BLOCK)](*arrays, result)
    else:
        kernel[-(-max(1, arrays[0].size) // 256), 256](*arrays, result)


def contract(operation: Operation) -> Contract | None:
    """Return the contract of a function that takes no scalars: a product is C = A B."""
    return Contract(scalars=SCALARS) if operation.scalars else None
