"""Options of the benchmarks: ``--help`` prints help, and a word that no benchmark has is refused before anything runs."""

from __future__ import annotations

import sys

OPTIONS = """\
  --help, -h         print this, and run nothing
  --json             print the results as JSON
  --quick            fewer and shorter runs
  --only PART        only the parts whose name has this text
  --pairs=N          how many runs of each beside its peer
  --peer=NAME        only this peer
  --backend=NAME     the QUIC library: qh3, aioquic
  --size BYTES       the size of a capture, as in 32m
  --table            rows for docs/performance.md (repair.py)
  --seeds=, --senders=, --ways=, --delays=, --loss=, --port=   see repair.py
"""
KNOWN = {
    word.rstrip("=,") for line in OPTIONS.splitlines() for word in line.replace(",", " ").split() if word[:1] == "-"
}
KNOWN = {word.partition("=")[0] for word in KNOWN}


def check_options(doc: str | None) -> None:
    """Prints help and exits where it is asked for; exits with 2 for an option that no benchmark has."""
    words = [word.partition("=")[0] for word in sys.argv[1:] if word.startswith("-")]
    if "--help" in words or "-h" in words:
        print(f"{(doc or '').strip()}\n\nOptions (each benchmark reads those that apply to it):\n{OPTIONS}", end="")
        sys.exit(0)
    unknown = [word for word in words if word not in KNOWN]
    if unknown:
        print(f"{unknown[0]} is no option of the benchmarks; --help lists them", file=sys.stderr)
        sys.exit(2)
