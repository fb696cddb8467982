"""The selection of a command line of ``hpcmm bench``: kernels, element types and shapes, as an experiment."""

import argparse
import itertools
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcmm import backends, kernels
from hpcmm.bench import adoption
from hpcmm.bench.adoption import choosing
from hpcmm.experiment import extensions
from hpcmm.experiment.own_kernels import OwnKernel
from hpcmm.experiment.returning import FOR_GPUS, unusable
from hpcmm.model import HpcmmError, NotTested, Operation, Task, Variant
from hpcmm.model.contract import Contract
from hpcmm.model.devices import DEVICES, Device
from hpcmm.operations import OPERATIONS, heads
from hpcmm.operations.heads import KernelFileError
from hpcmm.operations.shapes import ragged
from hpcmm.system.reader import ConfigError
from hpcmm.system.text import choices, described

MOST_COMBINATIONS = 500
SMS_ON_HOST = 2  # for launches that depend on it: few, so that persistent blocks have several tiles
# Sizes that take some milliseconds, by the number of dimensions: on the host and on an accelerator
SIZES = {False: {3: 512, 2: 2048, 1: 2**22}, True: {3: 4096, 2: 8192, 1: 2**26}}


class NothingToRun(HpcmmError):
    """No kernel of the files can be run; ``broken`` has the reasons by path."""

    def __init__(self, broken: Mapping[str, str]):
        super().__init__("\n".join(f"{Path(path).name}: {why}" for path, why in broken.items()))
        self.broken = broken


@dataclass
class Chosen:
    operation: Operation
    kernels: dict[str, Variant]  # by their names in a config
    against: str  # the name in a config of the variant to compare with; empty for none
    title: str  # its own name
    dtypes: list[str]
    shapes: list[tuple[int, ...]]
    asked: list[tuple[int, ...]]  # the shapes from the command line
    refused: dict[str, str]  # by kernel name, the reason why it is not tried
    broken: dict[str, str]  # by path of a Python file, the error that its import raises

    @property
    def device(self) -> Device:
        return DEVICES[next(iter(self.kernels.values())).device]


def choose(arguments: argparse.Namespace) -> Chosen:
    found, refused, broken = loaded(arguments)
    against = title = arguments.against or ""
    if kernels.is_file(against):
        wrong: dict[str, str] = {}
        for path in adopted(argparse.Namespace(**vars(arguments) | {"kernel": ""}), Path(against), wrong):
            title = next((kernel.variant.name for kernel in extensions.load([path])), against)
            against = str(path)
        if wrong:
            raise HpcmmError(f"--against {against}: {next(iter(wrong.values()))}")
    # of each file, its variant in each operation that has it
    variants = [{of: kernel.variant for kernel in each for of in kernel.operations} for each in found.values()]
    serving = [of for of in OPERATIONS if all(of in each for each in variants)]
    if not serving:
        arguments.wrong("the files are of different operations; bench them one by one")
    if arguments.operation and arguments.operation not in serving:
        wrong = arguments.operation
        arguments.wrong(f"--operation: {wrong!r} is not allowed; allowed: {choices(wrong, serving)}")
    operation = OPERATIONS[arguments.operation or serving[0]]
    own = [each[operation.name] for each in variants]
    if len({each.device for each in own}) > 1:
        arguments.wrong("the files are of different devices; bench them one by one")
    device = DEVICES[own[0].device]
    rungs = [each.name for each in operation.ladder if each.device == device.name]
    if against and title not in rungs:
        allowed = choices(title, rungs)
        arguments.wrong(f"--against: {arguments.against!r} is not allowed; allowed: a {device.suffix} file, {allowed}")
    common = [dtype for dtype in operation.dtypes if all(dtype in operation.dtypes_of(variant) for variant in own)]
    if not common:
        arguments.wrong("the files have no element type in common; bench them one by one")
    for each in arguments.dtype or ():
        if each not in common:
            arguments.wrong(f"--dtype: {each!r} is not allowed; allowed: {choices(each, common)}")
    dtypes = arguments.dtype or (["float32"] if "float32" in common else common[:1])
    count = len(operation.dimensions)
    for each in arguments.shapes or ():
        if len(each) != count:
            given = "x".join(map(str, each))
            arguments.wrong(f"--shapes: {given} is not allowed; allowed: {'x'.join(operation.dimensions)}")
    asked = list(dict.fromkeys([*((size,) * count for size in arguments.sizes or ()), *(arguments.shapes or ())]))
    timed = [*own, *filter(None, [operation.find(title)])]
    contracts = [each.contract for each in timed if each.contract]
    for each, variant in itertools.product(asked, timed):
        sizes = dict(zip(operation.dimensions, each, strict=True))
        if variant.contract and (why := variant.contract.refuses(sizes, {})):
            given, near = ("x".join(map(str, one)) for one in (each, variant.contract.nearest(sizes)))
            raise HpcmmError(f"{variant.name} {why}; {given} is not allowed; allowed: --shapes {near} and its like")
    shapes = asked or [taken(operation, contracts, (SIZES[device.accelerator].get(count, 256),) * count)]
    return Chosen(operation, dict(zip(found, own, strict=True)), against, title, dtypes, shapes, asked, refused, broken)


def adopted(arguments: argparse.Namespace, file: Path, broken: dict[str, str]) -> list[Path]:
    """Return the paths of a file's kernels, copies with a head if need be; ``broken`` gets the others."""
    path = file.resolve()
    path.stat()  # a missing one is named as such
    if path.suffix == heads.PYTHON and (missing := choosing.unlaunched(path)):
        broken[str(path)] = str(NotTested(missing))
        return []
    if path.suffix == heads.PYTHON and not choosing.is_adopted(path):
        return [path]
    if not choosing.is_adopted(path):
        allowed = ", ".join([*choosing.SUFFIXES, heads.PYTHON])
        raise KernelFileError(f"{file}: not a kernel file; allowed suffixes: {allowed}")
    found, (names, others) = [], adoption.names_of(path, arguments.kernel or "")
    for name in names:
        try:
            copy, said = adoption.copy_of(path, name, several=len(names) > 1)
        except (adoption.NotAdopted, NotTested) as error:
            if len(names) > 1 and isinstance(error, adoption.OtherOperation):
                others.append(name)
                continue
            of_kernel = path.with_name(f"{name}{path.suffix}") if len(names) > 1 else path
            why = str(error).replace(f"{path.name}: ", "", 1)
            broken[str(of_kernel)] = why if getattr(error, "tested", False) else str(NotTested(why))
            continue
        found.append((name, copy, said, adoption.operation_of(copy) if len(names) > 1 else ""))
    operations = [operation for *_, operation in found]
    kept = "matmul" if "matmul" in operations else statistics.mode(operations) if found else ""
    others += [name for name, *_, operation in found if operation != kept]
    for name, copy, said, _ in () if arguments.json else found:
        if said and name not in others:
            print(said + (f"; named {copy.name}" if copy.suffix != path.suffix else ""), flush=True)
    if others and not arguments.json:
        other = "not measured, of another operation or type"
        print(f"{path.name}: {other}: {', '.join(others)}; --kernel NAME", flush=True)
    return [copy for name, copy, *_ in found if name not in others]


def loaded(arguments: argparse.Namespace) -> tuple[dict[str, list[OwnKernel]], dict[str, str], dict[str, str]]:
    """Return the kernels to try by their names, why others are not by name, and the errors of files by path."""
    tuned = dict(arguments.tune)
    tried = [dict(zip(tuned, values, strict=True)) for values in itertools.product(*tuned.values())]
    if len(tried) > MOST_COMBINATIONS:
        arguments.wrong(f"--tune: {len(tried)} combinations; allowed: at most {MOST_COMBINATIONS}")
    found, refused, broken = {}, {}, {}
    files = [each for file in dict.fromkeys(arguments.files) for each in adopted(arguments, Path(file), broken)]
    for path, values in itertools.product(files, tried):
        name = kernels.name_of(path, values)
        try:
            found[str(path.with_name(name))] = extensions.load([path.with_name(name)])
        except extensions.RaisedError as error:
            broken[str(path)] = unavailable(error, path) or str(error).removeprefix(f"extension {path}: ")
        except HpcmmError as error:
            if values and isinstance(error, heads.LaunchError):
                refused[name] = error.problems[0].removeprefix(f"{path}: ")
            elif len(files) == 1:
                raise
            else:
                broken[str(path)] = str(error).removeprefix(f"extension {path}: ")
    if not found and refused:
        raise ConfigError("no combination is left to try:", *(f"{each}: {why}" for each, why in refused.items()))
    if not found:
        raise NothingToRun(broken)
    return found, refused, broken


def unavailable(error: extensions.RaisedError, path: Path) -> str:
    """Return what this machine lacks for a Python file whose import raised an error; empty if that is not the cause."""
    cause = error.__cause__
    if isinstance(cause, ModuleNotFoundError):
        return str(NotTested(f"needs {cause.name}, which is not installed"))
    if isinstance(cause, SystemExit):
        way = 'move the code of the program, such as that which reads sys.argv, below if __name__ == "__main__":'
        return str(NotTested(f"it exits while it is imported: {way}"))
    if "attempted relative import" in str(cause):
        return str(NotTested("imports from its package: give a file that stands alone"))
    names = "|".join(package.partition(".")[0] for package in FOR_GPUS)
    text = path.read_text(errors="replace")
    if unusable(cause, text):
        return str(NotTested(f"cannot run here: {described(cause)}"))
    if backends.missing("cuda") and re.search(rf"^\s*(import|from) ({names})\b", text, re.MULTILINE):
        return str(NotTested(f"needs a GPU: {described(cause)}"))
    return ""


def config_of(
    chosen: Chosen, names: Iterable[str], measuring: Mapping[str, Any], sweeps: Mapping[str, Any], profile: bool = False
) -> dict:
    """Return a config whose sweeps have these entries and the common ones."""
    widths = sorted({tile for variant in chosen.kernels.values() for tile in variant.tiles})
    whole = {"operation": chosen.operation.name, "variants": list(names), "dtypes": chosen.dtypes}
    whole |= {"tiles": widths} if widths else {}
    config = {"scale": "quick", "backends": chosen.device.name, "job_minutes": 525600, "profile": profile}
    return config | {"measuring": dict(measuring), "sweeps": {name: whole | entry for name, entry in sweeps.items()}}


def verifying_sweeps(chosen: Chosen) -> dict[str, dict[str, Any]]:
    """Return sweeps over ragged shapes, also with beta = 0, for kernels of each contract by themselves."""
    contracts = [kernel.contract for kernel in chosen.kernels.values()]
    groups: dict[int, dict[str, Variant]] = {}
    for name, kernel in chosen.kernels.items():
        groups.setdefault(contracts.index(kernel.contract), {})[name] = kernel
    if len(groups) == 1:
        return sweeps_of(chosen)
    return {
        f"{name}-{i}": entry | {"variants": list(alike)}
        for i, alike in groups.items()
        for name, entry in sweeps_of(replace(chosen, kernels=alike)).items()
    }


def sweeps_of(chosen: Chosen) -> dict[str, dict[str, Any]]:
    """Return the sweeps of kernels that take the same problems."""
    shapes: dict[tuple[int, ...], None] = {}
    contracts = [kernel.contract for kernel in chosen.kernels.values() if kernel.contract]
    for variant, dtype in itertools.product(chosen.kernels.values(), chosen.dtypes):
        for tile in variant.tiles or (0,):
            task = Task(chosen.operation, variant, (), dtype, chosen.operation.scalars, tile, SMS_ON_HOST)
            shapes |= dict.fromkeys(ragged(chosen.operation, task.macros))
    nearest = dict.fromkeys(taken(chosen.operation, contracts, shape) for shape in shapes)
    entry: dict[str, Any] = {"shapes": list(map(list, nearest))}
    for each in contracts:
        entry |= each.scalars
    free = "beta" in chosen.operation.scalars and "beta" not in entry
    both = free and not any(contract.reads for contract in contracts)
    return {"ragged": entry} | ({"ragged-beta-0": entry | {"beta": 0}} if both else {})


def smaller(chosen: Chosen, shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes that the kernels take of half a shape's sizes, of a quarter, and so on."""
    contracts = [each.contract for each in chosen.kernels.values() if each.contract]
    halves = ([max(1, size >> i) for size in shape] for i in range(1, max(shape).bit_length()))
    found = dict.fromkeys(taken(chosen.operation, contracts, each) for each in halves)
    return [each for each in found if math.prod(each) < math.prod(shape)]


def taken(operation: Operation, contracts: Sequence[Contract], shape: Sequence[int]) -> tuple[int, ...]:
    for contract in contracts:
        shape = contract.nearest(dict(zip(operation.dimensions, shape, strict=True)))
    return tuple(shape)
