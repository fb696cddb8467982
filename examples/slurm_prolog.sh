#!/bin/bash
# Slurm prolog: refuse a job if the last check of this node, by slurm_epilog.sh, found a slow device. Takes no time.
# In slurm.conf: Prolog=/etc/slurm/hpcmm_prolog.sh
! tail -n 1 /var/lib/hpcmm/history.jsonl 2>/dev/null | grep -q '"verdict": "slow"'
