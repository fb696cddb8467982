"""Records of this package that are written as YAML."""

from pathlib import Path
from typing import Any

import yaml


def beside(module: str, name: str = "") -> Any:
    """Return the content of the YAML file of this name, or of its own, beside a module. It uses libyaml if present."""
    path = Path(module)
    text = (path.with_name(name) if name else path.with_suffix(".yaml")).read_text("utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
