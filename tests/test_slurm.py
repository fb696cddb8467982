"""The workflow on a real Slurm, started in every way: what each job gets, and what clusters do to them.

``tests/slurm up`` starts that Slurm on this machine. Without it these tests are skipped, but not in CI.
"""

import contextlib
import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import yaml

from hpcmm import backends, store
from hpcmm.bench.journal import whole_lines
from hpcmm.cluster import records
from hpcmm.cluster.records import Record
from hpcmm.cluster.watch import Watch

# what a fixture does in all ways counts for its first test
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[1]
SLURM = Path(__file__).parent / "slurm"
STATE = Path("/tmp/hpcmm-slurm")
SNAKEMAKE = shutil.which("snakemake")

DIRECT = ["--executor", "cluster-generic", "--cluster-generic-submit-cmd", "sbatch"]
WAYS = {"literal": ["--cluster", "sbatch", "--jobs", "20"], "generic": [*DIRECT, "--jobs", "20"]}

# Each fault is tried in one of these; it reaches all of them through the same watch of the queue.
TRIED = ["literal", "generic"]

NICE = 5  # of the workflows, relative to the process that breaks their jobs

MEASURING = {
    "visits": 1, "warmups": 0, "min_repetitions": 3, "max_repetitions": 4, "max_seconds": 0.05,
    "relative_interval": 0.05, "cache": "hot", "seed": 1,
}  # fmt: skip


def why_not() -> str:
    """Why there is no Slurm here that these tests may break; empty if there is one."""
    mark = "# written by tests/slurm of hpcmm"
    conf = Path("/etc/slurm/slurm.conf")
    if not conf.exists() or not conf.read_text().startswith(mark):
        return "no Slurm for tests on this machine; as root, tests/slurm up starts one"
    if subprocess.run(["scontrol", "ping"], capture_output=True, timeout=180).returncode != 0:
        return "the Slurm for tests does not answer; as root, tests/slurm down and tests/slurm up start it again"
    return ""


def cannot(reason: str) -> None:
    """Skip a test, but not in CI, where nothing may be missing."""
    if os.environ.get("CI") == "true" and os.getuid() == 0:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module", autouse=True)
def slurm():
    """Refuse a machine without Slurm; give these tests priority over those that run beside them and take less time."""
    if reason := why_not() or ("" if SNAKEMAKE else "snakemake is not on PATH"):
        cannot(reason)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, before - NICE)
    yield
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, before)


class Workflow:
    """A checkout of its own in ``folder``, in which a user types commands."""

    REPORTING = '"-m", "hpcmm", "report", '  # in the Snakefile, after a job that failed

    def __init__(self, folder: Path, way: str, sweeps: dict, measuring: dict = MEASURING, report=False, **site):
        self.folder, self.way, self.program = folder, way, SNAKEMAKE
        folder.mkdir(parents=True, exist_ok=True)
        snakefile = (ROOT / "Snakefile").read_text()
        assert self.REPORTING in snakefile
        # drawing the report takes as long as the rest of a workflow, and is the same in all ways
        (folder / "Snakefile").write_text(snakefile if report else snakefile.replace(self.REPORTING, '"-c", "", '))
        for name in ("jobs", "profiles"):
            shutil.copytree(ROOT / name, folder / name)
        config = {"scale": "quick", "backends": "auto", "measuring": measuring, "sweeps": sweeps}
        config["job_minutes"] = JOB_MINUTES
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        self.set_site(**site)
        self.process: subprocess.Popen | None = None
        self.code: int | None = None
        self.lines: list[tuple[float, str]] = []
        self.partial: list[str] = []
        self.seen: set[tuple[int, int]] = set()

    def set_site(self, **site) -> None:
        path = self.folder / "profiles/slurm/site.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load((ROOT / "profiles/slurm/site.yaml").read_text()) | site))

    def start(self, *arguments: str, **environ: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        self.lines = []
        # Its jobs inherit the niceness, so that the test can act on them before they end
        command = ["nice", "-n", str(NICE), self.program, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen(command, cwd=self.folder, env=environment | environ, **pipes)
        self.reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self.reader.start()

    def _read(self, process) -> None:
        with process.stdout:
            for line in process.stdout:
                self.lines.append((time.monotonic(), line.rstrip("\n")))

    def run(self, *arguments: str, timeout: float = 600, **environ: str) -> int:
        self.start(*arguments, **environ)
        return self.finish(timeout)

    def finish(self, timeout: float = 600) -> int:
        end = time.monotonic() + timeout
        while self.process.poll() is None:
            if time.monotonic() > end:
                self.process.kill()
                pytest.fail(f"the workflow did not end within {timeout} s\n{self.output}")
            self.look_at_files()
            time.sleep(0.2)
        self.reader.join(5)  # what it left running may hold the pipe open
        self.look_at_files()
        return self.process.returncode

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def look_at_files(self) -> None:
        """Whatever carries the name of a result must be whole at any time."""
        with contextlib.suppress(FileNotFoundError):  # something went away meanwhile; the next look sees the rest
            for path in (self.folder / "results").rglob("[!.]*.h5"):
                status = path.stat()
                if (status.st_ino, status.st_mtime_ns) not in self.seen:
                    self.seen.add((status.st_ino, status.st_mtime_ns))
                    self.read(path)

    def read(self, path: Path) -> None:
        try:
            store.read(path)
        except store.StoreError as error:
            if path.exists():
                self.partial.append(str(error))

    @property
    def output(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def said(self, pattern: str) -> float | None:
        """When a line of the output first matched."""
        return next((when for when, line in self.lines if re.search(pattern, line)), None)

    def jobs(self, sweep: str = "") -> list[dict[str, str]]:
        """This workflow's jobs in Slurm, of one sweep if given, the newest last."""
        names = ("id", "state", "node", "name", "comment")
        command = ["squeue", "--states=all", "--noheader", "--format=%i|%T|%N|%j|%k|%Z"]
        rows = [row.split("|") for row in subprocess.check_output(command, text=True).splitlines()]
        found = [dict(zip(names, row, strict=False)) for row in rows if row[-1] == str(self.folder)]
        return [job for job in found if re.search(rf"-{sweep}-|_{sweep}_", job["name"] + "_" + job["comment"])][::-1]

    def ranks(self, sweep: str) -> dict[int, psutil.Process]:
        """The processes that measure a sweep, by rank."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError, psutil.Error):
                command = os.fsdecode(path.read_bytes())
                if "mpi4py" in command and f"\0--batch\0{sweep}/" in command and "mpiexec\0" not in command:
                    process = psutil.Process(int(path.parent.name))
                    rank = process.environ().get("PMI_RANK")
                    if rank is not None and process.cwd() == str(self.folder):
                        found[int(rank)] = process
        return found

    def whole(self, sweep: str) -> bool:
        return any((self.folder / "results/raw" / sweep).glob("*.h5"))

    def told_of(self, sweep: str) -> str:
        """What the user was told of the end of a job, with its logs and why."""
        blocks = re.findall(r"hpcmm: job .* is over: .*(?:\n    \S.*)*", self.output)
        return "\n".join(block for block in blocks if re.search(rf"[-_/]{sweep}[-_/]", block))

    def journal(self, sweep: str) -> dict[str, list]:
        """Finished points of a batch that is not complete, with their samples."""
        points = {}
        with contextlib.suppress(FileNotFoundError):  # the batch was completed meanwhile
            for path in (self.folder / "results/raw" / sweep).glob("*.journal"):
                for entry in (json.loads(line) for line in whole_lines(path.read_bytes())):
                    if "point" in entry:
                        points[entry["point"]] = [each["samples"] for each in entry["measurements"]]
        return points

    def has_record_of(self, sweep: str) -> bool:
        """Whether sbatch has returned: a job can begin before that."""
        with contextlib.suppress(FileNotFoundError):  # its end was seen meanwhile
            for path in (self.folder / records.FOLDER).glob("[!.]*"):
                record = json.loads(path.read_text())
                if record["job"] and re.search(rf"[-_/]{sweep}[-_/]", record["name"]):
                    return True
        return False

    def slurm_logs(self) -> list[Path]:
        return [path for path in (self.folder / ".snakemake/slurm_logs").rglob("*.log") if path.is_file()]


def scontrol(*arguments: str) -> str:
    return subprocess.run(["scontrol", *arguments], capture_output=True, text=True, check=True).stdout


# What each way in asks Slurm for: the way's arguments, what site.yaml says, and which of it is not so.
# By the rule: 3 ranks on CPUs of two nodes, 2 ranks with a GPU each.
SITE = {
    "partition": "alone", "account": "bench", "qos": "long", "constraint": "big", "ranks_per_node": 2, "memory_mb": 700,
    "modules": ["openmpi", "cuda"],
}  # fmt: skip
SRUN = SITE | {"launcher": "srun --mpi=pmi2"}
ASKED = {
    "cpu": {"NumNodes": "2", "CPUs/Task": "1", "MinMemoryNode": "700M", "TimeLimit": "00:07:00"},
    "gpu": {"NumNodes": "1", "NumTasks": "2", "CPUs/Task": "1", "MinMemoryNode": "700M", "TresPerNode": "gres:gpu:2"},
}
BY_SITE = {"Partition": "alone", "Account": "bench", "QOS": "long", "Features": "big"}
OWN = "sbatch --ntasks=2 --nodes=1 --time=9 --mem=800 --partition=main --account=root --gpus=3"
BY_HAND = {
    "NumNodes": "1", "NumTasks": "2", "TimeLimit": "00:09:00", "MinMemoryNode": "800M", "Partition": "main",
    "Account": "root",
}  # fmt: skip
PROFILE = ["--profile", "profiles/slurm"]
# As the README says of srun and the wheel mpich. With libfabric's own choice, tcp, one start in ten hung here.
FOR_SRUN = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp;ofi_rxm"}
# Python code that leaves holes between blocks of random bytes on the heap. MPICH 5 tells the other nodes 4096 bytes
# from where its UCX address begins; where that lies in a hole, they do not compress.
NOISE = """
import ctypes, os
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def block(size):
    at = libc.malloc(size)
    ctypes.memmove(at, os.urandom(size), size)
    return at
for hole in [(block(size), block(6000))[0] for size in range(128, 1025, 16) for _ in range(300)]:
    libc.free(hole)
"""
REQUESTS = {
    "literal": (["--cluster", "sbatch", "--jobs", "4"], SITE, {}),
    "generic": ([*DIRECT, "--jobs", "4"], SITE, {}),
    "profile": (PROFILE, SRUN, {}),
    "own flags": (["--cluster=" + OWN, "--jobs", "1"], SITE, BY_HAND),
}
# Only tried up to sbatch, because it asks for the same as another one
ALIKE = {"generic": "literal"}
RUN = [way for way in REQUESTS if way not in ALIKE]
# It keeps what it is asked for. A way that is not run gets a refusal.
RECORDING = r"""#!/bin/bash
kept=$(mktemp -d "$ASKED"/XXXXXX)
printf '%s\n' "$@" >"$kept"/options
if [ -f "${!#}" ]; then cp "${!#}" "$kept"/script; fi
"""
NOT_RUN = 'echo "sbatch: error: Batch job submission failed: Invalid wckey specification" >&2; exit 1'
ON_CPU = {"operation": "sum", "variants": ["serial"], "sizes": [1000], "dtypes": ["int32"], "ranks": [3]}
ON_GPU = ON_CPU | {"variants": ["divergent"], "ranks": [2]}


class Together:
    """The same happens to several workflows at the same time."""

    def __init__(self, workflows):
        self.workflows = {workflow.way: workflow for workflow in workflows}

    def each(self, act) -> None:
        with ThreadPoolExecutor(len(self.workflows)) as pool:
            list(pool.map(act, self.workflows.values()))

    def of(self, way: str):
        return self.workflows[way]

    def close(self) -> None:
        for workflow in self.workflows.values():
            if workflow.process:
                workflow.stop()
        subprocess.run(["scancel", "--user=root"], check=False)


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """A small experiment for CPUs and GPUs, started in every way, and one whose GPUs no node has."""

    def make(way):
        arguments, settings, _ = REQUESTS[way]
        sweeps = {"cpu": ON_CPU, "gpu": ON_GPU, "shared": ON_CPU | {"sizes": [2000]}}
        workflow = Workflow(tmp_path_factory.mktemp("way"), way, sweeps, **settings)
        workflow.arguments = [*arguments, "--retries", "0"]
        workflow.environ = FOR_SRUN if settings is SRUN else {}
        return workflow

    def make_refused():
        sweeps = {"cpu": ON_CPU | {"ranks": [1]}, "gpu": ON_GPU | {"ranks": [9]}}
        workflow = Workflow(tmp_path_factory.mktemp("refused"), "refused", sweeps, memory_mb=1000)
        workflow.arguments, workflow.environ = WAYS["generic"], {}
        return workflow

    def act(workflow):
        files, programs, asked = (workflow.folder / name for name in ("modulefiles", "programs", "asked"))
        for folder in (files, programs, asked):
            folder.mkdir()
        for name in SITE["modules"]:
            (files / name).write_text(f'#%Module1.0\nputs stderr "the module {name}"\n')
        then = NOT_RUN if workflow.way in ALIKE else f'exec {shutil.which("sbatch")} "$@"'
        (programs / "sbatch").write_text(f"{RECORDING}{then}\n")
        (programs / "sbatch").chmod(0o755)
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        workflow.environ |= {"MODULEPATH": str(files), "PATH": path, "ASKED": str(asked)}
        workflow.code = workflow.run(*workflow.arguments, **workflow.environ)

    with contextlib.closing(Together([*map(make, REQUESTS), make_refused()])) as together:
        together.each(act)
        yield together


@pytest.mark.parametrize("way", RUN)
def test_a_job_gets_the_resources_of_its_rule_and_site(requests, way):
    workflow = requests.of(way)
    for sweep, asked in ASKED.items():
        (job,) = workflow.jobs(sweep)
        shown = dict(re.findall(r"(\S+?)=(\S*)", scontrol("show", "job", job["id"])))
        expected = asked | BY_SITE | REQUESTS[way][2]
        if REQUESTS[way][2]:
            expected.pop("TresPerNode", None)
            assert shown["TresPerJob"] == "gres:gpu:3"
        if sweep == "gpu" and "TimeLimit" not in REQUESTS[way][2]:
            assert shown["TimeLimit"] != "UNLIMITED"
        assert {key: shown.get(key) for key in expected} == expected, sweep


def asked(workflow: Workflow) -> dict[str, tuple[list[str], list[str]]]:
    """What sbatch was asked for: by the name of a job, its options and the words of its script.

    Left out are random names, numbers of Snakemake's jobs, and how long it waits for files. Its sets have no order.
    """
    found = {}
    for kept in (workflow.folder / "asked").iterdir():
        comment, *options, _ = (kept / "options").read_text().splitlines()
        assert comment.startswith("--comment=hpcmm:")
        script = (kept / "script").read_text().replace(str(workflow.folder), "HERE")
        script = re.sub(r"\btmp\.?\w{8}|\d+(?=\.job(finished|failed))|--latency-wait \d+|\"jobid\": \d+", "", script)
        (name,) = (option for option in options if option.startswith("--job-name="))
        assert name not in found, "each is submitted once"
        found[name] = options, sorted(script.split())
    return found


@pytest.mark.parametrize(("way", "same"), ALIKE.items())
def test_a_way_that_is_not_run_asks_for_the_same_jobs(requests, way, same):
    jobs, others = asked(requests.of(way)), asked(requests.of(same))
    assert set(jobs) == {"--job-name=measure-cpu-cpu-r3-1", "--job-name=measure-gpu-cuda-r2-1"}
    assert {name: jobs[name] for name in jobs} == {name: others[name] for name in jobs}


@pytest.mark.parametrize("way", RUN)
def test_the_jobs_agree_with_the_plan_for_a_cluster(requests, way, command):
    workflow = requests.of(way)
    shown = command("plan", "--cluster", "--configfile", "config.yaml", folder=workflow.folder).stdout
    rows = [line.split()[:5] for line in shown.splitlines() if re.match("cpu|gpu", line)]
    assert rows == [["cpu", "cpu", "3", "0", "1"], ["gpu", "cuda", "2", "2", "1"]]
    assert [len(workflow.jobs(sweep)) for sweep, *_ in rows] == [1, 1]


@pytest.mark.parametrize("way", RUN)
def test_batches_on_the_same_ranks_share_a_job(requests, way):
    workflow = requests.of(way)
    assert workflow.whole("cpu") and workflow.whole("shared") and workflow.jobs("shared") == []
    log = (workflow.folder / "results/logs/cpu/cpu-r3-1.log").read_text()
    assert len(re.findall(r"^rank \d on ", log, re.MULTILINE)) == 3, "one start of the processes"


@pytest.mark.parametrize("way", [way for way in RUN if "1" in REQUESTS[way][0]])
def test_no_more_jobs_are_in_the_queue_than_the_user_allows(requests, way):
    events = re.findall("^(Submitted job|Finished job|Error in rule)", requests.of(way).output, re.MULTILINE)
    assert [event == "Submitted job" for event in events] == [True, False, True, False]


def test_srun_starts_ranks_on_several_nodes():
    """Memory full of noise: MPICH with UCX would send more of it to Slurm than fits into a request."""
    ranks = f"{NOISE}from hpcmm.parallel import world; print(world.node(), world.world().size)"
    command = ["srun", "--mpi=pmi2", "--nodes=2", "--ntasks=3", sys.executable, "-c", ranks]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | FOR_SRUN)
    assert done.returncode == 0, done.stderr
    nodes, sizes = zip(*(line.split() for line in done.stdout.splitlines()), strict=True)
    assert (len(set(nodes)), sizes) == (2, ("3", "3", "3"))


@pytest.mark.parametrize("way", RUN)
def test_ranks_run_on_the_nodes_that_they_were_given(requests, way):
    workflow = requests.of(way)
    log = next((workflow.folder / "results/logs/cpu").iterdir()).read_text()
    nodes = re.findall(r"^rank \d on (\S+): CPU", log, re.MULTILINE)
    assert len(nodes) == 3
    assert len(set(nodes)) == int(REQUESTS[way][2].get("NumNodes", 2))
    assert "PASS" in log
    logged = [each for each in workflow.slurm_logs() if "cpu" in str(each)]
    assert "the module openmpi\nthe module cuda" in logged[0].read_text()


@pytest.mark.parametrize("way", RUN)
def test_auto_plans_for_gpus_though_this_machine_has_none(requests, way):
    if not backends.missing("cuda"):
        pytest.skip("this machine has a GPU")
    workflow = requests.of(way)
    assert workflow.code == 1
    assert workflow.whole("cpu") and not workflow.whole("gpu")
    assert "this batch needs a GPU, but CUDA shows none here" in workflow.told_of("gpu")


def test_a_submission_that_slurm_refuses_is_an_error_and_other_jobs_go_on(requests):
    workflow = requests.of("refused")
    assert workflow.code == 1
    assert "Requested node configuration is not available" in workflow.output, workflow.output
    assert not any(job["node"] for job in workflow.jobs("gpu")), "it never ran"
    assert workflow.whole("cpu")


JOB_MINUTES = 1.06  # enough for each sweep of these tests, but not for two in one job
# Each point takes some tenths of a second, so that there is time to break something between two.
POINTS = 14
SLOW = MEASURING | {"max_seconds": 0.1, "min_repetitions": 1000, "max_repetitions": 1000}


def products(ranks: int) -> dict:
    sizes = list(range(190, 190 + POINTS))
    return {"operation": "matmul", "variants": ["serial"], "sizes": sizes, "dtypes": ["float32"], "ranks": [ranks]}


def cancel(workflow: Workflow, sweep: str) -> None:
    subprocess.run(["scancel", workflow.jobs(sweep)[-1]["id"]], check=True)


def end_its_time(workflow: Workflow, sweep: str) -> None:
    workflow.ranks(sweep)[0].send_signal(signal.SIGSTOP)  # or it would be done before Slurm looks
    scontrol("update", f"JobId={workflow.jobs(sweep)[-1]['id']}", "EndTime=now+1")


def lose_its_node(workflow: Workflow, sweep: str) -> None:
    """Kill slurmd and slurmstepd, so that the end of the job is not reported, and then the job."""
    job = workflow.jobs(sweep)[-1]
    os.kill(int((STATE / f"run/slurmd-{job['node']}.pid").read_text()), signal.SIGKILL)
    workflow.lost_nodes.append(job["node"])
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if f"[{job['id']}." in " ".join(process.cmdline()):
                process.kill()
            elif process.environ().get("SLURMD_NODENAME") == job["node"]:
                members.append(process)
    for process in members:
        with contextlib.suppress(psutil.Error):
            process.kill()


def let_it_grow(workflow: Workflow, sweep: str) -> None:
    """Nothing to do: its second point is larger than the memory that the job asked for."""


def push_it_aside(workflow: Workflow, sweep: str) -> None:
    job = workflow.jobs(sweep)[-1]
    urgent = ["sbatch", "--partition=urgent", f"--nodelist={job['node']}", "--exclusive", "--output=/dev/null"]
    subprocess.run([*urgent, "--time=1", "--wrap=sleep 1"], check=True, capture_output=True)


def signal_rank_1(number: int):
    def send(workflow: Workflow, sweep: str) -> None:
        workflow.ranks(sweep)[1].send_signal(number)

    return send


# sweep -> the way in, its number of ranks, the fault of its job after the first point, the message to the user
# (None: Slurm runs it again by itself)
FAULTS = {
    "cancelled": ("literal", 1, cancel, "CANCELLED"),
    "late": ("generic", 1, end_its_time, r"TIMEOUT|DUE TO TIME LIMIT"),
    "lost": ("literal", 1, lose_its_node, None),
    "memory": ("literal", 1, let_it_grow, "exceeded memory limit|OUT_OF_MEMORY"),
    "preempted": ("generic", 1, push_it_aside, None),
    "killed": ("generic", 2, signal_rank_1(signal.SIGKILL), r"Killed \(signal 9\)"),
    "stuck": ("generic", 2, signal_rank_1(signal.SIGSTOP), r"rank 0 of 2 .*stuck in stuck.*: serial \d+x.* for"),
}
FAILING = [name for name, (*_, reason) in FAULTS.items() if reason]
SWEEPS = {name: products(ranks) for name, (_, ranks, *_) in FAULTS.items()} | {"fine": products(1)}
# the second point takes 800 MB, more than the job has by itself
SWEEPS["memory"] = {"operation": "sum", "variants": ["numpy"], "sizes": [1000, 100_000_000], "dtypes": ["float64"]}


class Broken(Workflow):
    """A workflow with a fault in each job but one, and its output."""

    def __init__(self, folder: Path, way: str):
        self.faults = [name for name, (own, *_) in FAULTS.items() if own == way]
        sweeps = {name: SWEEPS[name] for name in (*self.faults, "fine")}
        super().__init__(folder, way, sweeps, SLOW, report=True, partition="alone", memory_mb=600, patience=15)
        self.lost_nodes: list[str] = []
        self.broken: dict[str, float] = {}
        self.resumed: set[str] = set()
        self.finished: dict[str, dict] = {}
        # drawing the report takes the longest, and is the same in all ways
        self.arguments = [*WAYS[way], *([] if way == "literal" else ["results/timings.h5"])]

    def break_all(self) -> None:
        """Run it, and break each job as soon as it has a point."""
        self.start(*WAYS[self.way])
        with ThreadPoolExecutor(len(self.faults)) as pool:
            breaking = pool.map(self.break_one, self.faults)
            self.code = self.finish()
            list(breaking)
        self.finished = {sweep: points for sweep in self.faults if (points := self.journal(sweep))}

    def break_one(self, sweep: str) -> None:
        while not self.journal(sweep):
            assert self.process.poll() is None, f"{sweep} was not seen at work\n{self.output}"
            time.sleep(0.05)
        FAULTS[sweep][2](self, sweep)
        self.broken[sweep] = time.monotonic()

    def look_at_files(self) -> None:
        super().look_at_files()
        for sweep in {each for each in list(self.broken) if each not in FAILING} - self.resumed:
            with contextlib.suppress(FileNotFoundError):
                log = self.folder / "results/logs" / sweep / "cpu-r1-1.log"
                if "points were measured before and are kept" in log.read_text():
                    self.resumed.add(sweep)

    def noticed(self, sweep: str) -> bool:
        """Whether Snakemake gave the job up after the fault."""
        done = f".snakemake/hpcmm/done/{sweep}/"
        return any(when > self.broken[sweep] and done in line for when, line in self.lines)

    def mend_all(self) -> None:
        """Take the causes away, and type the command again: once to be killed, once to the end."""
        for node in self.lost_nodes:
            subprocess.run([SLURM, "node", node], check=True)
        self.set_site(partition="alone", memory_mb=2000, patience=300)
        self.start(*self.arguments)
        self.catch(self.finished)
        self.stop()
        self.start(*self.arguments, "--retries", "1")
        self.await_line("cancelled jobs of a run that was killed")
        retried, rank = self.catch({sweep: self.journal(sweep) for sweep in self.finished})
        rank.kill()
        self.code = self.finish()
        self.retried = self.told_of(retried)

    def await_line(self, pattern: str, timeout: float = 300) -> None:
        end = time.monotonic() + timeout
        while not self.said(pattern):
            assert time.monotonic() < end and self.process.poll() is None, f"not said: {pattern}\n{self.output}"
            time.sleep(0.1)

    def catch(self, before: dict[str, dict], timeout: float = 300) -> tuple[str, psutil.Process]:
        """Wait until a job adds a point to those that its journal had, and stop it; return its sweep and rank 0.

        Points in which it was stopped before come last, and another stop there would be taken for their own fault.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end and self.process.poll() is None:
            for sweep in [each for each in before if each != "memory"]:
                if len(before[sweep]) < len(self.journal(sweep)) < POINTS - 3 and self.has_record_of(sweep):
                    with contextlib.suppress(KeyError, psutil.Error):  # it was faster; the next one
                        rank = self.ranks(sweep)[0]
                        rank.suspend()
                        until = time.monotonic() + 5
                        while rank.status() != psutil.STATUS_STOPPED and time.monotonic() < until:
                            time.sleep(0.01)  # the signal may take a moment
                        if rank.status() == psutil.STATUS_STOPPED and not self.whole(sweep):
                            return sweep, rank
                        rank.resume()
            self.look_at_files()
            time.sleep(0.1)
        raise AssertionError(f"no new point\n{self.output}")


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    workflows = [Broken(tmp_path_factory.mktemp("broken"), way) for way in TRIED]
    with contextlib.closing(Together(workflows)) as together:
        together.each(Broken.break_all)
        yield together


@pytest.fixture(scope="module")
def mended(broken):
    """Once broken, all of it is asked for again, in one way."""
    workflow = copy.copy(broken.of("literal"))
    workflow.mend_all()
    return workflow


@pytest.mark.parametrize("sweep", FAULTS)
def test_a_fault_is_noticed_and_named(broken, sweep):
    way, _, _, reason = FAULTS[sweep]
    workflow = broken.of(way)
    if reason is None:
        assert workflow.whole(sweep), "Slurm runs it again, and the workflow waits"
        assert sweep in workflow.resumed, "it goes on after its last point"
        return
    assert not workflow.whole(sweep)
    told = workflow.told_of(sweep)
    assert re.search(rf"^hpcmm: job \d+ \S*{sweep}[-_]cpu-r\d\S* is over: ", told), told
    logs = re.search("^    its logs: (.*)", told, re.MULTILINE)[1].split(", ")
    assert any((workflow.folder / log).exists() for log in logs)
    assert re.search(reason, told), told
    assert workflow.noticed(sweep), "Snakemake gave the job up, rather than to wait for it"


@pytest.mark.parametrize("way", TRIED)
def test_other_jobs_go_on_and_the_workflow_ends_with_an_error(broken, way):
    workflow = broken.of(way)
    assert workflow.code == 1
    assert workflow.whole("fine")
    groups = store.read(workflow.folder / "results/timings.h5")
    assert "fine" in groups["measurements"]["sweep"]
    failed = {*FAILING} & {*workflow.faults}
    assert failed <= set(groups["omitted"]["sweep"]), "the report names what failed"
    assert (workflow.folder / "results/report.html").exists()


def test_a_stuck_rank_is_found_by_the_others_with_their_positions(broken):
    log = next((broken.of(FAULTS["stuck"][0]).folder / "results/logs/stuck").iterdir()).read_text()
    assert "rank 0 of 2" in log and "rank 1 of 2" not in log, log
    assert re.search(r"File .*measure.py", log), log


def test_the_same_command_completes_it_also_after_the_workflow_was_killed(mended):
    assert mended.code == 0, mended.output
    assert (mended.folder / "results/report.html").exists()
    for sweep in (*mended.faults, "fine"):
        points = store.read(next((mended.folder / "results/raw" / sweep).glob("*.h5")))["measurements"]
        assert points["passed"].all()
        assert set(points["n"]) == set(SWEEPS[sweep]["sizes"])
    assert mended.run(*mended.arguments) == 0
    assert "Nothing to be done" in mended.output


def test_a_job_that_failed_once_is_tried_again(mended):
    assert "is over: FAILED" in mended.retried


def test_finished_points_survive_and_are_not_measured_again(mended):
    assert {*FAILING} & {*mended.faults} <= set(mended.finished)
    for sweep, points in mended.finished.items():
        kept = {s["seconds"]["kernel"] for samples in points.values() for each in samples for s in each}
        assert kept
        columns = store.read(next((mended.folder / "results/raw" / sweep).glob("*.h5")))
        assert kept <= set(columns["samples"]["kernel"]), sweep
        assert len(columns["runs"]["batch"]) > 1, "each start has its provenance"


@pytest.mark.parametrize("way", TRIED)
def test_no_partial_file_had_the_name_of_a_result(broken, mended, way):
    assert broken.of(way).partial == []


# --- a scheduler that falters -------------------------------------------------------------------------------------


def test_no_job_fails_because_slurmctld_is_gone(tmp_path):
    """One job goes on, and the other one is to be submitted meanwhile; ``test_cluster.py`` has the other faults."""
    sweeps = {"one": products(1), "other": products(1)}
    workflow = Workflow(tmp_path, "literal", sweeps, SLOW, partition="alone", memory_mb=600, patience=600)
    with contextlib.closing(Together([workflow])):
        workflow.start(*WAYS["literal"], "--jobs", "1", "results/timings.h5")
        while not (at_work := [each for each in sweeps if workflow.journal(each) and workflow.has_record_of(each)]):
            assert workflow.process.poll() is None, workflow.output
            time.sleep(0.1)
        rank = workflow.ranks(at_work[0])[0]
        rank.suspend()
        time.sleep(7)  # slurmctld saves its state within 5 s
        os.kill(int((STATE / "run/slurmctld.pid").read_text()), signal.SIGKILL)
        rank.resume()
        time.sleep(20)
        path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])  # which is not on everyone's PATH
        subprocess.run([shutil.which("slurmctld", path=path)], check=True)
        assert workflow.finish() == 0, workflow.output
    for sweep in sweeps:
        assert workflow.whole(sweep) and workflow.told_of(sweep) == "", workflow.output
        assert len(workflow.jobs(sweep)) == 1, "each is submitted once"


COMMENT = "--comment=hpcmm:0123456789abcdef"  # with the token of the record


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """A folder with a record of a job, what watches it, and Snakemake's marker of it: ``watched(job)``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPCMM_SLURM_PATIENCE", "3")
    marker = tmp_path / "1.jobfailed"

    def watch(job: str) -> tuple[Watch, Path]:
        records.write(Record(COMMENT.removeprefix("--comment=hpcmm:"), job, "measure", marker=str(marker)))
        return Watch(), marker

    return watch


def test_the_end_of_a_job_missing_from_squeue_is_taken_from_accounting(watched, tmp_path, monkeypatch, capfd):
    submission = ["sbatch", "--parsable", "--output=/dev/null", COMMENT, "--wrap=exit 3"]
    job = subprocess.run(submission, capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "squeue").write_text("#!/bin/sh\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))
    watch, marker = watched(job)
    end = time.monotonic() + 60
    while not marker.exists() and time.monotonic() < end:
        watch.check()
        time.sleep(0.5)
    assert f"job {job} measure is over: FAILED" in capfd.readouterr().err


@pytest.mark.parametrize("options", [[], ["State=SpecialExit"]])
def test_a_job_that_slurm_holds_is_named_and_given_up_after_a_while(watched, capfd, options):
    submission = ["sbatch", "--parsable", "--output=/dev/null", COMMENT, "--wrap=sleep 600"]
    job = subprocess.run(submission, capture_output=True, text=True, check=True).stdout.strip()
    watch, marker = watched(job)
    end = time.monotonic() + 60
    while watch.states.get(job) != "RUNNING" and time.monotonic() < end:
        watch.check()
        time.sleep(0.2)
    subprocess.run(["scontrol", "requeuehold", *options, job], check=True)
    while not marker.exists() and time.monotonic() < end:
        watch.check()
        time.sleep(0.2)
    errors = capfd.readouterr().err
    assert errors.count(f"job {job} measure is held by Slurm: job requeued in held state; unless you scontrol") == 1
    assert f"job {job} measure is over: held by Slurm for" in errors
    assert marker.exists()
    squeue = ["squeue", "--jobs", job, "--states=all", "--noheader", "--format=%T"]
    assert subprocess.run(squeue, capture_output=True, text=True).stdout.split() in (["CANCELLED"], [])


def test_a_job_is_cancelled_whose_workflow_was_killed_while_it_was_submitted(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    (tmp_path / "job.sh").write_text('#!/bin/sh\n# properties = {"rule": "orphan"}\ntrue\n')
    command = [sys.executable, ROOT / "jobs/bin/sbatch", "--hold", "--job-name=orphan", "job.sh"]
    done = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
    found = ["squeue", "--me", "--states=all", "--name=orphan", "--noheader", "--format=%T"]
    states = subprocess.run(found, capture_output=True, text=True, check=True).stdout.split()
    assert states and set(states) == {"CANCELLED"}
