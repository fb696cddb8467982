"""Quantities that are recorded beside a point, with their units: phases, states, energy, errors, counters."""

from pathlib import Path

import yaml

# Phases of an end-to-end call, in order; a kernel measured alone has the phase ``kernel`` only. If an
# algorithm overlaps phases, the time of each is that of its own work.
PHASES = ("scatter", "broadcast", "upload", "exchange", "pitch", "kernel", "download", "gather", "total")

# State of a GPU, recorded beside each time: units. ``throttle_reasons`` is NVML's bit mask.
STATES = {"sm_clock": "Hz", "memory_clock": "Hz", "temperature": "degC", "power": "W", "throttle_reasons": "1"}

# Energy of a kernel, in a pass of its own: unit and long name.
ENERGY = {
    "energy": ("J", "energy of the device during the pass for energy (NaN: no such pass)"),
    "energy_seconds": ("s", "length of that pass"),
    "energy_runs": ("1", "kernels that ran in it"),
}

# Kinds of data on which the errors of a kernel are measured, in a pass of its own
DATA = {
    "uniform": "uniform in [-1, 1)",
    "positive": "uniform in [0, 1)",
    "graded": "of random sign, with logarithms of standard deviation 4",
}
ERRORS = {
    f"{of}_{kind}": ("1", f"{what} error relative to the sum of magnitudes, on data {text} (NaN: no such pass)")
    for kind, text in DATA.items()
    for of, what in (("error", "largest"), ("rms", "root mean square"))
}

# What the bits of a result may depend on, and with what it is compared
BITS = {
    "run": "other runs",
    "rows": "the first rows of a product with more rows",
    "ranks": "the result on one rank",
    "tile": "the result with the first tile",
    "device": "the CPU rung of the same order of sums",
}
DIFFERENCES = {
    f"{of}_{question}": ("1", f"{what} from {text} ({none}NaN: not compared)")
    for question, text in BITS.items()
    for of, what, none in (
        ("ulps", "largest difference in units in the last place", ""),
        ("first", "index of the first element that differs", "-1: none; "),
    )
}

# Events of a CPU during one run of a kernel, of all threads: unit and long name.
CPU_EVENTS = {
    "cpu_instructions": ("1", "instructions of the CPU in one run of the kernel (NaN: not counted)"),
    "cpu_l1_misses": ("1", "lines read in it that were not in the L1 cache (NaN: not counted)"),
    "cpu_cache_misses": ("1", "accesses in it that missed all caches (NaN: not counted)"),
}
# What the first visit of a point measures beside its times
ONCE = ENERGY | ERRORS | DIFFERENCES | CPU_EVENTS

# State of a device during sustained products: unit and long name.
VITALS = {
    "clock": ("Hz", "SM clock, or mean frequency of the cores"),
    "memory_clock": ("Hz", "memory clock"),
    "temperature": ("degC", "temperature"),
    "power": ("W", "power"),
    "throttle_reasons": ("1", "throttle reasons of NVML, a bit mask"),
    "energy": ("J", "energy counter"),
}

# Counters of errors of a device: long name, and whether growth means that the device is broken.
ERROR_COUNTERS = {
    "ecc_corrected": ("corrected ECC errors", False),
    "ecc_uncorrected": ("uncorrected ECC errors", True),
    "rows_remapped_corrected": ("rows remapped after corrected errors", False),
    "rows_remapped_uncorrected": ("rows remapped after uncorrected errors", True),
    "pcie_replays": ("PCIe replays", False),
    "nvlink_flit_errors": ("NVLink CRC errors of flits", False),
    "nvlink_data_errors": ("NVLink CRC errors of data", False),
    "nvlink_replays": ("NVLink replays", False),
    "nvlink_recoveries": ("NVLink recoveries", False),
    "xid": ("Xid errors since the first reading", False),
}

# Recorded for a CUDA kernel beside its times: its resources, its first launch, the resident blocks per
# multiprocessor (SM) as the driver reports them, and the limits of the device. Unit and long name of each.
RESOURCES = {
    "registers": ("1", "registers per thread"),
    "shared_bytes": ("B", "static shared memory per block"),
    "dynamic_shared_bytes": ("B", "dynamic shared memory per block"),
    "local_bytes": ("B", "local memory per thread: spilled registers, arrays indexed at run time"),
    "constant_bytes": ("B", "constant memory of the kernel"),
    "block_x": ("1", "threads per block in x"),
    "block_y": ("1", "threads per block in y"),
    "grid_x": ("1", "blocks of the first launch in x"),
    "grid_y": ("1", "blocks of the first launch in y"),
    "resident_blocks": ("1", "resident blocks per SM, from the driver"),
    "sm_threads": ("1", "maximum resident threads per SM"),
    "sm_blocks": ("1", "maximum resident blocks per SM"),
    "sm_registers": ("1", "registers per SM"),
    "sm_shared_bytes": ("B", "maximum shared memory per SM"),
    "reserved_shared_bytes": ("B", "shared memory per block reserved by the system"),
    "memory_bytes_per_second": ("B s-1", "memory bandwidth of the device, from its clock and bus width"),
}

_TEXT = Path(__file__).with_suffix(".yaml").read_text("utf-8")
_TABLES = yaml.load(_TEXT, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
STALLS = _TABLES["stalls"]  # why a warp waits
COUNTERS = {}  # of Nsight Compute: unit, long name, and name of the metric
for _name, _row in _TABLES["counters"].items():
    COUNTERS[_name] = tuple(_row)
    if _name == "warp_cycles":
        for _stall, _what in STALLS.items():
            _metric = f"smsp__average_warps_issue_stalled_{_stall}_per_issue_active.ratio"
            COUNTERS[f"stall_{_stall}"] = ("1", f"of these, cycles in which it waits for {_what}", _metric)
