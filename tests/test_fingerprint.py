"""Which points are measured again after which change: all whose times or verdicts it may decide, and no others."""

import dataclasses
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from hpcmm import kernels
from hpcmm.bench import measure
from hpcmm.experiment import fingerprint, plan
from hpcmm.model.measurement import Point
from hpcmm.operations import OPERATIONS

EDITS = Path(__file__).with_name("fingerprint_edits.yaml")
MEASURING = plan.Measuring(1, 3, 6, 0.1, 0.05, "cold", 1)
SCALARS = {"alpha": 1.5, "beta": 0.5}
SHAPE = (64, 64, 64)
POINTS = {
    "naive": Point("matmul", "naive", SHAPE, "float32", 1, SCALARS, tile=8),
    "large_thread_tile": Point("matmul", "large_thread_tile", SHAPE, "float32", 1, SCALARS),
    "stream_k": Point("matmul", "stream_k", SHAPE, "float32", 1, SCALARS),
    "cublas": Point("matmul", "cublas", SHAPE, "float32", 1, SCALARS),
    "ring": Point("matmul", "cublas", SHAPE, "float32", 2, SCALARS, "ring"),
    "serial": Point("matmul", "serial", SHAPE, "float32", 1, SCALARS),
    "float64": Point("matmul", "serial", SHAPE, "float64", 1, SCALARS),
    "sum": Point("sum", "one_launch", (1000,), "float32", 1),
    "sum serial": Point("sum", "serial", (1000,), "float32", 1),
}
ALL = set(POINTS)
CPU = {"serial", "float64", "sum serial"}
PRODUCTS = ALL - {"sum", "sum serial"}
TILED = {"naive", "large_thread_tile"}


TABLED = {"split_k", "best", "stream_k"}  # whose geometry can choose a tile


def found(measuring=MEASURING, transport="auto", share_gpu=False) -> dict[str, str]:
    fingerprint.forget()
    return {name: fingerprint.of_point(point, measuring, transport, share_gpu) for name, point in POINTS.items()}


def test_what_a_process_has_imported_has_no_effect(monkeypatch):
    before = found()
    for name in [name for name in sys.modules if name.startswith(("hpcmm.bench.", "hpcmm.backends."))]:
        monkeypatch.delitem(sys.modules, name)
    assert measure.__name__ not in sys.modules
    assert found() == before


@pytest.fixture
def edit(monkeypatch, tmp_path):
    """``edit(file, pattern, replacement)`` in a copy of the package; returns the points that are measured again."""
    copy = tmp_path / "hpcmm"
    shutil.copytree(fingerprint.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = found()
    monkeypatch.setattr(fingerprint, "PACKAGE", copy)
    monkeypatch.setattr(kernels, "FOLDER", copy / "kernels")
    assert found() == before

    def change(file: str, pattern: str, replacement: str) -> set[str]:
        text = (copy / file).read_text()
        changed, count = re.subn(pattern, replacement, text, count=1, flags=re.MULTILINE)
        assert count == 1 and changed != text
        (copy / file).write_text(changed)
        after = found()
        (copy / file).write_text(text)
        return {name for name in POINTS if after[name] != before[name]}

    yield change
    fingerprint.forget()


GROUPS = {"ALL": ALL, "CPU": CPU, "GPU": ALL - CPU, "PRODUCTS": PRODUCTS, "TILED": TILED, "TABLED": TABLED}


def wrong(edit, edits: str) -> list:
    """Return the edits that measure other points again than the list says."""
    found = []
    for file, pattern, replacement, names in yaml.safe_load(EDITS.read_text())[edits]:
        again = set().union(*(GROUPS.get(name, {name}) for name in ([names] if isinstance(names, str) else names)))
        if (measured := edit(file, pattern, replacement)) != again:
            found.append((file, pattern, measured, again))
    return found


@pytest.mark.parametrize(("edits", "names"), [("edits", ()), ("edits of models", ("split_k", "best"))])
def test_an_edit_measures_again_what_it_may_change(monkeypatch, request, edits, names):
    """A model may change rungs that choose a tile, and a variant that picks a rung."""
    for name in names:
        monkeypatch.setitem(POINTS, name, Point("matmul", name, SHAPE, "float32", 1, SCALARS))
    assert wrong(request.getfixturevalue("edit"), edits) == []


def test_the_way_of_measuring_counts():
    before = found()
    for change in ({"cache": "hot"}, {"seed": 2}, {"visits": 3}):
        changed = found(dataclasses.replace(MEASURING, **change))
        assert all(changed[name] != before[name] for name in POINTS)
    transport, shared = found(transport="nccl"), found(share_gpu=True)
    assert {name for name in POINTS if transport[name] != before[name]} == {"ring"}
    assert {name for name in POINTS if shared[name] != before[name]} == {"ring"}


def test_a_record_counts_where_it_decides_something(monkeypatch):
    before = found()

    def replaced(name: str, **changes) -> set[str]:
        operation = OPERATIONS["matmul"]
        ladder = tuple(dataclasses.replace(v, **changes) if v.name == name else v for v in operation.ladder)
        with monkeypatch.context() as context:
            context.setitem(OPERATIONS, "matmul", dataclasses.replace(operation, ladder=ladder))
            after = found()
        return {each for each in POINTS if after[each] != before[each]}

    assert replaced("naive", change="other words", source="other documents", slow=True) == set()
    assert replaced("naive", architecture="sm_80") == {"naive"}
    deeper = dataclasses.replace(OPERATIONS["matmul"].variant("large_thread_tile").geometry["float32"], depth=16)
    assert replaced("large_thread_tile", geometry={"float32": deeper}) == {"large_thread_tile"}


def test_the_version_of_a_library_counts_on_its_device(monkeypatch):
    before = found()
    metadata, right = fingerprint.importlib.metadata, fingerprint.importlib.metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0" if name == "nvidia-cuda-nvrtc" else right(name))
    after = found()
    assert {name for name in POINTS if after[name] != before[name]} == ALL - CPU
