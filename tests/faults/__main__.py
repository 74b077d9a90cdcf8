"""``python -m tests.faults [--rounds 500] [--seed 1] [KIND ...]``: rounds of real faults, spread over the kinds of connection.

Prints a line for each round and one for each kind; ``make faults ROUNDS=500``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from tests.faults.rounds import KINDS, run


def main() -> int:
    parser = argparse.ArgumentParser(description="kill, stop and restart programs, and check what arrives")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; without any, all")
    parser.add_argument("--rounds", type=int, default=60, help="in all")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    # The programs are in sessions of their own, and end with this one only if it ends them.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if unknown := [kind for kind in given.kinds if kind not in KINDS]:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(KINDS)}")
    kinds = given.kinds or list(KINDS)
    failed = 0
    for place, kind in enumerate(kinds):
        rounds = given.rounds // len(kinds) + (place < given.rounds % len(kinds))
        with tempfile.TemporaryDirectory(prefix="mainstem-faults-") as folder:
            try:
                result = run(
                    kind,
                    Path(folder),
                    rounds=rounds,
                    seed=given.seed,
                    say=lambda line: print(json.dumps(line), flush=True),
                )
            except AssertionError as error:
                failed += 1
                print(f"FAILED: {error}", flush=True)
            else:
                print(json.dumps(result), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
