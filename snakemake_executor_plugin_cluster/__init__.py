"""``snakemake --cluster sbatch`` for Snakemake 8 and later, as in Snakemake 7.

Snakemake imports every module with this name's prefix before it reads its arguments. The import replaces
``--cluster COMMAND`` by ``--executor cluster-generic --cluster-generic-submit-cmd COMMAND``.
"""

import sys

from snakemake_executor_plugin_cluster_generic import Executor, common_settings

__all__ = ["Executor", "common_settings"]


def translate(arguments: list[str]) -> list[str]:
    """Return the arguments in the syntax of Snakemake 8 and later.

    >>> translate(["snakemake", "--cluster", "sbatch", "--jobs", "4"])
    ['snakemake', '--executor', 'cluster-generic', '--cluster-generic-submit-cmd', 'sbatch', '--jobs', '4']
    """
    for i, argument in enumerate(arguments):
        option, equals, command = argument.partition("=")
        if option == "--cluster":
            submit = ["--executor", "cluster-generic", "--cluster-generic-submit-cmd" + equals + command]
            return [*arguments[:i], *submit, *arguments[i + 1 :]]
    return arguments


sys.argv = translate(sys.argv)
