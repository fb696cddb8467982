"""Records of this package that are written as YAML."""

from pathlib import Path
from typing import Any

import yaml


def beside(module: str, name: str = "") -> Any:
    """Return the content of the YAML file of this name, or of its own, beside a module."""
    path = Path(module)
    return trusted((path.with_name(name) if name else path.with_suffix(".yaml")).read_text("utf-8"))


def trusted(text: str) -> Any:
    """Parse YAML of this package, which its tests check. It uses libyaml if present (ten times faster)."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
