"""Program of a process that runs one kernel in native code; it imports the standard library only.

The process has no NumPy and thus no BLAS, no environment and no open file but two pipes and the shared memory. It may
write no file. It runs as ``python -I -S native.py SETUP`` with a JSON object:

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
    """Be killed when the grader ends, however that happens: a stopped process would stay."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def confine(address_space: int) -> None:
    """Give up privileges, and limit memory; no file can be written, not even an empty one made longer."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.capset((ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)())  # root's too: no tracing of others
    for kind, limit in (("CORE", 0), ("FSIZE", 0), ("AS", address_space)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (limit, limit))


def call(function, base: int, each: dict) -> str:
    """Call the function once; return the error of a launch."""
    values = [
        ctypes.c_void_p(base + value) if kind == "at" else TYPES[kind](value) for kind, value in each["arguments"]
    ]
    if "grid" not in each:
        function(*values)
        return ""
    if (sizes := [ctypes.sizeof(value) for value in values]) != each["sizes"]:
        return f"parameters of {each['sizes']} bytes get arguments of {sizes}"
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


def main() -> None:
    setup = json.loads(sys.argv[1])
    shared = mmap.mmap(setup["memory"], setup["bytes"])
    base = ctypes.addressof(ctypes.c_char.from_buffer(shared))
    requests = os.fdopen(setup["requests"], "rb")
    die_with_parent()
    confine(setup["address_space"])
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
    function.restype = ctypes.c_char_p if setup["symbol"] == "launch" else None
    os.write(setup["replies"], b'""\n')
    for line in requests:
        error = ""
        for each in json.loads(line):
            error = error or call(function, base, each | {"sizes": sizes})
        os.write(setup["replies"], json.dumps(error).encode() + b"\n")


if __name__ == "__main__":
    main()
