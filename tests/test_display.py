"""The progress of ``hpcmm run``: live on a terminal of any width and encoding, one line a minute elsewhere."""

import contextlib
import io
import os
import re
import sys
import threading

import pytest

from hpcmm.cli import display
from hpcmm.experiment import plan
from hpcmm.model.devices import ANY

SWEEPS = {
    "size": {"operation": "matmul", "variants": ["openmp", "numpy"], "sizes": [64, 128], "dtypes": ["float32"]},
    "sum": {"operation": "sum", "variants": ["serial"], "sizes": [1000], "dtypes": ["int32"]},
}
LINES = [
    "hpcmm: 5 points in 1 job to measure, about 2 min (at most 11 min)",
    "[0/5] size/cpu-r1-1 openmp 64x64x64 float32 FAIL: 0:1: 1 - 2 = -1 (visit 1 of 2, 1.5 s; about 2 min left)",
    "[1/5] size/cpu-r1-1 openmp 64x64x64 float32 PASS 1.3 GFLOP/s, 0.03 x numpy (visit 2 of 2, 0.5 s; about 50 s left)",
    "size/cpu-r1-1: done in 2.0 s: 1.0 s start-up, 0.1 s timed calls and kernels; planned: at most 30 s",
    "[5/5] sum/cpu-r1-1 serial 1000 int32 PASS 1 GB/s (3.0 s; less than a minute left)",
]


@pytest.fixture
def results(tmp_path):
    plan.make({"sweeps": SWEEPS}, ANY).write(tmp_path / "plan.json")
    return tmp_path


@pytest.fixture
def terminal(results, monkeypatch):
    """Return what ``display.of`` writes about ``LINES`` to a terminal."""
    pytest.importorskip("rich", reason="no rich: pip install -e '.[workflow]'")

    def shown(columns=100, encoding="utf-8", **environ):
        for name, value in ({"TERM": "xterm", "COLUMNS": str(columns)} | environ).items():
            monkeypatch.setenv(name, value)
        ours, its = os.openpty()
        found = []
        reader = threading.Thread(target=lambda: found.append(drained(ours)))
        reader.start()
        with monkeypatch.context() as patch, os.fdopen(its, "w", encoding=encoding, errors="spelled") as stream:
            patch.setattr(sys, "stderr", stream)
            patch.setattr(display, "is_complete", lambda path, batch: batch.sweep == "size")
            of = display.of(results)
            for line in LINES:
                of.due = 0  # show each
                of.take(line)
            of.close()
        reader.join(60)
        os.close(ours)
        return found[0].decode(encoding)

    return shown


def drained(descriptor: int) -> bytes:
    """Read until the other end of a terminal is closed, which is an error on Linux."""
    text = b""
    with contextlib.suppress(OSError):
        while part := os.read(descriptor, 4096):
            text += part
    return text


def texts(shown: str) -> list[str]:
    """The texts of a terminal, with each state of its live line."""
    return [part for part in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)) if part.strip()]


def test_a_terminal_has_one_live_line_and_a_line_a_finished_sweep(terminal):
    lines = texts(terminal())
    lasting = [line for line in lines if "━" not in line]
    assert lasting == [LINES[0], "size: 4 points in 2 s, 1 FAIL"]
    assert any("0/5  about 2 min left to measure  size" in line for line in lines)
    assert any("5/5  writing the report" in line for line in lines)


@pytest.mark.parametrize("columns", [60, 100])
def test_no_line_is_longer_than_the_terminal_is_wide(terminal, columns):
    assert max(map(len, texts(terminal(columns)))) <= columns


def test_no_color_is_respected_and_ascii_is_enough(terminal):
    shown = terminal(NO_COLOR="1", encoding="ascii")
    assert not re.search(r"\x1b\[[0-9;]*m", shown) and shown.isascii() and "\\u" not in shown


def test_elsewhere_progress_is_one_line_a_minute(results, monkeypatch):
    stream, now = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    of = display.of(results)
    of.take(LINES[0])
    for i in range(180):
        now[0] = i
        of.take(f"[{i}/200] size/cpu-r1-1 openmp 64 float32 PASS 1 GB/s (0.1 s; about 3 s left)")
    lines = [f"hpcmm: {i} of 200 points, size, about 3 s left to measure" for i in (0, 60, 120)]
    assert stream.getvalue().splitlines() == [LINES[0], *lines]
