"""Program of a process that runs one kernel in native code; it imports the standard library only.

The process has no NumPy and thus no BLAS, no environment and no open file but two pipes and the shared memory. It may
write no file. With a filter of system calls it can start no process and reach none, and open no file once the kernel is
loaded. It runs as ``python -I -S native.py SETUP`` with a JSON object:

``requests``, ``replies``, ``memory``
    File descriptors.
``bytes``
    Size of the shared memory.
``library``
    File of the kernel.
``symbol``
    Function to call; ``"launch"`` is that of the host emulation of CUDA.
``address_space``
    Limit in bytes.
``filtered``
    Whether to install the filter; the process then runs no kernel without it.

Without ``SETUP`` it installs the filter only; the exit status is 0 if the system accepted it.

A request is a line of JSON: a list of calls, each ``{"arguments": [...]}``, and for a launch also ``grid``, ``block``,
``order``, ``dynamic_bytes`` and ``bounds``. An argument is ``["at", OFFSET]`` in the shared memory, or the code of a
type in ``TYPES`` and a value. The reply is a line with an error, or ``""``.
"""

import ctypes
import json
import mmap
import os
import resource
import signal
import sys

TYPES = {"i4": ctypes.c_int32, "i8": ctypes.c_int64, "u8": ctypes.c_uint64, "f4": ctypes.c_float, "f8": ctypes.c_double}
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CAPABILITIES = 0x20080522  # version 3 of the kernel's structure

# Machine: the architecture in a filter, and the numbers of system calls that start a process or reach one of this user;
# that do so unless their first argument is 0, this process; that start a thread; and that open a file.
SYSTEM_CALLS = {
    "x86_64": (
        0xC000003E,
        {"fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "kill": 62, "tkill": 200, "tgkill": 234}
        | {"rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "ptrace": 101, "process_vm_readv": 310}
        | {"process_vm_writev": 311, "setpriority": 141, "sched_setparam": 142, "sched_setscheduler": 144}
        | {"sched_setattr": 314, "ioprio_set": 251, "migrate_pages": 256, "move_pages": 279}
        | {"socket": 41, "pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_open": 434},
        {"prlimit64": 302, "sched_setaffinity": 203},
        {"clone": 56, "clone3": 435},
        {"open": 2, "creat": 85, "openat": 257, "openat2": 437, "open_by_handle_at": 304},
    ),
    "aarch64": (
        0xC00000B7,
        {"execve": 221, "execveat": 281, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138}
        | {"rt_tgsigqueueinfo": 240, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271}
        | {"setpriority": 140, "sched_setparam": 118, "sched_setscheduler": 119}
        | {"sched_setattr": 274, "ioprio_set": 30, "migrate_pages": 238, "move_pages": 239, "socket": 198}
        | {"pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_open": 434},
        {"prlimit64": 261, "sched_setaffinity": 122},
        {"clone": 220, "clone3": 435},
        {"openat": 56, "openat2": 437, "open_by_handle_at": 265},
    ),
}
OTHER_NUMBERS = 0x40000000  # x86-64 has a second set of system calls from here on
CLONE_THREAD, NO_SUCH_CALL, NO_ACCESS = 0x10000, 38, 13
PR_SET_SECCOMP, BY_FILTER = 22, 2
# of a filter: load a word of the call, compare it, return
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data
KILL, ERROR, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000


class Array(ctypes.Structure):  # this and Launch mirror the structures of cuda_on_host.h
    _fields_ = (("begin", ctypes.c_size_t), ("end", ctypes.c_size_t))


class Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("order", ctypes.c_int),
        ("seed", ctypes.c_int),
        ("checked", ctypes.c_int),
        ("arrays", ctypes.c_int),
        ("array", ctypes.POINTER(Array)),
        ("dynamic_bytes", ctypes.c_size_t),
    )


def die_with_parent() -> None:
    """Make Linux kill this process when the grader ends in any way: a stopped process would stay."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def confine(address_space: int) -> None:
    """Give up privileges, and limit memory; no file can be written, not even an empty one made longer."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.capset((ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)())  # root's too: no tracing of others
    for kind, limit in (("CORE", 0), ("FSIZE", 0), ("AS", address_space)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (limit, limit))


class Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("then", ctypes.c_uint8), ("else_", ctypes.c_uint8), ("k", ctypes.c_uint32))


class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(Instruction)))


def forbid(rules: list) -> None:
    """Add a filter of system calls; each rule is four numbers of an ``Instruction``.

    Raises
    ------
    OSError
        If the system does not accept it.
    """
    rules = [*rules, (RETURN, 0, 0, ALLOW)]
    code = (Instruction * len(rules))(*(Instruction(*rule) for rule in rules))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, BY_FILTER, ctypes.byref(Filter(len(rules), code)), 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def stay_alone(machine: str) -> None:
    """Start no process but threads, and reach no other one: no signal, no memory, no priority, no cores."""
    architecture, calls, of_zero, threads, _ = SYSTEM_CALLS[machine]
    rules = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    rules += [(AT_LEAST, 0, 1, OTHER_NUMBERS), (RETURN, 0, 0, KILL)]
    for number in calls.values():
        rules += [(EQUAL, 0, 1, number), (RETURN, 0, 0, KILL)]
    # a filter cannot read the flags of clone3; the C library then takes clone
    rules += [(EQUAL, 0, 1, threads["clone3"]), (RETURN, 0, 0, ERROR | NO_SUCH_CALL)]
    rules += [(EQUAL, 0, 4, threads["clone"]), (LOAD, 0, 0, FIRST_ARGUMENT), (ANY_BIT, 1, 0, CLONE_THREAD)]
    rules += [(RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)]
    for number in of_zero.values():
        rules += [(EQUAL, 0, 4, number), (LOAD, 0, 0, FIRST_ARGUMENT), (EQUAL, 1, 0, 0)]
        rules += [(RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)]
    forbid(rules)


def open_nothing(machine: str) -> None:
    """Open no file any more: no library, and nothing that this user may read."""
    rules = [(LOAD, 0, 0, NUMBER)]
    for number in SYSTEM_CALLS[machine][4].values():
        rules += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERROR | NO_ACCESS)]
    forbid(rules)


def call(function, base: int, each: dict) -> str:
    """Call the function once; return the error of a launch."""
    values = [
        ctypes.c_void_p(base + value) if kind == "at" else TYPES[kind](value) for kind, value in each["arguments"]
    ]
    if "grid" not in each:
        function(*values)
        return ""
    if (sizes := [ctypes.sizeof(value) for value in values]) != each["sizes"]:
        return f"parameters of {each['sizes']} bytes receive arguments of {sizes} bytes"
    bounds = [Array(base + begin, base + end) for begin, end in each["bounds"]]
    error = function(
        (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values)),
        ctypes.byref(
            Launch(
                *((ctypes.c_uint * 3)(*size, *(1,) * (3 - len(size))) for size in (each["grid"], each["block"])),
                *(each["order"], 1, True, len(bounds), (Array * len(bounds))(*bounds), each["dynamic_bytes"]),
            )
        ),
    )
    return error.decode(errors="replace") if error else ""


def accepts_filter() -> bool:
    """Return whether this machine has a filter, and the system accepted it for this process."""
    machine = os.uname().machine
    if machine not in SYSTEM_CALLS:
        return False
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        stay_alone(machine)
    except OSError:
        return False
    return True


def main() -> None:
    if len(sys.argv) == 1:
        sys.exit(0 if accepts_filter() else 1)
    setup = json.loads(sys.argv[1])
    shared = mmap.mmap(setup["memory"], setup["bytes"])
    base = ctypes.addressof(ctypes.c_char.from_buffer(shared))
    requests = os.fdopen(setup["requests"], "rb")
    die_with_parent()
    confine(setup["address_space"])
    machine = os.uname().machine
    if setup["filtered"]:
        stay_alone(machine)
    try:
        library = ctypes.CDLL(setup["library"])
        function = getattr(library, setup["symbol"])
    except (OSError, AttributeError) as error:
        os.write(setup["replies"], json.dumps(f"cannot be loaded: {error}").encode() + b"\n")
        signal.pause()  # until it is killed: an end would be another error
    sizes = []
    if setup["symbol"] == "launch":
        found = (ctypes.c_int * 64)()
        sizes = found[: library.parameter_sizes(found)]
    if setup["filtered"]:
        open_nothing(machine)
    function.restype = ctypes.c_char_p if setup["symbol"] == "launch" else None
    os.write(setup["replies"], b'""\n')
    for line in requests:
        error = ""
        for each in json.loads(line):
            error = error or call(function, base, each | {"sizes": sizes})
        os.write(setup["replies"], json.dumps(error).encode() + b"\n")


if __name__ == "__main__":
    main()
