"""Launch the kernel of each point once: of a part of a profile, or of all points of a plan under a sanitizer."""

import dataclasses
import json
from collections.abc import Sequence

from hpcmm import store
from hpcmm.backends import open_backend
from hpcmm.bench.contender import Contender
from hpcmm.bench.job import Process
from hpcmm.bench.measure import Problem
from hpcmm.bench.sanitizing import MARK_OF_POINT
from hpcmm.experiment import plan
from hpcmm.model import TEXTBOOK, HpcmmError, Verdict
from hpcmm.model.measurement import Measuring, Point
from hpcmm.parallel import world
from hpcmm.system import options


def main() -> None:
    arguments = options.of_program(__file__, __doc__)
    try:
        comm = world.world()
        planned = plan.read(arguments.plan)
        if not arguments.profile:  # without descriptions, which a sanitizer would watch
            backend = open_backend("cuda", world.threads_per_rank(comm), world.local_rank(comm), planned.share_gpu)
            backend.allocate_separately()
            points = [point for batch in planned.to_measure for point in batch.points]
            run_for_sanitizer(comm, backend, points, planned.measuring)
            return
        points = planned.profile_parts(arguments.profile).get(arguments.part)
        if points is None:
            raise HpcmmError("a source was edited during the run; run again")
        process = Process(comm, "cuda", planned.share_gpu)
        provenance = process.described | {"config": dict(planned.config)}
        verdicts = run_for_profiler(comm, process.backend, points, planned.measuring)
        record = {"provenance": provenance, "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts]}
        store.write_text(arguments.output, json.dumps(record))
    except HpcmmError as error:
        world.abort(f"{f'profile of {arguments.profile}' if arguments.profile else 'under the sanitizer'}: {error}")


def run_for_profiler(comm, backend, points: Sequence[Point], measuring: Measuring) -> list[Verdict]:
    """Run each right kernel once under a profiler, marked by its point's number; return the verdicts."""
    verdicts, problem, placed = [], None, None
    for number, point in enumerate(points, 1):
        if placed != Problem.key(point):
            problem = None  # frees its memory before the next one is allocated
            backend.release()
            problem, placed = Problem(comm, backend, point, measuring.seed), Problem.key(point)
            distribution = problem.distributions([TEXTBOOK])[TEXTBOOK]
            distribution.save_inputs()
        variant = problem.operation.variant(point.variant)
        contender = Contender(distribution, variant, point, TEXTBOOK, variant.baseline)
        contender.first_run(measuring)
        contender.verify(problem.judge(contender.task))
        if contender.verdict.passed:
            distribution.kernel(backend.marked(contender.run, number), cold=False)
            distribution.fetch()
            contender.verify(problem.judge(contender.task), when="under the profiler")
        verdicts.append(contender.verdict)
        outcome = "PASS" if contender.verdict.passed else f"FAIL: {contender.verdict.where}"
        print(f"[{number}/{len(points)}] {point.name} {outcome}", flush=True)
    return verdicts


def run_for_sanitizer(comm, backend, points: Sequence[Point], measuring: Measuring) -> None:
    for point in points:
        print(f"{MARK_OF_POINT}{point.name}", flush=True)
        problem = Problem(comm, backend, point, measuring.seed)
        distribution = problem.distributions([TEXTBOOK])[TEXTBOOK]
        variant = problem.operation.variant(point.variant)
        contender = Contender(distribution, variant, point, TEXTBOOK, variant.baseline)
        contender.first_run(measuring)
        problem.close()


if __name__ == "__main__":
    main()
