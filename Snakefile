"""config.yaml -> plan -> one measuring job a batch -> one HDF5 file -> report."""

import os
import sys
from pathlib import Path

from hpcmm import backends, plan, site, slurm, status
from hpcmm.config import merge_into, read_config
from hpcmm.model import HpcmmError

HERE = Path(workflow.basedir)

# Snakemake 7 and 9 have different words for a process that runs one job, and for jobs that go to a cluster.
if hasattr(workflow, "run_local"):
    IN_JOB, ON_CLUSTER = workflow.mode != 0, not workflow.run_local
else:
    IN_JOB, ON_CLUSTER = not workflow.is_main_process, workflow.nodes is not None

os.environ.update(
    # the programs that the rules launch, also where --directory names another place for the results
    HPCMM_JOBS=str(HERE / "jobs"),
    # jobs run with this Python, and with the mpiexec beside it if the MPI is a wheel
    PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    # Open MPI, 4 and 5, would bind each rank to one core; ranks share out what the job has
    OMPI_MCA_hwloc_base_binding_policy="none",
    PRTE_MCA_hwloc_default_binding_policy="none",
)

try:
    SITE = site.read(HERE / "profiles" / "slurm" / "site.yaml")
    if IN_JOB:
        # a job does what was planned, whatever its node has
        PLAN = plan.read(Path("results/plan.json"))
        slurm.enter_job()
    else:
        # a config file given on the command line takes the place of ours instead of being merged into it
        EXPERIMENT = read_config(*(workflow.overwrite_configfiles or [HERE / "config.yaml"]))
        merge_into(EXPERIMENT, config)
        if ON_CLUSTER:
            # what this machine has says nothing about the cluster: auto is all that the config asks for
            PLAN = plan.make(EXPERIMENT)
            os.environ.update(PATH=os.pathsep.join([str(HERE / "jobs" / "bin"), os.environ.get("PATH", "")]))
        else:
            PLAN = plan.make(EXPERIMENT, *backends.present())
        slurm.clear_after_kill()
except HpcmmError as error:
    sys.exit("hpcmm: error: {}".format(error))

# Slurm gives a job CPUs and GPUs of its own. Elsewhere there is one measurement at a time on a machine,
# whoever started it.
ALONE = "" if IN_JOB or ON_CLUSTER else "flock /tmp/hpcmm-{}.lock".format(os.getuid())
THREADS = SITE.cpus_per_rank if IN_JOB or ON_CLUSTER else workflow.cores
os.environ.update(
    HPCMM_PYTHON=sys.executable,
    HPCMM_ALONE=ALONE,
    HPCMM_MODULES=" ".join(SITE.modules) if IN_JOB else "",
    HPCMM_LAUNCHER=SITE.launcher if IN_JOB else "mpiexec",
    HPCMM_PATIENCE=str(SITE.patience),
)
BATCHES = {batch.name: batch for batch in PLAN.batches}


def batch_of(wildcards):
    return BATCHES[wildcards.batch]


# Run by the process that the user started, never by its jobs. The plan is no rule's output: then a change
# anywhere in it would run every job again, whereas each batch has its fingerprint.
onstart:
    workflow.scheduler.keepgoing = True  # no batch needs another one
    slurm.begin(ON_CLUSTER, workflow)
    PLAN.write(Path("results/plan.json"))


onsuccess:
    slurm.end()


onerror:
    slurm.end()
    print(status.unfinished(PLAN, Path("results")), file=sys.stderr, flush=True)


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
    threads: THREADS
    resources:
        **SITE.resources,
        # for Snakemake's slurm executor mpi says that the command starts its ranks by itself
        mpi=lambda wildcards: SITE.launcher if batch_of(wildcards).ranks > 1 else "",
        tasks=lambda wildcards: batch_of(wildcards).ranks,
        nodes=lambda wildcards: SITE.nodes(batch_of(wildcards).ranks),
        gres=lambda wildcards: SITE.gres(batch_of(wildcards)),
        slurm_extra=lambda wildcards: SITE.extra(batch_of(wildcards).ranks),
        tasks_per_gpu=0,
        mem_mb=lambda wildcards: SITE.mem_mb(batch_of(wildcards)),
        runtime=lambda wildcards: SITE.minutes(batch_of(wildcards)),
    params:
        fingerprint=lambda wildcards: batch_of(wildcards).fingerprint,
    shell:
        "$HPCMM_JOBS/with_modules $HPCMM_ALONE $HPCMM_LAUNCHER -n {resources.tasks} $HPCMM_PYTHON -m mpi4py "
        "$HPCMM_JOBS/measure.py --plan results/plan.json --batch {wildcards.batch} --patience $HPCMM_PATIENCE "
        "--output {output} 2>&1 | tee {log}"


rule profile:
    output:
        "results/profiles/{operation}.h5",
    log:
        "results/logs/profiles/{operation}.log",
    threads: THREADS
    resources:
        **SITE.resources,
        mpi="",
        tasks=1,
        nodes=1,
        gres="{}:1".format(SITE.gpu),
        tasks_per_gpu=0,
        mem_mb=SITE.memory_mb or 16000,
        runtime=60,
    params:
        fingerprint=lambda wildcards: PLAN.profile_fingerprint(wildcards.operation),
    shell:
        "$HPCMM_JOBS/with_modules $HPCMM_ALONE $HPCMM_PYTHON $HPCMM_JOBS/profiling.py --plan results/plan.json "
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
