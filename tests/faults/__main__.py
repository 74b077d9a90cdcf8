"""``python -m tests.faults [--rounds 500] [--seed 1] [KIND ...]``: rounds of real faults for each kind of connection.

Prints a line for each round and one for each kind; ``make faults ROUNDS=500``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.faults.options import parsed
from tests.faults.rounds import run


def main() -> int:
    parser = argparse.ArgumentParser(description="kill, stop and restart programs, and check what arrives")
    parser.add_argument("--rounds", type=int, default=60, help="in all")
    given = parsed(parser)
    failed = 0
    for number, kind in enumerate(given.kinds):
        rounds = given.rounds // len(given.kinds) + (number < given.rounds % len(given.kinds))
        with tempfile.TemporaryDirectory(prefix="mainstem-faults-") as directory:
            try:
                result = run(
                    kind,
                    Path(directory),
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
