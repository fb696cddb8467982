"""Programs with a time limit."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

TIMED_OUT = 124  # exit status of a program that reached its limit
SECONDS_TO_END = 5  # after a first signal, at which a launcher ends its ranks


def limited(
    command: Sequence[str], seconds: float = 0, environment: Mapping[str, str] | None = None, text: str = ""
) -> subprocess.CompletedProcess:
    """Run a program on a text; end it at its limit, 0 for none, and at an interrupt, with all that it started.

    `timeout` also ends it if this process is killed. Ctrl-C does not reach it.
    """
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    how = {"text": True, "errors": "replace", "env": environment, "process_group": 0, **pipes}
    limit = ["timeout", f"--kill-after={SECONDS_TO_END}", f"{seconds:g}"] if seconds else []
    with subprocess.Popen([*limit, *command], **how) as process:
        try:
            output, errors = process.communicate(text, timeout=seconds + SECONDS_TO_END + 1 if seconds else None)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return subprocess.CompletedProcess(command, TIMED_OUT, "", "")  # a child of it holds its output open
    status = TIMED_OUT if process.returncode in (128 + signal.SIGKILL, -signal.SIGKILL) else process.returncode
    return subprocess.CompletedProcess(command, status, output, errors)
