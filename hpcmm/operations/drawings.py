"""Drawings of rungs, for their pages and the report: the SVG files of ``pictures``, in the colour of the text."""

from collections.abc import Iterator
from pathlib import Path

from hpcmm.model.records import trusted

PICTURES = Path(__file__).parent / "pictures"
OF = trusted((PICTURES / "of_rungs.yaml").read_text("utf-8"))  # page of a rung: its pictures


def of(page: str) -> Iterator[str]:
    """Yield the drawings of the page of a rung, or the picture of that name."""
    for path in (PICTURES / f"{name}.svg" for name in OF.get(page, [page])):
        if path.exists():
            yield path.read_text("utf-8")
