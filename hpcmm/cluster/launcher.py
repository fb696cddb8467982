"""The environment in which ``mpiexec`` starts the ranks."""

from __future__ import annotations

import os


def environment(local: bool) -> dict[str, str]:
    """Return what Open MPI, 4 and 5, reads in its environment; other MPIs ignore it.

    Parameters
    ----------
    local : bool
        Whether ranks start on this machine, and not in a job of Slurm.
    """
    # Open MPI would bind each rank to one core; the ranks divide among them what the job has.
    found = {"OMPI_MCA_hwloc_base_binding_policy": "none", "PRTE_MCA_hwloc_default_binding_policy": "none"}
    if os.getuid() == 0:
        # It refuses to start as root, which the user of a container often is.
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if local:
        # It refuses more ranks than cores, not counting hardware threads; the plan limits the ranks.
        found |= {
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }
    return found
