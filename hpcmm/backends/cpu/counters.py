"""Counters of the CPU, by ``perf_event_open`` of Linux: see its manual page."""

import ctypes
import errno
import fcntl
import os
import platform
import struct
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from hpcmm.model import DeviceError

SYSTEM_CALL = {"x86_64": 298, "aarch64": 241, "ppc64le": 319, "s390x": 331, "riscv64": 241}
ATTRIBUTE = struct.Struct("=IIQQQQQ")  # the first fields of perf_event_attr: type, size, config, ..., flags
ATTRIBUTE_BYTES = 64  # of its first version
DISABLED, INHERITED, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
TIMES = 0b11  # of the format of a value: the time for which the event was enabled, and the time for which it counted
ENABLE, DISABLE = 0x2400, 0x2401
# Type and number of each event: hardware 0, caches of the hardware 3 (data of L1, reads, misses)
EVENTS = {"cpu_instructions": (0, 1), "cpu_l1_misses": (3, 1 << 16), "cpu_cache_misses": (0, 3)}
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


def counted(run: Callable[[], Any], events: Mapping[str, tuple[int, int]] = EVENTS) -> dict[str, float]:
    """Count events in user code of all threads of this process, and of threads that begin, during a run."""
    threads = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    with ExitStack() as stack:
        files: dict[str, list[int]] = {name: [] for name in events}
        for name, event in events.items():
            for thread in threads:
                with suppress(ProcessLookupError):  # the thread has ended since
                    files[name].append(_opened(event, thread))
                    stack.callback(os.close, files[name][-1])
        every = [number for numbers in files.values() for number in numbers]
        for number in every:
            fcntl.ioctl(number, ENABLE, 0)
        run()
        for number in every:
            fcntl.ioctl(number, DISABLE, 0)
        return {name: sum(map(_value, numbers)) for name, numbers in files.items()}


def why_unreadable() -> str:
    """Return why events cannot be counted here; empty if they can."""
    try:
        counted(lambda: None)
    except DeviceError as error:
        return str(error)
    return ""


def _opened(event: tuple[int, int], thread: int) -> int:
    """Return the file of an event of one thread, which is disabled at first."""
    flags = DISABLED | INHERITED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR
    fields = ATTRIBUTE.pack(event[0], ATTRIBUTE_BYTES, event[1], 0, 0, TIMES, flags)
    call = ctypes.CDLL(None, use_errno=True).syscall
    number = SYSTEM_CALL.get(platform.machine(), -1)
    attribute = ctypes.create_string_buffer(fields, ATTRIBUTE_BYTES)
    file = call(ctypes.c_long(number), attribute, *map(ctypes.c_int, (thread, -1, -1)), ctypes.c_ulong(0))
    if file < 0 and ctypes.get_errno() == errno.ESRCH:
        raise ProcessLookupError(thread)
    if file < 0:
        raise DeviceError(f"no counters of the CPU: {_reason(ctypes.get_errno())}")
    return file


def _value(number: int) -> float:
    """Return a count; if the event shared its counter with others, the part that was counted is extrapolated."""
    value, enabled, running = struct.unpack("=QQQ", os.read(number, 24))
    return value * enabled / running if running else float(value)


def _reason(number: int) -> str:
    if number in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "this machine shows none, as many virtual machines do"
    if number in (errno.EACCES, errno.EPERM):
        level = PARANOID.read_text().strip() if PARANOID.exists() else "unknown"
        return f"this user may not read them; kernel.perf_event_paranoid is {level}, and 2 is enough"
    return f"perf_event_open: {os.strerror(number)}"
