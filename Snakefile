"""config.yaml -> plan -> one measuring job a batch -> one HDF5 file -> report."""

import os
import sys
from pathlib import Path

from hpcmm import backends, plan
from hpcmm.model import HpcmmError


configfile: "config.yaml"


# Jobs read this file again, perhaps on another machine: all see what the first reader decided.
config["backends"] = os.environ.setdefault("HPCMM_BACKENDS", config.get("backends", "auto"))
try:
    PLAN = plan.make(config, backends.cuda_missing(), backends.gpu_count())
except HpcmmError as error:
    sys.exit("hpcmm: error: " + str(error))
BATCHES = {batch.name: batch for batch in PLAN.batches}


def batch_of(wildcards):
    return BATCHES[wildcards.batch]


localrules:
    all,
    plan,
    collect,
    report,


rule all:
    input:
        "results/report.html",


rule plan:
    output:
        "results/plan.json",
    log:
        "results/logs/plan.log",
    params:
        fingerprint=PLAN.fingerprint,
    run:
        PLAN.write(Path(output[0]))


rule measure:
    input:
        plan=ancient("results/plan.json"),
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
        # one measurement at a time on a machine, whoever started it
        "flock /tmp/hpcmm-$(id -u)-${{SLURM_JOB_ID:-local}}.lock "
        "{resources.mpi} -n {resources.tasks} python -m mpi4py jobs/measure.py "
        "--plan {input.plan} --batch {wildcards.batch} --output {output} 2>&1 | tee {log}"


rule collect:
    input:
        plan="results/plan.json",
        raw=expand("results/raw/{batch}.h5", batch=[batch.name for batch in PLAN.to_measure]),
    output:
        "results/timings.h5",
    log:
        "results/logs/collect.log",
    shell:
        "python jobs/collect.py --plan {input.plan} --raw results/raw --output {output} 2>&1 | tee {log}"


rule report:
    input:
        "results/timings.h5",
    output:
        "results/report.html",
    log:
        "results/logs/report.log",
    shell:
        "python jobs/report.py {input} --results results 2>&1 | tee {log}"
