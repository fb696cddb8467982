"""What NVML reports about a GPU: properties, clocks, power, temperature and energy."""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pynvml

from hpcmm.model import DeviceError, untimed

STATE_SECONDS = 10e-3  # for which a reading of NVML is kept: it takes 0.1 ms, and NVML's values are older


def nvlinks(handle: Any) -> int:
    links = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        with contextlib.suppress(pynvml.NVMLError):
            links += pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED
    return links


# Properties of a GPU and limits that were set, from NVML: the key in the provenance, and how it is read. Power is
# in W and clocks are in Hz. Keys that the GPU, its driver or the permissions do not provide have no entry.
NVML: dict[str, Callable[[Any], Any]] = {
    "power_limit": lambda gpu: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) * 1e-3,
    "default_power_limit": lambda gpu: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) * 1e-3,
    "application_sm_clock": lambda gpu: pynvml.nvmlDeviceGetApplicationsClock(gpu, pynvml.NVML_CLOCK_SM) * 1e6,
    "application_memory_clock": lambda gpu: pynvml.nvmlDeviceGetApplicationsClock(gpu, pynvml.NVML_CLOCK_MEM) * 1e6,
    "highest_sm_clock": lambda gpu: pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM) * 1e6,
    "persistence": lambda gpu: bool(pynvml.nvmlDeviceGetPersistenceMode(gpu)),
    "compute_mode": lambda gpu: pynvml.nvmlDeviceGetComputeMode(gpu),
    "mig": lambda gpu: bool(pynvml.nvmlDeviceGetMigMode(gpu)[0]),
    "compute_processes": lambda gpu: len(pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)),
    "vbios": lambda gpu: pynvml.nvmlDeviceGetVbiosVersion(gpu),
    "pci_bus": lambda gpu: pynvml.nvmlDeviceGetPciInfo(gpu).busId,
    "pcie_generation": lambda gpu: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "pcie_width": lambda gpu: pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    "most_pcie_generation": lambda gpu: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
    "nvlinks": nvlinks,
    "numa_node": lambda gpu: pynvml.nvmlDeviceGetNumaNodeId(gpu),
}


# How NVML reads ``quantities.STATES``; a virtual GPU supports only some
STATE: dict[str, Callable[[Any], float]] = {
    "sm_clock": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM) * 1e6,
    "memory_clock": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM) * 1e6,
    "temperature": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "power": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) * 1e-3,
    "throttle_reasons": lambda gpu: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
}


def readable(sources: Mapping[str, Callable[[Any], Any]], handle: Any) -> dict[str, Any]:
    found = {}
    for name, read in sources.items():
        with contextlib.suppress(pynvml.NVMLError, AttributeError):  # an older binding lacks some functions
            value = read(handle)
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


@untimed
def compute_processes(pci_buses: Iterable[str]) -> list[int]:
    """Return the number of compute processes on each GPU; 0 if NVML does not report it."""
    pynvml.nvmlInit()
    handles = map(pynvml.nvmlDeviceGetHandleByPciBusId, pci_buses)
    return [readable(NVML, handle).get("compute_processes", 0) for handle in handles]


class Sensors:
    """The sensors of the GPU of a PCI bus identifier, as a part of its backend."""

    uuid: str

    def __init__(self, pci_bus: str):
        pynvml.nvmlInit()
        self._nvml = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus)
        self.uuid = str(pynvml.nvmlDeviceGetUUID(self._nvml))
        self._read_at, self._state = -math.inf, {}

    @untimed
    def properties(self) -> dict[str, Any]:
        return readable(NVML, self._nvml)

    @untimed
    def state(self) -> dict[str, float]:
        """Return clocks, temperature, power and throttle reasons of the GPU, where NVML supports them."""
        if time.perf_counter() < self._read_at + STATE_SECONDS:
            return self._state
        self._state = {name: float(value) for name, value in readable(STATE, self._nvml).items()}
        self._read_at = time.perf_counter()
        return self._state

    def energy(self) -> float:
        try:
            return pynvml.nvmlDeviceGetTotalEnergyConsumption(self._nvml) * 1e-3
        except pynvml.NVMLError as error:
            raise DeviceError(f"NVML has no energy counter for {self.uuid}: {error}") from error
