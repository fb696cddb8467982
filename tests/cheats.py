"""Attempts to get points without a solution, or to harm the machine of the teacher: ``CHEATS`` by name.

Some are whole files in ``cheats/``, which compute a wrong result or a right one in a forbidden way. The others are
pieces in ``cheats/cheats.yaml``.
"""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import yaml

FOLDER = Path(__file__).with_name("cheats")


class Cheat(NamedTuple):
    """A submission that must not pass.

    Parameters
    ----------
    mechanism : str
        What refuses it, as in the table of ``docs/teachers.md``.
    why : str
        Regular expression of the reason in the grade.
    file, text : str
        Its name and source. ``VICTIM`` stands for a file of the teacher, ``PACKAGE`` for the folder of hpcmm.
    """

    mechanism: str
    why: str
    file: str
    text: str


HEADERS, PRODUCT = ((FOLDER / f"{name}.h").read_text() for name in ("headers", "product"))
KERNEL = (
    "void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, "
    "int ldc, int threads)\n"
)
# Code before a CUDA kernel that is empty: PRODUCT, a function of its arguments, has the result
EMPTY = """
extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc) {}
"""
ON_HOST = (FOLDER / "on_host.h").read_text()
TYPES = "int, int, int, REAL, const REAL *, int, const REAL *, int, REAL, REAL *, int"
WARNING = '_Pragma("GCC warning \\"x\\"")'
REPEATED = {  # pieces that are too long for the file
    "brackets": "dtypes: " + "[" * 20000,
    "large number": "constants: {A: 1" + "0" * 5000 + "}",
    "errors without an end": "".join(f"#define W{i + 1} {f'W{i} ' * 8}\n" for i in range(5)).replace("W0", WARNING)
    + "W5\n#error e",
    "memory of the compiler": "".join(f"#define A{i + 1} A{i} A{i} A{i} A{i}\n" for i in range(20)).replace(
        "A0 ", f'"{1000 * "x"}" '
    )
    + "char all[] = A20;",
}


def whole(kind: str, code: str | dict[str, str]) -> str:
    """Return the file of a piece."""
    if kind == "attack":
        pieces = code if isinstance(code, dict) else {"code": code, "before": ""}
        attack = f"{HEADERS}{pieces['before']}\nstatic int attack(void)\n{{\n{pieces['code']}\n}}\n"
        return f"{attack}{PRODUCT}{KERNEL}{{ if (attack()) PRODUCT; }}\n"
    if kind == "Python":
        head = "# hpcmm:\n#   device: cpu\ndef matmul(alpha, A, B, beta, C, stream):\n"
        return f"{head}{textwrap.indent(code, '    ')}\n"
    if kind == "empty kernel":
        return f"{ON_HOST}{code.replace('TYPES', TYPES)}\n{EMPTY}"
    before = f"/* hpcmm:\n{textwrap.indent(code, '    ')}\n*/" if kind == "head" else code
    return f"{before}\n{PRODUCT}{KERNEL}{{ PRODUCT; }}\n"


def of_pieces() -> dict[str, Cheat]:
    files = {"Python": "a.py", "empty kernel": "a.cu"}
    kinds = yaml.safe_load((FOLDER / "cheats.yaml").read_text())
    return {
        f"{kind}: {name}": Cheat(row["mechanism"], row["why"], files.get(kind, "a.c"), whole(kind, code))
        for kind, rows in kinds.items()
        for row in rows
        for name, code in (*row["code"].items(), *((name, REPEATED[name]) for name in row.get("repeated", ())))
    }


def of_files() -> dict[str, Cheat]:
    """Return those in ``cheats/``, whose first line has the reason."""
    others = {
        **dict.fromkeys(("endless.c", "memory.c"), "limits"),
        **{"library.c": "the private view of files", "options.c": "the grader's side of the interface"},
        **dict.fromkeys(("counts.cu", "host_call.cu"), "the launch by libraries of the grader"),
        "late_thread.c": "the CPU clock",
    }
    usual = "inputs drawn anew, random shapes, guards, comparison of all bytes"
    texts = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.c*")) if path.name != "timer.c"}
    why = {name: re.match(r"/[/*] expected: (.*?)(?: \*/|$)", text, re.MULTILINE)[1] for name, text in texts.items()}
    return {name: Cheat(others.get(name, usual), why[name], name, text) for name, text in texts.items()}


CHEATS = of_files() | of_pieces()
