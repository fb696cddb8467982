"""Records of this package that are written as YAML."""

from pathlib import Path
from typing import Any

import yaml


def beside(module: str) -> Any:
    """Return the content of the YAML file beside a module, by the path of the module. It uses libyaml if present."""
    text = Path(module).with_suffix(".yaml").read_text("utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
