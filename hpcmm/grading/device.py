"""Program of a process that runs code of this package, or a kernel for a GPU, on a device.

No submitted code runs on the CPU here: a GPU kernel reaches the memory of the GPU only. It runs isolated, as
``python -P -m hpcmm.grading.device SETUP`` with a JSON object: ``requests``, ``replies``, ``memory`` and ``bytes`` as
in ``native``, ``device``, ``threads``, ``operation``, and ``variant`` or the ``file`` of a kernel.

A request is a line of JSON with a list of calls: ``{"place": [...], "shape": ..., "dtype": ..., "scalars": ...,
"tile": ...}`` copies arrays to the device, ``"run"`` runs the kernel and waits for it, and ``"fetch"`` copies all of it
back. A reply is an error or empty; that of a GPU to ``"run"`` is the seconds.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpcmm import backends
from hpcmm.experiment import own_kernels
from hpcmm.grading import native
from hpcmm.model import Operation, Task, Variant
from hpcmm.operations import OPERATIONS
from hpcmm.operations.guards import Guarded, Placed


class Device:
    def __init__(self, setup: Mapping[str, Any], memory: np.ndarray):
        self.memory = memory
        self.operation: Operation = OPERATIONS[setup["operation"]]
        file, name = setup.get("file"), setup.get("variant")
        self.variant: Variant = own_kernels.read(Path(file)).variant if file else self.operation.variant(name)
        self.backend = backends.open_backend(setup["device"], setup["threads"], 0, share_gpu=True)
        self.placed: Placed | None = None

    def place(self, request: Mapping[str, Any]) -> None:
        self.placed = None  # frees its memory
        shape, dtype = tuple(request["shape"]), request["dtype"]
        task = Task(self.operation, self.variant, shape, dtype, request["scalars"], request["tile"])
        self.placed = Placed(self.backend, task, [Guarded(*each) for each in request["place"]], self.memory)
        if self.placed.run.before:
            self.placed.run.before()
        self.backend.synchronize()

    def run(self) -> str:
        """Run once; return the seconds between events on a GPU: a launch from here takes longer than short kernels."""
        if self.backend.in_host_memory:
            self.placed.run()
            return ""
        return repr(self.backend.seconds_alone(self.placed.run, False, {}))

    def fetch(self) -> None:
        if self.placed.run.after:
            self.placed.run.after()
        self.placed.fetch()

    def __call__(self, call: Any) -> str:
        try:
            if call == "run":
                return self.run()
            if call == "fetch":
                self.fetch()
            else:
                self.place(call)
        except Exception as failed:  # of the compiler or the device; the process that asked reports it
            return str(failed)[:2000] or type(failed).__name__
        return ""


def main() -> None:
    setup = json.loads(sys.argv[1])
    native.serve(setup, lambda memory: Device(setup, np.frombuffer(memory, np.uint8)))


if __name__ == "__main__":
    main()
