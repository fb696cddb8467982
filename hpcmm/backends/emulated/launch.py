"""Compile a CUDA kernel for the host behind ``cuda_on_host.h``, and launch it there.

The threads of a block run in several orders. The header lists the errors that are found, and those that are not.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcmm import kernels
from hpcmm.backends.emulated.assembly import without_assembly
from hpcmm.backends.emulated.passing import passed
from hpcmm.kernels import modules
from hpcmm.model import DeviceError, HpcmmError, NotTested
from hpcmm.model.launch import Boxes, Launch

FOLDER = Path(__file__).parent
HEADER, RUNTIME, HARNESS = FOLDER / "cuda_on_host.h", FOLDER / "runtime.cpp", FOLDER / "harness.cpp"
FILES = sorted(each for part in ("*.h", "*.cpp", "include/**/*") for each in FOLDER.glob(part) if each.is_file())
COMPILER = shutil.which("g++")
WATCH = ("-fsanitize=thread,bounds,alignment,object-size", "-fsanitize-coverage=trace-pc")
WATCH += ("-ftrivial-auto-var-init=pattern", "-nodefaultlibs", "-nostartfiles")
WATCH += ("-fno-reorder-blocks",)  # the order of the code shows where lanes of a warp meet again
# For addr2line: in DWARF 5 it names wrong files for some lines, and it does not read the locations of variables.
LINES = ("-g1", "-gdwarf-4", "-fno-var-tracking")
# -O1: compiling takes longer than running, for the small sizes that the emulation is for
FLAGS = ("-std=c++17", "-w", "-fPIC", "-shared", "-fno-exceptions", "-fno-extern-tls-init", "-U_FORTIFY_SOURCE", "-O1")
FLAGS += ("-fno-gnu-unique",)  # each library has its own shared memory of a template
FLAGS += ("-fno-stack-protector",)  # on by default in Ubuntu: it calls a function that a GPU does not have
ORDERS = ("ascending", "descending", "random")
LAST = "last block"  # of the grid, alone
# All extern __shared__ arrays begin at the same place, whatever their types, and are as large as a launch may ask for.
WHOLE = "cuda_dynamic_memory"
SHARED = '.section .tbss,"awT",%nobits; .balign 1024; {} .zero 232448; .text'
DYNAMIC = re.compile(r"(\bextern\b[^;{}]*__shared__[^;{}]*?\b(\w+)\s*\[\s*\])(?=\s*;)")
MARGIN = 1 << 20  # unused bytes around an array; untouched memory costs nothing
SCALARS = {1: "char", 2: "short", 4: "int", 8: "long"}  # C types of a parameter, by its bytes
REALS = {4: "float", 8: "double"}
MOST_PARAMETER_BYTES = 4096
MAP_BYTES, MAP_ALIGNMENT = 128, 64  # of a tensor map
NO_HEADER = {"cuda": "cuda/barrier and its like", "cub": "this part of CUB"}  # by namespace
# what readelf says of a library: its symbols, and the words of its section .cuda_parameters
SYMBOL = re.compile(r"^ *\d+: ([0-9a-f]+) +\S+ (\w+) +(\w+) +\w+ +(\w+) +(\S+)", re.MULTILINE)
WORDS = re.compile(r"^  0x[0-9a-f]+ ((?:[0-9a-f]{8} ){1,4})", re.MULTILINE)
ABOUT = ("readelf", "--wide", "--symbols", "--relocs", "--dynamic", "--hex-dump=.cuda_parameters")
PLACE = re.compile(r"@0x([0-9a-f]+)")  # in messages of the header: an address in the library


class KernelError(HpcmmError):
    """A fault of a launch, reported by the header."""


@dataclass(frozen=True)
class Entry:
    """How to launch a kernel of a library."""

    place: int  # its address relative to ``cuda_parameters``
    sizes: tuple[int, ...]  # bytes of its parameters
    harness: str  # library with the function ``launch`` for parameters of these types
    runtime: str  # library with the functions that kernels call


def entry(about: str, symbol: str, folder: Path) -> Entry:
    """Return how to launch a kernel, from the output of ``ABOUT`` for its library; compile the harness if need be.

    Raise DeviceError if the library has no such function, several, or one with parameters that no launch passes.
    """
    name = re.compile(rf"{symbol}|_ZL?{len(symbol)}{symbol}\w+")
    symbols = {(found[5], found[2]): int(found[1], 16) for found in SYMBOL.finditer(about) if found[4] != "UND"}
    places = [place for (each, kind), place in symbols.items() if kind == "FUNC" and name.fullmatch(each)]
    if len(places) != 1 or ("cuda_parameters", "OBJECT") not in symbols:
        raise DeviceError(f"has no function {symbol} that can be launched, or several")
    words = np.frombuffer(bytes.fromhex("".join(WORDS.findall(about))), "<u4")
    try:
        parameters = words[4 : 4 + 3 * int(words[3])].reshape(int(words[3]), 3).tolist()
        types = [type_of(*parameter) for parameter in parameters]
    except (IndexError, KeyError, ValueError):
        raise DeviceError(f"{symbol} has parameters that no launch passes") from None
    own, built = own_sources(), runtime(folder)
    harness = build(["-O1", f"-DPARAMETERS={', '.join(types)}", str(HARNESS), str(built)], own, folder, "harness.so")
    sizes = tuple(size for size, _, _ in parameters)
    return Entry(places[0] - symbols["cuda_parameters", "OBJECT"], sizes, str(harness), str(built))


def type_of(size: int, alignment: int, kind: int) -> str:
    """Return a C++ type that is passed like a parameter: an integer or an address, a real number, or a class."""
    if kind != 2:
        return (SCALARS, REALS)[kind][size]
    if not 0 < alignment <= size <= MOST_PARAMETER_BYTES:
        raise ValueError(f"{size} bytes aligned to {alignment}")
    return f"Value<{size}, {alignment}>"


@functools.cache
def entry_of(library: Path, symbol: str) -> Entry:
    """Return how to launch a kernel of a library of this process."""
    return entry(output_of([*ABOUT, str(library)]), symbol, library.parents[1])


class HostKernel:
    """A kernel that is compiled for the host."""

    def __init__(self, path: Path, source: Path, symbol: str):
        self.path, self.source = path, source
        self.entry = entry_of(path, symbol)
        ctypes.CDLL(self.entry.runtime, ctypes.RTLD_GLOBAL)  # first: no library replaces its functions
        self.launch, self.library = ctypes.CDLL(self.entry.harness).launch, modules.open_module(path, source)
        used = ctypes.CDLL(None)  # all libraries use the first runtime of this process, whatever folder it came from
        self.cuda_note, self.cuda_counts = used.cuda_note, used.cuda_counts
        for each in (self.launch, self.cuda_note, self.cuda_counts):
            each.restype = ctypes.c_char_p
        self.counted = False
        self.note = ""  # of the last launch: why its result may be wrong, although no error was found

    def __call__(self, launch: Launch, order: str, checked: bool = True, dynamic_bytes: int = 0) -> None:
        """Run one launch; without ``checked`` a misuse of shared memory affects only the results.

        A KernelError has the error, the thread, and the line.
        """
        arrays = [x for x in launch.arguments if isinstance(x, np.ndarray)]
        arrays += [
            x.matrix for x in launch.arguments if isinstance(x, Boxes) and not any(x.matrix is y for y in arrays)
        ]
        values = [argument(x) for x in launch.arguments]
        sizes = tuple(value.nbytes for value in values)
        if self.entry.sizes != sizes:
            raise KernelError(f"parameters of {[*self.entry.sizes]} bytes receive arguments of {[*sizes]} bytes")
        self.note = ""
        message = passed(
            (self.launch, self.library, self.entry.place),
            [value.ctypes.data for value in values],
            (launch.grid, launch.block),
            ((*ORDERS, LAST).index(order), checked, self.counted),
            [(x.ctypes.data, x.ctypes.data + extent(x)) for x in arrays],
            dynamic_bytes,
        )
        if message:
            grid, block = ("x".join(map(str, each)) for each in (launch.grid, launch.block))
            message += f": grid {grid}, block {block}" * message.endswith("refuses")
            raise KernelError(f"{order} order: {located(message, self.path, self.source)}")
        if note := self.cuda_note():
            self.note = located(note.decode(), self.path, self.source)

    def counts(self) -> str:
        """Return what the launches since the last call did that were ``counted``, for ``counts.read``."""
        return self.cuda_counts().decode()

    def fill(self, symbol: str, content: np.ndarray) -> None:
        """Copy an array to the beginning of a variable of the source, such as one in constant memory."""
        address = ctypes.addressof(ctypes.c_char.in_dll(self.library, symbol))
        ctypes.memmove(address, content.ctypes.data, content.nbytes)


def argument(x: np.ndarray | np.generic | Boxes) -> np.ndarray:
    """Return the value that a kernel receives for an argument of a launch: an address, a number or a tensor map."""
    if isinstance(x, np.ndarray):
        return np.array(x.ctypes.data, np.uintp)
    if not isinstance(x, Boxes):
        return np.array(x)
    memory = np.zeros(MAP_BYTES + MAP_ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % MAP_ALIGNMENT
    fields = memory[start : start + MAP_BYTES].view(np.uint64)  # as struct TensorMap of the header
    matrix = x.matrix
    if matrix.size and matrix.ctypes.data % 16 == 0 and matrix.strides[0] % 16 == 0:
        row_bytes = matrix.shape[1] * matrix.itemsize
        fields[:5] = matrix.ctypes.data, len(matrix), row_bytes, matrix.strides[0], matrix.itemsize
        fields[5:8] = x.rows, x.columns * matrix.itemsize, x.dtype == "tfloat32"
    return fields


def output_of(command: Sequence[str]) -> str:
    """Return the output of a tool; empty if it failed or is missing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def located(message: str, library: Path, source: Path, run: Callable[[Sequence[str]], str] = output_of) -> str:
    """Return a message of the header with lines of the source, and of its headers, in place of addresses."""

    def line_of(place: re.Match) -> str:
        command = ["addr2line", "--inlines", "--exe", str(library), hex(int(place[1], 16) - 1)]  # of the call
        for frame in run(command).splitlines():
            file, _, line = frame.partition(" (")[0].rpartition(":")
            if line.isdecimal() and Path(file).name not in ("??", *(each.name for each in FILES)):
                return f"in line {line}" + (f" of {Path(file).name}" if Path(file).name != source.name else "")
        return "in an unknown line"

    return PLACE.sub(line_of, message)


def compile_kernel(source: Path, symbol: str, options: Sequence[str], folder: Path) -> HostKernel:
    """Compile a CUDA source for the host, as ``compile_library``, and load it."""
    return HostKernel(compile_library(source, symbol, options, folder), source, symbol)


def compile_library(source: Path, symbol: str, options: Sequence[str], folder: Path) -> Path:
    """Compile the kernel of a name in a CUDA source for the host, unless the folder of libraries has it already.

    Raise DeviceError if it does not compile, or there is no compiler.
    """
    arguments, text, content = translation(source, symbol, options, folder)
    try:
        return build(arguments, content, folder, f"{source.stem}.so", text, lists=True)
    except DeviceError as error:
        match = re.search(rf"error: .*\W({'|'.join(NO_HEADER)})\b", str(error))
        if match:
            raise NotTested(f"needs a GPU: the host has no {NO_HEADER[match[1]]}") from error
        raise


def translation(source: Path, symbol: str, options: Sequence[str], folder: Path) -> tuple[list[str], str, str]:
    """Return the arguments of g++, the text that it compiles, and all that it reads; compile what it needs."""
    # precompiled, because it takes as long to compile as a kernel
    header = build([*WATCH, *LINES, "-x", "c++-header", str(HEADER)], own_sources(), folder, f"{HEADER.name}.gch")
    headers = kernels.headers(source)
    texts = [file.read_text(errors="replace") for file in (source, *headers)]
    own = without_assembly(texts[0])
    if re.search(r"\bnamespace\b[\w\s:]*\{", own):  # which would be a part of the symbol
        own = DYNAMIC.sub(r'\1 asm("\2")', own)
    dynamic = list(dict.fromkeys(name for each in texts for name in kernels.dynamic_shared(each)))
    head = re.search(rf"__global__((?:(?!__global__).)*?)\b{symbol}\(", texts[0], re.DOTALL)
    cluster = re.search(r"__cluster_dims__\(([^()]*)\)", head[1]) if head else None
    blocks = cluster[1] if cluster else 1
    if re.search(r"\bld_relaxed_gpu_global\(", texts[0]):  # blocks may wait for each other
        blocks = 0
    # macros follow the header: they may have its names
    macros = [option[2:].replace("=", " ", 1) for option in options if option.startswith("-D")]
    text = "\n".join(
        [
            f"#include <{HEADER.name}>",
            *(["using namespace cuda_on_host::ptx;"] if any(each.name == "ptx.cuh" for each in headers) else []),
            *(f"#define {macro}" for macro in macros),
            f'#include "{source.resolve()}"' if own == texts[0] else f'#line 1 "{source.resolve()}"\n{own}',
            f'asm(R"({SHARED.format("".join(f".globl {each}; {each}: " for each in (*dynamic, WHOLE)))})");'
            if dynamic
            else "",
            f"CUDA_ON_HOST({symbol}, {blocks})",
            "",
        ]
    )
    includes = [f"-I{path}" for path in (header.parent, FOLDER, FOLDER / "include", kernels.FOLDER, source.parent)]
    others = [option for option in options if not option.startswith("-D")]
    arguments = [*WATCH, *LINES, *includes, *others, "-x", "c++", "-", "-x", "none", str(runtime(folder))]
    content = "".join([text, own_sources(), texts[0]])
    libraries = ["-Wl,--as-needed", "-lstdc++", "-lgcc", "-lm", "-lc"]
    return [*arguments, *libraries], text, content


@functools.cache  # the files of the package do not change while it runs
def own_sources() -> str:
    """Return all that runtime, header and harness are compiled from."""
    return "".join(file.read_text() for file in FILES)


def runtime(folder: Path) -> Path:
    """Return the library of the functions that kernels call; it is compiled once, for speed at every access."""
    return build(["-O3", str(RUNTIME), "-lrt"], own_sources(), folder, "runtime.so")


def build(arguments: Sequence[str], content: str, folder: Path, name: str, text: str = "", lists: bool = False) -> Path:
    """Return the file that g++ builds from a text, as ``modules.built``."""
    if COMPILER is None:
        raise NotTested("there is no C++ compiler: install g++ to run CUDA kernels on the host")
    command = [COMPILER, *FLAGS, *arguments]
    return modules.built(command, content, folder / name, "g++, for the host: ", text, lists)


def on_device(content: np.ndarray) -> np.ndarray:
    """Copy an array to memory with the alignment of the device's allocator, far from any other array."""
    memory = np.empty(2 * MARGIN + content.nbytes, np.uint8)
    start = MARGIN - memory.ctypes.data % 256
    array = memory[start : start + content.nbytes].view(content.dtype).reshape(content.shape)
    array[...] = content
    return array


def poison(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array of NaN, or of -1 for integers."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return on_device(np.frombuffer(b"\xff" * size, dtype).reshape(shape))


def extent(array: np.ndarray) -> int:
    """Return the bytes from the first element of an array to the end of its last."""
    steps = sum((length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True))
    return steps + array.itemsize if array.size else 0
