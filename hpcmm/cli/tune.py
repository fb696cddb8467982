"""``python -m hpcmm tune``: time the builds of kernels on a GPU, so that ``best`` picks among them by measurement."""

import argparse
import itertools

from hpcmm.backends.cuda import presence
from hpcmm.model import HpcmmError
from hpcmm.operations import OPERATIONS

VARIANT = "best"
TYPES = OPERATIONS["matmul"].variant(VARIANT).dtypes
AHEAD = 200  # shapes of the grid whose builds are compiled before the first is timed


def run(arguments: argparse.Namespace) -> int:
    if wrong := [each for each in arguments.shapes if len(each) != 3]:
        arguments.wrong(f"{'x'.join(map(str, wrong[0]))} is not allowed; allowed: m x n x k, such as 512x4096x1000")
    if not presence.count():
        instead = "hpcmm bench FILE --tune tunes a kernel on a CPU, too"
        raise HpcmmError(f"tune needs a GPU, and CUDA shows none here; {instead}")
    from hpcmm.backends.cuda.device import CudaBackend  # imports CuPy
    from hpcmm.bench import tuning
    from hpcmm.operations import tables
    from hpcmm.system import surroundings

    backend, operation = CudaBackend(arguments.device), OPERATIONS["matmul"]
    for dtype in arguments.types:
        tuner = tuning.Tuner(backend, operation, VARIANT, dtype)
        shapes = [(shape, beta) for shape in arguments.shapes for beta in (0.0, 0.5)]
        grid = [each for each in itertools.islice(tuning.grid(), AHEAD) if tuner.fits(each[0])]
        tuner.compile_ahead(shapes or grid, surroundings.cpus())
        entries = []
        seconds = 60 * arguments.minutes / len(arguments.types)
        try:
            for entry in (tuner.entry(*each) for each in shapes) if shapes else tuning.tune(tuner, seconds):
                entries.append(entry)
                fastest, shape = min(entry.seconds, key=entry.seconds.__getitem__), "x".join(map(str, entry.shape))
                print(f"{dtype} {shape}, beta {entry.beta:g}: {1e6 * entry.least:.4g} us, {fastest}", flush=True)
        finally:
            placed = tuner.task((1, 1, 1), 0.0)
            path = tables.add(placed.gpu, placed.multiprocessors, {dtype: entries}, arguments.output)
            print(f"{dtype}: {len(entries)} entries in {path}")
        backend.release()
    return 0
