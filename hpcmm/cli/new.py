"""``hpcmm new``: write a kernel to change, or a course of exercises."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import hpcmm.grading
from hpcmm import kernels
from hpcmm.cli.arguments import command
from hpcmm.devices import DEVICES
from hpcmm.dtypes import DTYPES
from hpcmm.experiment import own_kernels
from hpcmm.model import HpcmmError, Operation, Task, Variant
from hpcmm.operations import shapes, with_kernels
from hpcmm.reader import ConfigError

COURSE = Path(hpcmm.grading.__file__).parent / "course"
README = "README.md"
LARGE = (1000, 4096)  # sizes at which launches are compared, besides ragged shapes
MULTIPROCESSORS = 132  # of a GPU for which launches are compared; the number does not matter


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "new",
        run,
        "Write a kernel to change into the current folder: a copy of a rung with its head, and a line in README.md.",
        "With --course, write exercises from a loop to tensor cores: skeletons, hints and a rubric for hpcmm grade.",
        {1: "a file exists already, an unknown rung, or another error"},
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the kernel, without a suffix")
    parser.add_argument(
        "--like", metavar="RUNG", help="rung to copy, such as tiled_padded; OPERATION/RUNG if several have it"
    )
    parser.add_argument(
        "--course", metavar="DIR", type=Path, help="folder for the exercises; it must not have them yet"
    )
    parser.set_defaults(wrong=parser.error)


def run(arguments: argparse.Namespace) -> int:
    if arguments.course:
        if arguments.name or arguments.like:
            arguments.wrong("--course needs neither a name nor --like")
        write_course(arguments.course)
    elif not arguments.name or not arguments.like:
        arguments.wrong("a name and --like are needed, or --course")
    else:
        write_kernel(arguments.name, arguments.like, Path())
    return 0


def write_course(folder: Path) -> None:
    """Copy the exercises.

    Raises
    ------
    HpcmmError
        If one of the files exists already; then nothing is written.
    """
    files = sorted(each for each in COURSE.iterdir() if each.is_file())
    refuse_existing([folder / each.name for each in files])
    folder.mkdir(parents=True, exist_ok=True)
    for each in files:
        shutil.copyfile(each, folder / each.name)
    print(f"{folder}: wrote {', '.join(each.name for each in files)}")
    print(f"read {folder / README}, then: cd {shlex.quote(str(folder))} && hpcmm grade . --rubric rubric.yaml")


def write_kernel(name: str, like: str, folder: Path) -> None:
    """Write a copy of a rung, and a line in README.md.

    Raises
    ------
    HpcmmError
        If the file exists already, or the rung has no head that describes its launch.
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise HpcmmError(f"{name!r} is not allowed as the name of a kernel; allowed: letters, digits and '_'")
    operation, variant = rung(like)
    path = folder / f"{name}{DEVICES[variant.device].suffix}"
    refuse_existing([path])
    path.write_text(text_of(name, operation, variant), encoding="utf-8")
    readme = folder / README
    with readme.open("a", encoding="utf-8") as file:
        file.write(f"- `{path.name}`: {operation.name}, starts as `{variant.name}` ({variant.change})\n")
    print(f"wrote {path} and a line in {readme}")
    print(f"change it, then: hpcmm bench {path}")


def refuse_existing(paths: list[Path]) -> None:
    """Raise an error if one of these files exists."""
    present = [str(each) for each in paths if each.exists() or each.is_symlink()]
    if present:
        raise HpcmmError(f"exists already: {', '.join(present)}; give another name, or remove it")


def rung(like: str) -> tuple[Operation, Variant]:
    """Return the rung of a name, or of an operation and a name; of several operations with it, the first."""
    wanted, _, name = like.rpartition("/")
    sources = [each for each in rungs() if not wanted or each[0].name == wanted]
    for operation, variant in sources:
        if variant.name == name:
            return operation, variant
    allowed = ", ".join(dict.fromkeys(variant.name for _, variant in sources if text_of("x", _, variant, False)))
    raise HpcmmError(f"--like: {like!r} is not allowed; allowed: {allowed or ', '.join(with_kernels())}")


def rungs() -> Iterator[tuple[Operation, Variant]]:
    """Yield the variants with a source."""
    for operation in with_kernels().values():
        for variant in operation.ladder:
            if variant.compiled:
                yield operation, variant


def text_of(name: str, operation: Operation, variant: Variant, needed: bool = True) -> str:
    """Return the text of a copy of a rung, with its head.

    A head can describe a grid of equal blocks. Any other launch raises an error, or gives an empty text if the rung is
    not ``needed``.
    """
    lines = [f"{name}: starts as {variant.name}.", "", own_kernels.MARK]
    lines += [f"  {key}: {written(value)}" for key, value in head_of(operation, variant).items()]
    c = DEVICES[variant.device].suffix == ".c"
    comment = (
        "\n   ".join(["/* " + lines[0], *lines[1:]]) + " */"
        if c
        else "\n".join(f"// {line}".rstrip() for line in lines)
    )
    comment = "\n".join(line.rstrip() for line in comment.splitlines())
    text = f"{comment}\n\n{kernels.source(operation, variant).read_text()}"
    if same_launch(text, operation, variant):
        return text
    if needed:
        raise HpcmmError(
            f"--like: the head of a file cannot describe the launches of {variant.name}; it describes a grid of equal "
            "blocks, the same at all shapes, that is rounded up; give a simpler rung"
        )
    return ""


def written(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {each}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def head_of(operation: Operation, variant: Variant) -> dict[str, Any]:
    """Return the keys of the head of a copy of a rung."""
    dtypes = own_dtypes(operation, variant)
    head: dict[str, Any] = {"operation": operation.name}
    if dtypes != operation.dtypes:
        head["dtypes"] = dtypes
    task = Task(operation, variant, (), dtypes[0], operation.scalars, max(variant.tiles, default=0))
    if DEVICES[variant.device].accelerator:
        given = {
            key.lower(): value for key, value in task.geometry.macros(task).items() if key not in ("TILE", "STAGE")
        }
        if variant.tiles:
            head["tiles"] = variant.tiles
        else:
            launched = ("rows", "columns", "block", "per_thread", "max_blocks")
            given = {key: getattr(task.geometry, key, 0) for key in launched} | given
            keys = [key for key in launched if given.get(key)]
            head |= {key: given[key] for key in keys}
            constants = {key.upper(): value for key, value in given.items() if key not in own_kernels.LAUNCHED}
            if constants:
                head["constants"] = constants
        if getattr(task.geometry, "one_launch", False):
            head["one_launch"] = True
        if size := shared_bytes(operation, variant, dtypes):
            head["shared_bytes"] = size
    for key in ("architecture", "options"):
        if value := getattr(variant, key):
            head[key] = value
    if variant.arithmetic:
        head["arithmetic"] = next(iter(variant.arithmetic.values()))
    return head


def own_dtypes(operation: Operation, variant: Variant) -> tuple[str, ...]:
    """Return the types of a copy: those with the geometry and the arithmetic of the first: a head has one of each."""
    dtypes = operation.dtypes_of(variant)

    def said(dtype: str) -> tuple:
        geometry = variant.geometry_of(dtype)
        task = Task(operation, variant, (), dtype, operation.scalars, max(variant.tiles, default=0))
        return geometry, geometry.macros(task) if geometry else {}, variant.arithmetic.get(dtype)

    return tuple(each for each in dtypes if said(each) == said(dtypes[0]))


def shared_bytes(operation: Operation, variant: Variant, dtypes: tuple[str, ...]) -> str:
    """Return the dynamic shared memory of a block as an expression over the size of an element; empty for none."""
    sizes = {}
    for dtype in dtypes:
        shape, tile = (64,) * len(operation.dimensions), max(variant.tiles, default=0)
        launches = launches_of(Task(operation, variant, shape, dtype, operation.scalars, tile))
        sizes[DTYPES[dtype].itemsize] = max((each[2] for each in launches), default=0)
    (itemsize, size), *others = sizes.items()
    if not any(sizes.values()):
        return ""
    if not others:
        return str(size)
    slope = (others[0][1] - size) // (others[0][0] - itemsize)
    rest = size - slope * itemsize
    return f"{slope} * ITEMSIZE" + (f" + {rest}" if rest else "")


def launches_of(task: Task) -> list[tuple]:
    """Return grid, block, dynamic shared memory and number of arguments of each launch."""
    operation = task.operation
    sizes = dict(zip(operation.dimensions, task.shape, strict=True))
    arrays = {
        each.name: np.empty([sizes[name] for name in each.dimensions], task.storage(each))
        for each in operation.operands
    }
    arrays |= {name: each.placeholder for name, each in task.workspace.items()}
    launches = task.geometry.launches(task, arrays, MULTIPROCESSORS)
    return [(trimmed(each.grid), trimmed(each.block), each.shared_bytes, len(each.arguments)) for each in launches]


def trimmed(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of a grid or block without ones at the end."""
    last = max((i for i, size in enumerate(sizes) if size > 1), default=0)
    return tuple(sizes[: last + 1])


def same_launch(text: str, operation: Operation, variant: Variant) -> bool:
    """Whether a copy of a rung is compiled and launched as the rung is."""
    if variant.pitched or variant.guard_rows or variant.cooperative:
        return False
    with tempfile.TemporaryDirectory(prefix="hpcmm-") as folder:
        path = Path(folder) / f"copy{DEVICES[variant.device].suffix}"
        path.write_text(text, encoding="utf-8")
        try:
            copy = own_kernels.read(path).variant
        except ConfigError:
            return False
    accelerator = DEVICES[variant.device].accelerator
    for dtype in copy.dtypes:
        task = Task(operation, variant, (), dtype, operation.scalars, max(variant.tiles, default=0))
        for shape in (*shapes.ragged(operation, task.macros), *((size,) * len(operation.dimensions) for size in LARGE)):
            theirs, ours = (dataclasses.replace(task, variant=each, shape=shape) for each in (variant, copy))
            if not theirs.macros.items() <= ours.macros.items():
                return False
            if accelerator and launches_of(theirs) != launches_of(ours):
                return False
    return True
