"""A page in the look of the report with counts, notes, figures and tables: for histories and checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcmm.report import drawing, page
from hpcmm.report.markup import Table
from hpcmm.report.vega import Figure


@dataclass(frozen=True)
class Section:
    """A part of a sheet under its title: sentences, figures, tables."""

    title: str
    text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Count:
    """A number at the top of a sheet; ``kind`` colours it: ``"pass"``, ``"wrong"``, ``"warn"`` or none."""

    name: str
    value: int
    kind: str = ""


def render(title: str, about: str, counts: Sequence[Count], notes: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the page, one offline HTML file; ``about`` is the line below its title."""
    embedded = page.Embedded()
    return page.template("sheet.html.j2").render(
        title=title,
        about=about,
        counts=counts,
        notes=notes,
        sections=sections,
        defined={},  # a sheet has no list of definitions to link to
        embed=embedded.add,
        embedded=embedded.text,
        vega=drawing.script() if any(section.figures for section in sections) else "",
    )
