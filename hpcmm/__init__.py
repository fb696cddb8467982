"""Benchmarks of matrix product, reduction and vector sum: ladders of kernels on CPUs and GPUs, across MPI ranks."""
