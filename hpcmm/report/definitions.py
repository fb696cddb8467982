"""Definitions of all numbers, rendered as HTML in the report and as Markdown in the documentation."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import StrictUndefined, Template
from markupsafe import Markup, escape

from hpcmm.analysis import compare, detection, evidence, noise, peers, tidy, visits
from hpcmm.model.quantities import DATA, PHASES
from hpcmm.model.records import beside
from hpcmm.operations import OPERATIONS, accuracy, truth
from hpcmm.report import formats, headlines
from hpcmm.report.hardware import COUNTER_COLUMNS
from hpcmm.report.markup import Cell, Table, words

# What the texts name; a constant of a module stands there as ``evidence.MARGIN``
NAMES = {each.__name__.rpartition(".")[2]: each for each in (compare, detection, evidence, noise, peers, tidy, visits)}
NAMES |= {"truth": truth, "course_size": headlines.COURSE_SIZES["matmul"]}
NAMES["componentwise_limit"] = "2" + f"{math.log2(accuracy.COMPONENTWISE_LIMIT):.0f}".translate(formats.SUPERSCRIPTS)


@dataclass(frozen=True)
class Definition:
    """One term of the report."""

    id: str  # the anchor, in the report and in the documentation
    term: str
    text: str  # paragraphs with ``*emphasis*`` and `` `code` ``, no other markup

    table: Sequence[Sequence[str]] = ()  # header and rows of a table that follows the text; empty without one
    columns: Sequence[str] = ()  # of tables, that have this definition

    @property
    def html(self) -> Markup:
        """The text as HTML paragraphs."""
        text = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(self.text)))
        paragraphs = re.sub(r"\*([^*]+)\*", r"<em>\1</em>", text).split("\n\n")
        return Markup("\n".join(f"<p>{each}</p>" for each in paragraphs))

    @property
    def shown(self) -> Table:
        head, *rows = self.table
        return Table(self.term, head, [[words(first), *map(Cell, others)] for first, *others in rows])

    @property
    def markdown(self) -> str:
        """The text, which is Markdown, and the table."""
        if not self.table:
            return self.text
        header, *rows = (f"| {' | '.join(each)} |" for each in self.table)
        return "\n".join([self.text, "", header, "|:--" + "|--:" * (len(self.table[0]) - 1) + "|", *rows])


@cache
def sections() -> dict[str, list[Definition]]:
    """Return all definitions in the order of the page, by the titles of its sections."""
    return {each["title"]: [_definition(**fields) for fields in each["definitions"]] for each in beside(__file__)}


@cache
def defined() -> dict[str, str]:
    """Return the id of the definition of each column that has one, by the name of the column."""
    found = {column: each.id for own in sections().values() for each in own for column in each.columns}
    for unit in {each.rate_unit(dtype) for each in OPERATIONS.values() for dtype in each.dtypes}:
        rates = [prefix + unit + of for prefix in "GT" for of in ("", ", kernel alone", ", end to end")]
        found |= dict.fromkeys(rates, "rate") | {f"G{unit} per W": "energy"}
    found |= {f"{kind.capitalize()}, {title}": "errors" for kind in DATA for title in ("largest", "RMS")}
    return found | dict.fromkeys(map(str.capitalize, PHASES), "phase") | dict.fromkeys(COUNTER_COLUMNS, "profile")


def of(identity: str) -> Definition:
    return next(each for own in sections().values() for each in own if each.id == identity)


def markdown() -> str:
    """Return all definitions as Markdown for MyST, each with its anchor."""
    parts = []
    for title, own in sections().items():
        parts.append(f"## {title}")
        parts += [f"({each.id})=\n### {each.term}\n\n{each.markdown}" for each in own]
    return "\n\n".join(parts)


def _definition(text: str, **fields: str) -> Definition:
    return Definition(text=Template(text, undefined=StrictUndefined).render(NAMES).strip(), **fields)
