"""Events of the CPU: the system call, by events that every Linux counts, and what follows from its counts."""

import mmap
import subprocess
import threading
import types
from pathlib import Path

import pytest
from timings import analysed, product, took

from hpcmm import analysis
from hpcmm.analysis.why import Known, steps
from hpcmm.backends.cpu import counters
from hpcmm.model import DeviceError
from hpcmm.report.chapters import why

FAULTS = {"faults": (1, 2)}  # software events of Linux: page faults
PAGES = 500


def touch() -> None:
    """Write to fresh pages: each is a page fault."""
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as area:
        if hasattr(area, "madvise"):
            area.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            area[page * mmap.PAGESIZE] = 1


def software_counts() -> str:
    try:
        counters.counted(lambda: None, FAULTS)
    except DeviceError as error:
        return str(error)
    return ""


if why_no_events := software_counts():
    pytest.skip(why_no_events, allow_module_level=True)


def test_events_of_a_run_are_counted_and_no_others():
    touch()
    few = counters.counted(lambda: None, FAULTS)["faults"]
    assert few < PAGES / 5
    assert PAGES <= counters.counted(touch, FAULTS)["faults"] < PAGES * 1.3


def test_threads_that_run_already_and_threads_that_begin_are_counted():
    begun, may_end, ready = threading.Event(), threading.Event(), threading.Event()

    def earlier() -> None:
        ready.set()
        begun.wait()
        touch()
        may_end.set()

    thread = threading.Thread(target=earlier)
    thread.start()
    ready.wait()

    def run() -> None:
        begun.set()
        may_end.wait()
        later = threading.Thread(target=touch)
        later.start()
        later.join()
        touch()

    found = counters.counted(run, FAULTS)["faults"]
    thread.join()
    assert 3 * PAGES <= found < 3 * PAGES * 1.3


def test_a_thread_that_has_ended_since_the_threads_were_listed_is_no_error(monkeypatch):
    process = subprocess.Popen(["true"])
    process.wait()
    listed = [Path(f"/proc/self/task/{each}") for each in (process.pid, threading.get_native_id())]
    monkeypatch.setattr(counters, "Path", lambda path: types.SimpleNamespace(iterdir=lambda: listed))
    assert PAGES <= counters.counted(touch, FAULTS)["faults"] < PAGES * 1.3


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ((1, 1000), "this machine shows none"),
        ((99, 0), "this machine shows none"),
        ((2, 10**9), "no counters of the CPU"),
    ],
)
def test_an_event_that_cannot_be_counted_has_a_reason(event, message):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(DeviceError, match=message):
        counters.counted(lambda: None, FAULTS | {"other": event})
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "the files of the first event are closed"


def test_instructions_of_a_loop_are_counted():
    if reason := counters.why_unreadable():
        pytest.skip(reason)
    few, many = (counters.counted(lambda n=n: sum(range(n)))["cpu_instructions"] for n in (10**5, 10**6))
    assert 5 < many / few < 15


def test_a_step_is_explained_by_counted_events():
    before = {"cpu_instructions": 5 * 64**3, "cpu_l1_misses": 64**3, "cpu_cache_misses": 64**2}
    after = before | {"cpu_instructions": 64**3, "cpu_l1_misses": 64**3 / 16}
    rungs, times = (("parallel_for", 4e-3, before), ("openmp", 1e-3, after)), [1 + i / 1000 for i in range(8)]
    rows = [took(product(name), [seconds * each for each in times], events=of) for name, seconds, of in rungs]
    cpu = {"model": "Model T", "cores": 4, "threads_per_rank": 4}
    columns, frame = analysed(({"cpu": cpu}, {"ladder": rows}))
    (series,) = analysis.series(frame)
    (step,) = steps(series.rows, Known.of(columns, frame))
    text = why.sentence(step)
    assert "each multiply-add takes 1.00 instructions of the CPU instead of 5.00" in text
    assert "Each multiply-add reads 4.00 B that miss L1 instead of 64.0 B" in text
    assert "no cache has" not in text, "this did not change"
    assert "limit is not known" not in text
