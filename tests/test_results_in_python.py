"""``hpcmm.load`` and ``hpcmm.open``: results in Python."""

import numpy as np
import pandas as pd
import pytest
import timings
from timings import call_samples, measurement, visit_samples

import hpcmm
from hpcmm import analysis, store
from hpcmm.model import HpcmmError
from hpcmm.model.measurement import Point
from hpcmm.report import export

SECONDS = [0.001 * (1 + 0.01 * i) for i in range(7)]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    product = Point("matmul", "naive", (64, 32, 16), "float32", 1)
    total = Point("sum", "serial", (1000,), "int32", 1)
    rows = [measurement(each, samples=visit_samples(SECONDS)) for each in (product, total)]
    calls = [measurement(product, samples=visit_samples(SECONDS) + call_samples([[{"total": 1, "kernel": 1}]]))]
    return timings.write(tmp_path_factory.mktemp("results") / "timings.h5", {"a": rows, "b": calls})


def test_a_row_has_the_documented_columns_and_the_rate_of_its_operation(path):
    frame = hpcmm.load(str(path))
    assert list(frame) == list(export.COLUMNS) and len(frame) == 3
    points = analysis.points(analysis.measurements(store.read(path)))
    for end in ("", "_low", "_high"):
        product, total, _ = frame["rate" + end]
        assert product == points["flops_per_second" + end][0] and total == points["bytes_per_second" + end][1]
    pd.testing.assert_series_equal(frame["seconds"], points["seconds"])
    pd.testing.assert_frame_equal(hpcmm.load(path.parent), frame)


def test_samples_are_opened_without_their_values(path):
    columns = store.read(path)
    with hpcmm.open(path.parent) as tree:
        assert set(tree.children) == set(store.GROUPS)
        samples = tree["samples"].to_dataset()
        assert not samples.kernel.variable._in_memory
        np.testing.assert_array_equal(samples.kernel.values, columns["samples"]["kernel"])
        assert samples.kernel.attrs["units"] == "s"


def test_a_damaged_file_is_refused(path, tmp_path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / "damaged.h5"
    damaged.write_bytes(content)
    for read in (hpcmm.open, hpcmm.load):
        with pytest.raises(HpcmmError, match="checksum does not match"):
            read(damaged)
    with pytest.raises(HpcmmError, match="no such file"):
        hpcmm.open(tmp_path / "none.h5")
    with pytest.raises(HpcmmError, match="allowed: a timings file, or the folder of a run"):
        hpcmm.load(tmp_path)
