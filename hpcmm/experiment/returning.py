"""Python functions with signatures of their own: they return or fill their result, or Numba launches them on a grid."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from hpcmm.model import ENDED, HpcmmError, NotTested, Operation
from hpcmm.model.contract import Contract
from hpcmm.operations import OPERATIONS
from hpcmm.system.text import INSTALLED, described

LEADERBOARD = "custom_kernel"  # takes a tuple of its inputs
NAMES = {"matmul": r"mat_?mul|gemm|\bmm\b|matrix_?mult", "vector_add": r"add", "sum": r"sum|reduc", "copy": r"copy"}
FOR_GPUS = ("cupy", "torch", "triton", "numba.cuda", "jax", "cuda")  # packages whose arrays are on a GPU
COMPILING = {*FOR_GPUS, "numba", "numba_cuda", "llvmlite", "cupy_backends", "cupyx"}
# Errors of a package that does not work with others on this machine, and not of the code that it compiles
UNUSABLE = (ImportError, AttributeError, NotImplementedError, OSError, SystemError)
UNUSABLE_NAMES = re.compile(r"(Nvvm|NVVM|Linker|Support|Lowering|Driver|PTXAS|Internal)\w*Error")
NUMBA_BLOCK = 16  # threads in x and y of a block of a product
SCALARS = {"alpha": 1.0, "beta": 0.0}


def functions(module: ModuleType, wanted: str = "") -> list[tuple[Operation, Callable[..., Any]]]:
    """Return the functions of a module that compute an operation, with the operation.

    ``wanted`` is the operation in the file's head. The last function with as many arguments as inputs then computes it.
    """
    named = [
        (each, getattr(module, name)) for name, each in OPERATIONS.items() if callable(getattr(module, name, None))
    ]
    able = [(of, f) for of, f in named if not required(f) or is_by_name(f, of) or fits(f, of) or filled(f, of)]
    if able:
        return able
    for operation, function in named:
        names = [operand.name for operand in operation.operands]
        forms = (inputs(operation), names, [*names, *operation.scalars])
        allowed = ", ".join(dict.fromkeys(f"{operation.name}({', '.join(each)})" for each in forms))
        taken = ", ".join(required(function))
        raise HpcmmError(f"{operation.name}({taken}): unknown parameters; allowed: {allowed}")
    defined = {
        name: function
        for name, function in vars(module).items()
        if callable(function) and not name.startswith("_") and getattr(function, "__module__", "") == module.__name__
    }
    if LEADERBOARD in defined:
        return [(OPERATIONS[of_leaderboard(defined[LEADERBOARD])[0]], defined[LEADERBOARD])]
    own = {name: called(function) for name, function in defined.items()}
    if wanted in OPERATIONS:
        of = OPERATIONS[wanted]
        fitting = [each for each in own.values() if fits(each, of)] or [f for f in own.values() if filled(f, of)]
        return [(of, each) for each in fitting[-1:]]
    by_name = [
        (OPERATIONS[operation], each)
        for name, each in own.items()
        for operation, pattern in NAMES.items()
        if re.search(pattern, name.lower())
    ]
    candidates = [(of, each) for of, each in by_name if fits(each, of)]
    candidates = (
        [each for each in candidates if not is_launched(each[1])]  # beside the kernels that they launch
        or candidates
        or [(of, each) for of, each in by_name if inspect.isroutine(each) and filled(each, of)]
    )
    of_kernels = [of for of, pattern in NAMES.items() if any(re.search(pattern, name.lower()) for name in own)]
    for of in of_kernels[:1] if not candidates else ():  # a function of any name that launches them
        fitting = (function for function in own.values() if len(required(function)) == len(inputs(OPERATIONS[of])))
        candidates = [(OPERATIONS[of], function) for function in fitting if inspect.isroutine(function)]
    if own and len(candidates) != 1:
        names = ", ".join(each.__name__ for _, each in candidates) or "none"
        raise HpcmmError(
            f"functions that compute a product, a sum, an addition or a copy, by name and arguments: {names}; name one "
            "of them matmul, sum, vector_add or copy, or state operation: matmul in a head"
        )
    return candidates


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function itself, and of a class whose instances compute something, what an instance calls."""
    names = [each for each in ("forward", "__call__") if each in vars(function)] if inspect.isclass(function) else ()
    return getattr(function(), names[0]) if names and not required(function) else function


def of_leaderboard(function: Callable[..., Any]) -> tuple[str, bool]:
    """Return the operation of a function on the data of a leaderboard, and whether these end with its result."""
    text, (data,) = Path(sys.modules[function.__module__].__file__).read_text(), required(function)
    text = re.sub("#.*", "", text)
    found = re.findall(rf"^[ \t]*\(?([\w, ]+)\)? = {data}\b *$", text, re.MULTILINE)
    found += [", ".join(dict.fromkeys(re.findall(rf"\b{data}\[\d\]", text)))]
    names = max((each.split(", ") for each in found), key=len)
    filled = len(names) > 2 or bool(re.match("out|res", names[-1].lower()))
    if len(names) - filled == 1:
        return "sum", filled
    return "matmul" if re.search(rf"{NAMES['matmul']}|\bdot\b| @ ", text, re.IGNORECASE) else "vector_add", filled


def arithmetic_of(text: str) -> dict[str, str]:
    """Return the arithmetic of products in Triton, which rounds float32 to TF32 unless the source says otherwise."""
    exact = re.search(r"ieee|allow_tf32\s*=\s*False", text)
    return {"float32": "TF32"} if re.search(r"\btl\.dot\(", text) and not exact else {}


def is_launched(function: Callable[..., Any]) -> bool:
    """Return whether a function is a kernel of Numba, which takes its result, too."""
    return hasattr(function, "forall") and hasattr(function, "__getitem__")


def fits(function: Callable[..., Any], operation: Operation) -> bool:
    """Return whether a function has the parameters of one that returns its result, or that Numba launches."""
    return len(required(function)) == len(inputs(operation)) + is_launched(function)


def filled(function: Callable[..., Any], operation: Operation) -> list[str]:
    """Return the operands and scalars that a function takes, in order, if it fills its result; else an empty list.

    They are known by the names of the parameters, or else by their number.
    """
    operands, scalars = [operand.name for operand in operation.operands], [*operation.scalars]
    by_name = {each.lower(): each for each in [*operands, *scalars]}
    names = [by_name.get(each.lower(), "") for each in required(function)]
    if "" not in names and set(operands) <= set(names):
        return names
    by_length = {len(each): each for each in (operands, operands + scalars)}
    return by_length.get(len(names), [])


def adds(function: Callable[..., Any], result: str) -> bool:
    """Return whether a function adds to a parameter or to its elements, and sets none of them."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(function, "py_func", function))))
    except (OSError, TypeError, SyntaxError):
        return False

    def changed(kind: type) -> bool:
        nodes = [node for node in ast.walk(tree) if isinstance(node, kind)]
        targets = (t for node in nodes for t in (node.targets if kind is ast.Assign else [node.target]))
        return any(ast.unparse(getattr(t, "value", t)) == result for t in targets)

    return changed(ast.AugAssign) and not changed(ast.Assign)


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
    """Return whether a function takes the operands, the scalars and the stream by name.

    Objects that do not name their parameters, such as ufuncs and kernels of CuPy, take the inputs.
    """
    if not required(function) and not inspect.isfunction(function):
        return False
    names = [operand.name for operand in operation.operands]
    try:
        inspect.signature(function).bind(**dict.fromkeys([*names, *operation.scalars, "stream"]))
    except TypeError:
        return False
    return True


def unusable(error: BaseException, text: str) -> bool:
    """Return whether an error means that a package that compiles kernels does not work on this machine.

    An attribute that the ``text`` of the kernel's file names is a mistake of this file.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name != "__getattr__"]
    of_package = INSTALLED.search(frames[-1].f_code.co_filename) if frames else None
    attribute = re.search(r"attribute '(\w+)'", str(error))
    if not of_package or of_package[1] == "hpcmm" or (attribute and re.search(rf"\b{attribute[1]}\b", text)):
        return False
    packages = {frame.f_globals.get("__name__", "").partition(".")[0] for frame in frames} | {of_package[1]}
    kind = isinstance(error, UNUSABLE) or UNUSABLE_NAMES.fullmatch(type(error).__name__)
    return bool(packages & COMPILING and kind)


def where_it_works(function: Callable[..., Any], text: str) -> Callable[..., Any]:
    """Return a function that raises NotTested if a package that compiles it does not work on this machine.

    An exit of the function is an error; one by a signal is not its own.
    """

    def run(**given: Any) -> Any:
        try:
            return function(**given)
        except SystemExit as error:
            if error.code == ENDED:
                raise
            raise HpcmmError(f"it ends the process: {described(error)}") from error
        except Exception as error:
            if unusable(error, text):
                raise NotTested(f"cannot run here: {described(error)}") from error
            raise

    return run


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
    filling = getattr(function, "__name__", "") == LEADERBOARD and of_leaderboard(function)[1]

    def converted(x: Any) -> Any:
        return torch.from_dlpack(x) if torch else x

    def run(stream: Any = None, **given: Any) -> None:
        arrays = [converted(given[name]) for name in inputs(operation)]
        if is_launched(function):
            launch(function, operation, arrays, given[result])
        elif getattr(function, "__name__", "") == LEADERBOARD:
            output = [converted(given[result])] * filling
            returned = function((*arrays, *output) if arrays[1:] or output else arrays[0])
            if not output or returned is not output[0]:
                given[result][...] = returned
        elif taken := filled(function, operation):
            function(*(given[name] if name in operation.scalars else converted(given[name]) for name in taken))
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


def contract(function: Callable[..., Any], operation: Operation) -> Contract | None:
    """Return the contract of a function that does not take all scalars: a product is C = A B, or C += A B."""
    taken = filled(function, operation)
    fixed = {name: value for name, value in SCALARS.items() if name in operation.scalars and name not in taken}
    (result,) = (operand.name for operand in operation.operands if operand.role != "in")
    if fixed and taken and "beta" in fixed and adds(function, required(function)[taken.index(result)]):
        fixed["beta"] = 1.0
    return Contract(scalars=fixed) if fixed else None
