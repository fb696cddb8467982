"""Texts for display: of files and users, of numbers, and of errors."""

import codecs
import difflib
import json
import math
import re
import sys
import textwrap
import traceback
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

INSTALLED = re.compile(r"/(?:site|dist)-packages/(\w+)")  # the folder of a package
MOST_NAMES = 20  # in the message about a wrong one
DIGITS = 3  # significant ones of a number
PERCENT_DIGITS = 2  # of a percentage; the digits before the point are never rounded away
ESCAPE = "\x1b"  # begins the codes of a terminal
WORDS = "and|are|as|at|by|for|has|in|is|of|on|or|per|to"  # no units
UNIT = re.compile(rf"(?<=\d) (?=(?!(?:{WORDS})\b)(?:%|\S{{1,3}}|\S+/s)(?:[\s,;.:)]|$))")  # the blank before it
MOST_INDENT = 0.55  # of the columns of a terminal
ESCAPED = re.compile("[\udc80-\udcff]+")  # surrogates: bytes of a file name that the locale cannot decode


# What a terminal without UTF-8 shows instead of a character
RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"
SPELLED = str.maketrans("×µ–—†…" + RAISED, "xu--*.0123456789")


def spelled(error: UnicodeError) -> tuple[str, int]:
    """Write characters that an encoding lacks in similar ones, else as escapes: an error handler of ``codecs``."""
    text = error.object[error.start : error.end]
    power = "^" if text[0] in RAISED else ""
    shown = power + text.translate(SPELLED)
    return shown.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error("spelled", spelled)


def printable(text: str) -> str:
    """Return a text without control and invisible characters; white space becomes a blank.

    >>> printable("size\\x1b[2J\\n(CPU)"), printable("gr\\udcc3\\udcb6\\udcff.h5")
    ('size[2J (CPU)', 'grö\ufffd.h5')
    """
    if text.isprintable():
        return text
    text = ESCAPED.sub(lambda found: found[0].encode("utf-8", "surrogateescape").decode("utf-8", "replace"), text)
    return "".join(sign if sign.isprintable() else " " for sign in text if sign.isprintable() or sign.isspace())


def folded(line: str, columns: int) -> str:
    """Break a line between words; a number keeps its unit. The rest is indented, below the last column of a table.

    >>> print(folded("C compiler    /usr/bin/cc: takes about 10 s", 32))
    C compiler    /usr/bin/cc: takes
                  about 10 s
    """
    if len(line) <= columns or not columns or ESCAPE in line:
        return line
    starts = [found.end() for found in re.finditer(r"(?:^|(?<=\S) ) +(?=\S)", line)]
    most = min(MOST_INDENT * columns, columns - max(map(len, line.split())))
    indent = max((start for start in starts if start <= most), default=2)
    whole = textwrap.fill(
        unbroken(line), columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
    return whole.replace("\N{NO-BREAK SPACE}", " ")


def unbroken(text: str) -> str:
    """Return a text in which no line break separates a number from its unit.

    >>> unbroken("57 % of 12 ms on 4 of 8 GPUs, float64 on the CPU").split("\N{NO-BREAK SPACE}")
    ['57', '% of 12', 'ms on 4 of 8 GPUs, float64 on the CPU']
    """
    return UNIT.sub("\N{NO-BREAK SPACE}", text)


def choices(value: object, allowed: Iterable) -> str:
    """List the allowed values for the message about a wrong one, and name the one that is likely meant.

    Of a long list only similar values are shown, if there is one.

    >>> choices("float", ["float32", "float64"]), choices("x", [8, 16])
    ("float32, float64; did you mean 'float32'?", '8, 16')
    """
    names = [str(name) for name in allowed]
    ratios = {name: difflib.SequenceMatcher(None, name, str(value)).ratio() for name in names}
    alike = [name for name in sorted(ratios, key=ratios.get, reverse=True)[:3] if ratios[name] >= 0.65]
    others = len(names) - len(alike)
    shorter = alike and others > MOST_NAMES
    listed = f"{', '.join(alike)} and {others} more" if shorter else ", ".join(names)
    return listed + (f"; did you mean {alike[0]!r}?" if alike else "")


def plural(count: int, what: str) -> str:
    """Return a count with its noun, ``"1 point"`` or ``"3 points"``."""
    return f"{count} {what}{'s' * (count != 1)}"


def number(value: float) -> str:
    """Format with three significant digits, ``"51,200"`` or ``"0.0123"``; empty for NaN and infinity.

    >>> number(51234.5), number(20.0), number(0.9996), number(1.5e-5)
    ('51,200', '20.0', '1.00', '1.50e-05')
    """
    if not math.isfinite(value):
        return ""
    if 0 < abs(value) < 1e-3:
        return f"{value:.{DIGITS - 1}e}"
    return _positional(float(f"{value:.{DIGITS - 1}e}"), DIGITS)


def percent(share: float) -> str:
    """Format a share with two significant digits and no exponent, ``"68 %"`` or ``"0.42 %"``; empty for NaN.

    >>> percent(1.27), percent(0.0995), percent(200.0), percent(4.2e-7)
    ('127 %', '10 %', '20,000 %', '0.000042 %')
    """
    return f"{_positional(100 * share, PERCENT_DIGITS)} %" if math.isfinite(share) else ""


def whole(count: float) -> str:
    """Format a whole number, ``"8,192"``; empty for NaN."""
    return f"{count:,.0f}" if math.isfinite(count) else ""


def amount(size: float) -> str:
    """Format bytes with a binary unit, ``"48 KiB"``."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{float(f'{size / scale:.4g}'):,.10g} {unit}"
    return f"{size:.0f} B"


def _positional(value: float, digits: int) -> str:
    """Format with at least as many significant digits, without an exponent."""
    if value == 0:
        return "0"
    exponent = int(f"{abs(value):.{digits - 1}e}".partition("e")[2])  # after rounding: 9.96 has that of 10
    return f"{value:,.{max(0, digits - 1 - exponent)}f}"


def csv_cell(value: object) -> object:
    """Return the value of a CSV cell; an apostrophe is put before text that a spreadsheet would run as a formula.

    >>> csv_cell("=HYPERLINK(1)"), csv_cell("naive"), csv_cell(-1.5)
    ("'=HYPERLINK(1)", 'naive', -1.5)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


def json_of(value: Any) -> str:
    """Return JSON for other programs, with null for a number that is not finite.

    >>> json_of({"a": math.nan, "b": (1, 2.5)}).split()
    ['{', '"a":', 'null,', '"b":', '[', '1,', '2.5', ']', '}']
    """

    def plain(each: Any) -> Any:
        if isinstance(each, Mapping):
            return {name: plain(part) for name, part in each.items()}
        if isinstance(each, list | tuple):
            return [plain(part) for part in each]
        each = each.item() if hasattr(each, "item") else each  # a number of NumPy
        return None if isinstance(each, float) and not math.isfinite(each) else each

    return json.dumps(plain(value), indent=1, allow_nan=False)


def short_revision(text: str, digits: int = 7) -> str:
    """Shorten a revision: a commit, or the hash of the sources of a tree without git.

    >>> short_revision("38151edd276661e5"), short_revision("sha256:fd6e9e2728ff869d"), short_revision("")
    ('38151ed', 'sources fd6e9e2', '')
    """
    hashed, name = re.match(r"(sha256:|sources )?(\S*)", text).groups()
    return ("sources " if hashed else "") + name[:digits]


def split(text: str) -> list[str]:
    """Split at the commas outside parentheses, brackets and braces.

    >>> split("a, f(b, c), {d, e}"), split(" ")
    (['a', 'f(b, c)', '{d, e}'], [])
    """
    parts, depth = [""], 0
    for each in text:
        depth += (each in "([{") - (each in ")]}")
        if each == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += each
    return [part.strip() for part in parts if part.strip()]


def described(error: BaseException) -> str:
    """Return an unexpected error in one line, with the versions of the packages that it comes from."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [frame.f_globals.get("__name__", "") for frame in frames]
    # the modules of numba.cuda are installed in numba_cuda
    names += [found[1] for frame in frames if (found := INSTALLED.search(frame.f_code.co_filename))]
    of = getattr(error, "obj", None)  # of an AttributeError
    names += [of.__name__ if isinstance(of, ModuleType) else "", getattr(error, "name", None) or ""]
    packages = {name.partition(".")[0] for name in names} - {"hpcmm", *sys.stdlib_module_names}
    found = ", ".join(f"{name} {known}" for name in sorted(packages) if (known := version(name)))
    return f"{text} ({found})" if found else text


def version(package: str) -> str:
    """Return the version of an imported or installed package; empty if unknown."""
    import importlib.metadata  # takes a while

    if known := getattr(sys.modules.get(package), "__version__", None):
        return str(known)
    try:
        return importlib.metadata.version(package) if package else ""
    except importlib.metadata.PackageNotFoundError:
        return ""
