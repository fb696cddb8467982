"""Energy of a kernel: from a counter that ticks, in a pass of its own; from there to the report."""

import csv
import dataclasses
import itertools
import json
import time

import numpy as np
import pytest
import timings
from batches import together
from mpi4py import MPI
from timings import product, took

from hpcmm import analysis, report, store
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.bench import energy
from hpcmm.bench.job import Process, measure_batch
from hpcmm.bench.journal import kept_in
from hpcmm.model import DeviceError
from hpcmm.model.measurement import Measuring, Point
from hpcmm.model.quantities import ENERGY


class Device:
    """A device with a virtual clock: kernels run one after another at 300 W, else it takes 60 W.

    Kernels are queued, and run in the order of the queue while the host waits. The counter ticks every 20 ms.
    """

    uuid = "GPU-0"

    def __init__(self, seconds, tick=0.02):
        self.kernel, self.tick, self.now, self.free = seconds, tick, 0.0, 0.0
        self.busy, self.ran = [], 0

    def clock(self):
        self.now += 1e-6  # the host takes a microsecond to look at its clock
        return self.now

    def run(self):
        self.now += 2e-6
        start = max(self.now, self.free)
        self.free = start + self.kernel
        self.busy.append((start, self.free))
        self.ran += 1

    def mark(self):
        return self.free

    def finish(self, mark):
        self.now = max(self.now, mark)

    def synchronize(self):
        self.finish(self.free)

    def energy(self):
        self.now += 1e-3
        then = np.floor(self.now / self.tick) * self.tick
        return 60 * then + 240 * sum(min(end, then) - start for start, end in self.busy if start < then)


@pytest.mark.parametrize("seconds", [3e-5, 4e-3, 0.3, 2.5])
def test_a_pass_gives_the_power_of_a_busy_device(monkeypatch, seconds):
    device = Device(seconds)
    monkeypatch.setattr(energy.time, "perf_counter", device.clock)
    found = energy.energy_of(device, device.run, seconds)
    assert found.keys() == ENERGY.keys()
    assert found["energy_seconds"] >= energy.PASS_SECONDS
    assert found["energy"] / found["energy_seconds"] == pytest.approx(300, rel=0.03)
    assert found["energy"] / found["energy_runs"] == pytest.approx(300 * seconds, rel=0.03 if seconds < 0.1 else 0.3)


def test_a_counter_that_does_not_change_is_refused(monkeypatch):
    device = Device(1e-3, tick=1e9)
    monkeypatch.setattr(energy.time, "perf_counter", device.clock)
    with pytest.raises(DeviceError, match="GPU-0 does not change"):
        energy.energy_of(device, device.run, 1e-3)


def measured(folder, energy=True):
    """The groups of a batch on the CPU of this machine, and its provenance."""
    points = (Point("sum", "serial", (2**16,), "float32", 1),)
    limits = Measuring(1, 6, 6, 1.0, 0.05, "hot", 1, energy=energy)
    batch = dataclasses.replace(together(points), device="cpu", ranks=1)
    assert measure_batch(Process(MPI.COMM_SELF, "cpu", False), batch, limits, kept_in(folder / "out.h5", {})) == []
    groups = store.read(folder / "out.h5")
    return groups["measurements"], json.loads(groups["runs"]["provenance"][0])


def test_the_energy_of_kernels_is_that_of_the_counter(tmp_path, monkeypatch):
    """Of a CPU with a counter of 100 W that changes 50 times a second."""
    monkeypatch.setattr(CpuBackend, "energy", lambda self: 2.0 * (time.perf_counter() // 0.02))
    rows, provenance = measured(tmp_path)
    assert "energy" not in provenance
    assert set(rows["contender"]) == {"serial", "numpy"}
    assert (rows["energy_seconds"] >= energy.PASS_SECONDS).all() and (rows["energy_runs"] >= 1).all()
    np.testing.assert_allclose(rows["energy"] / rows["energy_seconds"], 100, rtol=0.1)


def test_the_reason_is_kept_where_no_counter_can_be_read(tmp_path, capsys):
    rows, provenance = measured(tmp_path)
    assert np.isnan(rows["energy"]).all() and (rows["passed"] == 1).all()
    assert provenance["energy"] == "no counter of the energy of a cpu is read"
    assert f"no energy: {provenance['energy']}" in capsys.readouterr().out
    (tmp_path / "off").mkdir()
    rows, provenance = measured(tmp_path / "off", energy=False)
    assert "energy" not in provenance and "no energy" not in capsys.readouterr().out


@pytest.mark.gpu
def test_a_gpu_takes_more_for_a_product_than_for_nothing_cuda(gpu):
    import cupy

    a = cupy.ones((4096, 4096), "float32")
    b = a @ a
    found = energy.energy_of(gpu, lambda: cupy.matmul(a, a, out=b), 3e-3)
    print(found)
    watts = found["energy"] / found["energy_seconds"]
    assert 50 < watts < 1500 and found["energy_runs"] > 10  # other tests may use the GPU at the same time


def passed(point, seconds, joules, clock):
    """A measurement with a pass of 1,000 runs in 1.5 s, which took this energy."""
    energy = {"energy": joules, "energy_seconds": 1.5, "energy_runs": 1000.0}
    return dataclasses.replace(took(point, seconds), energy=energy, clock=clock)


@pytest.mark.usefixtures("drawn_here")
def test_a_file_with_energy_has_its_table_and_figure(tmp_path):
    rows = [took(product("naive", 256), 1e-3)]
    for variant, joules in (("naive", 300.0), ("cublas", 600.0)):
        rows.append(passed(product(variant, 512), 1e-3, joules, clock=joules * 2e6))
    path = timings.write(tmp_path / "timings.h5", {"size": rows})
    frame = analysis.measurements(store.read(path)).set_index(["n", "contender"])
    assert frame.loc[(512, "naive"), "watts"] == 200
    assert frame.loc[(512, "cublas"), "flops_per_joule"] == pytest.approx(frame.loc[(512, "cublas"), "flops"] / 0.6)
    assert np.isnan(frame.loc[(256, "naive"), "watts"])
    report.build(path, tmp_path / "results")
    with (tmp_path / "results/tables/size.energy.csv").open() as file:
        found = {row["label"]: row for row in csv.DictReader(file)}
    assert set(found) == {"naive", "cublas"} and float(found["naive"]["watts"]) == 200
    assert float(found["cublas"]["clock"]) == 1.2e9
    page = timings.page_of(tmp_path / "results/report.html")
    assert "Clocks and energy" in page and "0.60 GHz" in page and "1.20 GHz" in page
    assert "GFLOP/s per W" in page and "energy counter of the device" in page


def test_rates_of_integers_are_operations_in_every_table_and_figure(tmp_path):
    points = itertools.product(("int8_transposed", "cublas"), (256, 512, 1024), ["int8"])
    rows = [passed(product(*each), 1e-6 * each[1] / 256, 300.0, clock=1.5e9) for each in points]
    report.build(timings.write(tmp_path / "timings.h5", {"size": rows}), tmp_path / "results")
    shown = {path.name: path.read_text("utf-8") for path in (tmp_path / "results").glob("tables/*.md")}
    assert "TOP/s" in shown["size.md"] and "GOP/s per W" in shown["size.energy.md"]
    drawings = {path.name: path.read_text("utf-8") for path in (tmp_path / "results").rglob("*.svg")}
    assert any("TOP/s" in text for text in drawings.values())
    assert not [name for name, text in (shown | drawings).items() if "FLOP/s" in text]
