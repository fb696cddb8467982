"""Searches for mistakes of C kernels that results do not show: data races, overflows of 32 bits, places of crashes.

Each runs a kernel once in a program of its own, because ThreadSanitizer takes a whole program, and because an overflow
ends it.
"""

import functools
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hpcmm import kernels
from hpcmm.kernels import modules
from hpcmm.model import Task
from hpcmm.operations import guards, overwritten
from hpcmm.system.programs import TIMED_OUT, limited

ORDER = Path(__file__).with_name("races.c")
WRAPPED = re.compile(r"^(?:PARALLEL|BARRIER|LOCK)\((\w+)(?:, ((?:GOMP|omp)_\w+))?", re.MULTILINE)
UNKNOWN_ORDER = re.compile(r"#\s*pragma\s+omp\b.*\b(task|taskloop|sections|ordered|teams|target)\b")
RACE = re.compile(
    r"WARNING: ThreadSanitizer: data race.*?\n  (?:atomic )?(read|write) of size.*?\n    #0 [^\n]+? (\S+?):(\d+)"
    r".*?\n  previous (?:atomic )?(read|write) of size.*?\n    #0 [^\n]+? (\S+?):(\d+)",
    re.DOTALL | re.IGNORECASE,
)
BAD_ACCESS = re.compile(r"ERROR: AddressSanitizer: ([\w-]+)(.*?)\n    #0 \S+ in [^\n]+? (\S+?):(\d+)", re.DOTALL)
FRAME = re.compile(r"^    #\d+ \S+ in .+? (\S+?):(\d+)", re.MULTILINE)
UNDEFINED = re.compile(r"^(.+?):(\d+):\d+: runtime error: (.*)", re.MULTILINE)
CHECKED = ("-O0", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
TYPES = {"i4": "int", "u4": "unsigned", "i8": "long long", "u8": "unsigned long long", "f4": "float", "f8": "double"}
FAST = ("-O3", "-ffast-math", "-fwrapv")  # integers overflow as at -O0
THREADS, SECONDS = 4, 60
SIZES = {3: (37, 29, 41), 2: (37, 41), 1: (10007,)}  # of the run that is searched, by the number of dimensions
FAILED_TO_RUN = 3  # exit status of the program without enough address space
NOT_RUN = 126  # exit status for a program that may not run

PROGRAM = """#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
extern void {name}({types});
/* Return an array in untouched memory, with the rows of a file after so many bytes. */
static char *placed(FILE *file, size_t before, size_t rows, size_t bytes, size_t step)
{{
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *const begin = mmap(0, before + rows * step + 64, PROT_READ | PROT_WRITE, kind, -1, 0);
    char *const at = begin + before;
    if (begin == MAP_FAILED)
        exit(3);
    madvise(begin, before, MADV_HUGEPAGE);  /* reading zeros is then fast */
    for (size_t row = 0; row < rows; ++row)
        if (fread(at + row * step, 1, bytes, file) != bytes)
            exit(3);
    return begin;
}}
int main(int count, char **files)
{{
    FILE *const in = fopen(files[1], "rb"), *const out = fopen(files[2], "wb");
{arrays}
    {name}({values});
{results}
    return fclose(out);
}}
"""


class Search(NamedTuple):
    """What a search found, and why it was not made; both are empty if it was made and found nothing."""

    found: str = ""
    not_made: str = ""


class Unable(Exception):
    """A program that cannot be made; the message says why."""


def or_why(search: Callable[[Task], Search]) -> Callable[[Task], Search]:
    """Return a search that returns why its program did not run to an end."""

    @functools.wraps(search)
    def tried(task: Task) -> Search:
        try:
            return search(task)
        except Unable as error:
            return Search(not_made=str(error))

    return tried


def with_order() -> tuple[str, ...]:
    """Return the options of GCC that link what OpenMP orders for ThreadSanitizer."""
    names = [name for each in WRAPPED.findall(ORDER.read_text()) for name in each if name]
    return (*(f"-Wl,--wrap={name}" for name in names), str(ORDER))


@or_why
def races(task: Task) -> Search:
    """Search a run of a C kernel for data races with ThreadSanitizer."""
    source = kernels.source(task.operation, task.variant)
    _, version = modules.compiler()
    if "clang" in version:
        return Search(not_made="clang's OpenMP is not known to this search; set CC=gcc")
    if kind := UNKNOWN_ORDER.search(kernels.without_comments(source.read_text(errors="replace"))):
        return Search(not_made=f"the search does not know {kind[1]} of OpenMP")
    options = ("-O1", "-g", "-fsanitize=thread", *with_order())
    done, verdict = run(guards.at(task, SIZES[len(task.operation.dimensions)]), 0, options)
    if race := RACE.search(done.stderr):
        kind, file, line, other, other_file, other_line = race.groups()
        places = [line_of(of, at, source) for of, at in ((file, line), (other_file, other_line))]
        kinds = kind.lower(), other.lower()
        return Search(f"data race: a {kinds[0]} {places[0]} and a {kinds[1]} {places[1]} by two threads, unordered")
    if done.returncode or "ThreadSanitizer: " in done.stderr:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
        return Search(not_made=f"ThreadSanitizer did not run: {last}")
    return Search("" if verdict.passed else f"in a further run: {verdict.where}")


def line_of(file: str, line: str, source: Path) -> str:
    return f"in line {line}" + ("" if Path(file).stem == source.stem else f" of {Path(file).name}")


@or_why
def crash(task: Task) -> Search:
    """Search a C kernel that crashed for the access, or the operation, that ends it."""
    source = kernels.source(task.operation, task.variant)
    done, _ = run(task, 0, CHECKED)
    if access := BAD_ACCESS.search(done.stderr):
        kind, text, *place = access.groups()
        frames = FRAME.findall(done.stderr[access.start() :])  # the first one may be that of a header
        file, line = next((each for each in frames if Path(each[0]).stem == source.stem), place)
        action = re.search(r"\b(READ|WRITE)\b", text) if kind != "SEGV" else None  # of its shadow memory
        what = f"a {action[1].lower()}" if action else "an access"
        where = {"stack-overflow": "the stack overflows"}.get(kind, f"{what} out of bounds")
        return Search(f"{where} {line_of(file, line, source)}")
    if wrong := UNDEFINED.search(done.stderr):
        return Search(f"{wrong[3]} {line_of(wrong[1], wrong[2], source)}")
    return Search()


@or_why
def overflow(task: Task) -> Search:
    """Search a C kernel for indices that overflow 32 bits."""
    if far := guards.far_apart(task):
        (task, columns), options, part = far, ("-O0",), None
    elif packed := guards.far_packed(task):
        (task, part), options, columns = packed, FAST, 0
    else:
        return Search()
    done, verdict = run(task, columns, options, part)
    if done.returncode == FAILED_TO_RUN:
        return Search(not_made="too little address space")
    wrong = done.returncode or not verdict.passed
    return Search(guards.OVERFLOW if wrong else "")


def program_of(task: Task, columns: int, inputs: Mapping, part: Task) -> tuple[str, list[bytes], np.ndarray]:
    """Return a program that calls a kernel once, what its arrays contain, and an array as its result.

    The arrays have the inputs of the last ``part`` of a task, and nothing before it.
    """
    arrays: dict[str, np.ndarray] = {}
    contents: dict[str, bytes] = {}
    unused: dict[str, int] = {}  # bytes before them
    for operand in task.operation.operands:
        content = inputs.get(operand.name)
        if content is None:
            content = np.zeros(part.shape_of(operand), task.storage(operand))
        whole, strides = task.shape_of(operand), content.strides
        if content.ndim > 1:
            strides = (columns or whole[1]) * content.itemsize, content.itemsize
        # as in the program; here nothing is read there
        arrays[operand.name] = np.lib.stride_tricks.as_strided(content, strides=strides)
        sizes = zip(whole, content.shape, strides, strict=True)
        unused[operand.name] = sum((size - own) * stride for size, own, stride in sizes)
        contents[operand.name] = content.tobytes()
    values, lines, results, types, given = [], [], [], [], []
    output = task.operation.output.name
    own = overwritten.copied(task, arrays, np.empty)
    if own.after:
        raise Unable("the result is in the first element of its input")
    overwritten.copy(own.before)
    contents |= {name: each.tobytes() for name, each in own.arrays.items() if own.before}
    names, placed = {id(array): name for name, array in own.arrays.items()}, {}
    for value in (*task.operation.arguments(task, own.arrays), np.int32(THREADS)):
        if not isinstance(value, np.ndarray):
            if value.dtype.str[1:] not in TYPES:
                raise Unable(f"the search does not know arguments of {value.dtype}")
            types.append(TYPES[value.dtype.str[1:]])
            values.append(
                repr(float(value)).replace("inf", "__builtin_inf()") if value.dtype.kind == "f" else str(int(value))
            )
            continue
        types.append("void *")
        values.append(placed.setdefault(id(value), f"array{len(lines)}"))
        if values[-1] != f"array{len(lines)}":
            continue
        rows = len(value) if value.ndim > 1 else 1
        place = (rows, value.nbytes // rows, value.strides[0] if value.ndim > 1 else value.nbytes)
        given.append(contents[names[id(value)]])
        begin = unused[names[id(value)]]
        sizes = f"{begin}ul, {place[0]}, {place[1]}, {place[2]}ul"
        lines.append(f"    char *const {values[-1]} = placed(in, {sizes});")
        if value is arrays[output]:
            results.append(f"    for (size_t row = 0; row < {rows}; ++row)")
            results.append(f"        fwrite({values[-1]} + {begin}ul + row * {place[2]}ul, 1, {place[1]}, out);")
    parts = {"types": ", ".join(types), "values": ", ".join(values), "arrays": "\n".join(lines)}
    text = PROGRAM.format(name=task.operation.kernels, results="\n".join(results), **parts)
    return text, given, arrays[output]


def run(task: Task, columns: int, options: Sequence[str], part: Task | None = None):
    """Compile a kernel with a program that calls it once, and run it; raise Unable if it does not compile.

    ``columns`` are the elements from one row of a matrix to the next one; 0 for packed rows. With ``part``, only the
    last elements of the arrays are not zero: those of a smaller task.
    """
    part = part or task
    rng = np.random.default_rng(part.shape)
    inputs = guards.drawn_widely(part, rng)
    text, contents, output = program_of(task, columns, inputs, part)
    source = kernels.source(task.operation, task.variant)
    flags = [flag for flag in modules.FLAGS if flag != "-shared"]
    command = modules.command_of(source, task.macros, task.variant.options, flags)
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "TSAN_OPTIONS": "exitcode=66"}
    environment["ASAN_OPTIONS"] = "detect_leaks=0"
    with tempfile.TemporaryDirectory(prefix="hpcmm-") as folder:
        program, written, data, answer = (Path(folder, name) for name in ("program", "program.c", "in", "out"))
        written.write_text(text)
        data.write_bytes(b"".join(contents))
        own = ["-x", "c", str(written), *options, "-x", "none"]  # beside a kernel in C++, too
        libraries = ["-o", str(program), *modules.libraries_of(task.variant.options), "-lm"]
        done = modules.run_compiler([*command, *own, *libraries], seconds=SECONDS)
        if done.returncode:
            last = next((line for line in done.stderr.splitlines() if "error" in line or "cannot find" in line), "")
            raise Unable(f"the program does not compile: {last}")
        done = limited([str(program), str(data), str(answer)], SECONDS, environment)
        if done.returncode == NOT_RUN:
            raise Unable(f"no program may run in {program.parents[1]} (noexec): set TMPDIR to another folder")
        if done.returncode == TIMED_OUT:
            raise Unable(f"the program took longer than {SECONDS} s")
        if done.returncode:
            return done, None
        result = np.frombuffer(answer.read_bytes(), output.dtype).reshape(output.shape)
    return done, part.operation.reference(part, inputs)(result)
