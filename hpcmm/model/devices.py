"""Kinds of devices: properties that are known before a device is opened."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcmm.model.records import beside


@dataclass(frozen=True)
class Device:
    name: str  # config key and HDF5 value
    title: str  # its name in tables and figures
    backend: tuple[str, str]  # module and class of its backend
    suffix: str  # suffix of the source files of its kernels
    accelerator: bool  # whether it has memory of its own and each rank needs one beside the CPU
    # Packages of the libraries that its baselines and exchanges call. Points are measured again with a new version.
    libraries: tuple[str, ...]
    memory_mb: int  # host memory of a rank without arrays, in MB
    prepare_seconds: float  # upper bound of the seconds to load or compile a kernel
    # flops_per_second, baseline_flops_per_second: lower bounds in FLOP/s for our kernels and for the library; time
    # limits of jobs follow from them
    flops_per_second: float
    baseline_flops_per_second: float


DEVICES = {
    name: Device(name, **{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
    for name, fields in beside(__file__).items()
}


@dataclass(frozen=True)
class Machine:
    """The devices of a machine, for plans; by default without limits, as for a cluster whose limits are unknown."""

    # By device, the reason why its variants cannot run; empty if they can
    missing: Mapping[str, str] = field(default_factory=dict)
    # By device, the maximum number of ranks with one each: GPUs, or cores
    count: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)  # by device, its memory in bytes; for the CPU, host memory
    multiprocessors: int = 0  # SM count of its GPUs; 0 without a GPU, or if unknown


ANY = Machine()  # a cluster without known limits
