"""Exports, read by the parsers of their consumers."""

import csv
import json
import re
from datetime import datetime

import pytest
import timings
from timings import FAIL, call_samples, measurement, product, took, total, visit_samples

from hpcmm import analysis, store
from hpcmm.cli.arguments import COMMANDS
from hpcmm.cli.main import main
from hpcmm.report import export

UTC = "2026-01-02T03:04:05+00:00"
RUN = {"utc": UTC, "host": "node1", "revision": "abc", "cpu": {"model": 'CPU "A\\B"', "cores": 2}}
SECONDS = [0.001 * (1 + 0.01 * i) for i in range(7)]


def rows():
    calls = call_samples([[{"total": 2 * each, "kernel": each}] for each in SECONDS])
    right = measurement(product("naive", (64, 32, 16), tile=16), samples=visit_samples(SECONDS) + calls)
    wrong = measurement(total("openmp", 1000, ranks=2), verdict=FAIL)
    sums = [took(total("serial", 1000, ranks=2), [[0.5, 1.0], [0.25, 0.125], [0.25, 0.125]])]
    return {"size": [right, wrong], "=sum": sums}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return timings.write(tmp_path_factory.mktemp("export") / "timings.h5", rows(), RUN)


@pytest.fixture(scope="module")
def points(path):
    return analysis.points(analysis.measurements(store.read(path)))


def exported(path, form, capsys):
    assert main(["export", str(path), "--format", form]) == 0
    return capsys.readouterr().out


def test_the_command_has_the_formats_of_the_report():
    assert set(COMMANDS["export"]["arguments"]["--format"]["choices"]) == set(export.FORMS)


def test_csv_has_every_digit_of_each_point(path, points, capsys):
    found = list(csv.DictReader(exported(path, "csv", capsys).splitlines()))
    assert list(found[0]) == list(export.COLUMNS)
    for row, (_, point) in zip(found, points.iterrows(), strict=True):
        assert (row["variant"], row["host"], row["utc"], row["revision"]) == (point["variant"], "node1", UTC, "abc")
        for name in ("seconds", "seconds_low", "call_seconds", "ratio", "error"):
            assert float(row[name] or "nan") == pytest.approx(point[name], rel=1e-15, nan_ok=True)
    assert [row["result"] for row in found] == ["PASS", "FAIL", "PASS"]
    assert found[2]["sweep"] == "'=sum"  # no formula of a spreadsheet


def test_json_is_strict_and_has_the_documented_keys(path, points, capsys):
    found = json.loads(exported(path, "json", capsys), parse_constant=pytest.fail)
    assert (found["format"], found["version"]) == ("hpcmm export", export.VERSION)
    assert all(list(each) == list(export.COLUMNS) for each in found["points"])
    right, wrong, summed = found["points"]
    assert [right[name] for name in ("seconds", "call_seconds")] == pytest.approx([SECONDS[3], 2 * SECONDS[3]])
    assert (wrong["result"], wrong["seconds"]) == ("FAIL", None)
    assert (summed["seconds"], summed["sweep"]) == (0.25, "=sum")


def test_prometheus_reads_its_format(path, capsys):
    parser = pytest.importorskip("prometheus_client.parser", reason="no prometheus-client: pip install -e '.[test]'")
    families = {each.name: each for each in parser.text_string_to_metric_families(exported(path, "prometheus", capsys))}
    (unmeasured,) = families.pop(export.UNMEASURED).samples
    assert (unmeasured.value, unmeasured.labels) == (0, {})
    assert set(families) <= set(export.GAUGES)
    for family in families.values():
        assert family.type == "gauge" and family.documentation
        labels = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(set(labels)) == len(labels)
        assert not any(sample.timestamp for sample in family.samples)  # the textfile collector refuses them
    right, wrong, summed = families["hpcmm_passed"].samples
    assert (right.value, wrong.value, summed.value) == (1, 0, 1)
    assert right.labels["machine"] == 'CPU "A\\B", 2 cores'
    assert (right.labels["size"], right.labels["tile"], "tile" in summed.labels) == ("64x32x16", "16", False)
    assert [sample.value for sample in families["hpcmm_kernel_seconds"].samples] == pytest.approx([SECONDS[3], 0.25])
    (rate,) = families["hpcmm_kernel_flops_per_second"].samples
    assert rate.value == pytest.approx(2 * 64 * 32 * 16 / SECONDS[3], rel=0.2)  # and the terms of alpha and beta
    when = {sample.value for sample in families["hpcmm_measured_timestamp_seconds"].samples}
    assert when == {datetime.fromisoformat(UTC).timestamp()}


def test_without_a_file_the_results_of_this_folder_are_exported(path, tmp_path, monkeypatch, capsys):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "timings.h5").write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert main(["export"]) == 0
    assert capsys.readouterr().out == exported(path, "json", capsys)


def test_a_file_is_replaced_whole(path, tmp_path, capsys):
    target = tmp_path / "hpcmm.prom"
    assert main(["export", str(path), "--format", "prometheus", "--output", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert target.read_text() == exported(path, "prometheus", capsys)
    assert [each.name for each in tmp_path.iterdir()] == ["hpcmm.prom"]


def test_two_machines_in_a_file_are_distinguished(path, tmp_path, capsys):
    other = timings.write(tmp_path / "other.h5", rows(), RUN | {"cpu": {"model": "B", "cores": 4}, "utc": "soon"})
    timings.merge([path, other], tmp_path / "both.h5")
    text = exported(tmp_path / "both.h5", "prometheus", capsys)
    (passed,) = re.findall(r"^hpcmm_passed(?=.*B, 4 cores)(?=.*naive).* (\S+)$", text, re.MULTILINE)
    assert float(passed) == 1 and "nan" not in text  # "soon" is no time
