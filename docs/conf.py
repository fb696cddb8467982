"""Sphinx builds the documentation site from the Markdown in this folder: ``make docs``."""

import base64
import gzip
import re
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from sphinx.search.en import SearchEnglish

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import generated  # noqa: E402
import rungs  # noqa: E402

from hpcmm.report import drawing  # noqa: E402
from hpcmm.system.text import unbroken  # noqa: E402

project = "hpcmm"
author = "hpcmm developers"
copyright = "2026, the hpcmm developers"
release = metadata.version("hpcmm")

extensions = ["myst_parser"]
exclude_patterns = ["build"]
nitpicky = True
smartquotes = False  # options begin with two hyphens
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"hpcmm {release}"
html_static_path = ["static"]
html_css_files = ["hpcmm.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": False}

SearchEnglish.stem = cache(SearchEnglish.stem)  # in Python, it takes a tenth of the build

MANY = 9  # bars of a table's row: with more, the table fits only if an interval takes two lines

# Attributes for keyboards and screen readers that the theme lacks
REPAIRS = (
    ('class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"'),
    ('<aside class="sidebar-drawer"', '<aside class="sidebar-drawer" aria-label="Pages"'),
    ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div id="search-results">', '<h1>Search</h1>\n<div id="search-results">'),
)


def repair(app, error):
    """Make tables and code scrollable by keyboard, and name the regions of each page."""
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text("utf-8")
        for old, new in REPAIRS:
            text = text.replace(old, new)
        first, *tables = text.split('<div class="table-wrapper')
        named = [
            f'<div tabindex="0" role="region" aria-label="Table {i}" class="table-wrapper{table}'
            for i, table in enumerate(tables, 1)
        ]
        path.write_text("".join([first, *named]), "utf-8")


def link_rungs(app, error):
    """Link the rungs in the published report, a download, to their pages; a report elsewhere does not know the site."""
    known = {path.stem for path in Path(app.outdir, "rungs").glob("*.html")}

    def link(match):
        quote, rung = match.groups()
        return f"<a href={quote}../../rungs/{rung}.html{quote}>" if rung in known else match[0]

    def linked(text: str) -> str:
        text = re.sub(r'<a data-page=(\\?")([\w-]+)\1>', link, text)  # quotes are escaped in what the page stores
        return re.sub(r'(?<=id="stored">)[^<]+', lambda part: drawing.compressed(linked(unpacked(part[0]))), text)

    def unpacked(part: str) -> str:
        return gzip.decompress(base64.b64decode(part)).decode()

    for path in Path(app.outdir, "_downloads").glob("*/report.html"):
        path.write_text(linked(path.read_text("utf-8")), "utf-8")


def fill(app, page, source):
    """Insert generated parts, and keep sizes, intervals, and numbers with their units in tables on one line each."""
    kept = re.compile(r"(?<=\d)\s(×|to) (?=\d)")

    def joined(row: re.Match) -> str:
        text = unbroken(row[0]).replace("\u00a0(", " (")
        return text if text.count("|") > MANY else kept.sub("\u00a0\\1\u00a0", text)

    source[0] = re.sub(r"^\|.*", joined, generated.filled(source[0]), flags=re.MULTILINE)


def write_rungs(app, config):
    """Write the pages of the rungs, which are not kept in the repository."""
    if (HERE / "rungs.md").exists():
        rungs.write(HERE / "rungs")


def setup(app):
    """Write or insert generated parts, and repair pages after the build."""
    app.connect("config-inited", write_rungs)
    app.connect("source-read", fill)
    app.connect("build-finished", repair)
    app.connect("build-finished", link_rungs)
