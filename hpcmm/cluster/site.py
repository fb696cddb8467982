"""Settings of the cluster, and the resources that a job requests there."""

import dataclasses
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from hpcmm.cluster import commands
from hpcmm.model import HpcmmError
from hpcmm.model.devices import ANY, DEVICES, Machine
from hpcmm.model.measurement import Job
from hpcmm.system.reader import parse, text_of
from hpcmm.system.text import choices

FILE = Path("profiles/slurm/site.yaml")  # in a working folder
CHECKING_COPIES = 8
NONE = "none"  # no request: a cluster without GRES, or one that refuses --mem
WITHOUT_REQUEST = ("gpu", "memory_mb")  # the keys that may be ``NONE``


@dataclass(frozen=True)
class Site:
    """Settings of a cluster; ``profiles/slurm/site.yaml`` describes each."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gpu: str = "gpu"
    ranks_per_node: int = 0
    inside_link: str = ""
    between_link: str = ""
    cpus_per_rank: int = 1
    memory_mb: int | str = 0
    modules: list = field(default_factory=list)
    launcher: str = "mpiexec"
    patience: int = 300
    slurm_patience: int = commands.PATIENCE

    def machine(self) -> Machine:
        """Return the devices of the cluster: without GPUs if Slurm knows the GRES of its nodes and none is a GPU."""
        where = [f"--partition={self.partition}"] if self.partition else []
        try:
            nodes = commands.check_output("sinfo", "--noheader", "--format=%G", *where).split()
        except HpcmmError:  # no Slurm here, or one that does not answer: as before, all devices
            return ANY
        name = self.gpu.partition(":")[0]
        if not nodes or name == NONE or any(re.search(rf"\b{re.escape(name)}\b", gres) for gres in nodes):
            return ANY
        reason = f"no node of the cluster has the GRES {name} (gpu: in profiles/slurm/site.yaml)"
        return Machine({name: reason for name, device in DEVICES.items() if device.accelerator})

    def nodes(self, ranks: int) -> int:
        return math.ceil(ranks / self.ranks_per_node) if self.ranks_per_node else 1

    def ranks_on_first(self, ranks: int) -> int:
        return math.ceil(ranks / self.nodes(ranks))

    def gres(self, job: Job) -> str:
        """Return the GRES per node: one GPU per rank, the same on all nodes; empty for a CPU job."""
        return self.gpus(self.ranks_on_first(job.ranks)) if DEVICES[job.device].accelerator else ""

    def gpus(self, count: int) -> str:
        """Return the GRES of GPUs of a node; empty if the cluster has none."""
        return f"{self.gpu}:{count}" if self.gpu != NONE else ""

    def extra(self, ranks: int) -> str:
        """Return the option that spreads ranks evenly over the nodes, so that each has a GPU; empty for one node."""
        return f"--ntasks-per-node={self.ranks_on_first(ranks)}" if self.nodes(ranks) > 1 else ""

    def mem_mb(self, job: Job, largest_bytes: int) -> int:
        """Return the memory of the first node in MB: every rank has a share and a copy of the broadcast arrays.

        Rank 0 also has the whole problem, its reference in higher precision, and the intermediate results.
        ``largest_bytes`` is the size of the largest problem of the job.
        """
        largest = largest_bytes // 10**6
        ranks = self.ranks_on_first(job.ranks)
        return self.memory(ranks * (DEVICES[job.device].memory_mb + largest) + CHECKING_COPIES * largest)

    def memory(self, needed: int) -> int:
        """Return the memory in MB to request on a node for a job that needs ``needed``; 0 for no request."""
        return 0 if self.memory_mb == NONE else self.memory_mb or needed

    def minutes(self, job: Job) -> int:
        """Return the time limit of a job in minutes; it includes the deadline of the last point."""
        return math.ceil((job.seconds + self.patience) / 60) + 1

    @property
    def resources(self) -> dict[str, str]:
        names = {"slurm_partition": "partition", "slurm_account": "account", "qos": "qos", "constraint": "constraint"}
        return {name: value for name, field in names.items() if (value := getattr(self, field))}


def of_folder() -> Site:
    return read(FILE) if FILE.exists() else Site()


def read(path: Path) -> Site:
    defaults = Site()
    types = {each.name: type(getattr(defaults, each.name)) for each in dataclasses.fields(Site)}
    entries = parse(text_of(path), path) or {}
    if not isinstance(entries, dict):
        raise HpcmmError(f"{path}: {entries!r}; allowed: keys with values")
    for key, value in entries.items():
        if key not in types:
            raise HpcmmError(f"{path}: unknown key {key!r}; allowed: {choices(key, types)}")
        kind, least = types[key], 1 if key in ("cpus_per_rank", "slurm_patience") else 0
        if value is None or (value == NONE and key in WITHOUT_REQUEST):
            continue
        texts = not isinstance(value, list) or all(isinstance(text, str) for text in value)
        if type(value) is not kind or not texts or (kind is int and value < least):
            allowed = {str: "a string", int: f"an integer of at least {least}", list: "a list of strings"}[kind]
            more = f" or {NONE}" if key in WITHOUT_REQUEST else ""
            raise HpcmmError(f"{path}: {key}: {value!r}; allowed: {allowed}{more}")
    return Site(**{key: value for key, value in entries.items() if value not in (None, "")})
