"""``hpcmm new``: write a kernel to change, or a course of exercises."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import hpcmm.grading
from hpcmm import kernels, store
from hpcmm.model import HpcmmError, Operation, Variant
from hpcmm.model.devices import DEVICES
from hpcmm.operations import heads, with_kernels
from hpcmm.system.text import choices

COURSE = Path(hpcmm.grading.__file__).parent / "course"


def run(arguments: argparse.Namespace) -> int:
    if arguments.course:
        if arguments.name or arguments.like:
            arguments.wrong("--course needs neither a name nor --like")
        write_course(arguments.course)
    elif not arguments.name or not arguments.like:
        missing = "the rung to copy is missing" if arguments.name else "a name is missing"
        arguments.wrong(f"{missing}; allowed: hpcmm new NAME --like RUNG, or --course DIR for exercises")
    else:
        write_kernel(arguments.name, arguments.like)
    return 0


def write_course(folder: Path) -> None:
    files = sorted(each for each in COURSE.iterdir() if each.is_file())
    refuse_existing([folder / file.name for file in files])
    for each in files:
        store.write_text(folder / each.name, each.read_text(encoding="utf-8"))
    print(f"{folder}: wrote {len(files)} files")
    print(f"read {folder / 'README.md'}, then: cd {shlex.quote(str(folder))} && hpcmm grade . --rubric rubric.yaml")


def write_kernel(name: str, like: str) -> None:
    operation, variant = rung(like)
    suffix = DEVICES[variant.device].suffix
    name = name.removesuffix(suffix)
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise HpcmmError(f"{name!r} is not allowed as the name of a kernel; allowed: letters, digits and '_'")
    path = Path(f"{name}{suffix}")
    refuse_existing([path])
    store.write_text(path, text_of(name, operation, variant))
    print(f"wrote {path}: {operation.name}, starts as {variant.name} ({variant.change})")
    print(f"change it, then: hpcmm bench {path}")


def refuse_existing(paths: list[Path]) -> None:
    present = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if present:
        more = f" and {len(present) - 1} more" if present[1:] else ""
        raise HpcmmError(f"exists already: {present[0]}{more}; give another name, or remove it")


def rung(like: str) -> tuple[Operation, Variant]:
    """Return the rung of a name, or of an operation and a name; of several operations with it, the first."""
    wanted, _, name = like.rpartition("/")
    found = [each for each in rungs() if not wanted or each[0].name == wanted]
    for operation, variant in found:
        if variant.name == name:
            return operation, variant
    allowed = dict.fromkeys(variant.name for _, variant in found) or with_kernels()
    raise HpcmmError(f"--like: {like!r} is not allowed; allowed: {choices(name, allowed)}")


def rungs() -> Iterator[tuple[Operation, Variant]]:
    """Yield the rungs whose launch their head describes."""
    for operation in with_kernels().values():
        for variant in operation.ladder:
            geometry = variant.geometry_of(operation.dtypes_of(variant)[0])
            if variant.compiled and (geometry is None or type(geometry) is operation.geometry):
                yield operation, variant


def text_of(name: str, operation: Operation, variant: Variant) -> str:
    """Return the text of a copy of a rung; a source that is included only to have another head is part of it."""
    text = heads.whole(kernels.source(operation, variant))
    about = f"{name}: starts as {variant.name}."
    return f"// {about}\n//\n{text}" if DEVICES[variant.device].accelerator else f"/* {about} */\n{text}"
