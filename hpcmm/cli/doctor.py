"""``python -m hpcmm doctor``: test everything that measuring needs on this machine, and advise on failures."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from hpcmm import backends, parallel, surroundings
from hpcmm.backends.cuda import presence
from hpcmm.bench import journal, provenance
from hpcmm.cli.arguments import add_results, command
from hpcmm.cluster import leftovers
from hpcmm.grading import sandbox
from hpcmm.model import Task
from hpcmm.operations import built
from hpcmm.store import StoreError, require_writable
from hpcmm.text import percent

SECONDS = 60  # time limit of a program
# Number of ranks, as set by the launchers of Open MPI, MPICH and Intel MPI, and Slurm
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
ENOUGH_SHARED = 1 << 30
ENOUGH_DISK = 1 << 30
MUCH_STEAL = 0.002  # of the CPU time since the boot
BUSY = 0.5  # of the cores
PRINT_SIZE = "from mpi4py import MPI; print(f'<{MPI.COMM_WORLD.size}>', flush=True)"
MESSAGE_BYTES = 1_000_000  # more than MPI sends without waiting for the receiver
EXCHANGE = f"{PRINT_SIZE}; from hpcmm.cli.doctor import exchange; exchange(MPI.COMM_WORLD)"


@dataclass(frozen=True)
class Check:
    """One line of the report: name and state of the check, what was found, and advice."""

    name: str
    state: Literal["ok", "warning", "error"]
    found: str
    advice: str = ""


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "doctor",
        run,
        "Check everything that measuring needs on this machine, with advice for each problem.",
        "Started by a launcher (mpiexec -n 2 python -m hpcmm doctor) it checks all nodes and ranks.",
        {0: "no check found an error", 1: "a check found one"},
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--clean", action="store_true", help="delete the files of killed ranks that no process uses any more"
    )
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check this machine, or all nodes and ranks if a launcher started several; rank 0 prints.

    Returns
    -------
    int
        1 on all ranks if there is an error, otherwise 0.
    """
    comm, local_rank = None, 0
    mpi = list(check_start_of_mpi())
    if not mpi:
        from hpcmm.parallel import world

        comm = world.MPI.COMM_WORLD
        local_rank = world.local_rank(comm)
    own = [*mpi, *examine(comm, arguments.results, arguments.clean)] if local_rank == 0 else []
    everyone = [(socket.gethostname(), local_rank, own, presence.count(), os.sched_getaffinity(0))]
    if comm is not None:
        everyone = comm.allgather(everyone[0])
    checks = combine([(host, own) for host, rank, own, *_ in everyone if rank == 0])
    if len(everyone) > 1:
        exchange(comm)
        checks.append(Check("message", "ok", f"1 MB went around all {len(everyone)} ranks"))
        checks.append(check_ranks([(host, rank, gpus) for host, rank, _, gpus, _ in everyone]))
        checks.append(check_cores([(host, cores) for host, *_, cores in everyone]))
    if comm is None or comm.rank == 0:
        print(as_object(checks, len(everyone)) if arguments.json else as_text(checks), flush=True)
    return int(any(check.state == "error" for check in checks))


def check_start_of_mpi() -> Iterator[Check]:
    """Yield the reason why MPI cannot start. Below a launcher MPI reports it itself."""
    if missing := parallel.missing():
        yield Check("MPI", "error", missing, parallel.INSTALL)
    elif processes_started() == 1:
        tried = attempt(sys.executable, "-c", PRINT_SIZE)  # another process, because MPI may end it
        if tried.returncode:
            advice = "load the MPI module, or install the extra: pip install 'hpcmm[mpich]'"
            yield Check("MPI", "error", one_line(tried.stderr[-300:]), advice)


def combine(nodes: list[tuple[str, list[Check]]]) -> list[Check]:
    """Combine the checks of several nodes: checks equal on all nodes appear once, others with the node's name."""
    hosts_of: dict[Check, list[str]] = {}
    for host, checks in nodes:
        for check in checks:
            hosts_of.setdefault(check, []).append(host)
    order = {name: i for i, name in enumerate(dict.fromkeys(check.name for _, checks in nodes for check in checks))}
    return [
        check if len(hosts) == len(nodes) else dataclasses.replace(check, found=f"{', '.join(hosts)}: {check.found}")
        for check, hosts in sorted(hosts_of.items(), key=lambda item: order[item[0].name])
    ]


def as_text(checks: list[Check]) -> str:
    """Return the checks as a table with advice, and the number of errors and warnings."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.state:7}  {check.name:{width}}  {check.found}")
        if check.advice:
            lines.append(f"{'':7}  {'':{width}}  -> {check.advice}")
    counts = [sum(check.state == state for check in checks) for state in ("error", "warning")]
    words = [
        f"{count} {state}{'' if count == 1 else 's'}" for count, state in zip(counts, ("error", "warning"), strict=True)
    ]
    lines.append(", ".join(words))
    return "\n".join(lines)


def as_object(checks: list[Check], ranks: int) -> str:
    entries = [dataclasses.asdict(check) for check in checks]
    return json.dumps({"ranks": ranks, "errors": sum(c.state == "error" for c in checks), "checks": entries}, indent=1)


def one_line(error: object) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def examine(comm, results: Path, clean: bool) -> Iterator[Check]:
    """Do all checks of a node; a check that raises does not stop the others."""
    folder = results.absolute()
    while not folder.exists():
        folder = folder.parent
    todo: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        ("Python", check_python),
        ("hpcmm", check_package),
        ("kernels", check_kernels),
        ("CPU", check_cpu),
        ("machine", check_machine),
        ("environment", check_surroundings),
        ("MPI", lambda: check_mpi(comm)),
        ("GPU", check_gpus),
        ("MPI and GPU", lambda: check_device_memory(comm)),
        ("Slurm", check_slurm),
        ("programs", check_programs),
        ("isolation", check_isolation),
        ("memory", check_memory),
        ("leftovers", lambda: check_leftovers(clean)),
        ("results", lambda: check_results(folder)),
    ]
    for name, check in todo:
        try:
            yield from check()
        except Exception as error:
            yield Check(
                name, "error", f"{type(error).__name__}: {one_line(error)}", "report this together with all lines above"
            )


def check_python() -> Iterator[Check]:
    found = f"{platform.python_version()}, {sys.executable}"
    recent = sys.version_info >= (3, 11)
    yield Check("Python", "ok" if recent else "error", found, "" if recent else "Python 3.11 or newer is needed")


def check_package() -> Iterator[Check]:
    revision, dirty = provenance.revision()
    at = f", revision {revision[:12]}{' with changes' if dirty else ''}" if revision else ""
    yield Check("hpcmm", "ok", f"{importlib.metadata.version('hpcmm')}{at}")


def check_kernels() -> Iterator[Check]:
    from hpcmm.backends.cpu import device
    from hpcmm.kernels import modules

    wrong = []
    for operation, variant, dtype in built.compiled():
        try:
            modules.module_of(Task(operation, variant, (), dtype))
        except (backends.DeviceError, OSError) as error:
            wrong.append(one_line(error))
    if wrong:
        yield Check("C kernels", "error", wrong[0], "run `make setup` or `pip install -e .`")
    else:
        paths = ", ".join(f"{name}: {path}" for name, path in device.simd_paths().items())
        yield Check("C kernels", "ok", f"compiled and up to date; {paths}")


def check_cpu() -> Iterator[Check]:
    import threadpoolctl

    about, allowed = provenance.cpu(), len(os.sched_getaffinity(0))
    found = f"{about['model']}, {about['logical_cores']} logical cores, {allowed} of them for this process"
    yield Check("CPU", "ok", found)
    libraries = {
        f"{each['internal_api']} {each['version']}, {each['num_threads']} threads"
        for each in threadpoolctl.threadpool_info()
        if each["user_api"] == "blas"
    }
    if libraries:
        yield Check("BLAS", "ok", "; ".join(sorted(libraries)))
    else:
        yield Check("BLAS", "warning", "NumPy has no known BLAS", "the CPU baseline may be slow; reinstall NumPy")


# Properties of the machine that disturb measurements: the check, the key in the provenance, whether a value is
# harmless, and advice.
SETTINGS: tuple[tuple[str, str, Callable[[Any], bool], str], ...] = (
    (
        "CPU governor",
        "governor",
        lambda found: found == "performance",
        "clocks vary with the load: cpupower frequency-set -g performance",
    ),
    (
        "CPU turbo",
        "turbo",
        lambda found: not found,
        "clocks vary with temperature and load: repeat runs, set intel_pstate/no_turbo to 1, or cpufreq/boost to 0",
    ),
    (
        "huge pages",
        "transparent_hugepages",
        lambda found: found != "always",
        "the kernel merges pages while kernels run: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    ),
    (
        "NUMA balancing",
        "numa_balancing",
        lambda found: found == "0",
        "the kernel moves pages while kernels run: sysctl kernel.numa_balancing=0",
    ),
)


def check_machine() -> Iterator[Check]:
    """Look for settings and other load that change times from run to run."""
    about, before = provenance.read(provenance.SOURCES), provenance.read(provenance.COUNTERS)
    for name, key, harmless, advice in SETTINGS:
        if key in about:
            found = {True: "on", False: "off", "0": "off", "1": "on"}.get(about[key], about[key])
            fine = harmless(about[key])
            yield Check(name, "ok" if fine else "warning", found, "" if fine else advice)
    if "cpu_times" in before:
        times = before["cpu_times"]
        share = times["steal_seconds"] / max(1e-9, times["busy_seconds"])
        if about.get("hypervisor") or share:
            found = f"{'virtual machine' if about.get('hypervisor') else 'no hypervisor'}, {percent(share)} steal"
            advice = "other guests take CPU time: measure on a dedicated host, and repeat runs"
            fine = share < MUCH_STEAL
            yield Check("hypervisor", "ok" if fine else "warning", found, "" if fine else advice)
    if "load_average" in before:
        cores, load = len(os.sched_getaffinity(0)), before["load_average"]
        fine = load < BUSY * cores
        advice = "other processes run here: end them, or use another node"
        yield Check("load", "ok" if fine else "warning", f"{load:.2g} on {cores} cores", "" if fine else advice)


def check_surroundings() -> Iterator[Check]:
    """List what this process inherited that changes a number or breaks a run, and what is done about it."""
    found = False
    for found in surroundings.findings():
        record, inherited = found
        state = "warning" if record.done == surroundings.WARNED else "ok"
        yield Check(record.title, state, f"{inherited}: {record.done}", record.why)
    if not found:
        yield Check("environment", "ok", "nothing inherited that changes a measurement")


def check_gpu_settings(gpus: Sequence[Mapping[str, Any]], processes: Sequence[int]) -> Iterator[Check]:
    """Look for power limits of GPUs and other processes on them; ``processes`` were counted before this one's."""
    for i, (gpu, others) in enumerate(zip(gpus, processes, strict=True)):
        limit, default = gpu.get("power_limit"), gpu.get("default_power_limit")
        if limit and default:
            fine = limit >= default
            advice = f"clocks drop under load: nvidia-smi -i {i} -pl {default:.0f}"
            yield Check(
                f"GPU {i} power limit",
                "ok" if fine else "warning",
                f"{limit:.0f} of {default:.0f} W",
                "" if fine else advice,
            )
        if others:
            advice = "they share the GPU with measurements: end them, or select another GPU with CUDA_VISIBLE_DEVICES"
            yield Check(f"GPU {i} processes", "warning", f"{others} other compute processes", advice)
        if gpu.get("persistence") is False:
            advice = f"the driver unloads between jobs, and clocks start low: nvidia-smi -i {i} -pm 1"
            yield Check(f"GPU {i} persistence", "warning", "off", advice)
        if gpu.get("mig"):
            advice = (
                "an instance has a part of the SMs and of the memory bandwidth; hardware limits are of the whole GPU"
            )
            yield Check(f"GPU {i} MIG", "warning", "on", advice)


def check_mpi(comm) -> Iterator[Check]:
    if comm is None:
        return
    from hpcmm.parallel import world

    about = world.describe(comm)
    version = importlib.metadata.version("mpi4py")
    yield Check("MPI", "ok", f"{about['library']} (MPI {about['standard']}), mpi4py {version}")
    expected = processes_started()
    advice = (
        "the launcher does not belong to mpi4py's MPI library: use that library's mpiexec, or srun --mpi=pmi2 or "
        "--mpi=pmix, or rebuild mpi4py: pip install --no-binary mpi4py --force-reinstall mpi4py"
    )
    if expected > 1 and comm.size == 1:
        yield Check("launcher", "error", f"started {expected} processes, and each is rank 0 of 1", advice)
    elif comm.size > 1:
        yield Check("launcher", "ok", f"{comm.size} ranks of one job")
    else:
        yield check_launcher(advice)


def processes_started() -> int:
    """Return the number of processes that the launcher started, 1 without a launcher."""
    return max([int(os.environ[name]) for name in SIZE_VARIABLES if os.environ.get(name, "").isdigit()], default=1)


def check_launcher(advice: str) -> Check:
    """Start two ranks, because this process is alone."""
    mpiexec = find_launcher()
    if not mpiexec:
        return Check("launcher", "warning", "no mpiexec beside this Python or on PATH", "load the MPI module")
    tried = attempt(mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", "-c", EXCHANGE)
    sizes = re.findall("<([0-9]+)>", tried.stdout)  # the output of several ranks may be interleaved
    if tried.returncode == 0 and sizes == ["2", "2"]:
        return Check("launcher", "ok", f"{mpiexec} starts 2 ranks of one job, which exchange 1 MB")
    if tried.returncode == 0 and sizes == ["1", "1"]:
        return Check("launcher", "error", f"{mpiexec} starts 2 processes, and each is rank 0 of 1", advice)
    why = one_line((tried.stderr or tried.stdout)[-300:]) or f"exit status {tried.returncode}"
    return Check(
        "launcher",
        "error",
        f"{mpiexec} -n 2 failed: {why}",
        "run it yourself to see its messages; login nodes may forbid it",
    )


def exchange(comm) -> None:
    """Pass a message on around all ranks, and compare what arrives."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    received = comm.sendrecv(bytes([comm.rank % 256]) * MESSAGE_BYTES, right, source=left)
    if received != bytes([left % 256]) * MESSAGE_BYTES:
        raise RuntimeError(f"a message of {MESSAGE_BYTES} bytes from rank {left} arrived changed")


def find_launcher() -> str:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which("mpiexec", path=places) or ""


def attempt(*command: str) -> subprocess.CompletedProcess:
    """Run a program without the environment of a launcher; return the exit status of a failure."""
    environment, pipe = surroundings.measuring(os.environ), subprocess.PIPE
    try:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
    with process:
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()  # a launcher then also ends its ranks
            try:
                process.communicate(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
            return subprocess.CompletedProcess(command, 124, "", f"no answer within {SECONDS} s")
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def check_gpus() -> Iterator[Check]:
    if presence.count() == 0:
        if Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi"):
            yield Check(
                "GPUs",
                "error",
                "an NVIDIA driver is installed, but CUDA shows no GPU",
                "run nvidia-smi; CUDA_VISIBLE_DEVICES may hide GPUs: " + repr(os.environ.get("CUDA_VISIBLE_DEVICES")),
            )
        else:
            yield Check("GPUs", "ok", "none; CPU variants only")
        return
    if importlib.util.find_spec("cupy") is None:
        found = f"{presence.count()} GPUs, but CuPy is not installed"
        yield Check(
            "GPUs", "error", found, "pip install 'hpcmm[cuda13]' or 'hpcmm[cuda12]', for the driver's CUDA version"
        )
        return
    from hpcmm.backends.cuda import device as cuda

    about = cuda.survey()
    gpus = about["gpus"]
    for i, gpu in enumerate(gpus):
        memory = gpu["memory_bytes"] / 2**30
        yield Check(f"GPU {i}", "ok", f"{gpu['name']}, {memory:.0f} GiB, {gpu['uuid']}; a kernel compiled and ran")
    yield from check_gpu_settings(gpus, about["compute_processes"])
    first = gpus[0]
    numbers = {name: f"{value // 1000}.{value // 10 % 100}" for name, value in
               (("driver", about["driver_cuda"]), ("runtime", first["cuda_runtime"]))}  # fmt: skip
    yield Check("driver", "ok", f"{first['driver']}, for CUDA {numbers['driver']}")
    found = f"runtime {numbers['runtime']}, NVRTC {first['nvrtc']}, cuBLAS {first['cublas']}, CuPy {first['cupy']}"
    newer = first["cuda_runtime"] // 1000 > about["driver_cuda"] // 1000
    advice = "CuPy needs a newer CUDA than the driver supports: install the extra for the driver's CUDA version"
    yield Check("CUDA", "error" if newer else "ok", found, advice if newer else "")
    if about["nccl"]:
        yield Check("NCCL", "ok", about["nccl"])
    else:
        major = first["cuda_runtime"] // 1000
        yield Check("NCCL", "warning", "CuPy finds no NCCL", f"pip install nvidia-nccl-cu{major}")
    if len(gpus) > 1:
        without = about["without_peer_access"]
        found = "every GPU can access the memory of every other GPU"
        if without:
            found = "no access from " + ", ".join(f"{i} to {j}" for i, j in without)
        advice = "copies between these GPUs go through host memory; see nvidia-smi topo -m" if without else ""
        yield Check("peer access", "warning" if without else "ok", found, advice)


def check_device_memory(comm) -> Iterator[Check]:
    """Send device memory by MPI, in separate processes because they may crash."""
    if comm is None or presence.missing():
        return
    program = [sys.executable, "-m", "mpi4py", "-m", "hpcmm.parallel.device_memory"]
    mpiexec = find_launcher()
    alone = comm.size > 1 or not mpiexec  # one launcher is enough
    tried = attempt(*program) if alone else attempt(mpiexec, "-n", "2", *program)
    ranks = "a rank sent to itself" if alone else "two ranks sent to each other"
    if tried.returncode == 0:
        yield Check("CUDA-aware MPI", "ok", f"yes: {ranks} from device memory")
        return
    why = next((line for line in reversed(tried.stderr.splitlines()) if line.strip()), "")
    yield Check(
        "CUDA-aware MPI",
        "warning",
        f"no: {ranks} from device memory, exit status {tried.returncode} {one_line(why[:200])}".strip(),
        "not required; data goes through host memory. MPI from a wheel is never CUDA-aware, that of a cluster may be",
    )


def check_slurm() -> Iterator[Check]:
    if not shutil.which("sbatch"):
        yield Check("Slurm", "ok", "not installed; jobs run on this machine")
        return
    tried = attempt("sinfo", "--noheader", "--format", "%P|%D|%c|%G|%l|%a")
    if tried.returncode:
        # Without --cluster a run needs no Slurm. A process of a Slurm job does.
        state = "error" if "SLURM_JOB_ID" in os.environ else "warning"
        hint = "only runs on a cluster need it; check the controller: scontrol ping"
        yield Check("Slurm", state, f"installed, but it does not answer: sinfo: {one_line(tried.stderr)}", hint)
        return
    version = attempt("sinfo", "--version").stdout.strip()
    rows = [line.split("|") for line in tried.stdout.splitlines()]
    types = sorted({gres.partition("(")[0] for row in rows for gres in row[3].split(",") if gres.startswith("gpu")})
    job = f"; this is job {os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    yield Check("Slurm", "ok", f"{version}, partitions {', '.join(sorted({row[0] for row in rows}))}{job}")
    yield Check("Slurm GPUs", "ok", ", ".join(types) or "no partition has GPUs")


def check_programs() -> Iterator[Check]:
    for name, program, use in (
        ("C compiler", "cc", "required to install the C kernels, not to run them"),
        ("C++ compiler", "g++", "required for hpcmm bench --on-host and hpcmm grade of CUDA kernels: install g++"),
    ):
        if compiler := shutil.which(program):
            version = attempt(compiler, "--version").stdout.splitlines()
            yield Check(name, "ok", f"{compiler}: {version[0] if version else 'version unknown'}")
        else:
            yield Check(name, "warning", f"no {program}", use)
    try:
        yield Check("Snakemake", "ok", importlib.metadata.version("snakemake"))
    except importlib.metadata.PackageNotFoundError:
        found = shutil.which("snakemake")
        advice = "required to start runs: pip install 'hpcmm[workflow]'"
        yield Check("Snakemake", "ok" if found else "warning", found or "not installed", "" if found else advice)


def check_memory() -> Iterator[Check]:
    memory = psutil.virtual_memory()
    yield Check("memory", "ok", f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB available")
    shared = Path("/dev/shm")
    free = shutil.disk_usage(shared).free if shared.exists() else 0
    enough = free >= ENOUGH_SHARED
    advice = "ranks of one node communicate through it: docker run --shm-size=8g, or remount it with a larger size"
    yield Check("/dev/shm", "ok" if enough else "warning", f"{free / 2**30:.1f} GiB free", "" if enough else advice)


def check_isolation() -> Iterator[Check]:
    """Check what `hpcmm grade` needs; nothing else does."""
    fault = sandbox.fault()
    found = f"does not work, hpcmm grade refuses native code: {fault}" if fault else f"by {sandbox.program()}"
    yield Check("isolation", "warning" if fault else "ok", found, sandbox.INSTALL if fault else "")


def check_leftovers(clean: bool) -> Iterator[Check]:
    """Report the files of killed ranks; delete them only if told so."""
    removed = leftovers.remove() if clean else ""
    if left := leftovers.find():
        advice = "they take memory: hpcmm doctor --clean deletes them, and so does the next run"
        yield Check("leftovers", "warning", f"files of killed ranks: {leftovers.listed(left)}", advice)
    else:
        yield Check("leftovers", "ok", removed or "no files of killed ranks in /dev/shm and /tmp")


def check_results(folder: Path) -> Iterator[Check]:
    free = shutil.disk_usage(folder).free
    enough = free >= ENOUGH_DISK
    advice = "make room, or write elsewhere: hpcmm run --directory"
    found = f"{free / 2**30:.1f} GiB free at {folder}"
    yield Check("disk", "ok" if enough else "warning", found, "" if enough else advice)
    try:
        require_writable(folder)
        journal.rehearse(folder)
    except (OSError, StoreError) as error:
        found = one_line(error)
        yield Check("files", "error", found if str(folder) in found else f"{folder}: {found}", advice_on(error))
    else:
        yield Check("files", "ok", "journals and HDF5 files can be locked, written and read there")


def advice_on(error: Exception) -> str:
    """Return advice for a folder that cannot be used, by the system's error number."""
    cause = error.__cause__ if isinstance(error, StoreError) else error
    number = getattr(cause, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "make room, or write elsewhere: hpcmm run --directory"
    if number in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
        return "journals need file locks: choose a folder on another file system"
    return "choose a folder that you may write to: hpcmm run --directory"


def check_cores(ranks: list[tuple[str, set[int]]]) -> Check:
    """Compare the ranks of each node with the CPUs that all of them together may use; ``ranks`` has both of each."""
    nodes: dict[str, list[set[int]]] = {}
    for host, allowed in ranks:
        nodes.setdefault(host, []).append(allowed)
    counts = {host: (len(sets), len(set().union(*sets))) for host, sets in nodes.items()}
    found = ", ".join(f"{count} ranks on {cores} cores of {host}" for host, (count, cores) in counts.items())
    if all(count <= cores for count, cores in counts.values()):
        return Check("cores", "ok", found)
    return Check("cores", "warning", found, "ranks share cores: start fewer per node, or do not bind them to one core")


def check_ranks(ranks: list[tuple[str, int, int]]) -> Check:
    """Compare the ranks of each node with its GPUs; ``ranks`` has (node name, local rank, number of GPUs)."""
    nodes: dict[str, int] = {}
    for host, _, _ in ranks:
        nodes[host] = nodes.get(host, 0) + 1
    found = ", ".join(f"{count} on {host}" for host, count in nodes.items())
    without = [(host, rank) for host, rank, gpus in ranks if 0 < gpus <= rank]
    if without:
        missing = ", ".join(f"rank {rank} of {host}" for host, rank in without)
        return Check("ranks", "warning", f"{found}; without a GPU of its own: {missing}", "start fewer ranks per node")
    return Check("ranks", "ok", found)
