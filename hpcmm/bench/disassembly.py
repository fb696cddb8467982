"""Disassemble a compiled kernel with nvdisasm, and count its instructions by class.

The counts are of instructions in the code, not of executed ones. A kernel spends its time in the inner loop: the loop
with the most floating-point and tensor instructions among those that contain no other loop.
"""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hpcmm.bench import tools
from hpcmm.model import DeviceError
from hpcmm.system.reader import schema_of

PROGRAM = "nvdisasm"
NOT_INSTALLED = tools.not_installed("The CUDA disassembler", PROGRAM)

CLASSES = schema_of(Path(__file__).with_suffix(".yaml"))
OTHER = "other"
ARITHMETIC = ("tensor", "float64", "float32", "float16")
FUNCTION = re.compile(r"^\.text\.([\w$.]+):")
LABEL = re.compile(r"^(\.L_\w+):")
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
TARGET = re.compile(r"\((\.L_\w+)\)")


class Instruction(NamedTuple):
    """An instruction: its address, its name with modifiers, and the label that it names."""

    address: int
    name: str
    target: str


@dataclass(frozen=True)
class Mix:
    """Numbers of instructions by class: of a whole function, and of its inner loop, which may be missing."""

    whole: Counter[str]
    loop: Counter[str]


def disassemble(cubin: Path) -> str:
    """Return the listing of a compiled file, with the lines of the source; raise DeviceError if nvdisasm fails."""
    program = tools.find(PROGRAM)
    if program is None:
        raise DeviceError(NOT_INSTALLED)
    done = subprocess.run([program, "-c", "-g", str(cubin)], capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise DeviceError(f"{program} ended with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def mixes(listing: str) -> dict[str, Mix]:
    functions: dict[str, tuple[list[Instruction], dict[str, int]]] = {}
    waiting: list[str] = []  # labels whose instruction follows
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in listing.splitlines():
        if match := FUNCTION.match(line):
            code, labels = functions.setdefault(match[1], ([], {}))
        elif match := LABEL.match(line):
            waiting.append(match[1])
        elif match := INSTRUCTION.match(line):
            address = int(match[1], 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting.clear()
            target = TARGET.search(match[3])
            code.append(Instruction(address, match[2], target[1] if target else ""))
    return {name: mix(code, labels) for name, (code, labels) in functions.items() if code}


def mix(code: list[Instruction], labels: dict[str, int]) -> Mix:
    """Count the instructions of a function, without the endless loop and the padding after its end."""
    end = next((each.address for each in code if labels.get(each.target) == each.address), code[-1].address + 1)
    code = [each for each in code if each.address < end]
    loops = [
        (labels[each.target], each.address)
        for each in code
        if each.name.startswith("BRA") and labels.get(each.target, end) < each.address
    ]
    inner = [(a, b) for a, b in loops if not any((a, b) != (c, d) and a <= c <= d <= b for c, d in loops)]
    counts = [count(each for each in code if first <= each.address <= last) for first, last in inner]
    loop = max(counts, key=lambda each: (sum(each[name] for name in ARITHMETIC), each.total()), default=Counter())
    return Mix(count(code), loop)


def count(code) -> Counter[str]:
    return Counter(class_of(each.name) for each in code)


def class_of(name: str) -> str:
    """Return the class of an instruction.

    >>> class_of("FFMA"), class_of("LDG.E.128.CONSTANT"), class_of("IMAD.MOV.U32"), class_of("IMAD.WIDE"), class_of("X")
    ('float32', 'global load', 'move', 'integer', 'other')
    """
    return next((kind for kind, names in CLASSES.items() if re.match(rf"({names})(\.|$)", name)), OTHER)
