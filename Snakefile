"""config.yaml -> plan -> measuring jobs -> one HDF5 file per batch -> one for all -> report."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from hpcmm import backends
from hpcmm.system import surroundings
from hpcmm.experiment import extensions, plan
from hpcmm.cluster import site, slurm
from hpcmm.bench import done, status
from hpcmm.experiment.config import read_config
from hpcmm.system.reader import naming, typed
from hpcmm.model import HpcmmError
from hpcmm.store import require_writable

HERE = Path(workflow.basedir)
RESULTS = Path("results")
TIMINGS, PAGE = str(RESULTS / done.TIMINGS), str(RESULTS / done.PAGE)
# What Snakemake is told at each start: a file for each job that is done, and one that is new if a product is stale.
MARKS = Path(".snakemake") / "hpcmm"
DONE, STALE = str(MARKS / "done" / "{job}"), str(MARKS / "stale" / "{product}")
FAILED = str(MARKS / "failed" / "{job}")  # the batches that ended their job

IN_JOB, ON_CLUSTER = not workflow.is_main_process, workflow.nodes is not None
# --dag and others need no --cores
CORES = os.cpu_count() if workflow.resource_settings.cores is None else workflow.resource_settings.cores

# Only a job starts ranks by the launcher that started it: sbatch and mpiexec inherit nothing of a job around.
surroundings.enter(launched=IN_JOB, local=not IN_JOB and not ON_CLUSTER)
os.environ.update(
    # absolute, because --directory may choose another folder for the results
    HPCMM_JOBS=str(HERE / "jobs"),
    # jobs run with this Python, and with the mpiexec beside it if the MPI is a wheel
    PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
)

try:
    SITE = site.read(HERE / site.FILE)
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
        if not ON_CLUSTER and CORES < 1:
            raise HpcmmError("--cores: less than 1 is not allowed; allowed: 1 or more, or all")
        # a config file from the command line replaces ours instead of being merged into it
        FILES = workflow.overwrite_configfiles or [HERE / "config.yaml"]
        CHANGES = typed(workflow.config_settings.config)  # Snakemake reads nested numbers as texts
        EXPERIMENT = read_config(*FILES, changes=CHANGES)
        with naming(FILES[-1]):
            # the devices of this machine say nothing about a cluster
            PLAN = plan.make(
                EXPERIMENT,
                SITE.machine() if ON_CLUSTER else backends.this_machine(),
                files=[os.path.relpath(path) for path in FILES],
                changes=CHANGES,
            )
        for folder in [Path.cwd(), RESULTS, *{batch.file(RESULTS).parent for batch in PLAN.to_measure}]:
            require_writable(folder)
        done.mark(PLAN, RESULTS, MARKS)
        if ON_CLUSTER:
            os.environ.update(PATH=os.pathsep.join([str(HERE / "jobs" / "bin"), os.environ.get("PATH", "")]))
        slurm.claim()
except HpcmmError as error:
    sys.exit("hpcmm: error: {}".format(error))

# Slurm gives each job its own CPUs and GPUs. Elsewhere, a machine runs one measurement at a time, for all users.
ALONE = "" if IN_JOB or ON_CLUSTER else "{} -m hpcmm.cluster.alone".format(Path(sys.executable).name)
VERBOSE = "--verbose" in sys.argv
THREADS = SITE.cpus_per_rank if IN_JOB or ON_CLUSTER else CORES
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
PROFILES = {done.profile_job(operation): operation for operation in PLAN.profiled}
EXTENSIONS = ["--extension={}".format(path) for path in extensions.named(PLAN.config)]
TURNS = {name: turn for job in PLAN.jobs for name, turn in plan.turns(job, PLAN.measuring).items()}
JOBS = {name: turn.job for name, turn in TURNS.items()}
MEASURED = expand(DONE, job=[*JOBS, *PROFILES])


def job_of(wildcards):
    return JOBS[wildcards.job]


def any_of(names):
    """Return a pattern of a wildcard for these names, and for no other one."""
    return "|".join(names) or "(?!)"


REQUESTED = {
    "tasks": lambda wildcards: job_of(wildcards).ranks,
    "nodes": lambda wildcards: SITE.nodes(job_of(wildcards).ranks),
    "gres": lambda wildcards: SITE.gres(job_of(wildcards)),
    "slurm_extra": lambda wildcards: SITE.extra(job_of(wildcards).ranks),
    "mem_mb": lambda wildcards: SITE.mem_mb(job_of(wildcards), plan.largest_bytes(job_of(wildcards))),
    "runtime": lambda wildcards: SITE.minutes(job_of(wildcards)),
}


# Run by the process that the user started, never by its jobs. The plan is not the output of a rule: otherwise any
# change in it would run every job again. Each point has a fingerprint instead, also in the file of its batch.
onstart:
    workflow.scheduler.keepgoing = True  # no job needs another one
    if not ON_CLUSTER:
        workflow.scheduler.job_rate_limiter = None  # Snakemake waits for its timer of a second before it ends
    try:
        slurm.begin(ON_CLUSTER, workflow)
    except HpcmmError as error:
        sys.exit("hpcmm: error: {}".format(error))
    PLAN.write(RESULTS / "plan.json")
    if workflow.dag_settings.forceall:
        print(
            "hpcmm: --forceall keeps points that are current; to measure all again: rm -r results/raw",
            file=sys.stderr,
        )
    surroundings.say()
    if "sweeps" in CHANGES:
        print(
            "hpcmm: --config adds to the sweeps of {}, or changes: {}; for these alone: --config-file FILE".format(
                FILES[-1], ", ".join(CHANGES["sweeps"])
            ),
            file=sys.stderr,
        )
    print(status.ahead(RESULTS, PLAN), file=sys.stderr, flush=True)


onsuccess:
    slurm.end()


onerror:
    slurm.end()
    print(status.unfinished(PLAN, RESULTS), file=sys.stderr, flush=True)
    # A rule runs only if all its inputs exist. After a failed job, the results are therefore collected and reported
    # here. The file and the report name the failed jobs; the next run tries them again.
    subprocess.run([sys.executable, "-m", "hpcmm.jobs.collect", "--results", "results", "--output", TIMINGS])
    if Path(TIMINGS).exists():
        subprocess.run([sys.executable, "-m", "hpcmm", "report", TIMINGS, "--results", "results", *EXTENSIONS])
    if done.is_done(PLAN, RESULTS):  # Snakemake compared dates, and the clock was set back
        sys.exit(0)


localrules:
    all,
    collect,
    report,


# The measured files are targets, too: after a run that ended early, there is a report without them.
rule all:
    input:
        PAGE,
        MEASURED,


# The watchdog of the ranks starts with their first code. An mpiexec whose ranks do not get that far, because one was
# killed, ends by itself after twice the upper bound of the job.
#
# The measured files are not outputs of the rules: Snakemake would remove them before the job, which keeps each point
# that they have, and would compare dates instead of fingerprints. The job writes its output when all are complete.
rule measure:
    input:
        lambda wildcards: expand(DONE, job=TURNS[wildcards.job].after),
    output:
        DONE,
    log:
        "results/logs/{job}.log",
    wildcard_constraints:
        job=any_of(TURNS),
    threads: THREADS
    resources:
        **SITE.resources,
        **REQUESTED,
    params:
        batches=lambda wildcards: [batch.name for batch in job_of(wildcards).batches],
        failed=FAILED,
        visits=lambda wildcards: TURNS[wildcards.job].visits,
    shell:
        'MPIEXEC_TIMEOUT=$((2 * 60 * {resources.runtime})) "$HPCMM_JOBS/with_modules" $HPCMM_ALONE '
        '"$HPCMM_JOBS/visits" {params.visits} {output} {params.failed} '
        '$HPCMM_LAUNCHER -n {resources.tasks} "$HPCMM_PYTHON" -m mpi4py '
        "-m hpcmm.jobs.measure --results results --batch {params.batches} --patience $HPCMM_PATIENCE "
        '--visits {params.visits} --done {output} --failed {params.failed} $HPCMM_WHOLE 2>&1 | "$HPCMM_JOBS/show" {log}'


rule profile:
    output:
        touch(DONE),
    log:
        "results/logs/{job}.log",
    wildcard_constraints:
        job=any_of(PROFILES),
    threads: THREADS
    resources:
        **SITE.resources,
        tasks=1,
        nodes=1,
        gres=SITE.gpus(1),
        mem_mb=SITE.memory(16000),
        runtime=60,
    params:
        operation=lambda wildcards: PROFILES[wildcards.job],
        file=lambda wildcards: done.profile_file(RESULTS, PROFILES[wildcards.job]),
    shell:
        '"$HPCMM_JOBS/with_modules" $HPCMM_ALONE "$HPCMM_PYTHON" -m hpcmm.jobs.profile --plan results/plan.json '
        '--operation {params.operation} --output {params.file} 2>&1 | "$HPCMM_JOBS/show" {log}'


rule collect:
    input:
        MEASURED,
        stale=STALE.format(product=done.TIMINGS),
    output:
        TIMINGS,
    log:
        "results/logs/collect.log",
    shell:
        '"$HPCMM_PYTHON" -m hpcmm.jobs.collect --results results --output {output} 2>&1 | tee {log}'


rule report:
    input:
        timings=TIMINGS,
        stale=STALE.format(product=done.PAGE),
    output:
        report(PAGE, category="Benchmark"),
    log:
        "results/logs/report.log",
    params:
        extensions=EXTENSIONS,
    shell:
        '"$HPCMM_PYTHON" -m hpcmm report {input.timings} --results results {params.extensions:q} 2>&1 | tee {log}'
