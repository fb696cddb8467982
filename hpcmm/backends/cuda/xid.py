"""Xid errors of a GPU: those that the driver reports while this process listens.

The driver writes them to the kernel's log, which only root may read. NVML reports them as events to any user.
"""

from __future__ import annotations

from typing import Any

import pynvml


class XidErrors:
    """Xid errors of a GPU since this object was made; NVMLError if NVML has no such events for this GPU."""

    def __init__(self, handle: Any):
        self._events, self._count = pynvml.nvmlEventSetCreate(), 0
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except pynvml.NVMLError:
            pynvml.nvmlEventSetFree(self._events)
            raise

    def count(self) -> int:
        """Return the number of errors so far."""
        while True:
            try:
                pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError_Timeout:
                return self._count
            self._count += 1
