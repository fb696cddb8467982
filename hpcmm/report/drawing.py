"""Figures as SVG, and the script that draws them in a browser; separate processes make both."""

import base64
import contextlib
import functools
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

from hpcmm import store
from hpcmm.model import HpcmmError
from hpcmm.system import files
from hpcmm.system.text import printable

RENDERER = Path(__file__).with_name("renderer.py")
FONTS = Path(__file__).with_name("fonts.conf")


class DrawingError(HpcmmError):
    """A figure that cannot be drawn; the message has its title and the exit status of the renderer."""


def svgs(specs: Sequence[str]) -> list[str | DrawingError]:
    """Draw Vega-Lite specifications as SVG in other processes; a figure that cannot be drawn is an error."""
    if not specs:
        return []
    workers = max(1, min(4, len(os.sched_getaffinity(0)) - 1, len(specs) // 24))
    drawings: list[str | DrawingError] = [""] * len(specs)
    with ThreadPoolExecutor(workers) as threads:
        for i, drawn in enumerate(threads.map(_drawn, [specs[i::workers] for i in range(workers)])):
            drawings[i::workers] = drawn
    return drawings


def _drawn(specs: Sequence[str]) -> list[str | DrawingError]:
    """Draw one specification after another, also behind one that aborts, unless a process can draw none at all."""
    drawn: list[str | DrawingError] = []
    while len(drawn) < len(specs):
        rest = specs[len(drawn) :]
        done = _run(rest)
        new = [json.loads(line) for line in done.stdout.splitlines(keepends=True) if line.endswith("\n")]
        if not done.returncode:
            return drawn + new
        failed = rest[len(new) : len(new) + 1] if new else rest
        titles = (printable(" ".join(json.loads(spec)["title"]["text"])) for spec in failed)
        drawn += [*new, *(DrawingError(f"the figure {title!r} cannot be drawn: {_why(done)}") for title in titles)]
    return drawn


def _run(specs: Sequence[str]) -> subprocess.CompletedProcess:
    how = {"input": json.dumps(specs), "capture_output": True, "encoding": "utf-8", "errors": "replace"}
    environment = os.environ | {"FONTCONFIG_FILE": str(FONTS), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run([sys.executable, "-P", RENDERER], env=environment, **how)


def _why(done: subprocess.CompletedProcess) -> str:
    """Return the exit status and the reason: the last line of Python, or the first line of a library that aborted."""
    code = done.returncode
    how = f"vl_convert ended by {signal.Signals(-code).name}" if code < 0 else f"vl_convert ended with status {code}"
    lines = [printable(line).strip(" #") for line in done.stderr.splitlines() if not line.startswith("thread ")]
    messages = [line for line in lines if line]
    why = messages[0 if code < 0 else -1][:200] if messages else "out of memory?"
    return f"{how}: {why}" + ("; raise the limit: ulimit -v" if "out of memory" in why else "")


@functools.cache
def script() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script for an offline page, ``compressed`` to a third.

    The renderer needs one or two seconds to make it, so the user's cache keeps it for this version of the renderer.
    Raise DrawingError if the renderer fails.
    """
    version = f"{metadata.version('vl-convert-python')}\0{RENDERER.read_text()}"
    kept = files.cache() / f"vega-{hashlib.sha256(version.encode()).hexdigest()[:16]}.gz"
    with contextlib.suppress(OSError, EOFError, zlib.error):
        content = kept.read_bytes()
        gzip.decompress(content)  # checks its checksum
        return base64.b64encode(content).decode()
    done = _run([])
    if done.returncode:
        raise DrawingError(f"the script that draws the figures cannot be made: {_why(done)}")
    content = gzip.compress(done.stdout.encode(), mtime=0)
    with contextlib.suppress(store.StoreError), store.replacing(kept) as path:
        path.write_bytes(content)
    return base64.b64encode(content).decode()


def compressed(text: str) -> str:
    """Compress with gzip and encode in base64, which has no character that is special in HTML."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
