"""Kernels of users: files of C, CUDA or Python outside this package, each with its record in its head."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcmm.experiment import calls, returning
from hpcmm.experiment.functions import parsed
from hpcmm.experiment.hosted import Hosted, scalars_of
from hpcmm.kernels import name_of, without_comments
from hpcmm.model import Geometry, HpcmmError, Operation, Task, Variant
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import DTYPES
from hpcmm.operations import OPERATIONS, heads, with_kernels
from hpcmm.operations.heads import NUMBERS, SWITCHES, KernelFileError, LaunchError, Problems
from hpcmm.system.reader import not_allowed

ALWAYS_DEFINED = ("rows", "columns", "block", "per_thread", "max_blocks")  # as macros, also without the key
OF_LAUNCH = (*NUMBERS, *SWITCHES, "tiles", "grid", "host")


@dataclass(frozen=True)
class OwnKernel:
    path: Path
    operations: tuple[str, ...]  # names of the operations that it computes
    variant: Variant  # its record, whose name is that of the file


@dataclass(frozen=True)
class Constants(Geometry):
    """The macros of a C kernel, which has no launch."""

    constants: Mapping[str, int]

    def macros(self, task: Task) -> dict[str, int]:
        return dict(self.constants)


def read(path: str | Path, changes: Mapping[str, int] | None = None) -> OwnKernel:
    """Read a C or CUDA kernel and its head, some values of which ``changes`` replace, or raise all problems."""
    path = Path(path).resolve()
    text = heads.text_of(path)
    head, lines = heads.head_of(text, path)
    (device,) = (each for each in DEVICES.values() if each.suffix == path.suffix)
    problems = Problems(path, lines)
    chosen = chosen_operation(head, text, problems)
    known_dtypes(head, chosen, device.name, problems)
    allowed = heads.keys_of(chosen.geometry) if device.accelerator else set()
    if "host" in head and device.accelerator:
        allowed = {"host"}
    for key in (*OF_LAUNCH, "device"):
        if key in head and key not in allowed:
            what = f"{chosen.name} on the {device.title}"
            problems.add(key, f"not a key of {what}; allowed: {', '.join(sorted(allowed)) or 'none of the launch'}")
    apply(changes or {}, head, allowed, problems)
    if {"call", "host"} <= head.keys():
        problems.add("call", "not allowed together with host, whose launches have calls of their own")
    if "tiles" in head and "block" in head:
        problems.add("tiles", "not together with block; give one of them")
    own_macros(head, chosen, text, problems)
    taken = [each.name for each in chosen.operands if each.role == "in"]
    if head.get("overwrites", taken[0]) not in taken:
        problems.add("overwrites", f"{not_allowed(head['overwrites'])}inputs of {chosen.name}: {', '.join(taken)}")
    if device.accelerator and chosen.geometry is None:
        problems.add("operation", f"{chosen.name} has no launch for {path.suffix} files")
    problems.check()
    called = calls.calls_of(head)
    if not called:
        check_parameters(text, chosen, problems)
        problems.check()
    geometry: Any = Constants(head["constants"])
    if "host" in head:
        geometry = hosted(head, text, chosen, problems)
    adapted = calls.adapted(path, text, head, chosen.kernels, device.name) if called else None
    variant = record(name_of(path, changes or {}), path, device.name, head)
    variant = dataclasses.replace(variant, adapted=adapted, contract=calls.contract_of(head))
    dtypes = chosen.dtypes_of(variant)
    if device.accelerator and "host" not in head:
        needed = adapted.read_text().partition(f'#line 1 "{path}"\n')[2] if adapted else text
        unstated_shared_memory(head, needed, problems)
        problems.check()
        geometry = heads.geometries(chosen.geometry, head, dtypes, problems)
        problems.check(LaunchError)
    variant = dataclasses.replace(heads.with_geometry(variant, geometry), dtypes=dtypes)
    serving = tuple(n for n, each in OPERATIONS.items() if each.kernels == chosen.kernels)
    alone = called or chosen.name != serving[0]  # a source for the first one serves the others by its macros
    return OwnKernel(path, (chosen.name,) if alone else serving, variant)


def of_module(path: Path, module: Any) -> list[OwnKernel]:
    """Return the kernels of a Python file: a function for each operation whose name it has."""
    text = heads.text_of(path)
    head, lines = heads.head_of(text, path)
    problems = Problems(path, lines)
    allowed = ("dtypes", "change", "device", "deterministic", "arithmetic", "operation")
    for key in head:
        if key not in allowed:
            problems.add(key, f"not a key of Python files; allowed: {', '.join(allowed)}")
    devices = sorted(DEVICES, key=lambda each: not DEVICES[each].accelerator)
    try:
        found = returning.functions(module, head.get("operation", ""))
    except HpcmmError as error:
        problems.add("operation", str(error))
        problems.check()
    direct = all(returning.is_by_name(function, each) for each, function in found)
    device = head.get("device", devices[0] if direct else returning.device_of(module, devices))
    if device not in DEVICES:
        problems.add("device", f"{not_allowed(device)}{', '.join(DEVICES)}")
    if "operation" in head:
        found = [each for each in found if each[0].name == head["operation"]]
        if not found:
            problems.add("operation", f"the file has no function {head['operation']!r}")
    for operation, _ in found:
        known_dtypes(head, operation, device, problems)
    problems.check()
    if "arithmetic" not in head and (arithmetic := returning.arithmetic_of(text)):
        head |= {"arithmetic": arithmetic}
    variant = record(path.name, path, device, head)
    kernels = []
    for operation, function in found:
        direct = returning.is_by_name(function, operation)
        by_name = function if direct else returning.by_name(function, operation, module)
        contract = None if direct else returning.contract(function, operation)
        own = dataclasses.replace(variant, function=returning.where_it_works(by_name, text), contract=contract)
        own = dataclasses.replace(own, dtypes=operation.dtypes_of(own))
        kernels.append(OwnKernel(path, (operation.name,), own))
    return kernels


def record(name: str, path: Path, device: str, head: Mapping[str, Any]) -> Variant:
    """Return the fields of a record that do not depend on the kind of the file."""
    found = heads.record(name, device, head)
    slow = not DEVICES[device].accelerator  # its speed is unknown
    return dataclasses.replace(found, path=path, change=found.change or "a kernel of a user", slow=slow)


# --- its keys ------------------------------------------------------------------------------------------------------


def chosen_operation(head: Mapping[str, Any], text: str, problems: Problems) -> Operation:
    operations = with_kernels()
    if "host" in head and "operation" not in head:
        problems.add("host", "needs the key operation")
        problems.check()
    if "operation" in head:
        key, why = "operation", f"{not_allowed(head['operation'])}{', '.join(operations)}"
        found = operations.get(head["operation"])
    elif calls.calls_of(head):
        key, named = "call", calls.operation_of(head)
        why = "passes operands of no operation; allowed: A, B and C; x, y and z; x and result; x and y"
        found = next((each for each in operations.values() if each.kernels == named), None)
    else:
        functions = ", ".join(dict.fromkeys(each.kernels for each in operations.values()))
        key, why = "operation", f"the file has none of the functions {functions}; rename its function to one of these"
        found = next((each for each in operations.values() if re.search(rf"\b{each.kernels}\s*\(", text)), None)
    if found is None:
        problems.add(key, why)
        problems.check()
    return found


def known_dtypes(head: Mapping[str, Any], operation: Operation, device: str, problems: Problems) -> None:
    allowed = [dtype for dtype in operation.dtypes if DTYPES[dtype].is_on(device)]
    arithmetic = head.get("arithmetic")
    for key, names in (("dtypes", head.get("dtypes", ())), ("arithmetic", arithmetic)):
        for each in names if isinstance(names, list | tuple | dict) else ():
            if each not in allowed:
                problems.add(key, f"{not_allowed(each)}{', '.join(allowed)}")


def apply(changes: Mapping[str, int], head: dict[str, Any], allowed: set[str], problems: Problems) -> None:
    constants = head["constants"] = dict(head.get("constants", {}))
    keys = {key.upper(): key for key in NUMBERS if key in allowed}
    keys |= {"TILE": "tiles"} if "tiles" in allowed and "block" not in head else {}
    for name, value in changes.items():
        if name in constants:
            constants[name] = value
        elif name in keys:
            head[keys[name]] = [value] if name == "TILE" else value
        else:
            known = ", ".join([*constants, *keys])
            raise KernelFileError(f"{problems.path}: {not_allowed(name)}{known or 'no constant'}")


def own_macros(head: Mapping[str, Any], operation: Operation, text: str, problems: Problems) -> None:
    given = {"REAL", "ACCUMULATOR"}
    if not calls.calls_of(head):  # else the file does not use ours
        given |= {"TILE", *(key.upper() for key in NUMBERS if key in head or key in ALWAYS_DEFINED)}
    for name in head["constants"]:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            problems.add("constants", f"name {not_allowed(name)}names of C macros")
        elif name in given:
            problems.add("constants", f"{name} is defined by hpcmm; use the key of that name, or rename it")
    for i, line in enumerate(text.splitlines(), 1):
        if (defined := re.match(r"\s*#\s*define\s+(\w+)", line)) and defined[1] in head["constants"]:
            problems.found.append(
                f"{problems.path}:{i}: {defined[1]} is a constant of the head, which compiles the file with it; "
                "remove this line"
            )


def hosted(head: Mapping[str, Any], text: str, operation: Operation, problems: Problems) -> Hosted:
    """Return the launches of a function of the host code, in which constants of the head have their values, too."""
    text += "".join(f"\n#define {name} {value}" for name, value in head["constants"].items())
    found = Hosted(text, head["host"], head["constants"], head.get("layout") == "columns")
    try:
        found.check(operation)
    except ValueError as error:
        names = ", ".join((*operation.dimensions, *scalars_of(operation)))
        problems.add(
            "host", f"{error}; allowed: a function of the file with launches, such as total(n=n), over {names}"
        )
    problems.check()
    return found


def check_parameters(text: str, operation: Operation, problems: Problems) -> None:
    """Report a function with the operation's name and other parameters, which a call would read wrongly."""
    function = parsed(text).functions.get(operation.kernels)
    if function and operation.kernels in calls.SIGNATURES and calls.fits(function, operation.kernels) is False:
        wanted = calls.SIGNATURES[operation.kernels]
        shown = ", ".join(each.format(real="REAL", scalar="REAL") for each in wanted)
        problems.found.append(
            f"{problems.path}: {operation.kernels} has other parameters than hpcmm passes: {shown}; a key call states "
            f"others: hpcmm bench {problems.path.name} --adopt COPY writes it into a copy"
        )


def unstated_shared_memory(head: Mapping[str, Any], text: str, problems: Problems) -> None:
    """Report dynamic shared memory without its size."""
    text = without_comments(text)
    match = re.search(r"\bextern\b[^;{}]*__shared__", text)
    if match and "shared_bytes" not in head:
        line = text.count("\n", 0, match.start()) + 1
        problems.found.append(
            f"{problems.path}:{line}: dynamic shared memory, but no key shared_bytes in the head; "
            "add it, for example shared_bytes: 1024 * ITEMSIZE"
        )
