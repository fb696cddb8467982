"""The definitions that the report and the documentation share."""

import re

import pytest

from hpcmm.analysis import compare, evidence
from hpcmm.operations import truth
from hpcmm.report import definitions

ALL = [each for own in definitions.sections().values() for each in own]


def test_each_term_is_defined_once():
    identities = [each.id for each in ALL]
    assert len(identities) == len(set(identities))
    assert len({each.term for each in ALL}) == len(ALL)


def test_every_column_with_a_definition_finds_it():
    assert set(definitions.defined().values()) <= {each.id for each in ALL}


def test_numbers_in_the_texts_agree_with_the_code(monkeypatch):
    text = " ".join(definitions.of("verdict").text.split())
    assert all(x in text for x in ("a level of 99.5 %", "more than 1 %", "about 5 are called", "at most 5 %"))
    assert (evidence.ALPHA, evidence.MARGIN, compare.FAMILY) == (0.005, 0.01, 0.05)
    monkeypatch.setattr(truth, "SIGNS", 7)
    changed = definitions._definition(id="x", term="x", text="{{ truth.SIGNS }} signs")
    assert changed.text == "7 signs"


def test_an_unknown_constant_is_an_error():
    with pytest.raises(Exception, match="'nothing' is undefined"):
        definitions._definition(id="x", term="x", text="{{ nothing }}")


def test_html_has_paragraphs_emphasis_and_code_and_escapes_the_rest():
    definition = definitions.Definition("x", "X", "a *b* `c < d`\n\n& e")
    assert definition.html == "<p>a <em>b</em> <code>c &lt; d</code></p>\n<p>&amp; e</p>"


def test_markdown_has_an_anchor_for_each_and_no_markup_that_html_would_not_have():
    text = definitions.markdown()
    assert re.findall(r"^\((.+)\)=$", text, re.MULTILINE) == [each.id for each in ALL]
    for each in ALL:
        rest = re.sub(r"`[^`]+`|\*[^*]+\*", "", each.text)
        assert not re.search(r"[*`\[\]#<>_]", rest), f"{each.id}: markup that only Markdown knows"
