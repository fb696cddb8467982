"""config.yaml -> plan -> one measuring job a batch -> one HDF5 file -> report."""

import os
import sys
from pathlib import Path

from hpcmm import backends, plan
from hpcmm.model import HpcmmError

os.environ.update(
    # the programs that the rules launch, also where --directory names another place for the results
    HPCMM_JOBS=str(Path(workflow.basedir, "jobs")),
    # one measurement at a time on a machine, whoever started it
    HPCMM_ALONE="flock /tmp/hpcmm-{}-{}.lock".format(os.getuid(), os.environ.get("SLURM_JOB_ID", "local")),
    # jobs run with this Python, and with the mpiexec beside it if the MPI is a wheel
    PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    # Open MPI, 4 and 5, would bind each rank to one core; ranks share out what the job has
    OMPI_MCA_hwloc_base_binding_policy="none",
    PRTE_MCA_hwloc_default_binding_policy="none",
)

# a config file given on the command line takes this one's place instead of being merged into it
if "sweeps" not in config:

    configfile: Path(workflow.basedir) / "config.yaml"


# Jobs read this file again, perhaps on another machine: all see what the first reader decided.
config["backends"] = os.environ.setdefault("HPCMM_BACKENDS", config.get("backends", "auto"))
try:
    PLAN = plan.make(config, backends.cuda_missing(), backends.gpu_count())
except HpcmmError as error:
    sys.exit("hpcmm: error: {}".format(error))
BATCHES = {batch.name: batch for batch in PLAN.batches}


def batch_of(wildcards):
    return BATCHES[wildcards.batch]


# Written by the process that the user started, never by its jobs. It is no rule's output: then a
# change anywhere in the plan would run every job again, whereas each batch has its fingerprint.
onstart:
    PLAN.write(Path("results/plan.json"))


localrules:
    all,
    collect,
    report,


rule all:
    input:
        "results/report.html",


rule measure:
    output:
        "results/raw/{batch}.h5",
    log:
        "results/logs/{batch}.log",
    wildcard_constraints:
        batch="|".join(BATCHES),
    threads: workflow.cores
    resources:
        mpi="mpiexec",
        tasks=lambda wildcards: batch_of(wildcards).ranks,
        gpu=lambda wildcards: batch_of(wildcards).ranks if batch_of(wildcards).device == "cuda" else 0,
    params:
        fingerprint=lambda wildcards: batch_of(wildcards).fingerprint,
    shell:
        "$HPCMM_ALONE {resources.mpi} -n {resources.tasks} python -m mpi4py $HPCMM_JOBS/measure.py "
        "--plan results/plan.json --batch {wildcards.batch} --output {output} 2>&1 | tee {log}"


rule profile:
    output:
        "results/profiles/{operation}.h5",
    log:
        "results/logs/profiles/{operation}.log",
    threads: workflow.cores
    resources:
        tasks=1,
        gpu=1,
    params:
        fingerprint=lambda wildcards: PLAN.profile_fingerprint(wildcards.operation),
    shell:
        "$HPCMM_ALONE python $HPCMM_JOBS/profiling.py --plan results/plan.json "
        "--operation {wildcards.operation} --output {output} 2>&1 | tee {log}"


rule collect:
    input:
        expand("results/raw/{batch}.h5", batch=[batch.name for batch in PLAN.to_measure]),
        expand("results/profiles/{operation}.h5", operation=PLAN.profiled),
    output:
        "results/timings.h5",
    log:
        "results/logs/collect.log",
    params:
        fingerprint=PLAN.fingerprint,
    shell:
        "python $HPCMM_JOBS/collect.py --plan results/plan.json --raw results/raw "
        "--profiles results/profiles --output {output} 2>&1 | tee {log}"


rule report:
    input:
        "results/timings.h5",
    output:
        report("results/report.html", category="Benchmark"),
    log:
        "results/logs/report.log",
    shell:
        "python -m hpcmm report {input} --results results 2>&1 | tee {log}"
