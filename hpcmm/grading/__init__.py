"""Grade kernels that others wrote: each runs in a process of its own, and this process judges and times it.

``rubric`` reads what is asked, ``sources`` refuses what a file may not contain, ``session`` holds the process of a
kernel, ``native`` and ``device`` are the programs of such processes, ``memory`` is what they share with this one,
``exercise`` grades one file, and ``submissions`` grades folders.
"""
