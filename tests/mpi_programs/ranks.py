"""What the programs share: the device of a rank, the first ranks, and cases that rank 0 draws and judges."""

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from mpi4py import MPI

from hpcmm.backends import open_backend
from hpcmm.model import Task
from hpcmm.parallel import world

WORLD = MPI.COMM_WORLD


def backend(device: str, share: bool = True):
    """Open the device of this rank; the ranks share what GPUs there are, or have one each."""
    found = open_backend(device, threads=1, local_rank=world.local_rank(WORLD), share_gpu=share)
    if device == "cpu":
        found.caches = {3: 1 << 16}  # a small flush buffer: no result depends on it, and reading takes time
    return found


def first(ranks: int) -> MPI.Comm:
    """Return the communicator of the first ranks; on the others it is null."""
    return WORLD.Split(0 if WORLD.rank < ranks else MPI.UNDEFINED, WORLD.rank)


def drawn(case, comm: MPI.Comm, task: Task, seed: int):
    """Return the inputs of a case and a check of a distribution's result, both for rank 0."""
    if comm.rank:
        return None, lambda spread: None
    inputs = task.operation.draw(np.random.default_rng(seed), task)
    before = {name: array.copy() for name, array in inputs.items()}
    judge = task.operation.reference(task, inputs)

    def check(spread) -> None:
        (result,) = spread.result.values()
        verdict = judge(result)
        assert verdict.passed, f"{case}: {verdict}"
        assert all(before[name].tobytes() == inputs[name].tobytes() for name in before), f"{case}: inputs were written"

    return inputs, check


def run_twice(spread, run, check, alone: bool = True) -> dict[str, float]:
    """Return the phases of an end-to-end call; check it and, if ``alone``, the kernel alone.

    The second of two calls must start from what the first one did.
    """
    for _ in range(2):
        spread.poison()
        seconds = spread.call(run)
        check(spread)
    assert seconds["total"] > 0
    if alone:
        spread.save_inputs()
        for _ in range(2):
            spread.poison()
            assert spread.kernel(run, cold=True) > 0
        spread.fetch()
        check(spread)
    return seconds


def run_together(run, cases, examples: int) -> None:
    """Let all ranks run the cases that rank 0 draws, so that they work on the same one."""

    # no time limits, and no search for a smaller case: an error anywhere ends all ranks at once
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def each(case):
        run(WORLD.bcast(case))

    each()
    WORLD.bcast(None)
