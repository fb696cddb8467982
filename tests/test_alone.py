"""One measurement at a time on a machine, and nothing that another user can do to it."""

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import sys

import pytest

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
    """A machine for one test: the name of its lock, and processes that end with the test."""

    def __init__(self, stack: contextlib.ExitStack):
        self.stack, self.name = stack, f"test of hpcmm {os.getpid()} {id(self)}"

    def start(self, *command: str, seconds_for_others: int = 600) -> subprocess.Popen:
        return self.run([sys.executable, "-c", ALONE, self.name, str(seconds_for_others), *command])

    def hold(self, how: str, name: str = "") -> subprocess.Popen:
        holder = self.run([sys.executable, "-c", HOLDER, self.name + name, how, str(OTHER)])
        assert holder.stdout.readline() == "held\n"
        return holder

    def run(self, command: list[str]) -> subprocess.Popen:
        pipe = subprocess.PIPE
        process = self.stack.enter_context(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        self.stack.callback(process.kill)
        return process


@pytest.fixture
def machine():
    with contextlib.ExitStack() as stack:
        yield Machine(stack)


def said(process: subprocess.Popen) -> str:
    """The next line of a process on stderr."""
    return process.stderr.readline().rstrip("\n")


def test_the_second_measurement_reports_which_one_it_waits_for(machine):
    first = machine.start("sh", "-c", "echo began; exec sleep 600")
    assert first.stdout.readline() == "began\n"
    second = machine.start("sh", "-c", "echo began")
    assert said(second) == f"hpcmm: waiting for the measurement of PID {first.pid}"
    assert second.poll() is None
    first.kill()
    assert second.communicate(timeout=180) == ("began\n", "")
    assert second.returncode == 0


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
    script = 'echo + >>"$0"; sleep 0.2; echo - >>"$0"'
    for process in [machine.start("sh", "-c", script, log) for _ in range(4)]:
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
    assert said(waiting) == f"hpcmm: waiting for the measurement of PID {holder.pid} of {pwd.getpwuid(OTHER).pw_name}"
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
    who = f"PID {holder.pid} of {pwd.getpwuid(OTHER).pw_name}" if how == "listens" else "an unknown process"
    assert errors.splitlines() == [
        f"hpcmm: waiting for the measurement of {who}",
        f"hpcmm: warning: waited 2 s for {who}; measuring at the same time",
    ]


@as_root
def test_measurements_of_a_user_take_turns_beside_another_user_who_holds_the_lock_for_ever(machine):
    machine.hold("listens")
    first = machine.start("sh", "-c", "echo began; exec sleep 600", seconds_for_others=1)
    assert first.stdout.readline() == "began\n"
    second = machine.start("echo", "began", seconds_for_others=1)
    assert said(second) == f"hpcmm: waiting for the measurement of PID {first.pid}"
    first.kill()
    assert second.communicate(timeout=180)[0] == "began\n"


@as_root
def test_another_user_with_the_lock_of_this_one_delays_nothing(machine):
    machine.hold("listens", f" as user {os.getuid()}")
    assert machine.start("echo", "began").communicate(timeout=180) == ("began\n", "")


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
