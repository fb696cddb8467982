"""Slurm, and what differs from cluster to cluster."""
