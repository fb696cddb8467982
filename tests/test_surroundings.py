"""What measuring processes inherit: each record of the table, in the processes that are started."""

import dataclasses
import errno
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import yaml

from hpcmm.bench import provenance
from hpcmm.cli.checks import machine, mpi
from hpcmm.grading import session
from hpcmm.grading.sandbox import Sandbox
from hpcmm.jobs import trial
from hpcmm.parallel import world
from hpcmm.system import surroundings
from hpcmm.system.surroundings import CLEARED, CONDITIONS, DEFAULT, KEPT, OF_LAUNCH, SET, VARIABLES, WARNED

ROOT = Path(__file__).parents[1]
INHERITED = "inherited"
# Variables that libraries document, by what hpcmm does with them
DOCUMENTED = yaml.safe_load(Path(__file__).with_name("surroundings.yaml").read_text())
GROUPS = DOCUMENTED.pop("of control groups")
HARMLESS = DOCUMENTED.pop("of Python")  # they concern the text, the cache of modules or the end of a process only
KNOWN = {name: getattr(surroundings, action, "") for action, names in DOCUMENTED.items() for name in names}


def example(pattern: str) -> str:
    """A name that a pattern of the table matches, and that is in no documentation."""
    return pattern.replace("*", "_UNHEARD_OF_")


EACH = [(record, example(pattern)) for record in VARIABLES for pattern in record.names]
UNSTARTED = ("LD_", "PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONHASHSEED")  # with a wrong value no process starts
SHELL = {name: INHERITED for _, name in EACH} | {name: INHERITED for name in KNOWN} | {"PATH": os.environ["PATH"]}


def python(*arguments, **environment: str) -> subprocess.CompletedProcess:
    """Run Python with ``-c PROGRAM`` or another option, in an environment other than that of the tests."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment or None, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def test_the_first_record_that_matches_a_variable_is_its_own():
    applied = [(record, name) for record, name in EACH if record.applies(local=True)]
    assert [name for record, name in applied if surroundings.record_of(name) != record] == []
    for record in VARIABLES:
        assert record.why and record.part and bool(record.value) == (record.action in (SET, DEFAULT))


def test_variables_of_the_documentation_of_libraries():
    records = {name: surroundings.record_of(name) for name in KNOWN}
    assert {name: record.action if record else "" for name, record in records.items()} == KNOWN
    assert surroundings.record_of("HYDRA_LAUNCHER", local=False).action == surroundings.RECORDED


def test_each_variable_that_python_documents_has_a_record_or_changes_nothing():
    names = set(re.findall(r"^(PYTHON\w+)", python("--help-env").stdout, re.M))
    assert len(names) > 20
    assert {name for name in names if not surroundings.record_of(name)} <= {*HARMLESS}
    assert not any(map(surroundings.record_of, HARMLESS))


@pytest.fixture(scope="module")
def started() -> dict:
    """The environment of a process that is started for a measurement, from a shell with each variable of the table."""
    shell = {name: value for name, value in SHELL.items() if not name.startswith(UNSTARTED)}
    with mock.patch.dict(os.environ, shell, clear=True):
        program = "import json, os, sys; print(json.dumps([dict(os.environ), sys.stdin.read()]))"
        with trial.start([sys.executable, "-c", program]) as process:
            environment, typed = json.loads(process.communicate()[0])
    assert typed == ""
    return environment


def test_a_measuring_process_starts_with_what_the_table_says(started):
    remembered = json.loads(started[surroundings.RECORD])
    for _, name in EACH:
        applied = surroundings.record_of(name)  # another one if a record applies to root only, for example
        expected = {SET: applied.value, CLEARED: None, OF_LAUNCH: None}.get(applied.action, INHERITED)
        assert name.startswith(UNSTARTED) or started.get(name) == expected, name
        changed = applied.action in (SET, CLEARED, WARNED) and not name.startswith(UNSTARTED)
        assert (name in remembered) == changed, name


def test_defaults_are_set_where_nothing_is_inherited():
    found = surroundings.measuring({})
    for record in VARIABLES:
        if record.action in (SET, DEFAULT) and record.applies(True):
            assert all(found.pop(name) == record.value for name in record.names)
    assert found == {}


def test_a_process_of_a_launcher_keeps_what_the_launcher_gave_it():
    inherited = {name: INHERITED for _, name in EACH}
    ranks, nested = (surroundings.measuring(inherited, launched=launched) for launched in (True, False))
    assert set(ranks) - set(nested) == {name for _, name in EACH if surroundings.record_of(name).action == OF_LAUNCH}
    with socket.socket() as connected:
        inherited["PMI_FD"] = str(connected.fileno())
        assert surroundings.measuring(inherited, launched=True).keys() >= ranks.keys() | {"PMI_FD"}
    found = surroundings.measuring(inherited, launched=True)  # as in a shell that a rank has left behind
    lost = ranks.keys() - found.keys()
    assert {"PMI__UNHEARD_OF_", "HYDI__UNHEARD_OF_"} <= lost <= surroundings.remembered(found).keys()
    assert not any(name.startswith("SLURM") for name in lost)


@pytest.mark.parametrize("name", {id(record): name for record, name in EACH}.values())
def test_the_provenance_and_doctor_name_what_is_inherited(name):
    others = {name: value for name, value in os.environ.items() if not surroundings.record_of(name)}
    others.pop(surroundings.RECORD, None)
    applied = surroundings.record_of(name)
    with mock.patch.dict(os.environ, others | {name: INHERITED}, clear=True):
        new = surroundings.enter(local=True)
        found = surroundings.describe()
        lines = [check for check in machine.check_surroundings() if name in check.found]
    changed = applied.action in (SET, CLEARED, WARNED)
    assert new == found["inherited"] == ({name: INHERITED} if changed else {})
    now = {SET: applied.value, CLEARED: None, OF_LAUNCH: None, KEPT: None}.get(applied.action, INHERITED)
    assert found["variables"].get(name) == now
    if applied.action == KEPT:  # it may be a secret
        assert not lines
        return
    (line,) = lines
    assert line.state == ("warning" if applied.action == WARNED else "ok")
    assert line.found.endswith(f": {applied.done}") and line.advice == applied.why


@pytest.mark.parametrize("condition", CONDITIONS, ids=[each.title for each in CONDITIONS])
def test_a_limit_is_in_the_provenance_and_in_doctor(monkeypatch, condition):
    other = dataclasses.replace(condition, look=lambda: "found")
    monkeypatch.setattr(surroundings, "CONDITIONS", (other,))
    assert surroundings.describe()["limits"] == {condition.title: "found"}
    (line,) = [check for check in machine.check_surroundings() if check.name == condition.title]
    assert (line.found, line.advice) == (f"found: {condition.done}", condition.why)


def test_what_is_not_passed_on_is_said_once(capsys, monkeypatch):
    inherited = {"NVIDIA_TF32_OVERRIDE": "1", "OMP_PLACES": "cores", "OPENBLAS_CORETYPE": "x"}
    monkeypatch.setenv(surroundings.RECORD, json.dumps(inherited))
    surroundings.say()
    first, second = capsys.readouterr().err.splitlines()
    cleared = "NVIDIA_TF32_OVERRIDE=1, OMP_PLACES=cores"
    assert first == f"hpcmm: not passed on to measurements: {cleared}; hpcmm doctor says why"
    assert second.startswith("hpcmm: warning: OPENBLAS_CORETYPE=x: selects the kernels of the baseline")
    program = "from hpcmm.system import surroundings; surroundings.say(surroundings.enter())"
    environment = surroundings.measuring(os.environ | {"NVIDIA_TF32_OVERRIDE": "1"})
    assert python("-c", program, **environment).stderr == ""
    environment["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"  # as a module of a site sets it in the job
    said = python("-c", program, **environment).stderr
    assert "not passed on to measurements: CUBLAS_WORKSPACE_CONFIG=:16:8;" in said


def test_grading_processes_start_in_the_same_surroundings(monkeypatch):
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    monkeypatch.setenv("CUBLAS_EMULATE_DOUBLE_PRECISION", "1")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setattr(session, "Session", lambda start, *_: start[1])
    for isolation in (Sandbox("bwrap"), Sandbox("")):
        native = session.native(isolation, Path("x.so"), {"symbol": "x"}, 4096, (1, 1 << 30), 2)
        device = session.device(isolation, {}, 4096, 1)
        for environment in (native, device):
            assert surroundings.settings("threads").items() <= environment.items()
            assert "CUBLAS_EMULATE_DOUBLE_PRECISION" not in environment
        assert native["OMP_NUM_THREADS"] == native["OPENBLAS_NUM_THREADS"] == "2"
        assert {"SECRET_TOKEN", "PATH"}.isdisjoint(native)
        assert ("SECRET_TOKEN" in device) is not bool(isolation.program)


def test_a_file_has_what_its_jobs_inherited(monkeypatch, tmp_path):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    sweep = {"operation": "matmul", "variants": ["openmp"], "sizes": [16], "dtypes": ["float32"]}
    config = {"backends": "cpu", "measuring": {"visits": 1}, "sweeps": {"one": sweep}}
    said: list[str] = []
    columns = trial.measure(config, alone=False, show=said.append)
    (found,) = (json.loads(each) for each in columns["runs"]["provenance"])
    assert found["surroundings"]["inherited"] == {"NVIDIA_TF32_OVERRIDE": "1", "OMP_PROC_BIND": "true"}
    assert "NVIDIA_TF32_OVERRIDE" not in found["surroundings"]["variables"]
    assert found["cpu"]["threads_per_rank"] == surroundings.cpus()
    assert not [line for line in said if "not passed on" in line], "the process that starts the jobs says it"


PLACES = """
import json, os, sys
from hpcmm.system import surroundings
if sys.argv[1] == "enter":
    surroundings.enter()
from hpcmm.backends.cpu.device import CpuBackend
CpuBackend(threads=2)
import threading
found = []
thread = threading.Thread(target=lambda: found.append(len(os.sched_getaffinity(0))))
thread.start()
thread.join()
print(json.dumps([len(os.sched_getaffinity(0)), *found]))
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize(
    "shell", [{"OMP_PROC_BIND": "true"}, {"OMP_PLACES": "cores"}, {"GOMP_CPU_AFFINITY": "0"}], ids=str
)
def test_threads_of_kernels_and_of_the_library_may_use_the_same_cpus(shell):
    """The placements of OpenMP bind the main thread when the kernels are loaded, and later threads inherit its CPU."""
    every = len(os.sched_getaffinity(0))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))} | shell
    entered, plain = (json.loads(python("-c", PLACES, how, **inherited).stdout) for how in ("enter", "not"))
    assert entered == [every, every]
    assert plain == [1, 1], "OpenMP binds no thread here, so the test shows nothing"


def test_the_library_gets_as_many_threads_as_the_kernels_whatever_the_shell_says():
    program = "from hpcmm.system import surroundings; surroundings.enter(); "
    program += "from hpcmm.backends.cpu.device import CpuBackend; "
    program += "from hpcmm.backends.cpu import libraries; CpuBackend(threads=2); "
    program += "print({each['num_threads'] for each in libraries.blas_libraries()})"
    for given in ("1", "64"):
        shell = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "GOTO_NUM_THREADS"), given)
        assert python("-c", program, **shell).stdout == "{2}\n"


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def system(tmp_path, monkeypatch):
    """``system(files)``: the files of the kernel."""

    def install(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        monkeypatch.setattr(surroundings, "ROOT", tmp_path)

    return install


@pytest.mark.parametrize("files", GROUPS.values(), ids=GROUPS)
def test_the_quota_of_any_group_above_limits_threads_and_is_counted(system, monkeypatch, files):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert surroundings.cpus() == 8 or surroundings.quota()
    system(files)
    assert surroundings.quota().cpus == 1.5 and surroundings.cpus() == 1
    assert provenance.read(provenance.COUNTERS)["cpu_quota"] == {"periods": 236, "throttled": 10, "seconds": 0.25}
    assert surroundings.describe()["limits"]["CPU quota"] == "1.5 of 8 CPUs"
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    assert world.threads_per_rank(world.MPI.COMM_SELF) == 1


def test_stopped_periods_are_those_between_two_readings():
    before, after = ({"cpu_quota": {"throttled": each, "periods": 10 * each}} for each in (3, 5))
    assert provenance.throttled(before, after) == (2, 20)
    assert provenance.throttled({}, {}) == (0, 0)


@pytest.mark.parametrize(
    "files", [{}, {"proc/self/cgroup": "0::/\n"}, GROUPS["version 2"] | {"sys/fs/cgroup/box/cpu.max": "max 100000\n"}]
)
def test_without_a_quota_there_is_nothing_to_say(system, monkeypatch, files):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(os.cpu_count())))
    system(files)
    assert surroundings.quota() is None and surroundings.cpus() == os.cpu_count()
    assert surroundings.throttling() == {}
    assert surroundings.describe()["limits"].keys().isdisjoint(("CPU quota", "CPU affinity"))


def test_an_affinity_narrower_than_the_machine_is_recorded(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert surroundings.describe()["limits"]["CPU affinity"] == "1 of 4 CPUs"


INHERITS = """
import ctypes, json, os, sys
from hpcmm.system import surroundings
os.nice(5)
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
interleave, first = 3, ctypes.byref(ctypes.c_ulong(1))
refused = ctypes.CDLL(None).syscall(int(sys.argv[1]), interleave, first, 65)
print(json.dumps([refused, surroundings.describe()["limits"]]))
"""
SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}


@pytest.mark.skipif(os.uname().machine not in SET_MEMPOLICY, reason="the number of the system call is not known")
def test_priority_and_memory_policy_are_recorded():
    refused, limits = json.loads(python("-c", INHERITS, SET_MEMPOLICY[os.uname().machine]).stdout)
    assert limits["CPU priority"] == f"SCHED_BATCH, nice {os.getpriority(os.PRIO_PROCESS, 0) + 5}"
    assert refused or limits["memory policy"] == "interleave:0"


SYSTEM_CALL = {"x86_64": 310, "aarch64": 270}  # of process_vm_readv
FORBID = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
# load the number of the call; if it is process_vm_readv, return EPERM, else allow it
program = b"".join(struct.pack("HBBI", *each) for each in
    ((0x20, 0, 0, 0), (0x15, 0, 1, {call}), (0x06, 0, 0, 0x50000 | {error}), (0x06, 0, 0, 0x7FFF0000)))
buffer = ctypes.create_string_buffer(program, len(program))
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
EXCHANGE = """
from hpcmm.system import surroundings
surroundings.enter()
import numpy as np
from hpcmm.parallel import world
comm = world.world()
mine, other = np.full(1 << 20, comm.rank), np.empty(1 << 20, int)
comm.Sendrecv(mine, 1 - comm.rank, recvbuf=other, source=1 - comm.rank)
assert (other == 1 - comm.rank).all()
"""


@pytest.mark.skipif(os.uname().machine not in SYSTEM_CALL, reason="the number of the system call is unknown here")
def test_mpi_works_where_process_vm_readv_is_forbidden(tmp_path):
    """As in containers with a filter of system calls."""
    program = tmp_path / "exchange.py"
    program.write_text(EXCHANGE)
    forbid = FORBID.format(call=SYSTEM_CALL[os.uname().machine], error=errno.EPERM)
    python("-c", forbid, mpi.find_launcher(), "-n", "2", sys.executable, "-m", "mpi4py", program)
    look = "from hpcmm.system import surroundings; print(surroundings.describe()['limits']['process_vm_readv'])"
    assert python("-c", forbid, sys.executable, "-c", look).stdout == "forbidden\n"


def test_jobs_of_the_workflow_read_nothing_from_the_terminal():
    done = subprocess.run([ROOT / "jobs" / "with_modules", "cat"], input="typed", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
