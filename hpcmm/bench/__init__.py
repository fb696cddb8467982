"""Measuring: what the ranks of a job do, and what it keeps."""
