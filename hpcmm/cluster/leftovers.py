"""Files that MPICH leaves behind when its ranks are killed."""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

# Shared memory of ranks (1 to 5 MB), and the topology that mpiexec's proxy writes for them
PATTERNS = ("/dev/shm/mpich_shm_*", "/tmp/hydra_*")
PROCESSES = Path("/proc")
SECONDS_TO_START = 60  # in which a rank may not have opened its files yet
MOST_NAMED = 2  # more would not fit in a line


def find() -> list[Path]:
    """Return the leftovers of this user: files that no live process has open or mapped, nor may be about to open."""
    files = []
    for pattern in map(Path, PATTERNS):
        for path in sorted(pattern.parent.glob(pattern.name)):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime >= SECONDS_TO_START:
                    files.append(path)
    used = held() if files else set()
    return [path for path in files if str(path) not in used]


def held() -> set[str]:
    found = set()
    for process in PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines = (process / "maps").read_text(errors="replace").splitlines()
            found |= {line.split(maxsplit=5)[-1] for line in lines}
        with contextlib.suppress(OSError):
            for each in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    found.add(str(each.readlink()))
    return found


def remove() -> str:
    removed = []
    for path in find():
        with contextlib.suppress(OSError):
            path.unlink()
            removed.append(str(path))
    return f"removed files of killed ranks: {listed(removed)}" if removed else ""


def listed(paths: Sequence[Path | str]) -> str:
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return ", ".join(map(str, paths[:MOST_NAMED])) + more
