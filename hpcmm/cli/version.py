"""``hpcmm --version``: the version, and the git revision if it is known."""

from __future__ import annotations

import argparse
import importlib.metadata

from hpcmm.bench import provenance


def add(parser: argparse.ArgumentParser) -> None:
    """Add the option to the parser of all commands."""
    parser.add_argument("--version", action=Version, nargs=0, help="print version and revision, and exit")


class Version(argparse.Action):
    """Print the version; git runs only if the option is given."""

    def __call__(self, parser, *_) -> None:
        print(text())
        parser.exit()


def text() -> str:
    revision, dirty = provenance.revision()
    known = f"revision {revision[:12]}{', with changes' if dirty else ''}" if revision else "no revision"
    return f"hpcmm {importlib.metadata.version('hpcmm')} ({known})"
