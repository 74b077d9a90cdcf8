"""How does cost grow? One curve, with its memory, for everything that can grow in number.

``python benchmarks/growth.py [--only TEXT,...] [--pairs N] [--quick] [--write] [--json]``. ``--pairs`` is the number of times
that each point is measured. ``--write`` draws the pictures of docs/growth.md and requires matplotlib, from the group ``bench``.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from curves import aeron, mux, recordings, repair
from harness.curve import measured, print_point
from harness.options import parse_options
from harness.report import machine
from harness.results import keep_curve, write_curves

if TYPE_CHECKING:
    import argparse

CURVES = {curve.name: curve for module in (aeron, mux, recordings, repair) for curve in module.CURVES}


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--point", metavar="CURVE=N", help="measure this one point, and print it as JSON")


def main() -> int:
    options = parse_options(__doc__, CURVES, pairs=3, more=_more)
    if options.values.point:
        print_point(CURVES, options.values.point)
        return 0
    found = {}
    for name in options.parts:
        curve = CURVES[name]
        points = options.either(curve.points, curve.quick)
        runs = [measured(curve, count, options.pairs) for count in points]
        lines = {line: [run[line] for run in runs] for line in runs[0]}
        found[name] = {
            "over": curve.over, "cost": curve.cost, "why": curve.why, "points": points, "lines": lines, "machine": machine(),
        }  # fmt: skip
        if options.write:
            keep_curve(name, found[name])
        if not options.json:
            print(f"{name}: {curve.cost}")
            for count, run in zip(points, runs, strict=True):
                print(f"{count:14,} {curve.over:32}", "  ".join(f"{line} {value:,.4g}" for line, value in run.items()))
            sys.stdout.flush()
    if options.write:
        write_curves()
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
