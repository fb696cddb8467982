"""``hpcmm.bench(function)``: verify and time a function of a notebook, or a file, as ``hpcmm bench`` does."""

import ast
import inspect
import json
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from hpcmm.model import HpcmmError
from hpcmm.operations.heads import MARK

# Columns of the table; pandas leaves out those between them on a narrow terminal
FIRST, LAST = ("kernel", "size", "dtype"), ("seconds", "rate", "ratio", "ratio_low", "ratio_high")


@dataclass(frozen=True)
class Bench:
    """Verdicts and times of the kernels of one call."""

    found: dict[str, Any]  # what ``hpcmm bench --json`` prints
    text: str  # what ``hpcmm bench`` says about the kernels

    @property
    def passed(self) -> bool:
        """Whether all kernels passed."""
        return all(each["passed"] for each in self.found["kernels"])

    @property
    def table(self) -> Any:
        """The times, a ``pandas.DataFrame``: one row per kernel, size and type, with the ratio to the library."""
        import pandas

        points = pandas.DataFrame(self.found.get("points", []))
        first, last = ([name for name in names if name in points] for names in (FIRST, LAST))
        others = points.columns.difference([*first, *last], sort=False)
        return points[[*first, *others, *last]].dropna(axis=1, how="all")

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self.text)}</pre>{self.table.to_html() if len(self.table) else ''}"


def bench(kernel: Callable[..., Any] | str | Path, *options: str, **keys: Any) -> Bench:
    """Verify and time a kernel.

    Parameters
    ----------
    kernel : callable or path-like
        A function that returns its result, such as ``matmul(a, b)``, or a file with a kernel.
    *options : str
        Options of ``hpcmm bench``, such as ``"--on-host"``.
    **keys
        Options with values, such as ``sizes=[256, 512]`` or ``dtype="float64"``; for a function also ``operation`` and
        ``device``.

    Returns
    -------
    Bench
        With ``passed`` and ``table``.

    Raises
    ------
    HpcmmError
        If the kernel cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="hpcmm-notebook-") as folder:
        if callable(kernel):
            if not isinstance(inspect.unwrap(kernel), FunctionType) or not kernel.__name__.isidentifier():
                raise HpcmmError(f"{kernel!r}: not a function that is written with def, such as def product(a, b): ...")
            head = {name: keys.pop(name) for name in ("operation", "device") if name in keys}
            path = Path(folder) / f"{kernel.__name__}.py"
            path.write_text(source_of(kernel, head), encoding="utf-8")
        else:
            path = Path(kernel)
        for name, value in keys.items():
            values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
            options = (*options, f"--{name.replace('_', '-')}", *map(str, values))
        command = [sys.executable, "-m", "hpcmm", "bench", str(path), *options]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise HpcmmError(done.stderr.strip().removeprefix("hpcmm: error: ")) from None
    from hpcmm.bench import verdicts

    return Bench(answer, "\n".join(map(verdicts.line_of, answer["kernels"])))


def source_of(function: Callable[..., Any], head: dict[str, Any]) -> str:
    """Return a file with a function, its head, and the modules, functions and constants of its module that it uses."""
    lines = [f"# {MARK}", *(f"#   {name}: {value}" for name, value in head.items()), ""] if head else []
    imports, values, functions = {}, {}, {}
    waiting = [function]
    while waiting:
        own = inspect.unwrap(waiting.pop())
        if own.__name__ in functions:
            continue
        try:
            source = textwrap.dedent(inspect.getsource(own))
        except OSError:
            raise HpcmmError(f"{own.__name__}: no source; define it in a cell of a notebook, or in a file") from None
        functions[own.__name__] = source
        around = own.__globals__ | inspect.getclosurevars(own).nonlocals
        # also of decorators, annotations, defaults and inner functions
        for name in dict.fromkeys(node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)):
            used = around.get(name)
            if isinstance(used, ModuleType):
                imports[name] = f"import {used.__name__} as {name}"
            elif isinstance(inspect.unwrap(used), FunctionType) and used.__module__ == own.__module__:
                waiting.append(used)
            elif callable(used) and getattr(used, "__module__", None):
                imports[name] = f"from {used.__module__} import {used.__name__} as {name}"
            elif isinstance(used, int | float | str | tuple):
                values[name] = f"{name} = {used!r}"
    return "\n".join([*lines, *imports.values(), *values.values(), *reversed(functions.values())])
