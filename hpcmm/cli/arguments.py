"""Shared parts of the commands' parsers."""

import argparse
import contextlib
import importlib
import math
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from hpcmm.model import HpcmmError
from hpcmm.model.measurement import TIMINGS, timings_file
from hpcmm.model.records import beside
from hpcmm.system import options
from hpcmm.system.text import choices

COMMANDS = beside(__file__, "commands.yaml")  # the commands, each a module of this package
MOST = 2**31 - 1  # of sizes
UNITS = {"us": 1e-6, "ms": 1e-3, "GB/s": 1e9, "TB/s": 1e12}


class Help(argparse.HelpFormatter):
    """Help whose lines break between words only, not at the hyphens of an option."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent("\n".join(self._split_lines(text, width - len(indent))), indent)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, which names the choice or option that is likely meant."""

    def __init__(self, **options: Any):
        super().__init__(**{"formatter_class": Help} | options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {corrected(message, self.format_help())}; {self.prog} --help has all\n")


def corrected(message: str, known: str) -> str:
    """Add to a message of argparse about a wrong choice or option the one of the ``known`` text that is likely meant.

    >>> corrected("unrecognized arguments: --coers 2", "usage: hpcmm [--cores N]")
    "unrecognized arguments: --coers 2; did you mean '--cores'?"
    >>> corrected("unrecognized arguments: --json", "usage: hpcmm show [--only CHOICE]")
    'unrecognized arguments: --json'
    """
    if match := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)$", message):
        allowed = choices(match[1], re.findall(r"[\w-]+", match[2]))
        return f"{message[: match.start()]}{match[1]!r} is not allowed; allowed: {allowed}"
    if match := re.match(r"argument (.*): expected (?:one|at least one) argument$", message):
        return f"{match[1]}: the value is missing"
    if match := re.match(r"unrecognized arguments: ([^-\s]\S*)$", message):
        option = "--config-file" if match[1].endswith((".yaml", ".yml")) else "--results"
        option = "--config" if "=" in match[1] else option
        return message + (f"; did you mean {option} {match[1]}?" if option in known else "")
    if match := re.match(r"unrecognized arguments: --([\w-]+)", message):
        _, _, meant = choices(match[1], dict.fromkeys(re.findall(r"--([\w-]+)", known))).partition("'")
        return message + (f"; did you mean '--{meant}" if meant else "")
    return message


def add(commands: argparse._SubParsersAction, name: str) -> None:
    """Add a command, as ``commands.yaml`` describes it."""
    about, module = COMMANDS[name], importlib.import_module(f"hpcmm.cli.{name}")
    text, rest = about["text"], about.get("rest", False)
    meanings = {0: "success", 2: "wrong arguments"} | about["exits"]
    more = f"{about['more']} Exit status: {'; '.join(f'{status}: {meanings[status]}' for status in sorted(meanings))}."
    parser = commands.add_parser(name, help=text, description=text, epilog=more, allow_abbrev=not rest)
    parser.set_defaults(run=module.run, wrong=parser.error, takes_rest=rest)
    options.add(parser, about, globals() | vars(module) | READERS)


def link(text: str) -> tuple[float, float]:
    """Read a latency and a rate; return seconds and bytes per second.

    >>> link("10us,350GB/s")
    (1e-05, 350000000000.0)
    """
    latency, kind, rate, per_second = re.fullmatch(r"\s*([\d.]+)\s*(.s)\s*,\s*([\d.]+)\s*(.B/s)\s*", text).groups()
    return float(f"{float(latency) * UNITS[kind]:.12g}"), float(rate) * UNITS[per_second]


def share(text: str) -> float:
    """Return ``"5%"`` or ``"0.05"`` as 0.05."""
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def constants(text: str) -> tuple[str, list[int]]:
    """Return ``"ROWS=64,128"`` as a name and its values."""
    name, values = re.fullmatch(r"([^\W\d]\w*)=(\d+(?:,\d+)*)", text).groups()
    return name, [int(each) for each in dict.fromkeys(values.split(","))]


def reader(
    allowed: str, read: Callable[[str], Any], fits: Callable[[Any], bool] = lambda value: True
) -> Callable[[str], Any]:
    """Return a type of arguments, which ``read`` reads; an error of it, or a value that does not fit, is refused."""

    def value_of(text: str) -> Any:
        with contextlib.suppress(ValueError, AttributeError, KeyError):
            if fits(value := read(text)):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: {allowed}")

    return value_of


READERS = {
    "natural": reader("an integer of at least 0", int, lambda value: value >= 0),
    "positive": reader("an integer of at least 1", int, lambda value: 1 <= value <= MOST),
    "ranks": reader(
        "integers of at least 1, such as 8,16",
        *(lambda text: [int(each) for each in text.split(",")], lambda ranks: 1 <= min(ranks) <= max(ranks) <= MOST),
    ),
    "shape": reader(
        "integers of at least 1 with x between them, such as 512x4096x1000",
        *(lambda text: tuple(map(int, re.split("[xX×]", text))), lambda shape: 1 <= min(shape) <= max(shape) <= MOST),
    ),
    "constants": reader("NAME=A,B,... such as ROWS=64,128", constants),
    "above_0": reader("a number above 0", float, lambda value: 0 < value < math.inf),
    "share": reader("a share below 1, such as 5% or 0.05", share, lambda value: 0 <= value < 1),
    "percentage": reader(
        "a percentage above 1, such as 5%", lambda text: share(f"{text.strip('% ')}%"), lambda value: 0.01 < value <= 10
    ),
    "link": reader("a latency and a rate, such as 10us,350GB/s", link, lambda value: value[1] > 0),
}


def or_default(timings: Path | None, results: Path = Path("results")) -> tuple[Path, list[str]]:
    """Return the timings file to read, by default that of the results, and a sweep that stands in its place."""
    default = results / TIMINGS
    of_file = timings is None or timings.name != str(timings) or timings.suffix in (".h5", ".html", ".yaml")
    if not of_file and not timings.exists() and default.exists():
        return default, [str(timings)]
    return timings or timings_file(str(default)), []


def folder(text: str) -> Path:
    """Read the path of the results of a run; its timings file, or the folder around, stands for it."""
    path = Path(text)
    if path.is_file() and path.name != TIMINGS:
        raise HpcmmError(f"--results: {text} is a file; allowed: the folder of the results")
    inside = path / "results"
    return path.parent if path.is_file() else inside if (inside / "plan.json").exists() else path
