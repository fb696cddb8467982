"""Run a command: ``python -m hpcmm COMMAND``."""

import sys

from hpcmm.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
