"""Trials of a kernel on the host, each in a process of its own, which the kernel may crash."""

from __future__ import annotations

import faulthandler
import math
import os
import pickle
import re
import resource
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil

from hpcmm.backends.emulated.launch import KernelError
from hpcmm.experiment.parsed import TILE

SECONDS, MOST_SECONDS = 20, 60  # limits of a trial, and of all
LATE = "it took longer than"
ELAPSED = 5  # times its limit of processor time that a trial may take
IDLE, SHARE = 5, 0.005  # seconds, and the share of them as processor time below which a trial is ended
LEAST = (1, 2, 4, 8, 16, 32, 64, 128, 256, 3, 5, 6, 10, 12, 20, 24, 40, 60, 120)  # divisors of sizes to try
UNUSED = 0x3F  # the bytes around arrays of trials; as a number of any type, neither 0 nor NaN
REACH = 1 << 16  # of these bytes, so many on either side: each page of a child process costs time


def seconds_used() -> float:
    """Return the processor time of this process and its children, which does not depend on other programs."""
    return sum(os.times()[:4])


def guarded(function: Callable[[], Any], seconds: float) -> Any:
    """Return the result of a function that runs in a child process; a string says why there is none.

    A kernel that writes out of bounds may overwrite a lock, for which the process then waits. That is no endless loop.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            faulthandler.disable()  # a crash is a result here
            os.environ["OMP_THREAD_LIMIT"] = "1"  # races are searched later
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
            devnull = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(devnull, stream)
            content = []

            def call() -> None:
                try:
                    content.append(pickle.dumps(function()))
                except KernelError as error:
                    content.append(pickle.dumps(str(error)))

            # a thread of its own: those of OpenMP that the forked one had are not there, and it would wait for them
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
            with os.fdopen(writing, "wb") as file:
                file.write(b"".join(content))
        finally:
            os._exit(0)
    os.close(writing)
    content, used, idle, end = b"", 0.0, False, time.monotonic() + ELAPSED * seconds
    with os.fdopen(reading, "rb") as file:
        while not idle and (left := end - time.monotonic()) > 0:
            if select.select([file], [], [], min(left, IDLE))[0]:
                part = os.read(file.fileno(), 1 << 20)
                if not part:
                    break
                content += part
            else:
                before, used = used, sum(psutil.Process(child).cpu_times()[:2])  # of user and system
                idle = used - before < SHARE * IDLE
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    try:
        return pickle.loads(content)
    except (pickle.UnpicklingError, EOFError):
        if idle:
            return "it waited without an end"
        ended = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL  # by the limit, or from here
        return f"{LATE} {seconds:g} s" if ended else "it crashed"


def around(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the next unused bytes before and after an array of ``on_device``."""
    memory = array.base
    start = array.ctypes.data - memory.ctypes.data
    return memory[start - REACH : start], memory[start + array.nbytes :][:REACH]


def undefined(text: str) -> list[str]:
    """Return the constants that are not defined, in a compiler's output."""
    found = re.findall(r"error: \W([A-Z][A-Z0-9_]+)\W (?:was not|undeclared)", text)
    if not found:  # then the first name, if it is like no other one: further ones may follow from it
        alone = re.findall(r"error: \W([a-z]\w*)\W (?:was not|undeclared)[^;]*$", text, re.MULTILINE)[:1]
        found = [each for each in alone if TILE.search(each.upper()) and not re.search(rf"\b{each}\s*\(", text)]
    return list(dict.fromkeys(found))


def asked_for(error: Exception) -> list[str]:
    """Return the constants that an error about a compiler's output asks for."""
    stated = re.search(r"give constants: \{(.*?): \.\.\.\}", str(error))
    return stated[1].split(": ..., ") if stated else []


def compiler_error(text: str) -> str:
    """Return the first error of a compiler's output, and all constants that are not defined."""
    if old := re.search(r"\W(__(?:shfl(?:_up|_down|_xor)?|any|all|ballot))\W+ ?was not declared", text):
        return f"CUDA has no {old[1]} since version 9: write {old[1]}_sync(0xffffffff, ...)"
    lines = [line for line in text.splitlines() if "error:" in line]
    first = lines[0].strip() if lines else text.splitlines()[0]
    constants = undefined(text)
    if not constants:
        return first
    given = ", ".join(f"{each}: ..." for each in constants)
    return f"{', '.join(constants)} not defined: give constants: {{{given}}} in a head ({first})"


def least_multiples(
    right: Callable[[tuple[int, ...]], bool], base: Sequence[int], square: bool, tries: Sequence[Sequence[int]]
) -> dict[str, int]:
    """Return by dimension the first number to try of which a multiple is right; empty if there is none."""
    found = {}
    for i, name in enumerate("mnk"):
        for each in tries[i]:
            # no multiple of a likely larger divisor, such as 6 for 2
            size = 37 if each == 1 else each * (1 if each >= 64 else 7)
            if right(tuple(size if square or i == j else x for j, x in enumerate(base))):
                break
        else:
            return {}
        found[name] = each
        if square:
            return dict.fromkeys("mnk", each)
    return found
