"""Record the transcripts that the pages show: of a machine with a GPU, and of one without.

``python docs/transcripts.py [NAME ...]`` runs the commands in a new folder with the example kernels and writes
``docs/transcripts/NAME.txt``: the machine, then each command with its standard output, errors, and its exit status if
that is not 0. Tests compare the commands with the parser, and the form of the output with what the commands print.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "transcripts"
# Examples with a mistake: file, and a pair of texts that replaces one by the other in tiled.cu
MISTAKES = {
    "wrong.cu": ("row < m && column < n", "row < m - 1 && column < n"),
    "beyond.cu": ("(row < m && column < n)", "(row <= m && column < n)"),
    "endless.cu": ("REAL sum = 0;", "REAL sum = 0;\n    while (*(const volatile REAL *)A < 9) {}"),
}
WITH_GPU = {
    "bench": ["hpcmm bench tiled.cu --against naive --output a.h5 --html a.html --sizes 2048"],
    "mistakes": ["hpcmm bench wrong.cu endless.cu tiled.cu --sizes 512"],
    "tune": ["hpcmm bench tiled.cu --tune TILE=8,16,32,64 --sizes 2048"],
    "python": ["hpcmm bench triton_tile.py numba_product.py cuda_core.py --sizes 2048"],
    "code": ["hpcmm bench tiled.cu --profile --sizes 2048"],
    "sanitize": ["hpcmm bench racy.cu beyond.cu --sanitize --sizes 512"],
    "check": ["hpcmm check --config backends=cuda --directory check --html check.html"],
}
WITHOUT_GPU = {
    "cpu_tune": ["hpcmm bench by_rows.c --tune STEP=1,16,64 --sizes 256"],
    "cpu_python": ["hpcmm bench panels.py --sizes 256"],
    "cpu_bench": ["hpcmm bench tiled.cu"],
    "cpu_grade": ["hpcmm new --course course", "hpcmm grade solutions --rubric course/rubric.yaml"],
    "cpu_check": ["hpcmm check --ranks 2 --directory check"],
}
COMMANDS = WITH_GPU | WITHOUT_GPU


def main(names: Sequence[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in names or (WITHOUT_GPU if gpu() is None else WITH_GPU):
        with tempfile.TemporaryDirectory() as folder:
            text = transcript(name, prepared(Path(folder)))
        (FOLDER / f"{name}.txt").write_text(text)
        print(text, flush=True)


def prepared(folder: Path) -> Path:
    """Copy the examples, those with a mistake, and the solutions of the course into a folder."""
    for path in (ROOT / "examples" / "kernels").iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    good = (folder / "tiled.cu").read_text()
    for name, (old, new) in MISTAKES.items():
        assert old in good
        (folder / name).write_text(good.replace(old, new).replace("[16, 32]", "[16]"))
    shutil.copytree(ROOT / "tests" / "solutions", folder / "solutions")
    return folder


def transcript(name: str, folder: Path) -> str:
    """Run the commands of a transcript in a folder, and return its text."""
    lines = [f"# {machine()}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    for command in COMMANDS[name]:
        arguments = [sys.executable, "-m", *command.split()]
        done = subprocess.run(arguments, capture_output=True, text=True, cwd=folder, env=environment)
        print(done.stderr, end="", file=sys.stderr, flush=True)
        output = done.stdout + "".join(re.findall(r"^hpcmm: error: .*\n", done.stderr, re.MULTILINE))
        lines += [f"$ {command}", re.sub(re.escape(str(folder)) + "/?", "", output).rstrip("\n")]
        lines += [f"(exit status {done.returncode})"] if done.returncode else []
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Return the GPU and its driver, or the number of cores of a machine without a GPU."""
    return gpu() or f"no GPU, {len(os.sched_getaffinity(0))} cores"


def gpu() -> str | None:
    """Return the name of the GPU and its driver; None without a GPU."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    return found[0].replace(", ", ", driver ") if found else None


if __name__ == "__main__":
    main(sys.argv[1:])
