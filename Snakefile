"""config.yaml -> plan -> measuring jobs -> one HDF5 file per batch -> one for all -> report."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from hpcmm import backends
from hpcmm.experiment import extensions, plan
from hpcmm.cluster import launcher, site, slurm
from hpcmm.bench import status
from hpcmm.experiment.fingerprint import digest
from hpcmm.experiment.config import locate_files, merge_into, read_config
from hpcmm.reader import naming
from hpcmm.measurement import FILE, Job
from hpcmm.model import HpcmmError
from hpcmm.store import require_writable

HERE = Path(workflow.basedir)
RESULTS = Path("results")
DONE = "results/jobs/{job}.done"
RAW = str(Path("results", FILE.format("{job}")))
PROFILE = "results/profiles/{operation}.h5"

# Snakemake 7 and 9 differ in how they mark a process that runs one job, and jobs that go to a cluster.
if hasattr(workflow, "run_local"):
    IN_JOB, ON_CLUSTER = workflow.mode != 0, not workflow.run_local
else:
    IN_JOB, ON_CLUSTER = not workflow.is_main_process, workflow.nodes is not None

os.environ.update(
    # absolute, because --directory may choose another folder for the results
    HPCMM_JOBS=str(HERE / "jobs"),
    # jobs run with this Python, and with the mpiexec beside it if the MPI is a wheel
    PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    **launcher.environment(local=not IN_JOB and not ON_CLUSTER),
)

try:
    SITE = site.read(HERE / "profiles" / "slurm" / "site.yaml")
    if IN_JOB:
        # a job follows the plan, even if its node has other devices
        PLAN = plan.read(RESULTS / "plan.json")
        slurm.enter_job()
    else:
        if ON_CLUSTER and shlex.quote(sys.executable) != sys.executable:
            raise HpcmmError(
                "{}: Snakemake starts cluster jobs by this path of Python without quotes; install hpcmm in a path "
                "of letters, digits and -_./ only".format(sys.executable)
            )
        if not ON_CLUSTER and workflow.cores < 1:
            raise HpcmmError("--cores: 0 is not allowed; allowed: 1 or more, or all")
        # a config file from the command line replaces ours instead of being merged into it
        FILES = workflow.overwrite_configfiles or [HERE / "config.yaml"]
        EXPERIMENT = read_config(*FILES)
        merge_into(EXPERIMENT, config)  # which has the values of the files again
        locate_files(EXPERIMENT, FILES[-1])
        with naming(FILES[-1]):
            # the devices of this machine say nothing about a cluster, so auto means all devices of the config
            PLAN = plan.make(EXPERIMENT) if ON_CLUSTER else plan.make(EXPERIMENT, backends.this_machine())
        BATCHES = [*PLAN.to_measure, *PLAN.sustained]
        for folder in [Path.cwd(), RESULTS, RESULTS / "jobs", *{batch.file(RESULTS).parent for batch in BATCHES}]:
            require_writable(folder)
        for job in PLAN.jobs:  # without the file of a batch its job is not done
            if not all(batch.file(RESULTS).exists() for batch in job.batches):
                Path(DONE.format(job=job.name)).unlink(missing_ok=True)
        if ON_CLUSTER:
            os.environ.update(PATH=os.pathsep.join([str(HERE / "jobs" / "bin"), os.environ.get("PATH", "")]))
        else:
            slurm.leave_allocation()
        slurm.claim()
except HpcmmError as error:
    sys.exit("hpcmm: error: {}".format(error))

# Slurm gives each job its own CPUs and GPUs. Elsewhere, a machine runs one measurement at a time, for all users.
ALONE = "" if IN_JOB or ON_CLUSTER else "{} -m hpcmm.cluster.alone".format(Path(sys.executable).name)
VERBOSE = "--verbose" in sys.argv
THREADS = SITE.cpus_per_rank if IN_JOB or ON_CLUSTER else workflow.cores
os.environ.update(
    HPCMM_PYTHON=sys.executable,
    HPCMM_ALONE=ALONE,
    HPCMM_MODULES=" ".join(SITE.modules) if IN_JOB else "",
    HPCMM_LAUNCHER=SITE.launcher if IN_JOB else "mpiexec",
    HPCMM_PATIENCE=str(SITE.patience),
    # the jobs of a cluster run at the same time, and their output goes to files only
    HPCMM_WHOLE="" if IN_JOB or ON_CLUSTER else "--whole",
    HPCMM_SHOW="all" if IN_JOB or ON_CLUSTER or VERBOSE else "progress",
    HPCMM_SLURM_PATIENCE=str(SITE.slurm_patience),
)
TIMINGS = "results/timings.h5"
MEASURED = expand(DONE, job=[job.name for job in PLAN.jobs])
MEASURED += expand(PROFILE, operation=PLAN.profiled)
MEASURED += expand(RAW, job=[batch.name for batch in PLAN.sustained])
# The mark of a run that ended early, newer than the partial results. Snakemake has no record of those: without a newer
# input they would be up to date.
PARTIAL = Path(".snakemake") / "hpcmm" / "partial"
EXTENSIONS = ["--extension={}".format(path) for path in extensions.named(PLAN.config)]
JOBS = {job.name: job for job in (*PLAN.jobs, *(Job((batch,)) for batch in PLAN.sustained))}


def job_of(wildcards):
    return JOBS[wildcards.job]


def fingerprint_of(wildcards):
    return digest([batch.fingerprint for batch in job_of(wildcards).batches])


REQUESTED = {
    # for Snakemake's slurm executor, mpi means that the command itself starts its ranks
    "mpi": lambda wildcards: SITE.launcher if job_of(wildcards).ranks > 1 else "",
    "tasks": lambda wildcards: job_of(wildcards).ranks,
    "nodes": lambda wildcards: SITE.nodes(job_of(wildcards).ranks),
    "gres": lambda wildcards: SITE.gres(job_of(wildcards)),
    "slurm_extra": lambda wildcards: SITE.extra(job_of(wildcards).ranks),
    "tasks_per_gpu": 0,
    "mem_mb": lambda wildcards: SITE.mem_mb(job_of(wildcards)),
    "runtime": lambda wildcards: SITE.minutes(job_of(wildcards)),
}


# Run by the process that the user started, never by its jobs. The plan is not the output of a rule: otherwise any
# change in it would run every job again. Each job has a fingerprint of its points instead.
onstart:
    workflow.scheduler.keepgoing = True  # no job needs another one
    if not ON_CLUSTER:
        workflow.scheduler.job_rate_limiter = None  # Snakemake waits for its timer of a second before it ends
    try:
        slurm.begin(ON_CLUSTER, workflow)
    except HpcmmError as error:
        sys.exit("hpcmm: error: {}".format(error))
    PLAN.write(RESULTS / "plan.json")
    print(status.ahead(RESULTS, PLAN), file=sys.stderr, flush=True)


onsuccess:
    slurm.end()


onerror:
    slurm.end()
    print(status.unfinished(PLAN, RESULTS), file=sys.stderr, flush=True)
    # A rule runs only if all its inputs exist. After a failed job, the results are therefore collected and reported
    # here. The file and the report name the failed jobs; the next run tries them again.
    # The mark comes first, so that there is no partial file without it if this process is killed. Its text is new each
    # time, because Snakemake ignores a newer file with the same text.
    PARTIAL.parent.mkdir(parents=True, exist_ok=True)
    PARTIAL.write_text(str(time.time_ns()))
    subprocess.run([sys.executable, "-m", "hpcmm.jobs.collect", "--results", "results", "--output", TIMINGS])
    subprocess.run([sys.executable, "-m", "hpcmm", "report", TIMINGS, "--results", "results", *EXTENSIONS])


localrules:
    all,
    collect,
    report,


# The measured files are targets, too: after a run that ended early, there is a report without them.
rule all:
    input:
        "results/report.html",
        MEASURED,


# The watchdog of the ranks starts with their first code. An mpiexec whose ranks do not get that far, because one was
# killed, ends by itself after twice the upper bound of the job.
#
# The files of the batches are not outputs of the rule: Snakemake would remove them before the job, which keeps each one
# that is complete. The job writes its output when all are.
rule measure:
    output:
        DONE,
    log:
        "results/logs/{job}.log",
    wildcard_constraints:
        job="|".join(job.name for job in PLAN.jobs),
    priority: 1  # before the sustained products
    threads: THREADS
    resources:
        **SITE.resources,
        **REQUESTED,
    params:
        fingerprint=fingerprint_of,
        batches=lambda wildcards: [batch.name for batch in job_of(wildcards).batches],
        failed="results/jobs/{job}.failed",
        visits=PLAN.measuring.visits,
    shell:
        'MPIEXEC_TIMEOUT=$((2 * 60 * {resources.runtime})) "$HPCMM_JOBS/with_modules" $HPCMM_ALONE '
        '"$HPCMM_JOBS/visits" {params.visits} {output} {params.failed} '
        '$HPCMM_LAUNCHER -n {resources.tasks} "$HPCMM_PYTHON" -m mpi4py '
        "-m hpcmm.jobs.measure --results results --batch {params.batches} --patience $HPCMM_PATIENCE "
        '--done {output} --failed {params.failed} $HPCMM_WHOLE 2>&1 | "$HPCMM_JOBS/show" {log}'


rule sustain:
    output:
        RAW,
    log:
        "results/logs/{job}.log",
    wildcard_constraints:
        job="|".join(batch.name for batch in PLAN.sustained) or plan.SUSTAINED,  # not empty, which allows all
    threads: THREADS
    resources:
        **SITE.resources,
        **REQUESTED,
    params:
        fingerprint=fingerprint_of,
    shell:
        'MPIEXEC_TIMEOUT=$((2 * 60 * {resources.runtime})) "$HPCMM_JOBS/with_modules" $HPCMM_ALONE '
        '$HPCMM_LAUNCHER -n {resources.tasks} "$HPCMM_PYTHON" -m mpi4py '
        "-m hpcmm.jobs.sustain --plan results/plan.json --batch {wildcards.job} --patience $HPCMM_PATIENCE "
        '--output {output} 2>&1 | "$HPCMM_JOBS/show" {log}'


rule profile:
    output:
        PROFILE,
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
        '"$HPCMM_JOBS/with_modules" $HPCMM_ALONE "$HPCMM_PYTHON" -m hpcmm.jobs.profile --plan results/plan.json '
        '--operation {wildcards.operation} --output {output} 2>&1 | "$HPCMM_JOBS/show" {log}'


rule collect:
    input:
        MEASURED,
        [PARTIAL] if PARTIAL.exists() else [],
    output:
        TIMINGS,
    log:
        "results/logs/collect.log",
    params:
        fingerprint=PLAN.fingerprint,
    shell:
        '"$HPCMM_PYTHON" -m hpcmm.jobs.collect --results results --output {output} 2>&1 | tee {log}'


rule report:
    input:
        TIMINGS,
    output:
        report("results/report.html", category="Benchmark"),
    log:
        "results/logs/report.log",
    params:
        extensions=EXTENSIONS,
    shell:
        '"$HPCMM_PYTHON" -m hpcmm report {input} --results results {params.extensions:q} 2>&1 | tee {log}'
