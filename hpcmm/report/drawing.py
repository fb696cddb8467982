"""Vega-Lite to SVG and the script that draws it in a browser, in this process or as a program of its own."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import vl_convert

VEGA_LITE = "6.4"
FONTS = Path(__file__).with_name("fonts.conf")


def svgs(specs: Sequence[str]) -> list[str]:
    """Draw each specification, some 20 ms each: by other processes, which leave this one a core of its own."""
    if not specs:
        return []
    workers = max(1, min(4, len(os.sched_getaffinity(0)) - 1, len(specs) // 24))
    drawings = [""] * len(specs)
    with ThreadPoolExecutor(workers) as threads:
        parts = [json.dumps(specs[i::workers]) for i in range(workers)]
        for i, drawn in enumerate(threads.map(_program, parts)):
            drawings[i::workers] = json.loads(drawn)
    return drawings


def _program(text: str = "") -> str:
    command = [sys.executable, "-P", __file__]  # by its path it loads vl_convert and nothing else
    environment = os.environ | {"FONTCONFIG_FILE": str(FONTS)}
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout


@cache
def script() -> str:
    """Vega, Vega-Lite and vega-embed in one script for an offline page, ``compressed`` to a third of its length."""
    return _program()  # takes a second or two, in which this process has other things to do


def compressed(text: str) -> str:
    """gzip in base64, as the page's script unpacks it; it has no character that HTML gives a meaning."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def main() -> None:
    """Draw the specifications that stdin has, or bundle the script if it has none."""
    specs = sys.stdin.read()
    if specs:
        json.dump([vl_convert.vegalite_to_svg(each, vl_version=VEGA_LITE) for each in json.loads(specs)], sys.stdout)
    else:
        code = vl_convert.javascript_bundle(vl_version=VEGA_LITE)
        sys.stdout.write(compressed(code))


if __name__ == "__main__":
    main()
