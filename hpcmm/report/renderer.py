"""Renderer: reads Vega-Lite specifications from standard input and writes SVG to standard output.

``drawing`` runs this file by its path, so that it loads vl_convert and nothing else.
"""

import json
import sys

import vl_convert

VEGA_LITE = "6.4"


def main() -> None:
    """Draw a JSON list of specifications, one JSON line per drawing; print the script if the list is empty."""
    specs = json.load(sys.stdin)
    if not specs:
        sys.stdout.write(vl_convert.javascript_bundle(vl_version=VEGA_LITE))
    for spec in specs:
        print(json.dumps(vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)), flush=True)


if __name__ == "__main__":
    main()
