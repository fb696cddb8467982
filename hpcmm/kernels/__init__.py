"""The kernel sources: one file a rung, ``<operation>/<variant>.c`` or ``.cu``."""

from pathlib import Path

from hpcmm.model import Variant

FOLDER = Path(__file__).parent


def source(operation: str, variant: Variant) -> Path:
    """Return the source file of a variant that is not a baseline."""
    return FOLDER / operation / (variant.name + {"cpu": ".c", "cuda": ".cu"}[variant.device])
