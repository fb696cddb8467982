"""Measure every rung of the ladders of matrix product, reduction and vector sum, on CPUs and GPUs, across MPI ranks."""
