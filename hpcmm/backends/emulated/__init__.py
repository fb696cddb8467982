"""CUDA kernels on the host, without a GPU: every access is checked. Nothing is timed."""
