"""Measuring: the work of a job's ranks, and its journal."""
