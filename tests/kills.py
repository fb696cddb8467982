"""Kill processes of a local run at random moments: every planned point is measured once, and no process stays.

After some kills the config changes, also back to an earlier one. ``python tests/kills.py [--kills N] [SEED...]`` prints
a table with a row for each seed; without one, it draws a seed. ``--beside N`` runs N campaigns at a time, as root: each
in a network of its own, as one measurement at a time runs on a machine.
"""

import argparse
import contextlib
import fcntl
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
import yaml

from hpcmm import store
from hpcmm.bench.journal import whole_lines

ROOT = Path(__file__).parents[1]
TOKEN = "HPCMM_TEST_TOKEN"  # marks every process of the test, also those that lost their parent

CONFIG = {
    "backends": "cpu",
    "measuring": {"visits": 2, "min_repetitions": 3, "max_repetitions": 6, "max_seconds": 0.05},
    "sweeps": {
        "products": {
            "operation": "matmul",
            "variants": ["serial", "openmp", "numpy"],
            "sizes": [32, 48, 64, 80],
            "dtypes": ["float32"],
            "ranks": [1, 2],
        },
        "sums": {"operation": "sum", "variants": ["serial", "numpy"], "sizes": [1000, 5000], "ranks": [1, 2]},
    },
}
POINTS = 2 * (3 * 4 + 2 * 2 * 3)  # ranks, variants, sizes; the sum has three types

LIMIT = 600  # seconds for a whole run, also beside other tests on two busy cores; it takes some 20 on an idle machine


def marked(token: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TOKEN) == token and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def part(process: psutil.Process) -> str:
    """Return which part of a run a process is: a module of hpcmm, or a program."""
    command = process.cmdline()
    return next((each for each in command if re.match(r"(hpcmm\.\w+\.\w+|snakemake)$", each)), process.name())


def random_moment(run: subprocess.Popen, chance: random.Random, token: str) -> int | None:
    """Wait until a random moment, mostly after the start of a job; return the exit status if the run ends before.

    Beside other tests, the start of Snakemake alone may take longer than everything else.
    """
    in_job = chance.random() < 0.8
    while in_job and run.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            in_job = not any(part(process) == "hpcmm.jobs.measure" for process in marked(token))
        time.sleep(0.5)  # looking at all processes takes a part of a core
    with contextlib.suppress(subprocess.TimeoutExpired):
        return run.wait(chance.uniform(0, 9))
    return None


class Outcome(NamedTuple):
    """What a campaign did: kills by the part of a run that was killed, and points of runs that ended."""

    seed: int
    kills: int
    runs: int
    changed_configs: int
    points: int
    killed: dict[str, int]


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(f"expected: {what}")


def campaign(folder: Path, seed: int, kills: int, seconds: float = float("inf")) -> Outcome:
    """Kill processes of runs in a folder until there were ``kills`` or time is up, then let the last run end.

    Raises
    ------
    AssertionError
        If a planned point is not measured or measured twice, or a process is left.
    """
    chance, token = random.Random(seed), uuid.uuid4().hex
    config = folder / "experiment.yaml"
    results, log = folder / "results", folder / "log"
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--cores", "2"]
    command += ["--directory", folder, "--configfile", config]
    killed: Counter[str] = Counter()
    until = time.monotonic() + seconds
    count = runs = changes = points = 0

    def plan_again(inputs: int) -> None:
        """Write a config with another seed of the inputs, with which all points are measured anew."""
        config.write_text(yaml.safe_dump(CONFIG | {"measuring": CONFIG["measuring"] | {"seed": inputs}}))

    try:
        while not runs or (count < kills and time.monotonic() < until):
            runs += 1
            plan_again(runs)
            failed = 0  # runs in succession that nobody killed
            while True:
                with log.open("wb") as output:
                    run = subprocess.Popen(command, env=os.environ | {TOKEN: token}, stdout=output, stderr=output)
                going_on = count < kills and time.monotonic() < until
                status = random_moment(run, chance, token) if going_on else run.wait(LIMIT)
                if status is None:
                    # a run that was just started has no mark yet, and one that just ended none any more
                    victims = marked(token) or [psutil.Process(run.pid)]
                    # jobs are at work for the smaller part of the time, and Snakemake always is
                    in_job = [process for process in victims if process.pid != run.pid]
                    victim = chance.choice(in_job if in_job and chance.random() < 0.8 else victims)
                    try:
                        name = part(victim)
                        victim.kill()
                    except psutil.NoSuchProcess:
                        continue
                    finally:
                        # the other processes of the run end, or they continue beside the next run
                        if victim.pid != run.pid and chance.random() < 0.5:
                            run.kill()
                        run.wait(LIMIT)
                    killed[name] += 1
                    count, failed = count + 1, 0
                    if chance.random() < 0.3:
                        changes += 1
                        plan_again(chance.randint(1, runs + 1))
                    continue
                if status == 0:
                    break
                failed += 1
                if failed == 5 or re.search("Traceback|LockException", log.read_text()):
                    raise AssertionError(log.read_text())
            columns = store.read(results / "timings.h5")
            own = columns["measurements"]["contender"] == columns["measurements"]["variant"]
            fingerprints = columns["measurements"]["fingerprint"][own]
            expect(len(fingerprints) == len(set(fingerprints)) == POINTS, "every planned point once")
            expect(columns["measurements"]["passed"].all(), "every point verified")
            expect(set(columns["samples"]["visit"]) == {0, 1}, "both visits")
            lines = [line for path in results.rglob("*.journal") for _, line in whole_lines(path.read_bytes())]
            begun = {json.loads(line).get("fingerprint") for line in lines}  # of another config that may come back
            expect(not begun & set(fingerprints), "no point is in a journal, too")
            points += POINTS
        deadline = time.monotonic() + 30
        while marked(token) and time.monotonic() < deadline:
            time.sleep(0.5)
        expect(not marked(token), "no process left")
    finally:
        for process in marked(token):
            process.kill()
        run.wait()
    return Outcome(seed, count, runs, changes, points, dict(killed))


def bring_up_loopback() -> None:
    """Give MPI a network in a namespace that has none."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


def passes(seed: int, kills: int, seconds: float) -> bool:
    """Run a campaign, and print its row."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = campaign(Path(folder), seed, kills, seconds)
    except AssertionError as error:
        print(f"{seed:>11} failed: {error}", flush=True)
        return False
    killed = ", ".join(f"{count} x {name}" for name, count in Counter(done.killed).most_common())
    counts = f"{done.kills:>6} {done.runs:>5} {done.changed_configs:>8} {done.points:>7}"
    print(f"{seed:>11} {counts}  {killed}", flush=True)
    return True


def passes_alone(seed: int, kills: int, seconds: float) -> bool:
    """Run a campaign in a network of its own, which has its own lock of measurements."""
    options = ["--in-network", f"--kills={kills}", f"--seconds={seconds}", str(seed)]
    return not subprocess.run(["unshare", "--net", sys.executable, __file__, *options]).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", metavar="SEED", nargs="*", type=int, default=[int.from_bytes(os.urandom(4), "big")])
    parser.add_argument("--kills", type=int, default=34, help="for each seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no kills after these")
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="campaigns at a time")
    parser.add_argument("--in-network", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.in_network:
        bring_up_loopback()
    else:
        print(f"{'seed':>11} {'kills':>6} {'runs':>5} {'configs':>8} {'points':>7}  killed", flush=True)
    run = passes_alone if given.beside else passes
    with ThreadPoolExecutor(given.beside or 1) as pool:
        sys.exit(not all([*pool.map(lambda seed: run(seed, given.kills, given.seconds), given.seeds)]))


if __name__ == "__main__":
    main()
