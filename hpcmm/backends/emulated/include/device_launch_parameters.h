// Intentionally empty: cuda_on_host.h declares what kernels use from this header.
