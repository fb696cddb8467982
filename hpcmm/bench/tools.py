"""Programs of the CUDA toolkit, which may be installed but not on PATH."""

import os
import shutil
from pathlib import Path

# Beside the CUDA toolkit, or in a folder of the tool's own, the newest first.
PLACES = ("/usr/local/cuda/bin", *sorted(map(str, Path("/opt/nvidia/nsight-compute").glob("*")), reverse=True))


def find(program: str) -> str | None:
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))


def not_installed(title: str, program: str) -> str:
    return f"{title} is not installed ({program} is neither on PATH nor beside the CUDA toolkit)"
