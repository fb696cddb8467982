"""NVIDIA GPUs; CuPy and NVML are imported nowhere else."""
