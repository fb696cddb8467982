"""Count the published files that ``hpcmm bench`` judges rightly as they are, by ``verdicts/published.csv``.

``python tests/count_published.py FOLDER``: files of others are no part of this repository; fetch them first, as
``FOLDER/REPOSITORY/PATH``. Those that are not there are not counted.
"""

import csv
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LIST = Path(__file__).parent / "verdicts" / "published.csv"
VERDICTS = {0: "PASS", 1: "FAIL", 3: "not tested"}  # by exit status
SECONDS = 300


def judged(folder: Path, listed: Path = LIST) -> Iterator[tuple[str, str, str]]:
    """Yield each file that is there, the verdict that is right, and that of ``hpcmm bench``."""
    with listed.open() as rows:
        for row in csv.DictReader(rows):
            path = folder / row["repository"] / row["path"]
            if path.is_file():
                size = [] if path.suffix in (".cu", ".cuh", ".hip") else ["--sizes", "192"]  # which 6 and 64 divide
                command = [sys.executable, "-m", "hpcmm", "bench", path.name, *size]
                done = subprocess.run(command, cwd=path.parent, capture_output=True, timeout=SECONDS)
                yield f"{row['repository']} {row['path']}", row["verdict"], VERDICTS.get(done.returncode, "an error")


if __name__ == "__main__":
    found = []
    for name, right, verdict in judged(Path(sys.argv[1])):
        print(f"{verdict:10} {name}{'' if verdict == right else f', right: {right}'}", flush=True)
        found.append((right, verdict))
    passed = [verdict for right, verdict in found if right == "PASS"]
    print(f"{sum(a == b for a, b in found)} of {len(found)} verdicts are right")
    print(f"{passed.count('PASS')} of {len(passed)} right kernels pass unchanged")
