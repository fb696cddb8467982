"""One line of the report of ``hpcmm doctor``, and the programs that its checks start."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from typing import Literal

from hpcmm.system import surroundings
from hpcmm.system.programs import TIMED_OUT, limited

SECONDS = 60  # time limit of a program


@dataclass(frozen=True)
class Check:
    """One line of the report: name and state of the check, what was found, and advice."""

    name: str
    state: Literal["ok", "warning", "error"]
    found: str
    advice: str = ""

    @classmethod
    def of(cls, name: str, fine: bool, found: str, advice: str, otherwise: str = "warning") -> Check:
        """Return a check that warns or is an error, with advice, if something is not fine."""
        return cls(name, "ok", found) if fine else cls(name, otherwise, found, advice)


def one_line(error: object) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def excerpt(output: str) -> str:
    """Return a program's messages in one line: the first ones of MPI have the cause, and the last one of Python."""
    text = " ".join(re.sub("-{20,}", " ", output).split())
    return text if len(text) <= 400 else f"{text[:250]} ... {text[-150:]}"


def attempt(*command: str) -> subprocess.CompletedProcess:
    """Run a program without the environment of a launcher; return the exit status of a failure."""
    done = limited(command, SECONDS, surroundings.measuring(os.environ))
    if done.returncode == TIMED_OUT:
        done.stderr = f"no answer within {SECONDS} s"
    return done
