"""Sanitize text from files and users for display."""

import re

ESCAPED = re.compile("[\udc80-\udcff]+")  # surrogates: bytes of a file name that the locale cannot decode


def printable(text: str) -> str:
    """Return a text without control and invisible characters; white space becomes a blank.

    >>> printable("size\\x1b[2J\\n(CPU)"), printable("gr\\udcc3\\udcb6\\udcff.h5")
    ('size[2J (CPU)', 'grö\ufffd.h5')
    """
    if text.isprintable():
        return text
    text = ESCAPED.sub(lambda found: found[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace"), text)
    return "".join(each if each.isprintable() else " " for each in text if each.isprintable() or each.isspace())
