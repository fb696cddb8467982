"""The programs that the rules of the Snakefile run, each as ``python -m hpcmm.jobs.NAME``, and a run without them."""
