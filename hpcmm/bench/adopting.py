"""Adopt a kernel of any signature: find its arguments and its launch by small trials, and write its head.

Trials run on the host. A block runs alone first: the elements of C that it writes are its tile, and a second block in x
or y shows the direction of the grid. Products of small matrices of three different sizes then decide the arguments.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import itertools
import os
import pickle
import re
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpcmm.backends.emulated.launch import HostKernel, KernelError, compile_library, on_device
from hpcmm.devices import DEVICES, Device
from hpcmm.dtypes import DTYPES
from hpcmm.experiment import calls
from hpcmm.experiment.functions import Function, Parameter, Source
from hpcmm.kernels import modules
from hpcmm.model import DeviceError, HpcmmError, Launch
from hpcmm.operations import OPERATIONS, heads

GPU = next(each for each in DEVICES.values() if each.accelerator)
CPU = next(each for each in DEVICES.values() if not each.accelerator)
SUFFIXES = dict.fromkeys((GPU.suffix, ".cuh", ".hip"), GPU)
SUFFIXES |= dict.fromkeys((CPU.suffix, ".cpp", ".cc", ".cxx", ".h", ".hpp"), CPU)
CPLUSPLUS = (".cpp", ".cc", ".cxx", ".hpp")
OPTIONS_OF_CPLUSPLUS = ["-x", "c++", "-std=gnu++17", "-w", "-Wl,--no-as-needed", "-lstdc++"]
TYPES = {"float": "float32", "double": "float64", "int": "int32", "half": "float16", "__half": "float16"}
TYPES |= {"__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "float4": "float32", "float2": "float32"}
WORDS_OF_INTEGERS = re.compile(
    r"(std::)?(unsigned|signed|long|short|int|char|size_t|uint|u?int(8|16|32|64)_t|ptrdiff_t|ssize_t|bool|ulong|uint32|int64)\b"
)
SLOTS = ("m", "n", "k", "lda", "ldb", "ldc")  # integers of the operation's function, which pass any integers in a trial
BLOCKS = ((4, 4), (32, 8), (8, 8), (32, 32), (16, 16), (512,), (64,), (128,), (1024,), (256,))  # the usual ones last
SIDES = (64, 128, 256)  # of square matrices in which a block runs alone
SHARED = (0, 1, 2)  # elements per thread of dynamic shared memory to try
WRONG = "a wrong result"
SECONDS, MOST_SECONDS = 20, 90  # limits of a trial, and of all
PRESETS = (  # values of template parameters that the file does not give
    {"BM": 128, "BN": 128, "BK": 8, "TM": 8, "TN": 8, "WM": 64, "WN": 64, "WNITER": 4, "NUM_THREADS": 128},
    {"BM": 64, "BN": 64, "BK": 8, "TM": 8, "TN": 8, "WM": 32, "WN": 32, "WNITER": 1, "NUM_THREADS": 128},
    {"BM": 64, "BN": 64, "BK": 8, "TM": 4, "TN": 4, "WM": 32, "WN": 32, "WNITER": 2, "NUM_THREADS": 128},
)


class NotAdopted(HpcmmError):
    """A file whose kernel cannot be run as it is; the message names in one line what its head must state."""


@dataclass
class Adopted:
    """A file with the head that its kernel needs.

    Parameters
    ----------
    path : Path
        The file.
    head : dict
        The keys of the head.
    text : str
        The file's text.
    suffix : str
        Suffix of a copy: that of the device's kernels.
    """

    path: Path
    head: dict[str, Any]
    text: str
    suffix: str

    def __str__(self) -> str:
        """Describe what was found, in one line."""
        head = self.head
        launch = ", ".join(f"{key} {shown(head[key])}" for key in ("grid", "block") if key in head)
        return f"{self.path.name}: taken as {head['call']}{launch and ', '}{launch}"

    def write(self, target: Path, lines_of_file: bool = False) -> None:
        """Write a copy with the head; with ``lines_of_file``, messages give the lines of the file."""
        import yaml

        lines = [f"{self.path.name}, with the head that hpcmm bench --adopt found.", "", "hpcmm:"]
        for key, value in self.head.items():
            flow = (
                yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False)
                .strip()
                .removesuffix("...")
                .strip()
            )
            lines.append(f"  {key}: {flow}")
        comment = "".join(f"// {line}".rstrip() + "\n" for line in lines)
        near = re.sub(
            r'^([ \t]*#[ \t]*include[ \t]*)"([^"]+)"',
            lambda x: f'{x[1]}"{self.path.parent / x[2]}"' if (self.path.parent / x[2]).is_file() else x[0],
            self.text,
            flags=re.MULTILINE,
        )
        text = self.text if target.parent.resolve() == self.path.parent.resolve() else near
        place = f'#line 1 "{self.path}"\n' if lines_of_file else ""
        target.write_text(f"{comment}\n{place}{text}", encoding="utf-8")


def shown(value: Any) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)


def is_adopted(path: Path) -> bool:
    """Return whether a file of this suffix may be adopted."""
    return path.suffix in SUFFIXES


def decoded(path: Path) -> str:
    """Return the text of a source, whatever its encoding."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotAdopted(f"{path}: {error.strerror}") from error
    for encoding in ("utf-8-sig", "utf-16") if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig",):
        try:
            return content.decode(encoding).replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue
    return content.decode("latin-1").replace("\r\n", "\n")


def is_native(text: str, path: Path) -> bool:
    """Return whether a file needs no adoption: its head has a call, or its function is that of an operation."""
    if path.suffix not in (GPU.suffix, CPU.suffix):
        return False
    try:
        if "call" in heads.head_of(text, path)[0]:
            return True
    except heads.KernelFileError:
        return True  # its reader reports what is wrong
    source = Source(text)
    for kernels, wanted in calls.SIGNATURES.items():
        function = source.functions.get(kernels)
        if function and all(map(fits, function.parameters, wanted)) and len(function.parameters) >= len(wanted):
            return path.suffix == CPU.suffix or is_exported(source, kernels)
        if (
            not function
            and re.search(rf"\b{kernels}\s*\(", text)
            and not any(each.kernel for each in source.functions.values())
        ):
            return path.suffix == GPU.suffix  # the parser finds no kernel: macros define it
    return False


def copy_of(path: Path, kernel: str) -> tuple[Path, str]:
    """Return a copy of a file with its head in the user's cache, and what was found; the file itself if it has one."""
    text = decoded(path)
    if not kernel and is_native(text, path):
        return path, ""
    parts = [str(path), text, kernel, Path(__file__).read_text(), Path(calls.__file__).read_text()]
    folder = modules.cache() / "adopted" / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    said = folder / "said.txt"
    if not said.is_file():
        found = adopt(path, kernel)
        folder.mkdir(parents=True, exist_ok=True)
        found.write(folder / f"{path.stem}{found.suffix}", lines_of_file=True)
        said.write_text(f"{found.suffix}\n{found}")
    suffix, _, line = said.read_text().partition("\n")
    return folder / f"{path.stem}{suffix}", line


def fits(parameter: Parameter, wanted: str) -> bool:
    """Return whether a parameter has the type of the operation's: the size of its integers matters on a GPU."""
    if parameter.pointers or "*" in wanted:
        return parameter.pointers == ("*" in wanted)
    if wanted.startswith("int "):
        return parameter.type in ("int", "unsigned", "unsigned int", "uint")
    if wanted.startswith("size_t "):
        return parameter.type in ("size_t", "unsigned long", "uint64_t", "unsigned long long", "std::size_t", "long")
    return not WORDS_OF_INTEGERS.match(parameter.type) or parameter.type == "int"


def is_exported(source: Source, name: str) -> bool:
    """Return whether a function has C linkage, which the name of a kernel needs."""
    node = source.nodes[name]
    return (
        b'extern "C"' in source.content[: node.start_byte].rsplit(b"\n\n", 1)[-1]
        or node.parent.type in ("linkage_specification",)
        or (node.parent.type == "declaration_list")
    )


def adopt(path: Path, kernel: str = "") -> Adopted:
    """Find the head of a kernel.

    Parameters
    ----------
    path : Path
    kernel : str
        Name of its function; by default the only one that computes an operation.

    Raises
    ------
    NotAdopted
        If there is none, several, or no trial gives a right result.
    """
    text = decoded(path)
    given, _ = heads.head_of(text, path)
    source = Source(text)
    device = SUFFIXES[path.suffix]
    if any(each.kernel for each in source.functions.values()):
        device = GPU
    chosen = choose(path, source, device, kernel)
    failures = []
    options = OPTIONS_OF_CPLUSPLUS if path.suffix in CPLUSPLUS and not device.accelerator else []
    for kind in kinds(source, chosen, device):
        search = Search(path, text, source, chosen, kind, device, options, given)
        try:
            head = search.head()
        except NotAdopted as error:
            failures.append(error)
            continue
        text = text.replace(heads.MARK, heads.MARK.replace(":", " -"), 1) if given else text
        return Adopted(path, head | given, text, device.suffix)
    raise failures[0]


def choose(path: Path, source: Source, device: Device, kernel: str) -> Function:
    """Return the function to adopt."""
    of_device = [
        each for name, each in source.functions.items() if name != "main" and (each.kernel or not device.accelerator)
    ]
    names = ", ".join(each.name for each in of_device) or "none"
    what = "kernels" if device.accelerator else "functions"
    if kernel:
        found = [each for each in of_device if each.name == kernel]
        if not found:
            raise NotAdopted(f"{path.name} has no function {kernel!r}; its {what} are: {names}")
        return found[0]
    able = [each for each in of_device if kinds(source, each, device)]
    if len(able) > 1:
        called = {
            name
            for each in able
            for name in re.findall(r"\w+(?=\s*\()", source.nodes[each.name].text.decode(errors="replace"))
            if name != each.name
        }
        able = [each for each in able if each.name not in called] or able
    if len(able) == 1:
        return able[0]
    if able:
        raise NotAdopted(
            f"{path.name} has several kernels: {', '.join(each.name for each in able)}; choose one by --kernel NAME"
        )
    if not of_device:
        raise NotAdopted(
            f"{path.name} has no {'__global__ ' if device.accelerator else ''}function: it is no kernel file"
        )
    raise NotAdopted(
        f"{path.name}: none of its {what} has the arguments of a product, a sum, an addition of vectors or a copy; "
        f"found: {'; '.join(str(each) for each in of_device[:3])}{'; ...' if len(of_device) > 3 else ''}"
    )


# --- what a function may compute -----------------------------------------------------------------------------------


def type_of(source: Source, parameter: Parameter, function: Function) -> str:
    """Return the element type of a parameter; empty if it has none, ``any`` for the parameter of a template."""
    name = parameter.type
    if name in function.types:
        return "any"
    text = source.content.decode(errors="replace")
    for _ in range(3):
        if name in TYPES:
            return TYPES[name]
        found = re.search(rf"#\s*define\s+{name}\s+(\w+)", text) or re.search(rf"typedef\s+(\w+)\s+{name}\s*;", text)
        found = found or re.search(rf"using\s+{name}\s*=\s*(\w+)\s*;", text)
        if not found:
            break
        name = found[1]
    return "any" if name in ("REAL", "ACCUMULATOR") else ""


def is_threads(parameter: Parameter) -> bool:
    """Return whether a parameter is the number of threads."""
    return not parameter.pointers and bool(
        re.fullmatch(r"n?_?(num|n)?_?(omp)?_?threads?(_?(num|count))?", parameter.name.lower())
    )


def arrays_of(source: Source, function: Function) -> list[Parameter]:
    found = []
    for each in function.parameters:
        if (fields := source.structures().get(each.type)) and not each.pointers:
            found += [dataclasses.replace(x, name=each.name, structure=each.type) for x in fields if x.pointers == 1]
        elif each.pointers == 1 or (each.pointers == 2 and not function.kernel):
            found.append(each)
    return [each for each in found if type_of(source, each, function)]


def integers_of(source: Source, function: Function) -> list[Parameter]:
    found = [
        each
        for each in function.parameters
        if not each.pointers
        and not is_threads(each)
        and (WORDS_OF_INTEGERS.match(each.type) or WORDS_OF_INTEGERS.match(alias(source, each.type)))
    ]
    return found or [Parameter(each, "int", 0, False) for each in source.used_sizes(function.name)]


def alias(source: Source, name: str) -> str:
    text = source.content.decode(errors="replace")
    found = re.search(rf"#\s*define\s+{re.escape(name)}\s+(.+)", text)
    found = found or re.search(rf"typedef\s+([\w\s]+?)\s+{re.escape(name)}\s*;", text)
    return found[1].strip() if found else ""


def reals_of(source: Source, function: Function) -> list[Parameter]:
    whole = integers_of(source, function)
    return [
        each
        for each in function.parameters
        if not each.pointers and each not in whole and type_of(source, each, function)
    ]


def kinds(source: Source, function: Function, device: Device) -> list[str]:
    """Return the operations that a function may compute by its signature, the most plausible one first."""
    arrays, integers, reals = (each(source, function) for each in (arrays_of, integers_of, reals_of))
    known = {each.name for each in (*arrays, *integers, *reals)}
    if any(each.name not in known and (device.accelerator or not is_threads(each)) for each in function.parameters):
        return []
    written = [each for each in arrays if each.name in function.written]
    if len(arrays) == 3 and len(written) <= 1 and len(integers) <= 6 and len(reals) <= 2 and written:
        if len(integers) > 1:
            return ["matmul"]
        if reals or not integers:
            return ["matmul"] if integers or all(each.structure for each in arrays) else []
        return ["matmul", "vector_add"] if function.multiplies else ["vector_add", "matmul"]
    if len(arrays) == 2 and len(integers) == 1 and not reals and len(written) == 1:
        return ["reduction", "copy"] if function.looped else ["copy", "reduction"]
    if (
        len(arrays) == 1
        and len(integers) == 1
        and not reals
        and not written
        and not device.accelerator
        and function.looped
    ):
        return ["reduction"] if function.returns.split()[-1] != "void" else []
    return []


def hint(name: str) -> str:
    """Return the size of a product that a name suggests: m, n, k, lda, ldb or ldc; empty if none.

    >>> [hint(each) for each in ("M", "numAColumns", "wB", "height_a", "lda", "width", "K_", "rows")]
    ['m', 'k', 'n', 'm', 'lda', '', 'k', '']
    """
    plain = re.sub(r"[^a-z]", "", name.lower().replace("num", ""))
    plain = plain.removeprefix("matrix").removeprefix("mat")
    if plain in SLOTS:
        return plain
    if found := re.fullmatch(r"(?:ld|stride|pitch|lead\w*)([abc])", plain):
        return f"ld{found[1]}"
    row = r"(?:rows?|h|height|hgt|ht)"
    column = r"(?:columns?|cols?|w|width|wid|wd)"
    for which, by_row, by_column in (("a", "m", "k"), ("b", "k", "n"), ("c", "m", "n")):
        if re.fullmatch(rf"n?{row}(?:of|in)?{which}|{which}n?{row}", plain):
            return by_row
        if re.fullmatch(rf"n?{column}(?:of|in)?{which}|{which}n?{column}", plain):
            return by_column
    return ""


def assignments(integers: Sequence[Parameter]) -> list[tuple[str, ...]]:
    """Return which size each integer may be, the most plausible first."""
    hints = [hint(each.name) for each in integers]
    if len(integers) == 1:
        return [("n",)]
    fixed = [each if each[:2] == "ld" else "" for each in hints]
    free = [i for i, each in enumerate(fixed) if not each]
    if len(free) == 1 and len(integers) > 1:
        ways = [("n",)]
    elif len(free) <= 3:
        ways = list(itertools.permutations("mnk", len(free)))
    else:
        ways = [tuple(hints[i] or "n" for i in free)]
    found = []
    for way in ways:
        whole = list(fixed)
        for i, each in zip(free, way, strict=True):
            whole[i] = each
        found.append(tuple(whole))
    return sorted(found, key=lambda way: sum(bool(a) and a != b for a, b in zip(hints, way, strict=True)))


def evaluate(text: str, known: Mapping[str, str], depth: int = 0) -> int | None:
    """Return the value of a constant expression of C; None if it has none."""
    if depth > 12:
        return None
    text = re.sub(r"\((?:unsigned|int|size_t|unsigned int|float|double)\)", "", text)
    text = re.sub(
        r"\bsizeof\s*\(\s*(float|int|double|half)\s*\)", lambda x: {"double": "8", "half": "2"}.get(x[1], "4"), text
    )
    text = re.sub(r"(?<=\d)[uUlLfF]+\b", "", text)
    text = re.sub(r"\b(true|false)\b", lambda x: str(int(x[0] == "true")), text)

    def value(found: re.Match) -> str:
        inner = evaluate(known[found[0]], known, depth + 1) if found[0] in known else None
        return found[0] if inner is None else str(inner)

    text = re.sub(r"[A-Za-z_][\w.]*", value, text)
    if not re.fullmatch(r"[\d\s+\-*/%()<>|&]+", text) or "**" in text or len(text) > 200:
        return None
    try:
        return int(eval(text.replace("/", "//").replace("////", "//"), {"__builtins__": {}}))
    except (SyntaxError, ArithmeticError, TypeError, ValueError, MemoryError):
        return None


# --- trials --------------------------------------------------------------------------------------------------------


def guarded(function: Callable[[], Any], seconds: float) -> Any:
    """Return the result of a function that runs in a child process; a string says why there is none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            devnull = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(devnull, stream)
            try:
                content = pickle.dumps(function())
            except KernelError as error:
                content = pickle.dumps(str(error))
            with os.fdopen(writing, "wb") as file:
                file.write(content)
        finally:
            os._exit(0)
    os.close(writing)
    content, end = b"", time.monotonic() + seconds
    with os.fdopen(reading, "rb") as file:
        while (left := end - time.monotonic()) > 0 and select.select([file], [], [], left)[0]:
            part = os.read(file.fileno(), 1 << 20)
            if not part:
                break
            content += part
        else:
            os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        return pickle.loads(content)
    except (pickle.UnpicklingError, EOFError):
        return "it crashed" if time.monotonic() < end else f"it took longer than {seconds:g} s"


@dataclass
class Search:
    """The search for the head of one function, as one operation."""

    path: Path
    text: str
    source: Source
    function: Function
    kind: str
    device: Device
    options: list[str]
    given: Mapping[str, Any] = field(default_factory=dict)  # the file's own head
    why: str = ""  # of the last trial that failed
    ran: bool = False  # whether a trial of it gave a result, which was wrong
    likely: dict[str, Any] | None = None  # the head to judge the kernel with if no trial is right
    start: float = field(default_factory=time.monotonic)

    def head(self) -> dict[str, Any]:
        self.arrays, self.integers, self.reals = (
            each(self.source, self.function) for each in (arrays_of, integers_of, reals_of)
        )
        types = {type_of(self.source, each, self.function) for each in self.arrays} - {"any"}
        if len(types) > 1:
            raise NotAdopted(f"{self.path.name}: arrays of several types in {self.function}")
        self.dtype = next(iter(types), "float32")
        self.any_type = not types
        operation = next(each for each in OPERATIONS.values() if each.kernels == self.kind)
        if self.dtype not in operation.dtypes:
            raise NotAdopted(
                f"{self.path.name}: {self.function.name} is for {self.dtype}; {operation.name} has "
                f"{', '.join(operation.dtypes)}: change its type"
            )
        self.operation = operation
        self.names = self.named_arrays()
        found = self.product() if self.kind == "matmul" else self.vectors()
        types_of_head = {} if self.any_type else {"dtypes": [self.dtype]}
        further = {"options": self.options} if self.options else {}
        return {"operation": self.operation.name, "call": found.pop("call"), **types_of_head, **found, **further}

    def named_arrays(self) -> dict[str, str]:
        """Return the operand of each array parameter."""
        written = next((each.name for each in self.arrays if each.name in self.function.written), "")
        inputs = [each.name for each in self.arrays if each.name != written]
        if self.kind == "matmul":
            letters = [
                re.sub(r"^(d|dev|g|h|device|mat|matrix)_?(?=[a-z])|_?(d|dev|mat)$", "", each.lower())[:1]
                for each in inputs
            ]
            if letters == ["b", "a"]:
                inputs.reverse()
            return dict(zip([*inputs, written], "ABC", strict=True))
        if self.kind == "reduction":
            return {inputs[0]: "x"} | ({written: "result"} if written else {})
        return dict(zip([*inputs, written], "xyz" if self.kind == "vector_add" else "xy", strict=False))

    def call(self, integers: Sequence[str], template: str, plain: bool = False) -> str:
        """Return the call with these sizes; in a trial each integer has a slot of its own."""
        sizes = dict(zip((each.name for each in self.integers), integers, strict=True))
        reals = dict(zip((each.name for each in self.reals), self.scalars(), strict=True))
        parts = []
        structures = {} if plain else self.source.structures()
        own = [each for each in self.integers if each not in self.function.parameters]  # constants of the file
        for each in (*own, *self.function.parameters):
            if fields := structures.get(each.type):
                parts.append(f"{each.name}={self.structure(each, fields)}")
                continue
            value = sizes.get(each.name) or reals.get(each.name) or self.names.get(each.name, "threads")
            parts.append(value if plain or value == each.name else f"{each.name}={value}")
        return f"{self.function.name}{template}({', '.join(parts)})"

    def structure(self, parameter: Parameter, fields: Sequence[Parameter]) -> str:
        """Return the initializer of a structure that describes a matrix."""
        operand = self.names[parameter.name]
        rows, columns, leading = {"A": ("m", "k", "lda"), "B": ("k", "n", "ldb"), "C": ("m", "n", "ldc")}[operand]
        values = []
        for each in fields:
            name = each.name.lower()
            if each.pointers:
                values.append(f"({each.type} *){operand}")
            elif re.search(r"stride|pitch|ld", name):
                values.append(leading)
            else:
                values.append(rows if re.search(r"row|height|^h|^m$", name) else columns)
        return f"{parameter.type}{{{', '.join(values)}}}"

    def scalars(self) -> list[str]:
        found = [
            "beta" if "beta" in each.name.lower() else "alpha" if "alpha" in each.name.lower() else ""
            for each in self.reals
        ]
        return [each or ("alpha", "beta")[i] for i, each in enumerate(found)]

    # --- compilation

    def templates(self) -> Iterator[str]:
        """Yield template arguments to try: those of a launch in the file, defaults, and usual ones."""
        if not self.function.template:
            yield ""
            return
        constants = self.source.constants()
        seen = set()
        for site in self.source.launches:
            if site.function == self.function.name and site.template:
                known = constants | dict(site.definitions)
                values = [
                    str(value) if (value := evaluate(each, known)) is not None else each for each in site.template
                ]
                values = [
                    "hpcmm_real" if name in self.function.types else value
                    for value, (name, _) in zip(values, self.function.template, strict=False)
                ]
                yield from fresh(f"<{', '.join(values)}>", seen)
        for preset in (*PRESETS, *({"any": each} for each in (16, 32, 8, 256, 128))):
            values = []
            for name, default in self.function.template:
                if name in self.function.types:
                    values.append("hpcmm_real")
                else:
                    given = next((v for k, v in preset.items() if k == short(name)), preset.get("any"))
                    values.append(default or str(given if given is not None else ""))
            if all(values):
                yield from fresh(f"<{', '.join(values)}>", seen)

    def compiled(self, template: str, way: Sequence[str] = ()):
        """Return a function that runs a trial: ``run(arguments, grid, block, shared)``; of sizes in ``way``."""
        slots = SLOTS if self.kind == "matmul" else ("n",)
        call = self.call(way or slots[: len(self.integers)], template)
        head = {**self.given, "call": call}
        adapted = calls.adapted(self.path, self.text, head, self.kind, self.device.name)
        element = DTYPES[self.dtype]
        macros = {"REAL": element.c_of(self.device.name), "ACCUMULATOR": element.sums.c_of(self.device.name)}
        macros |= self.operation.macros.get(self.device.name, {}) | self.given.get("constants", {})
        if self.device.accelerator:
            options = [f"-D{name}={value}" for name, value in macros.items()]
            library = compile_library(adapted, self.kind, options, modules.cache())

            def run_on_host(arguments, grid, block, shared):
                kernel = HostKernel(library, adapted)  # in the child: the shared memory of two libraries is close by
                kernel(Launch(tuple(grid), tuple(block), arguments, shared), "ascending", dynamic_bytes=shared)

            return run_on_host
        module = modules.compile_module(adapted, macros, self.options)

        def run(arguments, grid, block, shared):
            function = getattr(modules.open_module(module, self.path), self.kind)
            function.restype = None
            function(*(as_argument(each) for each in arguments), ctypes.c_int(2))

        return run

    def attempt(self, run, arguments: Sequence[Any], output: np.ndarray, grid=(1,), block=(1,), shared: int = 0):
        """Return the output of a trial; None if it fails, with the reason in ``why``."""
        if time.monotonic() - self.start > MOST_SECONDS:
            raise NotAdopted(
                f"{self.path.name}: {self.why or 'no trial succeeded'} (trials stopped after {MOST_SECONDS} s)"
            )

        def inside():
            run(arguments, grid, block, shared)
            return output

        found = guarded(inside, SECONDS)
        if isinstance(found, str):
            self.why = found
            return None
        return found

    # --- products

    def multiply(self, run, way: Sequence[str], shape, grid=(1,), block=(1,), shared=0, initial=None):
        """Return inputs and output of a product of a shape; None if it failed."""
        sizes = dict(zip("mnk", shape, strict=True))
        sizes |= {"lda": sizes["k"], "ldb": sizes["n"], "ldc": sizes["n"]}
        if self.columns:
            sizes |= {"lda": sizes["m"], "ldb": sizes["k"], "ldc": sizes["m"]}
        values = [sizes[each] for each in way] + [0] * (6 - len(way))
        rng = np.random.default_rng(0)
        storage = DTYPES[self.dtype].storage
        m, n, k = shape
        drawn = [rng.uniform(-1, 1, size).astype(np.float32) for size in (m * k, k * n, m * n)]
        drawn = [DTYPES[self.dtype].stored(each).astype(storage) for each in drawn]
        if initial is not None:
            drawn[2][...] = initial
        x, y, z = map(on_device, drawn)
        scalar = DTYPES[self.dtype].sums.storage.type
        slots = dict(
            zip(SLOTS, map(np.int32, [sizes[each] for each in SLOTS] if self.of_rows else values), strict=True)
        )
        arguments = (
            *(slots["m"], slots["n"], slots["k"], scalar(self.alpha), x, slots["lda"], y, slots["ldb"]),
            *(scalar(self.beta), z, slots["ldc"]),
        )
        out = self.attempt(run, arguments, z, grid, block, shared)
        return None if out is None else (drawn[0], drawn[1], drawn[2], out)

    alpha, beta, columns = 1.5, 0.5, False

    @property
    def of_rows(self) -> bool:
        """Whether matrices are arrays of rows, whose addresses follow from the sizes themselves."""
        return any(each.pointers == 2 or each.structure for each in self.arrays)

    def meaning(self, found, shape) -> dict[str, Any] | None:
        """Return the keys that explain a product: layout and whether it adds; None if it is none."""
        m, n, k = shape
        numbers = [DTYPES[self.dtype].numbers(each).astype(np.float64) for each in found]
        x, y, old, new = numbers
        names = self.scalars()
        alpha = self.alpha if "alpha" in names else 1.0
        tolerance = {"float64": 1e-9, "float32": 1e-4}.get(self.dtype, 3e-2) * np.sqrt(k)
        with np.errstate(all="ignore"):
            for layout in ("rows", "columns"):
                if layout == "rows":
                    product = (x.reshape(m, k) @ y.reshape(k, n)).ravel()
                else:
                    product = (x.reshape(k, m).T @ y.reshape(n, k).T).T.ravel()
                product *= alpha
                for adds in (False, True):
                    beta = self.beta if "beta" in names else float(adds)
                    if np.allclose(new, product + beta * old, tolerance, tolerance):
                        keys = {} if layout == "rows" else {"layout": "columns"}
                        return keys | ({"adds": True} if adds and "beta" not in names else {})
                    if "beta" in names:
                        break
        return None

    def product(self) -> dict[str, Any]:
        ways = assignments(self.integers)
        if not self.device.accelerator:
            return self.product_on_cpu(ways)
        errors = []
        for template in self.templates():
            try:
                run = self.compiled(template)
            except DeviceError as error:
                errors.append(compiler_error(str(error)))
                continue
            if found := self.launched(run, ways, template):
                return found
        if errors and not self.why:
            raise NotAdopted(f"{self.path.name}: {errors[0]}")
        if self.likely and self.stated(ways[0]):
            return self.likely
        raise NotAdopted(
            f"{self.path.name}: no launch of {self.function} gave C = A B in trials on the host"
            f"{'; the last one: ' + self.why if self.why else ''}; give call, block and grid in a head"
        )

    def product_on_cpu(self, ways) -> dict[str, Any]:
        try:
            run = self.compiled(self.cpu_template())
        except DeviceError as error:
            raise NotAdopted(f"{self.path.name}: {compiler_error(str(error))}") from error
        shape = (32, 48, 64) if len(self.integers) > 1 else (48, 48, 48)
        for columns in (False, True):
            self.columns = columns
            for way in ways:
                run = self.compiled(self.cpu_template(), way) if self.of_rows else run
                found = self.multiply(run, way, shape)
                keys = self.meaning(found, shape) if found else None
                if keys is not None and columns == (keys.get("layout") == "columns"):
                    return self.described(run, way, self.cpu_template(), keys, (1, 1), {}, (1,), 0)
        square = (48, 48, 48)
        self.columns = False
        if (found := self.multiply(run, ways[0], square)) and (keys := self.meaning(found, square)) is not None:
            return self.described(run, ways[0], self.cpu_template(), keys | {"square": True}, (1, 1), {}, (1,), 0)
        raise NotAdopted(
            f"{self.path.name}: {self.function} gave no C = A B in trials{self.why and '; the last one: '}{self.why}"
        )

    def cpu_template(self) -> str:
        return next(self.templates())

    def launched(self, run, ways, template: str) -> dict[str, Any] | None:
        """Return the head of the first launch that gives a right product."""
        for block, shared in self.blocks(template):
            self.likely = self.likely or self.unproven(ways[0], template, block, shared)
            tiles = [self.tile(run, block, shared)]
            if self.function.strides and len(block) > 1:  # the grid gives the width of a matrix
                tiles.append((block[1], block[0], [f"ceil(n / {block[0]})", f"ceil(m / {block[1]})"]))
            for tile in filter(None, tiles):
                if not self.ran:
                    self.ran, self.likely = True, self.unproven(ways[0], template, block, shared)
                    self.likely |= {"rows": tile[0], "columns": tile[1], "grid": tile[2]}
                if found := self.proven(run, ways, template, block, shared, *tile):
                    return found
        return None

    def proven(
        self, run, ways, template: str, block, shared: int, rows: int, columns: int, grid
    ) -> dict[str, Any] | None:
        """Return the head of a launch if it gives a right product."""
        square = (max(SIDES[0], rows, columns),) * 3
        found = self.multiply(run, ways[0], square, counts(grid, square), block, shared)
        keys = self.meaning(found, square) if found else None
        if keys is None:
            return None
        self.columns = keys.get("layout") == "columns"
        if self.columns:
            rows, columns = columns, rows
            grid = [exchanged(each) for each in grid]
        if len(self.integers) != 1:
            shape = self.oblong(rows, columns)
            for each in ways:
                found = self.multiply(run, each, shape, counts(grid, shape), block, shared)
                if found and self.meaning(found, shape) == keys:
                    return self.described(run, each, template, keys, (rows, columns), grid, block, shared)
            keys |= {"square": True}
        return self.described(run, ways[0], template, keys, (rows, columns), grid, block, shared)

    def stated(self, way: Sequence[str]) -> bool:
        """Return whether names or the file's launch state the arguments, so that a kernel may be judged as wrong."""
        named = [hint(each.name) for each in self.integers] == list(way) or len(self.integers) == 1
        launched = any(site.function == self.function.name for site in self.source.launches)
        return named or launched or "block" in self.given

    def unproven(self, way: Sequence[str], template: str, block: Sequence[int], shared: int) -> dict[str, Any]:
        """Return the usual head of a kernel for which no trial was right, so that the verdict can say what is wrong."""
        columns, rows = (*block, 1)[:2]
        call = self.call(way, template)
        found: dict[str, Any] = {"call": call, "block": list(block), "rows": rows, "columns": columns}
        found |= {"shared_bytes": shared} if shared else {}
        found |= {"scalars": names} if (names := calls.default_scalars(call)) else {}
        return found | ({"square": True} if len(self.integers) == 1 else {})

    def oblong(self, rows: int, columns: int) -> tuple[int, int, int]:
        """Return a shape of three sizes that a tile divides."""
        m = rows * -(-32 // rows)
        n = columns * -(-32 // columns)
        n += columns * (m == n)
        k = next(each for each in (96, 64, 128, 192) if each not in (m, n))
        return m, n, k

    def tile(self, run, block, shared):
        """Return rows and columns of the tile of a block, and the grid that covers C; None if it is unclear."""
        way = assignments(self.integers)[0]
        for side in SIDES:  # a larger tile exceeds the matrix, or fills it

            def written(*grid, side=side):
                found = self.multiply(run, way, (side,) * 3, grid, block, shared)
                return None if found is None else (found[2] != found[3]).reshape(side, side)

            first = written(1, 1)
            if first is None:
                continue
            if not first.any():
                self.why = "a block writes no element of C"
                return None
            rows, columns = extents(first)
            if (rows, columns) == (side, side):
                if self.function.strides:
                    return 1, int(np.prod(block)), [f"ceil(m * n / {int(np.prod(block))})"]
                continue
            along_x, along_y = written(2, 1), written(1, 2)
            if along_x is None or along_y is None:
                continue
            break
        else:
            return None
        threads = int(np.prod(block))
        flat = int(first.sum())
        if flat % side and np.flatnonzero(first).max() + 1 == flat:  # by the index in all of C
            return 1, flat, [f"ceil(m * n / {flat})"]
        if not first[:rows, :columns].all():
            self.why = "a block leaves elements of its tile unwritten"
            return None
        by = {}
        for name, other in (("x", along_x), ("y", along_y)):
            taller, wider = extents(other)
            by[name] = "m" if taller > rows else "n" if wider > columns else ""
        per = {"m": f"ceil(m / {rows})", "n": f"ceil(n / {columns})"}
        if columns == side and rows < side and flat == threads and by["x"] == "m":
            return 1, flat, [f"ceil(m * n / {flat})"]
        if by["x"] and by["y"] and by["x"] != by["y"]:
            return rows, columns, [per[by["x"]], per[by["y"]]]
        if columns == side and by["x"] == "m":
            return rows, 1, [per["m"]]
        if rows == side and by["x"] == "n":
            return 1, columns, [per["n"]]
        if by["x"] and not by["y"]:  # blocks of all tiles along x
            return rows, columns, [f"{per['m']} * {per['n']}"]
        return None

    def blocks(self, template: str) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield blocks to try, with bytes of dynamic shared memory: those of launches in the file come first."""
        seen: set[Any] = set()
        itemsize = DTYPES[self.dtype].itemsize
        if "block" in self.given:
            block = self.given["block"]
            found = tuple(block) if isinstance(block, list) else (block,)
            values = [
                evaluate(str(each), {k: str(v) for k, v in self.given.get("constants", {}).items()}) for each in found
            ]
            yield tuple(each or 1 for each in values), evaluate(str(self.given.get("shared_bytes", 0)), {}) or 48 << 10
            return
        constants = self.source.constants()
        values = calls.split(template.strip("<>"))
        known = constants | dict(zip((name for name, _ in self.function.template), values, strict=False))
        found: list[tuple[int, ...]] = []
        for site in self.source.launches:
            if site.function == self.function.name and len(site.configuration) > 1:
                found.append(sizes_of_block(site.configuration[1], known | dict(site.definitions)))
        if self.function.threads and (bound := evaluate(self.function.threads, known)):
            found.append((bound,))
        numbers = {short(name): value for name in known if (value := evaluate(name, known))}
        if {"BM", "BN", "TM"} <= set(numbers):
            threads = numbers["BM"] * numbers["BN"] // numbers["TM"] // numbers.get("TN", 1)
            found += [(threads,), (numbers["BN"] // numbers.get("TN", 1), numbers["BM"] // numbers["TM"])]
        for name, value in numbers.items():
            if re.search(r"THREAD|TPB", name.upper()) and 32 <= value <= 1024:
                found.append((value,))
        for value in sorted({value for value in numbers.values() if 2 <= value <= 32}, reverse=True):
            found += [(value, value), (value * value,)]
        usual = sorted(BLOCKS, key=lambda each: (len(each) == 1) == self.function.flat)  # those that fit come last
        for block in (*found, *reversed(usual)):
            if block and 0 < int(np.prod(block)) <= 1024 and block not in seen:
                seen.add(block)
                threads = int(np.prod(block))
                for each in SHARED[1:] if self.function.dynamic else SHARED[:1]:
                    yield block, each * threads * itemsize

    def described(self, run, way, template: str, keys, tile, grid, block, shared: int) -> dict[str, Any]:
        """Return the head of a launch that gave a right product."""
        rows, columns = tile
        square = len(self.integers) == 1 or keys.pop("square", False)
        call = self.call(way, template)
        if keys.get("layout") == "columns":
            grid = [exchanged(each) for each in grid] if grid else grid
        found: dict[str, Any] = {"call": call}
        if self.device.accelerator:
            found |= {"block": list(block)}
            if not any("m * n" in each for each in grid):
                found |= {"rows": rows, "columns": columns}
            found["grid"] = list(grid)
            if shared:
                found["shared_bytes"] = shared
        if names := calls.default_scalars(call):
            found["scalars"] = names
        found |= keys
        if "beta" in self.scalars():
            self.beta, unread = 0.0, (128, 128, 128) if square else self.oblong(rows, columns)
            result = self.multiply(run, way, unread, counts(grid, unread) if grid else (1,), block, shared, np.nan)
            if result and self.meaning((*result[:2], np.zeros_like(result[2]), result[3]), unread) is None:
                found["reads"] = True
            self.beta = Search.beta
        if square:
            found["square"] = True
        if multiples := self.multiples(run, way, tile, grid, block, shared, square):
            found["multiples"] = multiples
        return found

    def multiples(self, run, way, tile, grid, block, shared, square) -> dict[str, int]:
        """Return the divisors of the sizes that a kernel without bounds checks takes; empty if it takes any."""
        if self.function.guarded:
            return {}
        base = self.oblong(*tile)
        found = {}
        for i, name in enumerate("mnk"):
            side = max(tile) if square else (*tile, 1)[i]  # most likely the tile or any size
            for each in dict.fromkeys((1, side, 2, 4, 8, 16, 32, 64, 128, 256)):
                size = multiple_of(each)
                shape = tuple(size if square or i == j else x for j, x in enumerate((*base[:2], 32)))
                given = counts(grid, shape) if grid else (1,)
                result = self.multiply(run, way, shape, given, block, shared)
                if result and self.meaning(result, shape) is not None:
                    break
            else:
                raise NotAdopted(
                    f"{self.path.name}: {self.function.name} is right at few sizes only; give multiples in a head"
                )
            found[name] = each
            if square:
                found = dict.fromkeys("mnk", each)
                break
        return found if max(found.values()) > 1 else {}

    # --- vectors

    def vectors(self) -> dict[str, Any]:
        """Return the head of a kernel on vectors."""
        errors = []
        for template in self.templates():
            try:
                run = self.compiled(template)
            except DeviceError as error:
                errors.append(compiler_error(str(error)))
                continue
            blocks = self.blocks(template) if self.device.accelerator else [((1,), 0)]
            for block, shared in blocks:
                found = self.launched_over_vector(run, block, shared) if len(block) == 1 else None
                call = self.call(("n",) * len(self.integers), template)
                if self.device.accelerator and len(block) == 1:
                    likely = {"call": call, "block": block[0]} | ({"shared_bytes": shared} if shared else {})
                    if not self.likely or (found is None and self.why.startswith(WRONG) and not self.ran):
                        self.likely, self.ran = likely, self.why.startswith(WRONG)
                if found is not None:
                    launch = {"block": block[0]} | ({"shared_bytes": shared} if shared else {})
                    return {"call": call} | (launch if self.device.accelerator else {}) | found
        if errors and not self.why:
            raise NotAdopted(f"{self.path.name}: {errors[0]}")
        if self.likely and not self.function.multiplies:
            return self.likely
        raise NotAdopted(
            f"{self.path.name}: no launch of {self.function} gave the result of {self.operation.name} in trials on the "
            f"host{self.why and '; the last one: '}{self.why}; give call and block in a head"
        )

    def over_vector(self, run, n: int, blocks: int, block, shared: int, initial: float = 0):
        """Return inputs, results before and after a launch; None if it failed."""
        element = DTYPES[self.dtype]
        rng = np.random.default_rng(0)
        x, y = (
            on_device(element.stored(rng.integers(1, 9, n).astype(np.float32)).astype(element.storage))
            for _ in range(2)
        )
        size = max(n, blocks) if self.kind != "reduction" else max(blocks, 1)
        out = on_device(np.full(size, initial, element.storage))
        real, length = element.storage.type, np.uint64(n)
        arguments = {
            "reduction": (x, length, out, real(0)),
            "vector_add": (x, y, out, length),
            "copy": (x, out, length, real(1)),
        }[self.kind]
        found = self.attempt(run, arguments, out, (blocks,), block, shared)
        return None if found is None else (x, y, found)

    def right(self, found, n: int) -> bool:
        x, y, out = found
        return np.array_equal(out[:n], x + y if self.kind == "vector_add" else x)

    def launched_over_vector(self, run, block, shared: int) -> dict[str, Any] | None:
        """Return the keys of a launch over vectors that gives a right result; None if it does not."""
        if self.kind == "reduction":
            return self.reduces(run, block, shared)
        n, threads = 4096, block[0]
        if not self.device.accelerator:
            found = self.over_vector(run, 1003, 1, block, shared)
            return {} if found and self.right(found, 1003) else self.wrong()
        first = self.over_vector(run, n, 1, block, shared)
        taken = int(np.count_nonzero(first[2])) if first else 0
        if not taken or taken % threads:
            return self.wrong() if first else None
        per_thread = taken // threads if taken < n else 1
        whole = self.over_vector(run, n, -(-n // (threads * per_thread)), block, shared)
        if not whole or not self.right(whole, n):
            return self.wrong() if whole else None
        keys = {"per_thread": per_thread} if per_thread > 1 else {}
        if not self.function.guarded and not self.function.looped:
            ragged = self.over_vector(run, 1003, -(-1003 // (threads * per_thread)), block, shared)
            if not ragged or not self.right(ragged, 1003):
                keys["multiples"] = {"n": threads * per_thread}
        return keys

    def wrong(self) -> None:
        self.why = f"{WRONG} of {self.operation.name}"

    def reduces(self, run, block, shared: int) -> dict[str, Any] | None:
        """Return the keys of a launch of a reduction."""
        n, threads = 4096, block[0]
        if not self.device.accelerator:
            found = self.over_vector(run, 1003, 1, block, shared)
            return self.combined(found[0], found[2]) if found else None
        first = self.over_vector(run, n, 1, block, shared)
        if first is None:
            return None
        x, _, out = first
        partial = np.cumsum(x)
        hits = np.flatnonzero(partial == out[0])  # of a sum: the elements that one block takes
        taken = int(hits[0]) + 1 if len(hits) else n
        if taken % threads and taken != n:
            return self.wrong()
        per_thread = max(1, taken // threads) if taken < n else 1
        blocks = -(-n // (threads * per_thread))
        blocks = max(blocks, 2)
        whole = self.over_vector(run, n, blocks, block, shared)
        if whole is None:
            return None
        keys = {"per_thread": per_thread} if per_thread > 1 else {}
        x, _, out = whole
        if (found := self.combined(x, out)) is not None:
            if not out[1:].any() and self.combined(x, out[:1]) is not None:  # blocks add to one result
                other = self.over_vector(run, n, blocks, block, shared, 5)
                return (
                    found
                    | keys
                    | {"one_launch": True}
                    | ({"adds": True} if other and other[2][0] == out[0] + 5 else {})
                )
            return found | keys
        return self.wrong()

    def combined(self, x: np.ndarray, out: np.ndarray) -> dict[str, Any] | None:
        """Return the operation that gives these partial results; None if there is none."""
        if out.sum() == x.sum():
            self.operation = OPERATIONS["sum"]
            return {}
        for name in ("maximum", "minimum"):
            function = {"maximum": np.max, "minimum": np.min}[name]
            if function(out) == function(x) and np.isin(out, x).all():
                self.operation = OPERATIONS[name]
                return {}
        return self.wrong()


def multiple_of(number: int) -> int:
    """Return a size that a number divides, but not the next power of two."""
    if number == 1:
        return 37
    return number if number >= 64 else 3 * number


def fresh(value: str, seen: set[str]) -> Iterator[str]:
    if value not in seen:
        seen.add(value)
        yield value


def short(name: str) -> str:
    """Return the usual short name of a tile's size.

    >>> [short(each) for each in ("BLOCK_SIZE_M", "THREAD_SIZE_X", "bm", "TILE")]
    ['BM', 'TN', 'BM', 'TILE']
    """
    plain = name.upper().replace("_", "")
    plain = (
        plain.replace("SIZE", "")
        .replace("BLOCK", "B")
        .replace("THREAD", "T")
        .replace("TILE", "B" if len(plain) > 4 else "TILE")
    )
    return {"TY": "TM", "TX": "TN", "BY": "BM", "BX": "BN"}.get(plain, plain)


def extents(written: np.ndarray) -> tuple[int, int]:
    """Return the rows and columns from the first element to the last one that is set."""
    rows, columns = np.nonzero(written)
    return (int(rows.max()) + 1, int(columns.max()) + 1) if len(rows) else (0, 0)


def exchanged(text: str) -> str:
    return re.sub(r"\b[mn]\b", lambda x: {"m": "n", "n": "m"}[x[0]], text)


def counts(grid: Sequence[str], shape: Sequence[int]) -> tuple[int, ...]:
    from hpcmm.operations.heads import number

    return tuple(number(each, dict(zip("mnk", shape, strict=True))) for each in grid)


def sizes_of_block(text: str, known: Mapping[str, str]) -> tuple[int, ...]:
    """Return the threads of a block of a launch in host code; empty if they are not constant."""
    for _ in range(4):
        text = text.strip()
        if text in known:
            text = known[text]
            continue
        break
    inner = re.fullmatch(r"(?:dim3\s*\w*\s*)?[({](.*)[)}]", text.strip(), re.DOTALL)
    values = [evaluate(each, known) for each in calls.split(inner[1] if inner else text)]
    return tuple(values) if values and None not in values else ()


def as_argument(value: Any):
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return np.ctypeslib.as_ctypes_type(value.dtype)(value)


def compiler_error(text: str) -> str:
    """Return the first error of a compiler's output."""
    lines = [line for line in text.splitlines() if "error" in line]
    return lines[0].strip() if lines else text.splitlines()[0]
