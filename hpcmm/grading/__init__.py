"""Grade kernels that others wrote: each runs in an isolated process, and this process judges and times it.

``rubric`` reads the exercises, ``sandbox`` isolates, ``sources`` compiles, ``session`` controls a process, ``native``
and ``device`` are its programs, ``exercise`` grades one file, and
``submissions`` folders.
"""
