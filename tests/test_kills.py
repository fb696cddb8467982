"""Processes of a local run that are killed at random moments: every planned point is measured once, and none stays.

After some kills the config changes, also back to an earlier one.
"""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import psutil
import pytest
import yaml
from tasks import CONFIGS

from hpcmm import store
from hpcmm.bench.journal import whole_lines

ROOT = Path(__file__).parents[1]
TOKEN = "HPCMM_TEST_TOKEN"  # marks every process of the test, also those that lost their parent

CONFIG = CONFIGS["kills"]
POINTS = 2 * (2 * 3 + 2 * 3)  # ranks, variants, sizes; the sum has three types

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


def campaign(folder: Path, seed: int, kills: int) -> dict[str, int]:
    """Kill processes of runs in a folder, let the last run end, and return the kills by the part of a run."""
    chance, token = random.Random(seed), uuid.uuid4().hex
    config = folder / "experiment.yaml"
    results, log = folder / "results", folder / "log"
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--cores", "2"]
    command += ["--directory", folder]
    command += [] if ALL else ["results/timings.h5"]  # drawing the report takes longer than all else
    command += ["--configfile", config]
    killed: Counter[str] = Counter()
    count = runs = 0

    def plan_again(inputs: int) -> None:
        """Write a config with another seed of the inputs, with which all points are measured anew."""
        config.write_text(yaml.safe_dump(CONFIG | {"measuring": CONFIG["measuring"] | {"seed": inputs}}))

    try:
        while not runs or count < kills:
            runs += 1
            plan_again(runs)
            failed = 0  # runs in succession that nobody killed
            while True:
                with log.open("wb") as output:
                    run = subprocess.Popen(command, env=os.environ | {TOKEN: token}, stdout=output, stderr=output)
                status = random_moment(run, chance, token) if count < kills else run.wait(LIMIT)
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
            assert len(fingerprints) == len(set(fingerprints)) == POINTS, "every planned point once"
            assert columns["measurements"]["passed"].all(), "every point verified"
            assert set(columns["samples"]["visit"]) == {0, 1}, "both visits"
            alive = [part(process) for process in marked(token)]
            journals = {path: whole_lines(path.read_bytes()) for path in results.rglob("*.journal")}
            begun = {json.loads(line).get("fingerprint") for lines in journals.values() for line in lines}
            if begun & set(fingerprints):  # others are of another config that may come back
                raise AssertionError(f"points are in a journal, too: {[*journals]}, killed {killed}, alive {alive}")
        deadline = time.monotonic() + 30
        while marked(token) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not marked(token), "no process left"
    finally:
        for process in marked(token):
            process.kill()
        run.wait()
    return dict(killed)


ALL = os.environ.get("HPCMM_TEST_ALL") == "1"
KILLS = 34 if ALL else 1  # for each seed


@pytest.mark.skipif(not shutil.which("snakemake"), reason="snakemake is not on PATH")
@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT + 60 * KILLS)
@pytest.mark.parametrize("seed", [*([49, 50] if ALL else []), None])  # and a new one
def test_every_point_is_measured_once_after_any_kill(tmp_path, seed):
    seed = seed or int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")  # pytest shows it with a failure
    print(campaign(tmp_path, seed, KILLS))
