"""Checks of the installation and of the machine."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from hpcmm import backends
from hpcmm.bench import provenance
from hpcmm.cli import main
from hpcmm.cli.checks.check import Check, one_line
from hpcmm.model import Task
from hpcmm.model.records import beside
from hpcmm.operations import built
from hpcmm.system import surroundings
from hpcmm.system.text import percent

ENOUGH_SHARED = 1 << 30
MUCH_STEAL = 0.002  # of the CPU time since the boot
BUSY = 0.5  # of the cores


def check_installation() -> Iterator[Check]:
    yield Check("Python", "ok", f"{platform.python_version()}, {sys.executable}")  # an older one cannot import hpcmm
    yield Check("hpcmm", "ok", main.version().removeprefix("hpcmm "))


def check_kernels() -> Iterator[Check]:
    from hpcmm.backends.cpu import device
    from hpcmm.kernels import modules

    wrong = []
    for operation, variant, dtype in built.compiled():
        try:
            modules.module_of(Task(operation, variant, (), dtype))
        except (backends.DeviceError, OSError) as error:
            wrong.append(one_line(error))
    paths = "" if wrong else ", ".join(f"{name}: {path}" for name, path in device.simd_paths().items())
    found = wrong[0] if wrong else f"compiled and up to date; {paths}"
    yield Check.of("C kernels", not wrong, found, "run `make setup` or `pip install -e .`", "error")


def check_cpu() -> Iterator[Check]:
    import threadpoolctl

    about, allowed = provenance.cpu(), len(os.sched_getaffinity(0))
    text = f"{about['model']}, {about['logical_cores']} logical cores, {allowed} of them for this process"
    yield Check("CPU", "ok", text)
    blas = (each for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas")
    libraries = {f"{each['internal_api']} {each['version']}, {each['num_threads']} threads" for each in blas}
    found = "; ".join(sorted(libraries)) or "NumPy has no known BLAS"
    yield Check.of("BLAS", libraries, found, "the CPU baseline may be slow; reinstall NumPy")


def check_machine() -> Iterator[Check]:
    """Look for settings and other load that change times from run to run."""
    about, before = provenance.read(provenance.SOURCES), provenance.read(provenance.COUNTERS)
    for key, (name, harmless, advice) in beside(__file__).items():
        if key in about:
            found = {True: "on", False: "off", "0": "off", "1": "on"}.get(about[key], about[key])
            yield Check.of(name, about[key] in harmless, found, advice)
    if "cpu_times" in before:
        times = before["cpu_times"]
        share = times["steal_seconds"] / max(1e-9, times["busy_seconds"])
        if about.get("hypervisor") or share:
            found = f"{'virtual machine' if about.get('hypervisor') else 'no hypervisor'}, {percent(share)} steal"
            advice = "other guests take CPU time: measure on a dedicated host, and repeat runs"
            yield Check.of("hypervisor", share < MUCH_STEAL, found, advice)
    if "load_average" in before:
        cores, load = len(os.sched_getaffinity(0)), before["load_average"]
        advice = "other processes run here: end them, or use another node"
        yield Check.of("load", load < BUSY * cores, f"{load:.2g} on {cores} cores", advice)


def check_surroundings() -> Iterator[Check]:
    """List what this process inherited that changes a number or breaks a run, and what is done about it."""
    found = False
    for found in surroundings.findings():
        record, inherited = found
        state = "warning" if record.done == surroundings.WARNED else "ok"
        yield Check(record.title, state, f"{inherited}: {record.done}", record.why)
    if not found:
        yield Check("environment", "ok", "nothing inherited that changes a measurement")


def check_memory() -> Iterator[Check]:
    memory = psutil.virtual_memory()
    yield Check("memory", "ok", f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB available")
    shared = Path("/dev/shm")
    free = shutil.disk_usage(shared).free if shared.exists() else 0
    advice = "ranks of one node communicate through it: docker run --shm-size=8g, or remount it with a larger size"
    yield Check.of("/dev/shm", free >= ENOUGH_SHARED, f"{free / 2**30:.1f} GiB free", advice)
