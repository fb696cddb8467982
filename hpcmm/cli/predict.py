"""``python -m hpcmm predict``: products on more ranks than were measured, by formulas and by simulated schedules."""

import argparse
import itertools
import json
import math
import sys
from typing import Any

from hpcmm import store
from hpcmm.cli.arguments import READERS
from hpcmm.cluster import site
from hpcmm.model import HpcmmError
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.records import beside
from hpcmm.system.streams import tabulated


def run(arguments: argparse.Namespace) -> int:
    from hpcmm.parallel import simulated

    on = platform(arguments)
    shape, itemsize = (arguments.size,) * 3, DTYPES[arguments.dtype].itemsize
    most = 0 if simulated.missing() else arguments.simulate
    every = itertools.product(simulated.FORMS, arguments.ranks)
    rows = [prediction(name, shape, itemsize, ranks, on, ranks <= most) for name, ranks in every]
    if arguments.simulate and simulated.missing():
        print(f"hpcmm: not simulated: {simulated.missing()}", file=sys.stderr)
    if arguments.svg:
        store.write_text(arguments.svg, drawing(rows, shape))
    print(json.dumps(rows, indent=1) if arguments.json else table(rows))
    return 0


def platform(arguments: argparse.Namespace) -> Any:
    from hpcmm.parallel.cost import Line
    from hpcmm.parallel.simulated import Platform

    cluster = site.of_folder()
    measured = None
    if arguments.timings:
        from hpcmm import analysis
        from hpcmm.analysis import scaling

        columns = store.read(arguments.timings)
        measured = scaling.machine_of(columns, analysis.measurements(columns), arguments.dtype)

    def line(name: str) -> Line | None:
        given, key = getattr(arguments, name), f"{name}_link"
        if not given and (text := getattr(cluster, key)):
            try:
                given = READERS["link"](text)
            except argparse.ArgumentTypeError as error:
                raise HpcmmError(f"{site.FILE}: {key}: {error}") from None
        return Line(given[0], 1 / given[1]) if given else None

    local = Line(0.0, 1 / arguments.rate / 1e12) if arguments.rate else measured and measured.local
    lines = {"local": local, "inside": line("inside") or (measured and measured.exchange), "between": line("between")}
    needed = {
        "local": "products on one rank: give --rate TFLOPS, or a timings file that has them",
        "inside": "the links inside a node: give --inside LINK, or a timings file with exchanges",
        "between": "the links between nodes: give --between LINK",
    }
    for name, found in lines.items():
        if not found or not found.per_unit:
            raise HpcmmError(f"no rate of {needed[name]}")
    return Platform(arguments.per_node or cluster.ranks_per_node or 8, **lines)


def prediction(name: str, shape, itemsize: int, ranks: int, on, simulate: bool) -> dict[str, Any]:
    """Return the predictions of an algorithm on some ranks; ``simulated`` is None if it was not played."""
    from hpcmm.parallel import simulated

    closed_form = simulated.FORMS[name](shape, itemsize, ranks, on)
    local = on.local(2 * math.ceil(shape[0] / ranks) * shape[1] * shape[2])
    played = simulated.simulate(name, shape, itemsize, ranks, on) if simulate else None
    return {"algorithm": name, "ranks": ranks, "closed_form": closed_form, "local": local, "simulated": played}


def table(rows: list[dict[str, Any]]) -> str:
    from hpcmm.report.formats import duration

    head = ["algorithm", "ranks", "products alone", "closed form", "simulated", "closed form over simulated"]
    shown = []
    for row in rows:
        played = row["simulated"]
        ratio = f"{row['closed_form'] / played:.3f}" if played else ""
        times = [duration(row[name]) if row[name] else "" for name in ("local", "closed_form", "simulated")]
        shown.append([row["algorithm"], row["ranks"], *times, ratio])
    return tabulated(head, shown, 1, [True] + [False] * 5)


def drawing(rows: list[dict[str, Any]], shape) -> str:
    """Return a figure of both predictions as SVG: lines for closed forms, points for simulations."""
    from hpcmm.report.drawing import svgs

    title = f"Products of size {shape[0]}: closed forms (lines) and simulated schedules (points)"
    spec = beside(__file__) | {"title": {"text": title}, "data": {"values": rows}}
    (drawn,) = svgs([json.dumps(spec)])
    if isinstance(drawn, Exception):
        raise drawn
    return drawn
