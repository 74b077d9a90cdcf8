"""The options that rounds and soaks share."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from tests.faults.rounds import KINDS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def parsed(parser: ArgumentParser) -> Namespace:
    """Return the arguments, with ``kinds`` and ``seed``, and make SIGTERM end this program cleanly from here on."""
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; without any, all")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if unknown := [kind for kind in given.kinds if kind not in KINDS]:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(KINDS)}")
    given.kinds = given.kinds or list(KINDS)
    # The child programs have sessions of their own, so they end with this program only if it ends them.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return given
