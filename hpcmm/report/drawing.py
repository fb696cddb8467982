"""Vega-Lite to SVG, in this process or as a program of its own: specifications from stdin, drawings to stdout."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import vl_convert

VEGA_LITE = "6.4"


def svgs(specs: Sequence[str]) -> list[str]:
    """Draw each specification. One takes some 60 ms, so that many are drawn by several processes."""
    workers = min(4, len(os.sched_getaffinity(0)), len(specs) // 12)
    if workers < 2:
        return [vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE) for spec in specs]
    drawings = [""] * len(specs)
    with ThreadPoolExecutor(workers) as threads:
        parts = [specs[i::workers] for i in range(workers)]
        for i, drawn in enumerate(threads.map(_apart, parts)):
            drawings[i::workers] = drawn
    return drawings


def _apart(specs: Sequence[str]) -> list[str]:
    command = [sys.executable, "-P", __file__]  # by its path it loads vl_convert and nothing else
    run = subprocess.run(command, input=json.dumps(specs), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)


def script() -> str:
    """Vega, Vega-Lite and vega-embed in one script for an offline page: gzip in base64, a third of its length."""
    return base64.b64encode(
        gzip.compress(vl_convert.javascript_bundle(vl_version=VEGA_LITE).encode(), mtime=0)
    ).decode()


if __name__ == "__main__":
    json.dump([vl_convert.vegalite_to_svg(each, vl_version=VEGA_LITE) for each in json.load(sys.stdin)], sys.stdout)
