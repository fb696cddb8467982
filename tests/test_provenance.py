"""What is recorded of the code and the machine, and what doctor warns of."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpcmm.bench import provenance
from hpcmm.cli.checks import gpus, machine
from hpcmm.cli.checks.check import Check
from hpcmm.cli.checks.mpi import check_cores

# Files of a server that is set up badly for measuring.
CPU = "sys/devices/system/cpu"
SERVER = {
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n",
    f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave\n",
    f"{CPU}/cpu0/cpufreq/scaling_max_freq": "3900000\n",
    f"{CPU}/intel_pstate/no_turbo": "0\n",
    f"{CPU}/smt/control": "on\n",
    f"{CPU}/isolated": "\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "sys/devices/system/node/node0/cpulist": "0-31\n",
    "sys/devices/system/node/node1/cpulist": "32-63\n",
    "proc/self/status": "Name:\tx\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n",
    "proc/cpuinfo": "processor\t: 0\nmicrocode\t: 0x2b\nflags\t\t: fpu avx hypervisor\n\nmicrocode\t: 0x2c\n",
    "proc/stat": "cpu  1000 0 500 9000 100 0 0 500 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n",
}


@pytest.fixture
def server(tmp_path, monkeypatch):
    """``server(changes)``: the files of ``SERVER`` with changes, None for a missing one."""

    def install(**changes: str | None) -> None:
        for name, content in (SERVER | changes).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_text(content)
        monkeypatch.setattr(provenance, "ROOT", tmp_path)

    return install


def test_the_machine_is_read_from_the_files_of_the_kernel(server):
    server()
    assert provenance.read(provenance.SOURCES) == {
        "governor": "performance, powersave", "most_kilohertz": "3900000", "turbo": True, "smt": "on",
        "transparent_hugepages": "always", "numa_balancing": "1", "numa_nodes": {"node0": "0-31", "node1": "32-63"},
        "allowed_cpus": "0-7", "allowed_numa_nodes": "0", "microcode": "0x2b", "hypervisor": True,
    }  # fmt: skip
    second = os.sysconf("SC_CLK_TCK")
    times = provenance.read(provenance.COUNTERS)["cpu_times"]
    assert times == {"busy_seconds": 2000 / second, "steal_seconds": 500 / second}


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        (f"{CPU}/intel_pstate/no_turbo", "1", False),
        (f"{CPU}/cpufreq/boost", "1", True),
        (f"{CPU}/cpufreq/boost", "0", False),
    ],
)
def test_turbo_is_known_of_intels_and_of_other_drivers(server, file, content, expected):
    server(**{f"{CPU}/intel_pstate/no_turbo": None, file: content})
    assert provenance.read(provenance.SOURCES)["turbo"] is expected


def test_unreadable_values_are_absent(server):
    server(**dict.fromkeys(SERVER))
    assert provenance.read(provenance.SOURCES) == {}
    assert "cpu_times" not in provenance.read(provenance.COUNTERS)


def test_the_provenance_of_this_machine_has_no_empty_value():
    found = provenance.collect()
    for part in ("machine", "counters", "installed"):
        assert found[part] and all(value not in ("", None, {}) for value in found[part].values())
    assert set(found["packages"].items()) <= set(found["installed"].items())
    assert found["revision"]


@pytest.mark.parametrize(
    ("program", "stored"),
    [
        (str(Path(provenance.__file__).parents[1] / "jobs" / "measure.py"), "hpcmm/jobs/measure.py"),
        ("/home/someone/venv/bin/hpcmm", "hpcmm"),
        ("-c", "-c"),
    ],
)
def test_the_command_is_stored_without_the_folder_of_the_program(program, stored, monkeypatch):
    monkeypatch.setattr(sys, "argv", [program, "--batch", "a/cpu-r1-1"])
    assert provenance.collect()["arguments"] == [stored, "--batch", "a/cpu-r1-1"]


def test_steal_between_two_readings():
    def reading(busy, steal):
        return {"cpu_times": {"busy_seconds": busy, "steal_seconds": steal}}

    assert provenance.stolen(reading(10.0, 1.0), reading(30.0, 6.0)) == 0.25
    assert math.isnan(provenance.stolen(reading(10.0, 1.0), reading(10.0, 1.0)))
    assert math.isnan(provenance.stolen({}, reading(10.0, 1.0)))


def repository(folder: Path) -> Path:
    """A checkout with a package of one file."""
    module = folder / "hpcmm" / "bench" / "provenance.py"
    module.parent.mkdir(parents=True)
    module.write_text("one")
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", folder, *command], check=True)
    return module


def test_changes_and_missing_commits_are_distinguished_by_hashes(tmp_path, monkeypatch):
    module = repository(tmp_path / "checkout")
    monkeypatch.setattr(provenance, "__file__", str(module))
    first = provenance.collect()
    assert re.fullmatch(r"[0-9a-f]{40}", first["revision"]) and first["dirty"] is False
    module.write_text("two")
    second = provenance.collect()
    assert second["revision"] == first["revision"] and second["dirty"] is True
    module.write_text("three")
    third = provenance.collect()
    assert len({each["source_sha256"] for each in (first, second, third)}) == 3
    elsewhere = tmp_path / "elsewhere" / "hpcmm" / "bench" / "provenance.py"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("three")
    (elsewhere.parents[1] / "revision.txt").write_text("")  # as of a build without a commit
    monkeypatch.setattr(provenance, "__file__", str(elsewhere))
    without = provenance.collect()
    assert without["revision"] == f"sha256:{without['source_sha256']}" == f"sha256:{third['source_sha256']}"


def test_doctor_warns_of_settings_that_spoil_measurements(server, monkeypatch):
    server()
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0, 0))
    found = {check.name: check for check in machine.check_machine()}
    wanted = {"CPU governor", "CPU turbo", "huge pages", "NUMA balancing", "hypervisor", "load"}
    assert set(found) == wanted and all(check.state == "warning" and check.advice for check in found.values())
    assert found["CPU governor"].found == "performance, powersave"
    assert found["hypervisor"].found == "virtual machine, 25 % steal"


def test_doctor_passes_settings_for_measurements(server, monkeypatch):
    server(
        **{
            f"{CPU}/cpu1/cpufreq/scaling_governor": "performance",
            f"{CPU}/intel_pstate/no_turbo": "1",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
            "proc/sys/kernel/numa_balancing": "0",
            "proc/cpuinfo": "flags\t: fpu avx",
            "proc/stat": "cpu  1000 0 500 9000 100 0 0 0 0 0",
        }
    )
    monkeypatch.setattr(os, "getloadavg", lambda: (0.01, 0, 0))
    found = list(machine.check_machine())
    assert {check.name for check in found} == {"CPU governor", "CPU turbo", "huge pages", "NUMA balancing", "load"}
    assert all(check.state == "ok" and not check.advice for check in found)


def test_doctor_warns_of_gpus_that_are_limited_or_shared():
    fine = {"power_limit": 700.0, "default_power_limit": 700.0, "persistence": True, "mig": False}
    assert list(gpus.check_gpu_settings([fine, {}], [0, 0])) == [Check("GPU 0 power limit", "ok", "700 of 700 W")]
    limited = {"power_limit": 450.0, "default_power_limit": 700.0, "persistence": False, "mig": True}
    found = {check.name: check for check in gpus.check_gpu_settings([fine, limited], [0, 2])}
    assert found["GPU 0 power limit"].state == "ok"
    wrong = {name: check.found for name, check in found.items() if check.state == "warning" and check.advice}
    assert wrong == {
        "GPU 1 power limit": "450 of 700 W",
        "GPU 1 processes": "2 other compute processes",
        "GPU 1 persistence": "off",
        "GPU 1 MIG": "on",
    }


def test_doctor_warns_of_more_ranks_than_cores():
    assert check_cores([("a", {0, 1}), ("a", {0, 1})]) == Check("cores", "ok", "2 ranks on 2 cores of a")
    found = check_cores([("a", {0}), ("a", {0}), ("b", {0, 1})])
    assert found.state == "warning" and found.found == "2 ranks on 1 cores of a, 1 ranks on 2 cores of b"
