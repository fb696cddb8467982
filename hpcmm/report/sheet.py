"""A page in the look of the report with counts, notes, figures and tables: for comparisons, histories, checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcmm.report import definitions, drawing, page
from hpcmm.report.markup import Table
from hpcmm.report.vega import Figure


@dataclass(frozen=True)
class Section:
    """A part of a sheet under its title: sentences, figures, tables.

    ``folded`` are tables that a click opens, and so are ``errors``, texts of several lines by exercise. ``states``
    stand in the navigation, as pairs of a CSS class and a text.
    """

    title: str
    text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    folded: Sequence[Table] = ()
    definition: definitions.Definition | None = None
    states: Sequence[tuple[str, str]] = ()
    errors: Mapping[str, str] = field(default_factory=dict)


# A number at the top of a sheet: its name, its value, and the kind that colours it: pass, wrong, warn or none
Count = tuple[str, int | str, str]


def render(title: str, about: str, counts: Sequence[Count], notes: Sequence[str], sections: Sequence[Section]) -> str:
    """Return the page, one offline HTML file; ``about`` is the line below its title."""
    vega = ""
    if any(section.figures for section in sections):
        try:
            vega = drawing.script()
        except drawing.DrawingError as error:
            notes = [*notes, f"Figures are not drawn: {error}"]
    known = {section.definition.id for section in sections if section.definition}
    anchors: dict[str, Section] = {}
    for section in sections:
        anchors[page.unique(page.slug(section.title.lower()) or "section", anchors)] = section
    # columns link to the definitions that the sheet has
    defined = {head: identity for head, identity in definitions.defined().items() if identity in known}
    more = {"sections": anchors, "defined": defined, "embedded": page.Embedded(), "vega": vega}
    return page.template("sheet.html.j2").render(title=title, about=about, counts=counts, notes=notes, **more)
