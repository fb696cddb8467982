"""Program of a process that runs one submitted kernel; the standard library, and NumPy for a kernel in Python.

It runs isolated by bubblewrap, as ``python -I -S native.py SETUP`` with a JSON object: the descriptors ``requests``,
``replies`` and ``memory``, the size of the memory in ``bytes``, the file ``library`` of the kernel, a module of native
code or a Python file, the function ``symbol`` to call, a limit ``address_space`` in bytes, and

``runtime``
    Module of the host emulation of CUDA; for a Python file whose function each of several MPI ranks calls,
    ``ranks.py``; empty for other functions of the CPU.
``harness``, ``place``, ``sizes``, ``passing``
    In the emulation, how to launch the symbol: see ``hpcmm.backends.emulated.launch.Entry``, and the file of the
    function ``passed``.
``packages``
    Folder of NumPy, for a Python file.

Without ``SETUP`` it installs the filter of system calls only; the exit status is 0 if the system accepted it.

A request is a line of JSON: a list of calls, each ``{"arguments": [...]}``, and for a launch also ``grid``, ``block``,
``order``, ``counted``, ``dynamic_bytes`` and ``bounds``. An argument is ``["at", OFFSET]`` in the shared memory, or the
code of a type in ``TYPES`` and a value. For a Python file, ``arguments`` is an object of numbers and of arrays,
``[OFFSET, SHAPE, STRIDES, DTYPE]``, and ``ranks`` is the number of MPI ranks. The reply is a line with an error, or
``""``. The request ``["counts"]`` has the counts of the last call as its reply.
"""

import ctypes
import json
import mmap
import os
import resource
import signal
import sys

TYPES = {"i4": ctypes.c_int32, "i8": ctypes.c_int64, "u8": ctypes.c_uint64, "f4": ctypes.c_float, "f8": ctypes.c_double}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, BY_FILTER = 38, 22, 2

# Isolation leaves this process alone in its namespaces. The filter keeps it alone: it has no second process that could
# compute while this one is stopped, no memory or keys that outlive it, no queue of the kernel, and no socket: some
# kinds are in no namespace. Machine: its number in a filter, and those of the calls
# that end the process: fork, vfork, execve, execveat, ptrace, process_vm_readv, process_vm_writev, pidfd_getfd;
# that fail: shmget, msgget, socket, io_setup, io_uring_setup, add_key, request_key, keyctl;
# that start a thread: clone, clone3.
SYSTEM_CALLS = {
    "x86_64": (0xC000003E, (57, 58, 59, 322, 101, 310, 311, 438), (29, 68, 41, 206, 425, 248, 249, 250), (56, 435)),
    "aarch64": (0xC00000B7, (221, 281, 117, 270, 271, 438), (194, 186, 198, 0, 425, 217, 218, 219), (220, 435)),
}
OTHER_NUMBERS = 0x40000000  # x86-64 has a second set of system calls from here on
CLONE_THREAD, NOT_PERMITTED, NO_SUCH_CALL = 0x10000, 1, 38
# of a filter: load a word of the call, compare it, return
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data
KILL, ERROR, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000


class Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("then", ctypes.c_uint8), ("else_", ctypes.c_uint8), ("k", ctypes.c_uint32))


class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(Instruction)))


def stay_alone() -> None:
    """Start no process but threads, and reach none; raise OSError where system calls cannot be filtered."""
    if os.uname().machine not in SYSTEM_CALLS:
        raise OSError(f"no table of system calls for {os.uname().machine}")
    architecture, ending, failing, (clone, clone3) = SYSTEM_CALLS[os.uname().machine]
    rules = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    rules += [(AT_LEAST, 0, 1, OTHER_NUMBERS), (RETURN, 0, 0, KILL)]
    for number in ending:
        rules += [(EQUAL, 0, 1, number), (RETURN, 0, 0, KILL)]
    for number in failing:
        rules += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERROR | NOT_PERMITTED)]
    # a filter cannot read the flags of clone3; the C library then takes clone
    rules += [(EQUAL, 0, 1, clone3), (RETURN, 0, 0, ERROR | NO_SUCH_CALL)]
    rules += [(EQUAL, 0, 3, clone), (LOAD, 0, 0, FIRST_ARGUMENT), (ANY_BIT, 1, 0, CLONE_THREAD)]
    rules += [(RETURN, 0, 0, KILL), (RETURN, 0, 0, ALLOW)]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    code = (Instruction * len(rules))(*(Instruction(*rule) for rule in rules))
    if libc.prctl(PR_SET_SECCOMP, BY_FILTER, ctypes.byref(Filter(len(rules), code)), 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Function:
    def __init__(self, setup: dict, base: int):
        self.base = base
        self.module = ctypes.CDLL(setup["library"])
        self.function = self.module[setup["symbol"]]
        self.function.restype = None

    def values(self, call: dict) -> list:
        return [
            ctypes.c_void_p(self.base + value) if kind == "at" else TYPES[kind](value)
            for kind, value in call["arguments"]
        ]

    def __call__(self, call: dict) -> str:
        self.function(*self.values(call))
        return ""


class Kernel(Function):
    """A launch of a kernel in the host emulation of CUDA, by libraries that the kernel's own cannot change."""

    def __init__(self, setup: dict, base: int):
        runtime, harness = ctypes.CDLL(setup["runtime"], ctypes.RTLD_GLOBAL), ctypes.CDLL(setup["harness"])
        self.base, self.place, self.sizes = base, setup["place"], setup["sizes"]
        self.passed = loaded(setup["passing"]).passed
        self.function, self.counts = harness.launch, runtime.cuda_counts
        self.function.restype = self.counts.restype = ctypes.c_char_p
        self.module = ctypes.CDLL(setup["library"])  # last: the others find no function in it

    def __call__(self, call: dict) -> str:
        if call == "counts":
            return self.counts().decode()
        values = self.values(call)
        if (sizes := [ctypes.sizeof(value) for value in values]) != self.sizes:
            return f"parameters of {self.sizes} bytes receive arguments of {sizes} bytes"
        return self.passed(
            (self.function, self.module, self.place),
            [ctypes.addressof(value) for value in values],
            (call["grid"], call["block"]),
            (call["order"], True, call["counted"]),
            [(self.base + begin, self.base + end) for begin, end in call["bounds"]],
            call["dynamic_bytes"],
        )


class PythonFunction:
    """A function of a Python file, which gets NumPy arrays."""

    def __init__(self, setup: dict, memory: mmap.mmap):
        sys.path.append(setup["packages"])
        import numpy as np

        self.memory, self.array, self.ranks, self.sent = memory, np.ndarray, None, 0
        if setup["runtime"]:
            self.ranks = loaded(setup["runtime"])
            self.ranks.install()
        self.function = getattr(loaded(setup["library"]), setup["symbol"])

    def __call__(self, call: dict) -> str:
        if call == "counts":
            return json.dumps({"sent": self.sent})
        arrays = {
            name: self.array(value[1], value[3], self.memory, value[0], value[2]) if isinstance(value, list) else value
            for name, value in call["arguments"].items()
        }
        if not self.ranks:
            self.function(stream=None, **arrays)
            return ""
        others = {name: None if isinstance(value, self.array) else value for name, value in arrays.items()}
        error, self.sent = self.ranks.run(self.function, call["ranks"], arrays, others)
        return error


def loaded(path: str):
    import importlib.util

    name = "hpcmm_" + path.rpartition("/")[2].partition(".")[0]  # no name of a module that it imports
    found = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(found)  # where data classes look for it
    found.loader.exec_module(module)
    return module


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


def main() -> None:
    if len(sys.argv) == 1:
        stay_alone()
        return
    setup = json.loads(sys.argv[1])
    limits = {"CORE": 0, "FSIZE": 0, "MSGQUEUE": 0, "NOFILE": 64, "AS": setup["address_space"]}
    for kind, limit in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (limit, limit))
    stay_alone()

    def load(memory: mmap.mmap):
        if setup["library"].endswith(".py"):
            return PythonFunction(setup, memory)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return (Kernel if setup["runtime"] else Function)(setup, base)

    serve(setup, load)


def serve(setup: dict, load) -> None:
    """Answer requests by what ``load(memory)`` returns: a function of a call that returns an error or a result."""
    memory = mmap.mmap(setup["memory"], setup["bytes"])
    requests = os.fdopen(setup["requests"], "rb")

    def reply(text: str) -> None:
        os.write(setup["replies"], json.dumps(text).encode() + b"\n")

    try:
        call = load(memory)
    except BaseException as error:
        reply(f"cannot be loaded: {described(error)}")
        signal.pause()  # until it is killed: an end would be another error
    reply("")
    for line in requests:
        answer = ""
        for each in json.loads(line):
            try:
                answer = answer or call(each)
            except Exception as raised:
                answer = f"raised {described(raised)}"
        reply(answer)


if __name__ == "__main__":
    main()
