"""Work spread over MPI ranks; mpi4py is imported nowhere else."""
