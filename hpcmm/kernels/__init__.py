"""The kernel sources: one file a rung, ``<folder>/<variant>.c`` or ``.cu``."""

from pathlib import Path

from hpcmm.model import Variant

FOLDER = Path(__file__).parent


def source(folder: str, variant: Variant) -> Path:
    """Return the source file of a variant that is not a baseline."""
    return FOLDER / folder / (variant.name + {"cpu": ".c", "cuda": ".cu"}[variant.device])
