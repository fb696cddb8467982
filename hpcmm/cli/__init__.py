"""The commands of ``python -m hpcmm``."""
