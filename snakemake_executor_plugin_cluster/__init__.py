"""``snakemake --cluster sbatch``, which Snakemake has no longer.

Snakemake imports every module with this name's prefix before it reads its arguments. For a Snakefile of hpcmm, and for
no other one, the import replaces ``--cluster COMMAND`` by ``--executor cluster-generic --cluster-generic-submit-cmd
COMMAND``.
"""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import AbstractExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings

# Where Snakemake looks for a Snakefile, in this order
PLACES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")
DRY_RUN = re.compile("--dry-?run|-[a-z]*n[a-z]*")
JOBS = re.compile("(--jobs|-j|--profile)(=|$)|-j[0-9]")

# Snakemake requires both of each plugin
common_settings = CommonSettings(non_local_exec=True, implies_no_shared_fs=False, job_deploy_sources=False)


class Executor(AbstractExecutor):
    """Refuses ``--executor cluster``: the executor of ``--cluster`` is cluster-generic."""

    def __new__(cls, *_):
        raise WorkflowError("there is no executor 'cluster'; use --cluster COMMAND instead of --executor cluster")


def translate(arguments: list[str]) -> list[str]:
    """Return the arguments in the syntax of Snakemake.

    A dry run needs no ``--jobs``, but without it Snakemake takes this machine's cores for those of the workflow.

    >>> translate(["snakemake", "--cluster", "sbatch", "--jobs", "4"])
    ['snakemake', '--executor', 'cluster-generic', '--cluster-generic-submit-cmd', 'sbatch', '--jobs', '4']
    >>> translate(["snakemake", "-n", "--cluster=sbatch"])[2:]
    ['--executor', 'cluster-generic', '--cluster-generic-submit-cmd=sbatch', '--jobs', '1']
    """
    for i, argument in enumerate(arguments):
        option, equals, command = argument.partition("=")
        if option == "--cluster":
            submit = ["--executor", "cluster-generic", "--cluster-generic-submit-cmd" + equals + command]
            rest = arguments[i + 1 :]
            dry = any(map(DRY_RUN.fullmatch, arguments)) and not any(map(JOBS.match, arguments))
            return [*arguments[:i], *submit, *rest, *(["--jobs", "1"] if dry else [])]
    return arguments


def snakefile(arguments: list[str]) -> Path | None:
    """Return the Snakefile of a command line, None if there is none.

    >>> snakefile(["snakemake", "-s", "a/b"]), snakefile(["snakemake", "--snakefile=c"])
    (PosixPath('a/b'), PosixPath('c'))
    """
    for i, argument in enumerate(arguments):
        option, equals, name = argument.partition("=")
        if option in ("--snakefile", "-s"):
            return Path(name if equals else "".join(arguments[i + 1 : i + 2]))
    return next((path for path in map(Path, PLACES) if path.exists()), None)


def is_ours(path: Path | None) -> bool:
    """Whether a Snakefile is that of hpcmm, as ``hpcmm init`` writes it."""
    try:
        return path is not None and re.search(r"^from hpcmm\b", path.read_text("utf-8"), re.MULTILINE) is not None
    except (OSError, ValueError):
        return False


def main() -> None:
    """Rewrite the arguments of this process, and report it, if it is Snakemake on a Snakefile of hpcmm.

    Without the plugin of cluster-generic the process ends with an error.
    """
    translated = translate(sys.argv)
    if translated != sys.argv and is_ours(snakefile(sys.argv)):
        if find_spec("snakemake_executor_plugin_cluster_generic") is None:
            sys.exit(
                "hpcmm: error: --cluster needs snakemake-executor-plugin-cluster-generic, which is not installed: "
                "pip install 'hpcmm[workflow]'"
            )
        print("hpcmm: --cluster is taken for --executor cluster-generic --cluster-generic-submit-cmd", file=sys.stderr)
        sys.argv = translated


main()
