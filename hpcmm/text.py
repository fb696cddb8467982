"""Texts for display: of files and users, and of errors."""

import re
import sys
import traceback
from types import ModuleType

INSTALLED = re.compile(r"/(?:site|dist)-packages/(\w+)")  # the folder of a package
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
