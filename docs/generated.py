"""Parts of the site that are generated from the code at each build.

A page includes a part by a line ``<!-- generated: NAME -->``. Parts that show the published run are written by
``published.py`` and kept in the repository. A line ``<!-- transcript: NAME -->`` shows a transcript of
``transcripts.py``, once it has been recorded.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import rungs
import transcripts
from tabulate import tabulate

from hpcmm import store
from hpcmm.cli.main import parser
from hpcmm.experiment.config import SCHEMA
from hpcmm.grading import rubric as rubrics
from hpcmm.grading.counts import PROPERTIES
from hpcmm.model.capabilities import CAPABILITIES, block_limits, block_on, capability
from hpcmm.operations import OPERATIONS, drawings, heads
from hpcmm.parallel import ALGORITHMS, algorithms_of
from hpcmm.report import definitions, export, formats
from hpcmm.system import surroundings
from hpcmm.system.text import whole

MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
PICTURE = re.compile(r"^<!-- picture: ([\w-]+) -->$", re.MULTILINE)
TRANSCRIPT = re.compile(r"^<!-- transcript: (\w+) -->$", re.MULTILINE)
UNITS = {"1": "", "B s-1": "B/s", "degC": "°C"}  # as in the file -> as the page shows it
TYPES = {"integer": "integer", "number": "number", "string": "name", "object": "mapping"}


def filled(text: str) -> str:
    """Return a page with its marks replaced.

    Raises
    ------
    KeyError
        If a mark names a part or a transcript that does not exist.
    """
    text = PICTURE.sub(lambda mark: "\n".join(map(rungs.raw, drawings.of(mark[1]))), text)
    text = TRANSCRIPT.sub(lambda mark: transcript(mark[1]), text)
    return MARK.sub(lambda mark: PARTS[mark[1]](), text)


def transcript(name: str) -> str:
    """Show a transcript; nothing if it has not been recorded."""
    transcripts.COMMANDS[name]  # an unknown name is an error
    recorded = (transcripts.FOLDER / f"{name}.txt").exists()
    return f"```{{literalinclude}} transcripts/{name}.txt\n:language: text\n```" if recorded else ""


def commands() -> str:
    """Describe each command: usage, arguments and options."""
    (inner,) = (each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    return "\n\n".join(_command(each) for each in inner.choices.values())


def _command(inner: argparse.ArgumentParser) -> str:
    usage = " ".join(inner.format_usage().split()).replace("python -m hpcmm", "hpcmm").removeprefix("usage: ")
    usage = textwrap.fill(usage, 80, subsequent_indent="    ", break_on_hyphens=False)
    parts = [f"## {inner.prog.split()[-1]}", _help(inner.description), f"```text\n{usage}\n```"]
    entries = [_argument(each) for each in inner._actions if not isinstance(each, argparse._HelpAction)]
    return "\n\n".join(filter(None, [*parts, *entries, _help(inner.epilog)]))


def _argument(action: argparse.Action) -> str:
    """Return an entry of a definition list."""
    value = "|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest.upper())
    names = [f"{option} {value}" if action.nargs != 0 else option for option in action.option_strings]
    return f"{_names(names or [value])}\n: {_help(action.help) or 'required'}"


def _help(text: str | None) -> str:
    """Convert a text of argparse to Markdown; argparse doubles percent signs."""
    return (text or "").replace("python -m hpcmm", "hpcmm").replace("%%", "%").replace("<", "&lt;").replace("*", "\\*")


def config() -> str:
    """Describe every key of config.yaml: value, default and meaning, from its schema."""
    sweep, measuring = SCHEMA["$defs"]["sweep"], SCHEMA["properties"]["measuring"]
    top = {name: each for name, each in SCHEMA["properties"].items() if name not in ("measuring", "sweeps")}
    return (
        f"## Top level\n\n{_keys(top)}\n\n"
        f"## measuring\n\n{_keys(measuring['properties'])}\n\n"
        "## sweeps\n\nEach entry has a name of your choice, of letters, digits, `-` and `_`. Required are "
        f"{_names(sweep['required'])}, and either `sizes` or `shapes`.\n\n{_keys(sweep['properties'])}"
    )


def head() -> str:
    """Describe every key of the head of a kernel's file, from its schema."""
    return _keys(heads.SCHEMA["properties"])


def rubric() -> str:
    """Describe every key of a rubric, from its schema."""
    exercise, counts, speed = (rubrics.SCHEMA["$defs"][name] for name in ("exercise", "counts", "speed"))
    step = speed["properties"]["steps"]["items"]
    parts = [("Top level", {k: v for k, v in rubrics.SCHEMA["properties"].items() if k != "exercises"}, "`exercises`")]
    own = {name: each for name, each in exercise["properties"].items() if name not in ("counts", "speed")}
    parts += [("exercises", own, _names(exercise["required"]))]
    parts += [("counts", counts["properties"], _names(counts["required"]))]
    parts += [("speed", speed["properties"], _names(speed["required"]))]
    parts += [("steps", step["properties"], _names(step["required"]))]
    text = "\n\n".join(f"### {name}\n\nRequired: {needed}.\n\n{_keys(keys)}" for name, keys, needed in parts)
    counted = "\n".join(f"| `{name}` | {about} |" for name, (about, _) in PROPERTIES.items())
    return f"{text}\n\n### What is counted\n\n| name | number of |\n|---|---|\n{counted}"


def _keys(properties: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a definition list of the keys of one mapping."""
    entries = []
    for name, given in properties.items():
        each = _resolved(given)
        default = f" Default: {_default(each['default'])}." if "default" in each else ""
        meaning = " ".join(each["description"].split())
        entries.append(f"`{name}`\n: {meaning}\n\n  *{_value(each)}.*{default}")
    return "\n\n".join(entries)


def _default(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"`{json.dumps(each)}` at scale `{scale}`" for scale, each in value.items())
    return f"`{json.dumps(value)}`".replace('"', "")


def _resolved(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of the schema with its reference resolved."""
    return {**SCHEMA["$defs"][given["$ref"].removeprefix("#/$defs/")], **given} if "$ref" in given else given


def _value(given: Mapping[str, Any], many: bool = False) -> str:
    """Describe the allowed values in words."""
    each = _resolved(given)
    if "enum" in each:
        return _names(each["enum"], " or ")
    if "if" in each:
        return f"{_value(each['else'])}, or `{{start: ..., stop: ..., step: ...}}`"
    if "type" not in each:
        return "number or arithmetic"
    if each["type"] == "boolean":
        return _names(["true", "false"], " or ")
    if each["type"] == "array":
        return f"list{'s' * many} of {_value(each['items'], many=True)}"
    limits = [
        f"{word} {whole(each[key])}"
        for key, word in (("minimum", "at least"), ("exclusiveMinimum", "more than"), ("maximum", "at most"))
        if key in each
    ]
    types = [each["type"]] if isinstance(each["type"], str) else each["type"]
    named = " or ".join(TYPES[name] + "s" * many for name in types)
    return named + (f", {', '.join(limits)}" if limits else "")


def names() -> str:
    """List the names that a sweep may use, by operation."""
    parts = []
    for operation in OPERATIONS.values():
        entries = {"dtypes": operation.dtypes, "algorithms": [each.name for each in algorithms_of(operation)]}
        for each in operation.ladder:
            entries.setdefault(f"variants on the {formats.device(each.device)}", []).append(each.name)
        lines = [f"- {kind}: {_names(found)}" for kind, found in entries.items()]
        parts.append(f"### {operation.name}\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def algorithms() -> str:
    """List the algorithms, with their changes and how they are timed, without the exchanges of ``links``."""
    timed = {"call": "end to end", "kernel": "on the devices"}
    rows, (_, *exchanges) = [], algorithms_of(OPERATIONS["links"])
    for each in (each for each in ALGORITHMS.values() if each not in exchanges):
        change = f"*baseline*: {each.change}" if each.package else each.change
        rows.append([f"`{each.name}`", change, ", ".join(timed[kind] for kind in each.measures)])
    return tabulate(rows, ["algorithm", "what changes", "timed"], tablefmt="pipe")


def groups() -> str:
    """List the columns of each group of a timings file."""
    parts = []
    for group, declared in store.GROUPS.items():
        rows = [[f"`{name}`", UNITS.get(unit, unit), meaning] for name, (_, unit, meaning) in declared.items()]
        parts.append(f"### {group}\n\n{tabulate(rows, ['column', 'unit', 'meaning'], tablefmt='pipe')}")
    return "\n\n".join(parts)


def inherited() -> str:
    """List the inherited settings that can change a measurement, and how hpcmm treats each."""
    rows = [[_names(each.names), _done(each), each.why] for each in surroundings.VARIABLES]
    rows += [[each.title, each.done, each.why] for each in surroundings.CONDITIONS]
    return tabulate(rows, ["variable or limit", "what is done", "why"], tablefmt="pipe")


def _done(variable: surroundings.Variable) -> str:
    return f"{variable.action}: `{variable.value}`" if variable.value else variable.action


def exported() -> str:
    """List the columns of an export."""
    rows = [[f"`{name}`", meaning] for name, meaning in export.COLUMNS.items()]
    return tabulate(rows, ["column", "meaning"], tablefmt="pipe")


def _names(values: Sequence[Any], last: str = ", ") -> str:
    shown = [f"`{each}`" for each in values]
    return last.join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _numbers(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    sides = ["left", *["right"] * (len(head) - 1)]
    return tabulate(rows, head, tablefmt="pipe", colalign=sides, disable_numparse=True)


def limits() -> str:
    """List the limits of each compute capability."""
    head = ["compute capability", "threads per block", "threads per SM", "warps per SM", "blocks per SM"]
    head += ["registers per SM", "registers per thread", "shared memory per SM [KiB]", "per block [KiB]"]
    rows = [
        [
            each.names.replace(" ", ", "),
            *map("{:,}".format, (each.block_threads, each.threads, each.warps, each.blocks, each.registers)),
            *map("{:,}".format, (each.thread_registers, each.shared, each.block_shared)),
        ]
        for each in CAPABILITIES
    ]
    return _numbers(rows, head)


def resident(tile: int, like: str, sm_shared: int = 0) -> tuple[int, str]:
    """Return the blocks of a tiled product per SM, and what limits them."""
    device = capability(like)
    block = block_on(device, (tile, tile), 2 * tile**2 * 4, sm_shared=sm_shared)
    found = block_limits(block, device)
    least = min(found.values())
    return least, ", ".join(name for name, count in found.items() if count == least)


def occupancies() -> str:
    """List the occupancy of a tiled product by the width of its tile."""
    rows = []
    for tile in (8, 16, 32):
        for like in ("1.0", "2.0", "3.5", "9.0"):
            device = capability(like)
            if tile**2 > device.block_threads:
                rows.append([f"{tile}", like, "-", "-", "-", f"more than {device.block_threads} threads in a block"])
                continue
            count, binding = resident(tile, like)
            share = count * tile**2 / device.threads
            rows.append([f"{tile}", like, f"{count}", f"{count * tile**2:,}", f"{share:.0%}", binding])
    return _numbers(rows, ["tile", "like", "blocks per SM", "threads", "occupancy", "limited by"])


PARTS = {
    "algorithms": algorithms,
    "commands": commands,
    "config": config,
    "head": head,
    "names": names,
    "groups": groups,
    "inherited": inherited,
    "rubric": rubric,
    "exported": exported,
    "definitions": definitions.markdown,
    "rungs": rungs.contents,
    "by_hand_limits": limits,
    "by_hand_occupancies": occupancies,
}
