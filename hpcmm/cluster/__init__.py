"""Slurm, and the settings of a cluster."""
