"""Why no function of a file can be adopted: what its author has to change."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hpcmm.backends.emulated.launch import FOLDER as EMULATED
from hpcmm.bench.adoption.choosing import fixed_rows, functions_of
from hpcmm.bench.adoption.search import Kernel, NoKernel, NotAdopted, OtherType, Search
from hpcmm.bench.adoption.signatures import arrays_of, kinds, untaken
from hpcmm.bench.adoption.trials import asked_for
from hpcmm.bench.adoption.vectors import ADDITION, EXTREMES
from hpcmm.experiment import calls
from hpcmm.experiment.conditions import LOOPS
from hpcmm.experiment.functions import Function, Source
from hpcmm.experiment.returning import NAMES
from hpcmm.experiment.syntax import declared_by, function_declarator, part, text_of, walk
from hpcmm.kernels import FOLDER as KERNELS
from hpcmm.model import NotTested
from hpcmm.model.devices import Device

UNDECLARED = re.compile(
    r"not (been )?declared|not defined|does not name a type|undeclared|unknown type|implicit decl|no arguments to|"
    r"cannot be used as a function|is not a namespace"
)
OF_AMD = re.compile(r"\b(__builtin_amdgcn_\w+|__lane_id|__ockl_\w+|__ocml_\w+|__amd\w+|__hip_ds_\w+)")
UNSET = re.compile(r"\b__constant__\s[\w\s]*?(\w+)\s*(?:\[[^;=]*)?;")  # constants without a value
Found = tuple[Search, Mapping[str, Any]]  # what found a head, and the head
WORDS = re.compile("|".join((*NAMES.values(), ADDITION.pattern, *EXTREMES.values(), "dup|cpy|axpy|total|accum|stream")))


def not_found(source: Source) -> str:
    """Return the headers that are neither beside the file nor on this machine."""
    named = re.findall(r'#\s*include\s*[<"]([^">]+)[">]', source.content.decode(errors="replace"))
    places = (source.path.parent, EMULATED / "include", KERNELS)
    named = [each for each in dict.fromkeys(named) if not each.startswith("hip/")]  # whose place CUDA's take
    missing = [each for each in named if not any((place / each).is_file() for place in places)]
    return ", ".join(each for each in missing if each not in calls.on_this_machine((*missing,)))


def of_signatures(text: str, source: Source, functions: Sequence[Function], device: Device) -> str:
    """Return why the signatures of none of these functions are those of an operation, and what could not be read."""
    nodes = list(walk(source.tree.root_node))
    unread = [x.start_point[0] for x in nodes if x.type == "ERROR" or (x.is_missing and x.type != ";")][:1]
    said = "".join(f"line {i + 1} cannot be read: {text.splitlines()[i].strip()}; " for i in unread)
    if missing := not_found(source):
        said += f"{missing} not found, which may have its types and macros; "
    inside = (x for x in nodes if x.type == "field_declaration_list")
    classes = [text_of(part(x.parent, "name")) for x in inside if any(y.type in LOOPS for y in walk(x))]
    classes += [name.rpartition("::")[0] for name, x in source.functions.items() if "::" in name and x.looped]
    if classes and not device.accelerator:
        said += f"members of {', '.join(dict.fromkeys(classes))} are not called"
        return f"{said}: give a function of arrays and sizes, such as matmul(A, B, C, n)"
    if not functions and "main" in source.functions:
        return f"{said}its only function is main: move the loops into one, such as matmul(A, B, C, n)"
    if not functions:
        declared = ", ".join(each for x in source.items if function_declarator(x) for each in declared_by(x))
        said += f"{declared} declared only: " * bool(declared)
        return f"{said}it has no {'__global__ ' * device.accelerator}function: it is no kernel file"
    if all(x.kernel and not x.written for x in functions):
        arrays = ", ".join(x.name for x in functions[0].parameters if x.pointers or source.fields(x.type))
        return f"{said}{functions[0].name} writes to none of its arrays: {arrays}"
    others = [x for each in functions for x in untaken(source, each)]
    for each in functions if all(x.pointers for x in others) else ():
        arrays, results = [x.name for x in arrays_of(source, each)], sorted(each.written)
        only = sum(bool(x.pointers) for x in each.parameters) == len(functions) == 1 and arrays == results
        if len(results) > 1 or only:
            return (
                f"{said}{each.name} writes to {' and '.join(results)}{', its only array' * only}; "
                "allowed: one result, and inputs that stay as they are"
            )
    return (
        f"{said}none of its {'kernels' if device.accelerator else 'functions'} has the arguments of a product, a sum, "
        f"an addition of vectors or a copy; found: {'; '.join(map(str, functions[:3]))}{'; ...' * (len(functions) > 3)}"
        f"{'; not taken: arguments of type ' * bool(others)}{', '.join(dict.fromkeys(x.type for x in others))}"
    )


def of_trials(kernel: Kernel, guess: tuple[Search, Mapping[str, Any]] | None, failures: Sequence[NotAdopted]) -> None:
    """Raise why no trial of a kernel was right; return if a guess at its head is to be judged."""
    source, function, name = kernel.source, kernel.function, kernel.function.name
    wrong = [each for each in failures if isinstance(each, OtherType) or asked_for(each)]
    fixed = fixed_rows(source, function)
    if fixed and not any("error: " in str(each) for each in failures):
        raise NoKernel(
            f"{kernel.path.name}: rows of the arrays of {name} have a fixed length, {', '.join(fixed)}: make it a "
            "parameter, as int n, float A[][n]"
        )
    if not wrong:
        if why := beside_trials(kernel, guess, failures):
            raise NoKernel(f"{kernel.path.name}: {name}{why}")
        if guess:
            return
    error = (wrong or failures)[0]
    if re.search(r": hpcmm:\d+", str(error)):  # of the call that was made up
        error.tested = False
    if of_amd := OF_AMD.search(str(error)):
        raise NotTested(f"{kernel.path.name}: needs an AMD GPU: CUDA has no {of_amd[0]}") from error
    if (missing := not_found(source)) and UNDECLARED.search(str(error)):
        raise NotTested(f"{error}; {missing} not found, which may declare it") from error
    raise error


def beside_trials(kernel: Kernel, guess: Found | None, failures: Sequence[NotAdopted]) -> str:
    """Return why trials say nothing of a kernel: it may be of no operation, or need its host code; else empty."""
    source, name = kernel.source, kernel.function.name
    callers = [x for x in functions_of(source, kernel.device) if name in source.reached(x.name)[1:]]
    beyond = [(x.name, y.type) for x in callers for y in untaken(source, x)]
    if beyond and not kernel.device.accelerator:  # the kernel is another one, on types of a header
        caller, other = beyond[0]
        return f", which {caller} calls, computes no operation alone; not taken: arguments of type {other}"
    unset = [x for x in UNSET.findall(kernel.text) if re.search(rf"\b{x}\b", source.text(name))]
    if guess and unset:
        return f" reads {unset[0]}, which host code sets: make it a parameter"
    said = " ".join(guess[0].notes if guess else map(str, failures))
    unsure = "copy" in kinds(source, kernel.function, kernel.device) or (guess and "overwrites" in guess[1])
    if unsure and not (re.search("race in|shuffle|barrier|error: ", said) or WORDS.search(name.lower())):
        return " gave neither a copy nor a sum, minimum or maximum in trials; if it is one, name the function so"
    return ""
