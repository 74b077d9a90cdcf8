"""The options that rounds and soaks share."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from tests.faults.rounds import KINDS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def parsed(parser: ArgumentParser) -> Namespace:
    """What was given, with ``kinds`` and ``seed``; from here on SIGTERM ends this program in good order."""
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; without any, all")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if unknown := [kind for kind in given.kinds if kind not in KINDS]:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(KINDS)}")
    given.kinds = given.kinds or list(KINDS)
    # The programs are in sessions of their own, and end with this one only if it ends them.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return given
