"""The environment in which ``mpiexec`` starts the ranks."""

from __future__ import annotations

import os


def environment(local: bool) -> dict[str, str]:
    """Return environment variables for Open MPI 4 and 5; other MPI libraries ignore them.

    Parameters
    ----------
    local : bool
        Whether ranks start on this machine, and not in a Slurm job.
    """
    # By default Open MPI binds each rank to one core. Here the ranks divide the cores of the job among them.
    found = {"OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none"}
    if os.getuid() == 0:
        # Open MPI refuses to run as root, the usual user in a container.
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if local:
        # Open MPI refuses more ranks than physical cores. Here the plan limits the number of ranks.
        found |= {
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }
    return found
