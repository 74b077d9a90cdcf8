"""Run every benchmark, one after another.

``python benchmarks/run.py [--json] [--quick] [--pairs N]``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.options import parse_options

HERE = Path(__file__).resolve().parent
SELF = {"run.py"}


def main() -> int:
    parse_options(__doc__, ())
    worst = 0
    for path in sorted(HERE.glob("*.py")):
        if path.name not in SELF:
            print(f"== {path.stem}", file=sys.stderr, flush=True)
            worst = max(worst, subprocess.run([sys.executable, str(path), *sys.argv[1:]]).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
