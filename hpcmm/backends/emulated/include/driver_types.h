// Empty: cuda_on_host.h has what a kernel needs of it.
