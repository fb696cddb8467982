"""Grade kernels that others wrote: each runs in a process of its own, and this process judges and times it.

``rubric`` reads the exercises, ``sources`` refuses forbidden code, ``session`` controls the process of a kernel,
``native`` and ``device`` are the programs of such processes, which share memory with this one,
``exercise`` grades one file, and ``submissions`` grades folders.
"""
