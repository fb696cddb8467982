"""The energy of the host, where Linux provides it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from hpcmm.model import DeviceError

ROOT = Path("/")  # of the files below
POWERCAP = "sys/class/powercap"


class Energy:
    """The energy counters of RAPL, of all packages and their memory. They wrap; this sum does not.

    It must be read at least once in the time that a counter takes to wrap, a quarter of an hour or more.
    """

    def __init__(self):
        self.last: dict[Path, int] = {}
        self.wraps = 0  # in microjoules

    def joules(self) -> float:
        """Return the energy of the host; raise DeviceError if RAPL has no counter that this user may read."""
        zones = [zone for zone in sorted((ROOT / POWERCAP).glob("*-rapl:*")) if counts(zone)]
        if not zones:
            raise DeviceError(f"no energy counter of the CPU: /{POWERCAP} has no RAPL package")
        try:
            now = {zone: int((zone / "energy_uj").read_text()) for zone in zones}
            for zone, value in now.items():
                if value < self.last.get(zone, value):
                    self.wraps += int((zone / "max_energy_range_uj").read_text())
        except PermissionError as error:
            raise DeviceError(f"{error.filename}: only root may read the energy counter of the CPU") from error
        except (OSError, ValueError) as error:
            raise DeviceError(f"the energy counter of the CPU cannot be read: {error}") from error
        self.last = now
        return (sum(now.values()) + self.wraps) * 1e-6


def counts(zone: Path) -> bool:
    """Whether a zone of RAPL is a package or its memory; a package contains its other parts."""
    with contextlib.suppress(OSError):
        name = (zone / "name").read_text().strip()
        return name.startswith("package") or name == "dram"
    return False
