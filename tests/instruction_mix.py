"""Count the instructions of each CUDA rung in machine code, for the pages of the rungs.

``HPCMM_TEST_ALL=1 python tests/instruction_mix.py NVDISASM`` writes ``docs/instructions.json`` and lists neighbours on
a ladder whose machine code is the same. It needs nvdisasm, and no GPU.
"""

import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import test_kernels_compiled as compiler
import test_kernels_on_host as rungs

from hpcmm.operations import OPERATIONS

TARGET = Path(__file__).parents[1] / "docs" / "instructions.json"
ARCHITECTURE = "sm_90"
MOST = 12  # kinds of instructions that are kept, the most frequent ones


def machine_code(nvdisasm: str, name: str, dtype: str, tile: int | None) -> list[str]:
    """Return the instructions of a rung for compute capability 9.0, in order, without addresses."""
    architecture = next(each for each in compiler.architectures_of(name) if each.startswith(ARCHITECTURE))
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "-ftz=true", compiler.INCLUDES]
    options += [*rungs.defines(name, dtype, tile), *compiler.options_of(name, dtype, tile)]
    works, log, cubin = compiler.nvrtc().compile(rungs.source(name), options, "CUBIN")
    assert works, log
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = subprocess.run([nvdisasm, "-c", file.name], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", listing, re.MULTILINE)
    return [each for each in found if each != "NOP"]


def kind(instruction: str) -> str:
    """Return the name of an instruction without its modifiers.

    >>> kind("@!P0 LDG.E.128 R8, desc[UR6][R8.64]")
    'LDG'
    """
    return re.sub(r"^@!?U?P\w+\s+", "", instruction).partition(" ")[0].partition(".")[0]


def main(nvdisasm: str) -> None:
    first = {operation.kernels: name for name, operation in reversed(OPERATIONS.items())}
    builds = [each.values for each in rungs.BUILDS if each.values[0].partition("/")[0] in first.values()]
    codes = {build: machine_code(nvdisasm, *build) for build in builds}
    same = 0
    for operation in OPERATIONS.values():
        ladder = [each for each in operation.ladder if f"{operation.name}/{each.name}" in rungs.RUNG_OF]
        for before, after in itertools.pairwise(f"{operation.name}/{each.name}" for each in ladder):
            for (name, dtype, tile), code in codes.items():
                if name == after and codes.get((before, dtype, tile)) == code:
                    same += 1
                    print(f"the same machine code: {before} and {after}, {dtype}" + (f", tile {tile}" if tile else ""))
    version = subprocess.run([nvdisasm, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    found = {}
    for (name, dtype, tile), code in codes.items():
        operation, variant = rungs.RUNG_OF[name]
        if dtype == operation.dtypes_of(variant)[0] and tile == rungs.widest_tile(name):
            counts = Counter(map(kind, code))
            mix = {"dtype": dtype, "tile": tile or 0, "all": len(code), "counts": dict(counts.most_common(MOST))}
            found[f"{operation.kernels}/{variant.name}"] = mix
    compiled_by = f"NVRTC of nvidia-cuda-nvrtc {compiler.metadata.version('nvidia-cuda-nvrtc')}"
    source = f"{compiled_by}, {ARCHITECTURE}; nvdisasm {version}"
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(mix)}" for name, mix in found.items())
    TARGET.write_text(f'{{"source": {json.dumps(source)}, "rungs": {{\n{lines}\n}}}}\n')
    print(f"{TARGET}: {len(found)} rungs; {len(codes)} builds, {same} with the code of the rung before")


if __name__ == "__main__":
    main(sys.argv[1])
