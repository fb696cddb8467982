"""Measure every rung of the matrix-product and reduction ladders, on CPUs and GPUs, across MPI ranks."""
