"""Command lines that are described as data: names of arguments with the keywords of argparse."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcmm.model.records import beside

TYPES = {"path": Path, "int": int, "float": float}


def add(parser: argparse.ArgumentParser, about: Mapping[str, Any], named: Mapping[str, Any]) -> None:
    """Add ``arguments``, one of those in ``either`` required. Types and choices are texts, or names in ``named``."""
    either = about.get("either", ())
    group = parser.add_mutually_exclusive_group(required=True) if either else parser
    for names, given in about["arguments"].items():
        keys = {"action": "store_true", "help": given} if isinstance(given, str) else dict(given)
        keys |= {key: (TYPES | named)[keys[key]] for key in ("type", "choices") if isinstance(keys.get(key), str)}
        keys["help"] = keys["help"].replace("{choices}", ", ".join(keys.get("choices", ())))
        (group if names in either else parser).add_argument(*names.split(), **keys)


def of_program(path: str, text: str | None) -> argparse.Namespace:
    """Read the command line of a program, which ``options.yaml`` beside its file describes."""
    about = beside(path, "options.yaml")[Path(path).stem]
    parser = argparse.ArgumentParser(description=text, epilog=about.get("epilog"))
    add(parser, about, {})
    return parser.parse_args()
