"""``python -m hpcmm COMMAND``: assemble the commands, run one and report its errors."""

import argparse
import difflib
import importlib
import importlib.metadata
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcmm.system import surroundings
from hpcmm.system.streams import Output, drop_output, open_streams
from hpcmm.system.text import printable

# Least limits, in units of ulimit. With a smaller address space Python's own start fails in many ways, and may hang: a
# MemoryError inside an import is lost. MPI makes files in shared memory, and does not report why they cannot be made.
LIMITS = {
    "AS": ("v", 512 << 10, 1024, "{0:.0f} MiB of address space are too few"),
    "FSIZE": ("f", 32 << 10, 1024, "files of at most {0:.2g} MiB are too small"),
    "NOFILE": ("n", 64, 1, "{1} open files are too few"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status, or 1 for an error, which was reported."""
    if argv is None:  # the program, before a library is loaded
        surroundings.enter()
    open_streams()
    for name, (option, least, unit, why) in LIMITS.items():
        limit = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        if limit != resource.RLIM_INFINITY and limit < least * unit:
            return failed(f"{why.format(limit / 2**20, limit)}; raise the limit: ulimit -{option} {least}")
    try:
        return run(argv)
    except KeyboardInterrupt:
        return 130  # as shells report it
    except BrokenPipeError:  # for example of `| head`
        drop_output()
        return 1
    except OSError as error:
        if error.filename == Output.NAME:
            drop_output()
        place = error.filename2 or error.filename  # of two names, the final one instead of the temporary one
        why = error.strerror or str(error)
        return failed((f"{os.fsdecode(place)}: {why}" if place else why) + meant(error))
    except MemoryError:
        return failed("out of memory; free some, or raise the limit: ulimit -v")
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        return failed("no thread can be started; raise the limits: ulimit -u, ulimit -v")
    except ImportError as error:  # for example if memory is too small to load a library
        return failed(f"{error.name or 'a library'} cannot be loaded: {str(error).strip().splitlines()[-1]}")


def run(argv: Sequence[str] | None) -> int:
    """Run one command; the package is imported here because ``main`` reports failed imports."""
    from hpcmm.model import HpcmmError

    try:
        argv = list(sys.argv[1:] if argv is None else argv)
        if argv[:1] in (["help"], ["version"]):
            argv = [*argv[1:2], "--help"] if argv[0] == "help" else ["--version"]
        outer = parser(*argv[:1])
        if not argv:
            outer.print_help(sys.stderr)
            return 2
        arguments, arguments.rest = outer.parse_known_args(argv)
        if arguments.rest and not arguments.takes_rest:
            arguments.wrong(f"unrecognized arguments: {' '.join(arguments.rest)}")
        if named := getattr(arguments, "extension", ()):
            from hpcmm.experiment import extensions

            extensions.load(named)
        code = arguments.run(arguments)
    except HpcmmError as error:
        return failed(str(error) + meant(error.__cause__))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        store = sys.modules.get("hpcmm.store.file")
        if not (store and store.UNSEALED):
            raise
        why = f"another program changed it, and its values do not fit together ({error!r}); {store.AGAIN}"
        return failed(f"{', '.join(map(str, dict.fromkeys(store.UNSEALED)))}: {why}")
    sys.stdout.flush()  # here, because errors at the end of Python are not caught
    return code


def parser(command: str = "") -> argparse.ArgumentParser:
    """Return the parser of one command, as importing the others takes long; of all if it is none of them."""
    from hpcmm.cli.arguments import COMMANDS, Parser, add

    outer = Parser(
        prog="hpcmm" if Path(sys.argv[0]).name == "hpcmm" else "python -m hpcmm",
        description="Benchmarks of CPUs and GPUs: matrix products, reductions and vector additions.",
        epilog="COMMAND --help describes a command. Exit status: 0: success; 1: an error; 2: wrong use; 130: Ctrl-C.",
    )
    outer.add_argument("--version", action=Version, nargs=0, help="print version and revision, and exit")
    commands = outer.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in [command] if command in COMMANDS else COMMANDS:
        add(commands, name)
    return outer


class Version(argparse.Action):
    """Print the version, and the git revision if it is known; git runs only if the option is given."""

    def __call__(self, parser, *_) -> None:
        print(version())
        parser.exit()


def version() -> str:
    from hpcmm.bench import provenance

    revision, dirty = provenance.revision()
    commit = f"revision {revision[:12]}{', with changes' if dirty else ''}" if revision else "no revision"
    return f"hpcmm {importlib.metadata.version('hpcmm')} ({commit})"


def meant(error: BaseException | None) -> str:
    """Return the path that is likely meant instead of a missing one, for the end of a message; else nothing."""
    if not isinstance(error, FileNotFoundError) or not error.filename:
        return ""
    path = Path(os.fsdecode(error.filename))
    while not path.parent.exists():
        path = path.parent
    try:
        names = sorted(each.name for each in path.parent.iterdir())
    except OSError:  # it may be entered, and not be read
        return ""
    alike = [each for each in names if Path(each).stem == path.name]
    alike = alike or difflib.get_close_matches(path.name, names, 1, cutoff=0.65)
    return f"; did you mean '{alike[0]}'?" if alike else ""


def failed(message: str) -> int:
    """Report an error, with control characters from files and names escaped; return the exit status."""
    print("hpcmm: error:", "\n".join(map(printable, message.splitlines())), file=sys.stderr)
    return 1
