"""Put the files of all batches of a plan into one, with a note of what was left out."""

import argparse
import sys
from pathlib import Path

from hpcmm import plan, store
from hpcmm.model import HpcmmError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="plan.json, as the workflow writes it")
    parser.add_argument("--raw", type=Path, required=True, help="folder with <sweep>/<device>-r<ranks>-<part>.h5")
    parser.add_argument("--profiles", type=Path, required=True, help="folder with <operation>.h5 of what was profiled")
    parser.add_argument("--output", type=Path, required=True, help="HDF5 file to write")
    arguments = parser.parse_args()
    try:
        planned = plan.read(arguments.plan)
        files = [arguments.raw / f"{batch.name}.h5" for batch in planned.to_measure]
        files += [arguments.profiles / f"{operation}.h5" for operation in planned.profiled]
        store.merge(files, arguments.output, planned.omitted(), planned.unprofiled())
    except HpcmmError as error:
        print(f"hpcmm: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
