"""One measurement at a time on a machine, and nothing that another user can do to it."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcmm.cluster import alone

OTHER = 65534  # nobody, on Debian and most others
# Runs a command alone, under a name of the machine's lock that is the test's own.
ALONE = """
import sys
from hpcmm.cluster import alone
alone.NAME, alone.SECONDS_FOR_OTHERS = "\\0" + sys.argv[1], int(sys.argv[2])
sys.exit(alone.main(sys.argv[3:]))
"""
# Holds that name as another user, listening or not.
HOLDER = """
import os, socket, sys, time
os.setuid(int(sys.argv[3]))
lock = socket.socket(socket.AF_UNIX)
lock.bind("\\0" + sys.argv[1])
if sys.argv[2] == "listens":
    lock.listen(8)
print("held", flush=True)
time.sleep(600)
"""
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")


class Machine:
    """A machine for one test: its temporary folder, the name of its lock, and processes that end with the test."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack):
        self.folder, self.stack, self.name = folder, stack, f"test of hpcmm {os.getpid()} {folder}"
        folder.chmod(0o1777)

    def start(self, *command: str, seconds_for_others: int = 600, **environment: str) -> subprocess.Popen:
        inherited = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
        return self.run(
            [sys.executable, "-c", ALONE, self.name, str(seconds_for_others), *command],
            env=inherited | {"TMPDIR": str(self.folder)} | environment,
        )

    def hold(self, how: str) -> subprocess.Popen:
        holder = self.run([sys.executable, "-c", HOLDER, self.name, how, str(OTHER)])
        assert holder.stdout.readline() == "held\n"
        return holder

    def run(self, command: list[str], **more) -> subprocess.Popen:
        pipe = subprocess.PIPE
        process = self.stack.enter_context(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **more))
        self.stack.callback(process.kill)
        return process


@pytest.fixture
def machine(tmp_path):
    with contextlib.ExitStack() as stack:
        yield Machine(tmp_path, stack)


def said(process: subprocess.Popen) -> str:
    """The next line of a process on stderr."""
    return process.stderr.readline().rstrip("\n")


@pytest.mark.parametrize("runtime", [False, True])
def test_the_second_measurement_reports_which_one_it_waits_for(machine, runtime, tmp_path):
    """Also where only one of them knows XDG_RUNTIME_DIR, as in a terminal and from cron."""
    (tmp_path / "runtime").mkdir(mode=0o700)
    first = machine.start("sh", "-c", "echo began; exec sleep 600")
    assert first.stdout.readline() == "began\n"
    environment = {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")} if runtime else {}
    second = machine.start("sh", "-c", "echo began", **environment)
    assert said(second) == f"hpcmm: waiting for the measurement of PID {first.pid}"
    assert second.poll() is None
    first.kill()
    assert second.communicate(timeout=180) == ("began\n", "")
    assert second.returncode == 0


def test_a_holder_that_has_not_written_its_pid_yet_is_not_named(machine):
    folder = machine.folder / f"hpcmm-{os.getuid()}"
    folder.mkdir(mode=0o700)
    with (folder / "hpcmm.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second = machine.start("echo", "began")
        time.sleep(1 + 2 * alone.SECONDS_BETWEEN_TRIES)
        file.write("7")
        file.flush()
        assert said(second) == "hpcmm: waiting for the measurement of PID 7"
    assert second.communicate(timeout=180)[0] == "began\n"


def test_the_lock_lasts_as_long_as_any_process_of_the_measurement(machine):
    first = machine.start("sh", "-c", "sleep 600 & echo $!; wait")
    child = int(first.stdout.readline())
    first.kill()
    first.wait()
    second = machine.start("echo", "began")
    assert said(second).startswith("hpcmm: waiting for the measurement of PID ")
    os.kill(child, signal.SIGKILL)
    assert second.communicate(timeout=180)[0] == "began\n"


def test_measurements_never_overlap(machine, tmp_path):
    log = tmp_path / "log"
    script = f"echo + >>{log}; sleep 0.2; echo - >>{log}"
    for process in [machine.start("sh", "-c", script) for _ in range(4)]:
        assert process.wait(timeout=180) == 0
    assert log.read_text().split() == ["+", "-"] * 4


def test_the_exit_status_is_passed_on(machine):
    assert machine.start("sh", "-c", "exit 7").wait(timeout=180) == 7
    missing = machine.start("/nowhere/program")
    assert missing.communicate(timeout=180)[1] == "hpcmm: error: /nowhere/program: No such file or directory\n"
    assert missing.returncode == 1


@as_root
def test_users_of_a_machine_take_turns(machine):
    holder = machine.hold("listens")
    waiting = machine.start("echo", "began")
    assert said(waiting) == f"hpcmm: waiting for the measurement of PID {holder.pid} of {alone.user(OTHER)}"
    assert waiting.poll() is None
    holder.kill()
    assert waiting.communicate(timeout=180)[0] == "began\n"


@as_root
@pytest.mark.parametrize("how", ["listens", "is silent"])
def test_another_user_can_delay_a_measurement_but_not_prevent_it(machine, how):
    holder = machine.hold(how)
    done = machine.start("echo", "began", seconds_for_others=2)
    output, errors = done.communicate(timeout=180)
    assert (done.returncode, output) == (0, "began\n")
    who = f"PID {holder.pid} of {alone.user(OTHER)}" if how == "listens" else "an unknown process"
    assert errors.splitlines() == [
        f"hpcmm: waiting for the measurement of {who}",
        f"hpcmm: warning: waited 2 s for {who}; measuring at the same time",
    ]


def test_many_connections_to_the_socket_delay_no_measurement(machine):
    """They fill the queue of its socket."""
    first = machine.start("sh", "-c", "echo began; exec sleep 600")
    first.stdout.readline()
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            asking = stack.enter_context(socket.socket(socket.AF_UNIX))
            asking.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                asking.connect("\0" + machine.name)
        second = machine.start("echo", "began")
        assert said(second) == f"hpcmm: waiting for the measurement of PID {first.pid}"
        first.kill()
        assert second.communicate(timeout=180)[0] == "began\n"


# What somebody may have put where the folder should be: -> what is reported
def a_link(folder: Path) -> str:
    folder.symlink_to("/etc")
    return "not a folder"


def a_fifo(folder: Path) -> str:
    os.mkfifo(folder)
    return "not a folder"


def an_open_folder(folder: Path) -> str:
    folder.mkdir()
    folder.chmod(0o777)
    return "others may write to it"


def a_folder_of_another_user(folder: Path) -> str:
    folder.mkdir()
    os.chown(folder, OTHER, OTHER)
    return f"belongs to {alone.user(OTHER)}"


@pytest.mark.parametrize("put", [a_link, a_fifo, an_open_folder, pytest.param(a_folder_of_another_user, marks=as_root)])
def test_a_folder_of_another_user_is_refused_at_once(machine, put):
    folder = machine.folder / f"hpcmm-{os.getuid()}"
    reason = put(folder)
    done = machine.start("echo", "began")
    output, errors = done.communicate(timeout=180)
    assert (done.returncode, output) == (1, "")
    advice = "remove it, or set TMPDIR to a folder on this machine that only you can write to"
    assert errors == f"hpcmm: error: {folder}: {reason}; {advice}\n"


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_a_regular_file_of_the_user_is_opened(machine, kind, tmp_path):
    folder = machine.folder / f"hpcmm-{os.getuid()}"
    folder.mkdir(mode=0o700)
    lock, target = folder / "hpcmm.lock", tmp_path / "target"
    {"link": lambda: lock.symlink_to(target), "fifo": lambda: os.mkfifo(lock), "folder": lock.mkdir}[kind]()
    done = machine.start("echo", "began")
    output, errors = done.communicate(timeout=180)
    assert (done.returncode, output) == (1, "")
    assert errors.startswith("hpcmm: error: ") and str(lock) in errors and errors.count("\n") == 1
    assert not target.exists()


def test_a_runtime_folder_of_another_user_is_not_used(machine, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert machine.start("true", XDG_RUNTIME_DIR=str(shared)).wait(timeout=180) == 0
    assert list(shared.iterdir()) == []
    assert (machine.folder / f"hpcmm-{os.getuid()}").stat().st_mode & 0o777 == 0o700
