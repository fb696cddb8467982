"""Adopt a kernel of any signature: find its arguments and its launch by small trials on the host; write its head."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcmm.bench.adoption import refusals, sequences
from hpcmm.bench.adoption.choosing import CPU, candidates, choose, decoded, functions_of, parsed
from hpcmm.bench.adoption.products import ProductSearch
from hpcmm.bench.adoption.search import Kernel, NoKernel, NotAdopted, OtherOperation, Search, Stopped
from hpcmm.bench.adoption.sequences import GPU
from hpcmm.bench.adoption.signatures import arrays_of, element_of, kinds
from hpcmm.bench.adoption.trials import asked_for
from hpcmm.bench.adoption.vectors import VectorSearch
from hpcmm.experiment import calls, functions
from hpcmm.experiment.functions import Function, Source
from hpcmm.model import HpcmmError
from hpcmm.operations import heads
from hpcmm.system import files


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


def is_native(text: str, path: Path) -> bool:
    """Return whether a file needs no adoption: its head has a call, or its function is that of an operation."""
    if path.suffix not in (GPU.suffix, CPU.suffix):
        return False
    if has_calls(text, path):
        return True
    source = functions.parsed(text)
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
    chosen = choose(source, device, kernel)
    if chosen is None:
        if device is GPU and (whole := in_order(path, several=False, least=1)):
            return whole
        functions = functions_of(source, device, kernel)
        raise NoKernel(f"{path.name}: {refusals.of_signatures(text, source, functions, device)}")
    record, failures, guess = Kernel(path, text, source, chosen, device, given), [], None
    for kind in kinds(source, chosen, device):
        try:
            found = searched(record, kind)
        except Stopped:
            raise
        except OtherOperation:
            if guess and kind == "matmul":  # a wrong addition, which adds matrices
                break
            raise
        except NotAdopted as error:
            failures.append(error)
            continue
        if not found[0].guessed:
            return with_head(record, *found, loops(path, source, chosen))
        guess = guess or found
    if device is GPU and (whole := in_order(path, several=False)) and chosen.name in whole.kernels:
        return whole
    refusals.of_trials(record, guess, failures)
    return with_head(record, *guess)


def with_head(kernel: Kernel, search: Search, head: Mapping[str, Any], notes: Iterable[str] = ()) -> Adopted:
    text = without_mark(kernel.text, kernel.given) + search.added
    return Adopted(kernel.path, head, text, kernel.device.suffix, (*search.notes, *notes), (kernel.function.name,))


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


def without_mark(text: str, given: Mapping[str, Any]) -> str:
    """Return a text without the mark of its head, whose keys stand in another one."""
    return text.replace(heads.MARK, heads.MARK.replace(":", " -"), 1) if given else text
