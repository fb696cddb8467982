// Empty: kernels need nothing of it.
