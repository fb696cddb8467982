"""The checks of ``hpcmm doctor``."""
