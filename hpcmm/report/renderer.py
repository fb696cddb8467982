"""The program that draws: Vega-Lite specifications on standard input, SVG on standard output.

``drawing`` runs it by its path, so that it loads vl_convert and nothing else.
"""

import json
import sys

import vl_convert

VEGA_LITE = "6.4"


def main() -> None:
    """Draw the specifications, a JSON list of texts, as a JSON line each; print the script if there are none."""
    specs = json.load(sys.stdin)
    if not specs:
        sys.stdout.write(vl_convert.javascript_bundle(vl_version=VEGA_LITE))
    for spec in specs:
        print(json.dumps(vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)), flush=True)


if __name__ == "__main__":
    main()
