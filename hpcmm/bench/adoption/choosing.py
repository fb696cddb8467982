"""Read a file of kernels, and choose the function to adopt."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from hpcmm.bench.adoption.search import NotAdopted
from hpcmm.bench.adoption.sequences import GPU
from hpcmm.bench.adoption.signatures import arrays_of, integers_of, kinds
from hpcmm.experiment import functions
from hpcmm.experiment.functions import Function, Source
from hpcmm.experiment.returning import LEADERBOARD, NAMES
from hpcmm.model.devices import DEVICES, Device
from hpcmm.operations import heads
from hpcmm.system import files
from hpcmm.system.text import choices

CPU = next(each for each in DEVICES.values() if not each.accelerator)
PLACEHOLDER = re.compile(r"%\((\w+)\)[sd]")  # of a template: its name becomes a constant
SUFFIXES = dict.fromkeys((GPU.suffix, ".cuh", ".hip"), GPU)
SUFFIXES |= dict.fromkeys((CPU.suffix, ".cpp", ".cc", ".cxx", ".C", ".h", ".hpp"), CPU)


def is_adopted(path: Path) -> bool:
    """Return whether a file of this suffix may be adopted."""
    return path.suffix in SUFFIXES or (path.suffix == heads.PYTHON and path.is_file() and bool(embedded(path)))


def embedded(path: Path) -> str:
    """Return the CUDA source in a string of a Python file, at its lines; empty if the file has functions to call.

    That is how CuPy's RawKernel and RawModule, PyCUDA and NVRTC take their kernels.
    """
    try:
        tree = ast.parse(files.text_of(path, errors="replace"))
    except (SyntaxError, ValueError):
        return ""
    names = [each.name.lower() for each in tree.body if isinstance(each, ast.FunctionDef)]
    if any(re.search(pattern, name) for name in names for pattern in (*NAMES.values(), LEADERBOARD)):
        return ""
    strings = [each for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    text = ""
    for line, source in sorted((each.lineno, each.value) for each in strings if "__global__" in each.value):
        text += "\n" * (line - 1 - text.count("\n")) + source
    return PLACEHOLDER.sub(r"\1", text)


def unlaunched(path: Path) -> str:
    """Return an error message if a Python file has Triton kernels and no function that launches them; else ""."""
    try:
        text = files.text_of(path, errors="replace")
        functions = [each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    except (OSError, SyntaxError, ValueError):
        return ""
    launched = [each for each in functions if not any("jit" in ast.unparse(x) for x in each.decorator_list)]
    if launched or not functions or not re.search(r"^\s*(import|from) triton\b", text, re.MULTILINE):
        return ""
    names = ", ".join(each.name for each in functions)
    return f"no function launches its kernels of Triton: {names}; add one that returns the result, as vector_add(x, y)"


def decoded(path: Path) -> str:
    """Return the text of a source, whatever its encoding."""
    if path.suffix == heads.PYTHON:
        return embedded(path)
    try:
        content = files.bytes_of(path)
    except OSError as error:
        raise NotAdopted(f"{path}: {error.strerror}") from error
    try:
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    # without the marks of a cell of a notebook, or of a page of a wiki
    return re.sub(r"\A(%%.*|\{\{\{$)|^\}\}\}\s*\Z", "", text.replace("\r\n", "\n"), flags=re.MULTILINE)


def parsed(path: Path) -> tuple[Source, Device]:
    """Return the source of a file, and the device of its kernels."""
    source = functions.parsed(decoded(path), path)
    of_gpu = any(each.kernel for each in source.functions.values())
    return source, GPU if of_gpu else SUFFIXES.get(path.suffix, GPU)


def functions_of(source: Source, device: Device, kernel: str = "") -> list[Function]:
    """Return the functions that may be kernels of a device, by default of any name."""
    named = source.functions.items()
    able = (each for name, each in named if name != "main" and "::" not in name and kernel in ("", name))  # of no class
    return [each for each in able if each.kernel or not device.accelerator]


def fixed_rows(source: Source, function: Function) -> list[str]:
    """Return the lengths of rows of a function's arrays that are none of its parameters."""
    lengths = {length for each in function.parameters for length in each.lengths}
    return sorted(lengths - {each.name for each in integers_of(source, function)})


def candidates(source: Source, device: Device) -> list[Function]:
    """Return the functions whose parameters suit an operation; omit helpers that another of them calls."""
    able = [each for each in functions_of(source, device) if kinds(source, each, device)]
    if len(able) < 2:
        return able
    reached = {each.name: {*source.reached(each.name)[1:]} for each in able}
    names = "|".join(NAMES.values())
    # a mean, or a norm, that calls a sum
    others = {x for x, inner in reached.items() if inner & reached.keys() and not re.search(names, x.lower())}
    others = {x for x in others if any(re.search(names, y.lower()) for y in reached[x] & reached.keys())}
    products = {each.name for each in able if "matmul" in kinds(source, each, device)}
    others |= {x for x in reached.keys() - products if reached[x] & products}  # a power
    called = {y for x, inner in reached.items() if x not in others for y in inner}
    able = [each for each in able if each.name not in called | others] or able
    if device.accelerator:
        return able
    arrays = [len(arrays_of(source, each)) for each in able]  # of a product, beside checksums and copies of the program
    able = [each for each, count in zip(able, arrays, strict=True) if count == max(arrays)]
    return [each for each in able if re.search(NAMES["matmul"], each.name.lower())] or able


def choose(source: Source, device: Device, kernel: str) -> Function | None:
    """Return the function to adopt; None if the arguments of none are those of an operation."""
    functions, file = functions_of(source, device, kernel), source.path.name
    if kernel and not functions:
        what = "kernels" if device.accelerator else "functions"
        allowed = choices(kernel, (each.name for each in functions_of(source, device))) or "none"
        raise NotAdopted(f"{file} has no function {kernel!r}; its {what} are: {allowed}")
    able = [x for x in functions if kinds(source, x, device)] if kernel else candidates(source, device)
    if len(able) > 1:
        names = ", ".join(each.name for each in able)
        raise NotAdopted(f"{file} has several kernels: {names}; choose one by --kernel NAME")
    with_fixed_rows = (x for x in functions if x.multiplies and fixed_rows(source, x))
    return able[0] if able else next(with_fixed_rows, None)
