"""Adopt a kernel of any signature: find its arguments and its launch by small trials on the host; write its head."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcmm.backends.emulated.launch import FOLDER as EMULATED
from hpcmm.bench.adoption import sequences
from hpcmm.bench.adoption.products import ProductSearch
from hpcmm.bench.adoption.search import Kernel, NoKernel, NotAdopted, OtherOperation, OtherType, Search, Stopped
from hpcmm.bench.adoption.sequences import GPU
from hpcmm.bench.adoption.signatures import arrays_of, element_of, integers_of, kinds, untaken
from hpcmm.bench.adoption.trials import asked_for
from hpcmm.bench.adoption.vectors import ADDITION, EXTREMES, VectorSearch
from hpcmm.experiment import calls
from hpcmm.experiment.conditions import LOOPS
from hpcmm.experiment.functions import Function, Source
from hpcmm.experiment.returning import LEADERBOARD, NAMES
from hpcmm.experiment.syntax import declared_by, function_declarator, part, text_of, walk
from hpcmm.kernels import FOLDER as KERNELS
from hpcmm.kernels import modules
from hpcmm.model import HpcmmError, NotTested
from hpcmm.model.devices import DEVICES, Device
from hpcmm.operations import heads
from hpcmm.system import files
from hpcmm.system.text import choices

CPU = next(each for each in DEVICES.values() if not each.accelerator)
PLACEHOLDER = re.compile(r"%\((\w+)\)[sd]")  # of a template: its name becomes a constant
UNDECLARED = re.compile(
    r"not (been )?declared|not defined|does not name a type|undeclared|unknown type|implicit decl|no arguments to|"
    r"cannot be used as a function|is not a namespace"
)
OF_AMD = re.compile(r"\b(__builtin_amdgcn_\w+|__lane_id|__ockl_\w+|__ocml_\w+|__amd\w+|__hip_ds_\w+)")
UNSET = re.compile(r"\b__constant__\s[\w\s]*?(\w+)\s*(?:\[[^;=]*)?;")  # constants without a value
WORDS = re.compile("|".join((*NAMES.values(), ADDITION.pattern, *EXTREMES.values(), "dup|cpy|axpy|total|accum|stream")))
SUFFIXES = dict.fromkeys((GPU.suffix, ".cuh", ".hip"), GPU)
SUFFIXES |= dict.fromkeys((CPU.suffix, ".cpp", ".cc", ".cxx", ".C", ".h", ".hpp"), CPU)


@dataclass
class Adopted:
    """A file with the head that its kernel needs."""

    path: Path  # the file
    head: dict[str, Any]  # the keys of the head
    text: str  # the file's text
    suffix: str  # suffix of a copy: that of the device's kernels
    notes: tuple[str, ...] = ()  # what else was found
    kernels: tuple[str, ...] = ()  # of several launches

    def __str__(self) -> str:
        """Describe what was found, in one line."""
        head = self.head
        if "host" in head:
            order = ", then ".join(self.kernels)
            return "; ".join([f"{self.path.name}: taken as the launches of {head['host']}: {order}", *self.notes])
        keys = (x for x in ("layout", "grid", "block", "constants") if x in head)
        launch = ", ".join(f"{key} {shown(head[key])}" for key in keys)
        return "; ".join([f"{self.path.name}: taken as {head['call']}{launch and ', '}{launch}", *self.notes])

    def write(self, target: Path, lines_of_file: bool = False) -> None:
        """Write a copy with the head; with ``lines_of_file``, messages give the lines of the file."""
        import yaml

        lines = [f"{self.path.name}, with the head that hpcmm bench --adopt found.", "", "hpcmm:"]
        for key, value in self.head.items():
            flow = yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False)
            lines.append(f"  {key}: {flow.strip().removesuffix('...').strip()}")
        comment = "".join(f"// {line}".rstrip() + "\n" for line in lines) if self.head else ""
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
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {each}" for name, each in value.items())
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)


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
    """Return what a Python file lacks that has kernels of Triton only; empty if it has other functions."""
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


def is_native(text: str, path: Path) -> bool:
    """Return whether a file needs no adoption: its head has a call, or its function is that of an operation."""
    if path.suffix not in (GPU.suffix, CPU.suffix):
        return False
    if has_calls(text, path):
        return True
    source = Source(text)
    if name := native(source):
        return path.suffix == CPU.suffix or (is_exported(source, name) and text == calls.with_headers(text, path, True))
    hidden = not any(each.kernel for each in source.functions.values())  # from the parser: macros define kernels
    named = (each for each in calls.SIGNATURES if each not in source.functions and re.search(rf"\b{each}\s*\(", text))
    return path.suffix == GPU.suffix and hidden and any(named)


def has_calls(text: str, path: Path) -> bool:
    """Return whether the head of a file states how to call it, or is wrong, which its reader reports."""
    try:
        return bool(calls.calls_of(heads.head_of(text, path)[0]))
    except heads.KernelFileError:
        return True


def native(source: Source) -> str:
    """Return the function that has the name and the parameters of an operation's; empty without one."""
    return next((x for x in calls.SIGNATURES if x in source.functions and calls.fits(source.functions[x], x)), "")


def names_of(path: Path, kernel: str) -> tuple[list[str], list[str]]:
    """Return the names of the kernels to adopt, and of the others.

    Without the one asked for, they are those that compute one operation in one type: the products, the most, or the
    first ones. An empty name stands for the only kernel of the file.
    """
    source, device = parsed(path)
    able = [] if kernel or has_calls(decoded(path), path) else candidates(source, device)
    if len(able) < 2:
        names = [x.name for x in functions_of(source, device) if x.kernel and able and not x.written]
        return [kernel], [name for name in names if len(arrays_of(source, source.functions[name])) > 1]
    if whole := in_order(path):
        able = [each for each in able if each.name not in whole.kernels[:-1]]
    able = [each for each in able if element_of(source, each) is not None] or able
    found = {each.name: kinds(source, each, device) for each in able}
    one = len(set(map(frozenset, found.values()))) == 1
    alike: dict[Any, list[str]] = {}
    for each in able:
        kind = "" if one else found[each.name][0]
        alike.setdefault((kind, element_of(source, each)), []).append(each.name)
    _, names = max(alike.items(), key=lambda each: (each[0][0] == "matmul", len(each[1])))
    return names, [each.name for each in able if each.name not in names]


def copy_of(path: Path, kernel: str, several: bool = False) -> tuple[Path, str]:
    """Return a copy of a file with its head in the user's cache, and what was found; the file itself if it has one.

    A copy for one of several kernels bears the kernel's name.
    """
    text = decoded(path)
    if not kernel and is_native(text, path):
        return path, ""
    code = sorted(each for file in (__file__, calls.__file__) for each in Path(file).parent.glob("*.py"))
    parts = [str(path), text, kernel, *(each.read_text() for each in code)]
    folder = files.cache() / "adopted" / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    said = folder / "said.txt"
    if not said.is_file():
        found = adopt(path, kernel)
        folder.mkdir(parents=True, exist_ok=True)
        for name in {path.stem, kernel or path.stem}:
            found.write(folder / f"{name}{found.suffix}", lines_of_file=True)
        said.write_text(f"{found.suffix}\n{found}")
    suffix, _, line = said.read_text().partition("\n")
    return folder / f"{kernel if several else path.stem}{suffix}", line


def operation_of(copy: Path) -> str:
    """Return the operation in the head of a copy; empty without one."""
    return heads.head_of(heads.text_of(copy), copy)[0].get("operation", "")


def is_exported(source: Source, name: str) -> bool:
    """Return whether a function has C linkage."""
    node = source.nodes[name]
    around = node.parent.parent if node.parent.type == "declaration_list" else node.parent
    directly = re.search(rb'extern\s+"C"[^;{}]*\Z', source.content[: node.start_byte])  # also by a condition
    return bool(directly) or around.type == "linkage_specification"


def adopt(path: Path, kernel: str = "") -> Adopted:
    """Find the head of a kernel, by default of the only one; raise NotAdopted if none, or no trial, is right."""
    text = decoded(path)
    given, _ = heads.head_of(text, path)
    source, device = parsed(path)
    name = native(source)
    if device is GPU and name and kernel in ("", name) and not source.functions[name].template:
        pairs = zip((each.name for each in source.functions[name].parameters), calls.names_of(name), strict=False)
        call = f"{name}({', '.join(x if x == y else f'{x}={y}' for x, y in pairs)})"
        return Adopted(path, {"call": call} | given, without_mark(text, given), device.suffix)
    if (whole := in_order(path)) and kernel in ("", whole.kernels[-1]):
        return whole
    try:
        chosen = choose(path, source, device, kernel)
    except NoKernel:
        if device is GPU and (whole := in_order(path, several=False, least=1)):
            return whole
        raise
    failures, guess = [], None
    for kind in kinds(source, chosen, device):
        try:
            tried, stated = searched(Kernel(path, text, source, chosen, device, given), kind)
        except Stopped:
            raise
        except OtherOperation:
            if guess and kind == "matmul":  # a wrong addition, which adds matrices
                break
            raise
        except NotAdopted as error:
            failures.append(error)
            continue
        whole = without_mark(text, given) + tried.added
        found = Adopted(path, stated, whole, device.suffix, (*tried.notes,), (chosen.name,))
        if not tried.guessed:
            return dataclasses.replace(found, notes=(*found.notes, *loops(path, source, chosen)))
        guess = guess or found
    if device is GPU and (whole := in_order(path, several=False)) and chosen.name in whole.kernels:
        return whole
    wrong = [each for each in failures if isinstance(each, OtherType) or asked_for(each)]
    fixed, compiles = fixed_rows(source, chosen), not any("error: " in str(each) for each in failures)
    if fixed and compiles:
        raise NoKernel(
            f"{path.name}: rows of the arrays of {chosen.name} have a fixed length, {', '.join(fixed)}: make it a "
            "parameter, as int n, float A[][n]"
        )
    unset = [x for x in UNSET.findall(text) if re.search(rf"\b{x}\b", source.text(chosen.name))]
    callers = [x for x in functions_of(source, device) if chosen.name in source.reached(x.name)[1:]]
    beyond = [(x.name, y.type) for x in callers for y in untaken(source, x)]
    if beyond and not (wrong or device.accelerator):  # the kernel is another one, on types of a header
        said = "{}, which {} calls, computes no operation alone; not taken: arguments of type {}"
        raise NoKernel(f"{path.name}: {said.format(chosen.name, *beyond[0])}")
    if guess and unset and not wrong:
        raise NoKernel(f"{path.name}: {chosen.name} reads {unset[0]}, which host code sets: make it a parameter")
    if not wrong:
        said = " ".join(guess.notes if guess else map(str, failures))
        unsure = "copy" in kinds(source, chosen, device) or (guess and "overwrites" in guess.head)
        if unsure and not (re.search("race in|shuffle|barrier|error: ", said) or WORDS.search(chosen.name.lower())):
            raise NoKernel(
                f"{path.name}: {chosen.name} gave neither a copy nor a sum, minimum or maximum in trials; if it is "
                "one, name the function so"
            )
    if guess and not wrong:
        return guess
    error = (wrong or failures)[0]
    if re.search(r": hpcmm:\d+", str(error)):  # of the call that was made up
        error.tested = False
    if of_amd := OF_AMD.search(str(error)):
        raise NotTested(f"{path.name}: needs an AMD GPU: CUDA has no {of_amd[0]}") from error
    if (missing := not_found(source, path)) and UNDECLARED.search(str(error)):
        raise NotTested(f"{error}; {missing} not found, which may declare it") from error
    raise error


@functools.cache
def in_order(path: Path, several: bool = True, least: int = 2) -> Adopted | None:
    """Return a file with the head of what its host code launches in order; None if the head is unsure.

    ``several`` kernels, or one kernel, which it launches at ``least`` so often.
    """
    source, _ = parsed(path)
    text = decoded(path)
    for host in sequences.hosts_of(source, least):
        if several != (len(host.kernels) > 1):
            continue
        with contextlib.suppress(HpcmmError):
            head, right = launched_rightly(path, source, host)
            wrong = [] if right else [name for name in host.kernels if not right_alone(path, text, source, name)]
            said = "each alone is right, but not with these sizes"
            if wrong:
                said = f"{' and '.join(wrong)} alone {'are' if wrong[1:] else 'is'} wrong, too"
            notes = () if right else (f"no trial was right: {said}",)
            if right or several:
                return Adopted(path, head, text, GPU.suffix, notes, host.kernels)
    return None


def launched_rightly(path: Path, source: Source, host: sequences.Host) -> tuple[dict[str, Any], bool]:
    """Return the head of the launches of a function of the host code, and whether a trial is right."""

    def write(target: Path, head: Mapping[str, Any]) -> None:
        Adopted(path, dict(head), decoded(path), GPU.suffix).write(target, lines_of_file=True)

    return sequences.adopted(source, host, path, write)


def loops(path: Path, source: Source, kernel: Function) -> Iterator[str]:
    """Yield a note on the launches of a right reduction in the host code, if they are wrong."""
    for host in sequences.hosts_of(source) if kernel.kernel else ():
        with contextlib.suppress(HpcmmError):
            if host.kernels == (kernel.name,) and not launched_rightly(path, source, host)[1]:
                yield f"its launches in {host.name} gave a wrong result in trials"


def right_alone(path: Path, text: str, source: Source, name: str) -> bool:
    """Return whether a kernel of several launches is a right reduction."""
    try:
        return not searched(Kernel(path, text, source, source.functions[name], GPU, {}), "reduction")[0].guessed
    except HpcmmError:
        return False


def searched(kernel: Kernel, kind: str, widths: Sequence[int] = ()) -> tuple[Search, dict[str, Any]]:
    """Return a search that found a head, and the head; constants that the file lacks have one of the ``widths``."""
    try:
        search = (ProductSearch if kind == "matmul" else VectorSearch)(kernel, kind)
        return search, search.head() | kernel.given
    except NotAdopted as error:
        names, own = asked_for(error), kernel.given.get("constants", {})
        meant = re.search(r"did you mean .(\w+)", str(error))
        if not names or isinstance(error, Stopped) or (meant and meant[1] in kernel.source.constants()):
            raise
        of_vectors = kernel.function.flat and kind != "matmul"
        guess = None
        for width in widths or ((256, 128) if of_vectors else (16, 32)):
            given = {**kernel.given, "constants": own | dict.fromkeys(names, width)}
            try:
                found = searched(dataclasses.replace(kernel, given=given), kind, (width,))
            except NotAdopted as later:
                if "error: " in str(later) and not asked_for(later):  # the constants were not all
                    raise
                continue
            if not found[0].guessed:
                return found
            guess = guess or found
        if guess and len(guess[1]["constants"]) == 1:  # of several, other values may be right
            return guess
        error.tested = len(names) == 1
        raise


def not_found(source: Source, path: Path) -> str:
    """Return the headers that are neither beside the file nor on this machine."""
    named = re.findall(r'#\s*include\s*[<"]([^">]+)[">]', source.content.decode(errors="replace"))
    places = (path.parent, EMULATED / "include", KERNELS)
    named = [each for each in dict.fromkeys(named) if not each.startswith("hip/")]  # whose place CUDA's take
    missing = [each for each in named if not any((place / each).is_file() for place in places)]
    return ", ".join(each for each in missing if each not in calls.on_this_machine((*missing,)))


def without_mark(text: str, given: Mapping[str, Any]) -> str:
    """Return a text without the mark of its head, whose keys stand in another one."""
    return text.replace(heads.MARK, heads.MARK.replace(":", " -"), 1) if given else text


def parsed(path: Path) -> tuple[Source, Device]:
    """Return the source of a file, and the device of its kernels."""
    source = Source(decoded(path), path)
    of_gpu = any(each.kernel for each in source.functions.values())
    return source, GPU if of_gpu else SUFFIXES.get(path.suffix, GPU)


def functions_of(source: Source, device: Device) -> list[Function]:
    """Return the functions that may be kernels of a device."""
    named = source.functions.items()
    able = (each for name, each in named if name != "main" and "::" not in name)  # of no class
    return [each for each in able if each.kernel or not device.accelerator]


def fixed_rows(source: Source, function: Function) -> list[str]:
    """Return the lengths of rows of a function's arrays that are none of its parameters."""
    lengths = {length for each in function.parameters for length in each.lengths}
    return sorted(lengths - {each.name for each in integers_of(source, function)})


def candidates(source: Source, device: Device) -> list[Function]:
    """Return the functions whose arguments are those of an operation, and that no other one of them calls."""
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


def choose(path: Path, source: Source, device: Device, kernel: str) -> Function:
    """Return the function to adopt."""
    of_device = functions_of(source, device)
    what = "kernels" if device.accelerator else "functions"
    if kernel:
        found = [each for each in of_device if each.name == kernel]
        if not found:
            allowed = choices(kernel, (each.name for each in of_device)) or "none"
            raise NotAdopted(f"{path.name} has no function {kernel!r}; its {what} are: {allowed}")
        if kinds(source, found[0], device):
            return found[0]
        of_device = found
    able = [] if kernel else candidates(source, device)
    if len(able) == 1:
        return able[0]
    if able:
        raise NotAdopted(
            f"{path.name} has several kernels: {', '.join(each.name for each in able)}; choose one by --kernel NAME"
        )
    if fixed := [each for each in of_device if each.multiplies and fixed_rows(source, each)]:
        return fixed[0]
    nodes = list(walk(source.tree.root_node))
    unread = [x.start_point[0] for x in nodes if x.type == "ERROR" or (x.is_missing and x.type != ";")][:1]
    said = f"{path.name}: " + "".join(
        f"line {i + 1} cannot be read: {decoded(path).splitlines()[i].strip()}; " for i in unread
    )
    if missing := not_found(source, path):
        said += f"{missing} not found, which may have its types and macros; "
    inside = (x for x in nodes if x.type == "field_declaration_list")
    classes = [text_of(part(x.parent, "name")) for x in inside if any(y.type in LOOPS for y in walk(x))]
    classes += [name.rpartition("::")[0] for name, x in source.functions.items() if "::" in name and x.looped]
    if classes and not device.accelerator:
        said += f"members of {', '.join(dict.fromkeys(classes))} are not called"
        raise NoKernel(f"{said}: give a function of arrays and sizes, such as matmul(A, B, C, n)")
    if not of_device and "main" in source.functions:
        raise NoKernel(f"{said}its only function is main: move the loops into one, such as matmul(A, B, C, n)")
    if declared := ", ".join(each for x in source.items if function_declarator(x) for each in declared_by(x)):
        said += f"{declared} declared only: " * (not of_device)
    if not of_device:
        raise NoKernel(f"{said}it has no {'__global__ ' if device.accelerator else ''}function: it is no kernel file")
    if of_device and all(x.kernel and not x.written for x in of_device):
        arrays = ", ".join(x.name for x in of_device[0].parameters if x.pointers or source.fields(x.type))
        raise NoKernel(f"{said}{of_device[0].name} writes to none of its arrays: {arrays}")
    others = [x for each in of_device for x in untaken(source, each)]
    for each in of_device if all(x.pointers for x in others) else ():
        arrays, results = [x.name for x in arrays_of(source, each)], sorted(each.written)
        only = sum(bool(x.pointers) for x in each.parameters) == len(of_device) == 1 and arrays == results
        if len(results) > 1 or only:
            raise NoKernel(
                f"{said}{each.name} writes to {' and '.join(results)}{', its only array' * only}; "
                "allowed: one result, and inputs that stay as they are"
            )
    raise NoKernel(
        f"{said}none of its {what} has the arguments of a product, a sum, an addition of vectors or a "
        f"copy; found: {'; '.join(str(each) for each in of_device[:3])}{'; ...' if len(of_device) > 3 else ''}"
        f"{'; not taken: arguments of type ' * bool(others)}{', '.join(dict.fromkeys(x.type for x in others))}"
    )
