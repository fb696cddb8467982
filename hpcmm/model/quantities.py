"""Quantities that are recorded beside a point, with their units: phases, states, energy, errors, counters."""

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

# Why a warp waits between two instructions: name in the metrics of Nsight Compute, name for readers.
STALLS = {
    "barrier": "a barrier of the block",
    "long_scoreboard": "global or local memory",
    "short_scoreboard": "shared memory",
    "mio_throttle": "the queue of shared memory",
    "lg_throttle": "the queue of global memory",
    "math_pipe_throttle": "a busy arithmetic unit",
    "wait": "the fixed latency of an instruction",
    "no_instruction": "the fetch of an instruction",
    "branch_resolving": "a branch",
    "membar": "a memory fence",
    "not_selected": "not selected (another warp was issued)",
}

# Counters of Nsight Compute: unit, long name, and name of the metric.
COUNTERS = {
    "occupancy": ("1", "theoretical occupancy", "sm__maximum_warps_per_active_cycle_pct"),
    "achieved_occupancy": (
        "1",
        "achieved occupancy: average active warps over the maximum, on active SMs",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
    ),
    "sm_active": (
        "1",
        "cycles in which an SM has a warp, over all cycles",
        "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    ),
    "active_threads": (
        "1",
        "active threads per instruction of a warp, of 32",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
    ),
    "predicated_on_threads": (
        "1",
        "active threads per instruction of a warp whose predicate is true, of 32",
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    ),
    "instructions": ("1", "instructions of warps", "smsp__inst_executed.sum"),
    "warp_cycles": ("1", "cycles of a warp per instruction issued", "smsp__average_warp_latency_per_inst_issued.ratio"),
    **{
        f"stall_{name}": (
            "1",
            f"of these, cycles in which it waits for {what}",
            f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio",
        )
        for name, what in STALLS.items()
    },
    "global_load_bytes_per_second": (
        "B s-1",
        "global loads at the L1 cache",
        "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum.per_second",
    ),
    "global_store_bytes_per_second": (
        "B s-1",
        "global stores at the L1 cache",
        "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum.per_second",
    ),
    "load_sectors": (
        "1",
        "32-byte sectors per global load of a warp",
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    ),
    "store_sectors": (
        "1",
        "32-byte sectors per global store of a warp",
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    ),
    "shared_pipe": (
        "1",
        "shared-memory wavefronts over their peak rate",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    ),
    "shared_loads": ("1", "shared-memory load instructions of warps", "smsp__inst_executed_op_shared_ld.sum"),
    "shared_stores": ("1", "shared-memory store instructions of warps", "smsp__inst_executed_op_shared_st.sum"),
    "shared_load_wavefronts": (
        "1",
        "wavefronts of shared-memory loads",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    ),
    "shared_store_wavefronts": (
        "1",
        "wavefronts of shared-memory stores",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ),
    "shared_load_conflicts": (
        "1",
        "bank conflicts of shared-memory loads",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    ),
    "shared_store_conflicts": (
        "1",
        "bank conflicts of shared-memory stores",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
    "l2_hits": ("1", "sector hit rate of the L2 cache", "lts__t_sector_hit_rate.pct"),
    "dram_read_bytes_per_second": ("B s-1", "reads of the device's memory", "dram__bytes_read.sum.per_second"),
    "dram_write_bytes_per_second": ("B s-1", "writes to the device's memory", "dram__bytes_write.sum.per_second"),
    "fma_pipe": (
        "1",
        "instructions of the float32 FMA pipe over their peak rate",
        "smsp__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    ),
    "sm_throughput": (
        "1",
        "throughput of the busiest SM unit over its peak",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "sm_clock": ("Hz", "SM clock during the run", "sm__cycles_elapsed.avg.per_second"),
}
