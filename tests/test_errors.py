"""The errors of kernels on several kinds of data: measured, stored, and in the report."""

import csv
import dataclasses
import math

import numpy as np
import pytest
import timings
from mpi4py import MPI
from tasks import machine, task
from timings import took

from hpcmm import report, store
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.bench.errors import Kinds, has_errors, of_kind
from hpcmm.bench.job import Process, measure_batch
from hpcmm.bench.journal import kept_in
from hpcmm.experiment import plan
from hpcmm.model.launch import Run
from hpcmm.model.measurement import Measuring, Point
from hpcmm.model.quantities import DATA, ERRORS
from hpcmm.operations import OPERATIONS
from hpcmm.operations.matmul import MATMUL


def test_each_kind_of_data_is_as_it_is_described():
    x = 2 * np.random.default_rng(1).random((300, 300)) - 1
    x[0, 0] = np.nan
    data = {kind: of_kind(kind, x.copy(), np.random.default_rng(2)).ravel()[1:] for kind in DATA}
    np.testing.assert_array_equal(data["uniform"], x.ravel()[1:])
    assert data["positive"].min() >= 0 and data["positive"].mean() == pytest.approx(0.5, abs=0.01)
    logarithms = np.log(np.abs(data["graded"]))
    assert logarithms.std() == pytest.approx(4, abs=0.1) and logarithms.mean() == pytest.approx(0, abs=0.1)
    assert abs(np.sign(data["graded"]).mean()) < 0.02
    assert all(math.isnan(of_kind(kind, x.copy(), np.random.default_rng(2))[0, 0]) for kind in DATA)
    assert of_kind("graded", x.astype("float32"), np.random.default_rng(2)).dtype == np.float32


def test_types_that_are_added_up_in_themselves_have_errors():
    found = {name: has_errors(task(MATMUL, (1, 1, 1), name)) for name in MATMUL.dtypes}
    narrow = ("float16", "bfloat16", "float16_to_float32", "bfloat16_to_float32", "int8", "int32", "float8_e4m3")
    assert found == {"float32": True, "float64": True, **dict.fromkeys(narrow, False)}
    assert not has_errors(task(OPERATIONS["sum"], (1,), "float64"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_are_relative_to_the_sum_of_magnitudes(monkeypatch, dtype):
    backend, product = CpuBackend(threads=1), task(MATMUL, (6, 5, 7), dtype)
    wrong = np.zeros((6, 5), np.longdouble)
    wrong[2, 3], wrong[4, 1] = 1e-3, -2e-3

    def prepare(task, arrays):
        def run():
            a, b, c = (arrays[name].astype(np.longdouble) for name in "ABC")
            size = 1.5 * (abs(a) @ abs(b)) + 0.5 * abs(c)
            arrays["C"][...] = 1.5 * (a @ b) + 0.5 * c + wrong * size

        return Run(run)

    monkeypatch.setattr(backend, "prepare", prepare)
    found = Kinds(backend, product, 1).errors(product)
    assert found.keys() == ERRORS.keys()
    for kind in DATA:
        assert found[f"error_{kind}"] == pytest.approx(2e-3, rel=1e-2)
        assert found[f"rms_{kind}"] == pytest.approx(math.sqrt((1e-6 + 4e-6) / 30), rel=1e-2)


def test_a_batch_with_accuracy_has_the_errors_of_both_contenders(tmp_path):
    point = Point("matmul", "openmp", (40, 40, 40), "float64", 1, MATMUL.scalars)
    config = {"sweeps": {"s": {"operation": "matmul", "variants": ["openmp"], "sizes": [40], "accuracy": True}}}
    batch = plan.make(config, machine("none")).batches[0]
    assert batch.accuracy
    batch = dataclasses.replace(batch, points=(point,), fingerprints=("f",), predicted=(1.0,))
    for accuracy in (True, False):
        limits = Measuring(1, 6, 6, 1.0, 0.05, "hot", 1, accuracy=accuracy)
        folder = tmp_path / str(accuracy)
        folder.mkdir()
        assert measure_batch(Process(MPI.COMM_SELF, "cpu", False), batch, limits, kept_in(folder / "out.h5", {})) == []
        rows = store.read(folder / "out.h5")["measurements"]
        assert len(rows["contender"]) == 2
        for name in ERRORS:
            assert np.isfinite(rows[name]).all() == accuracy
            if accuracy:
                assert (rows[name] <= rows["bound"]).all()


@pytest.mark.usefixtures("drawn_here")
def test_a_file_with_errors_has_their_table(tmp_path):
    rows = []
    for variant, units in (("naive", 3.0), ("ozaki_14", 0.5)):
        row = took(timings.product(variant, 512, "float64"), 1e-3)
        rows.append(dataclasses.replace(row, errors=dict.fromkeys(ERRORS, units * 2.0**-53)))
    path = timings.write(tmp_path / "timings.h5", {"size": rows})
    report.build(path, tmp_path / "results")
    with (tmp_path / "results/tables/size.accuracy.csv").open() as file:
        found = {row["label"]: row for row in csv.DictReader(file)}
    slices = found["ozaki_14"]
    assert float(slices["error_graded"]) == 2.0**-54 and slices["arithmetic"] == "14 int8 products"
    page = timings.page_of(tmp_path / "results/report.html")
    assert "Graded, RMS" in page and "Errors on three kinds of data" in page
    (text,) = (each.read_text() for each in (tmp_path / "results/tables").glob("size.accuracy.md"))
    assert [cell.strip() for cell in text.splitlines()[-1].split("|")].count("0.500") == len(ERRORS)
