"""Launch the kernel of each point once: of a part of a profile, or of all points of a plan under a sanitizer."""

import dataclasses
import json

from hpcmm import store
from hpcmm.backends import open_backend
from hpcmm.bench.job import Process
from hpcmm.bench.measure import run_for_profiler, run_for_sanitizer
from hpcmm.experiment import plan
from hpcmm.model import HpcmmError
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
        process = Process(comm, "cuda", planned.share_gpu)
        points = planned.profile_parts(arguments.profile)[arguments.part]
        provenance = process.described | {"config": dict(planned.config)}
        verdicts = run_for_profiler(comm, process.backend, points, planned.measuring)
        record = {"provenance": provenance, "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts]}
        store.write_text(arguments.output, json.dumps(record))
    except HpcmmError as error:
        world.abort(f"{f'profile of {arguments.profile}' if arguments.profile else 'under the sanitizer'}: {error}")


if __name__ == "__main__":
    main()
