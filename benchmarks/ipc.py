"""How fast do two processes on one machine exchange messages over IPC, and how long does a round trip take?

``python benchmarks/ipc.py [--json] [--quick] [--pairs N] [--only TEXT] [--peer NAME]``.

Beside pyaeron (when MAINSTEM_PYAERON_PYTHON names a Python that has it), pyzmq over ipc://
and plain AF_UNIX sockets, in turn, in one run; and beside two limits: batches that are only copied, by two processes through
shared memory (``memcpy``), and a compiled method that does nothing, called for each message (``an empty method``).
"""

from __future__ import annotations

from harness.comparison import Question, compare, comparison_options
from harness.report import Report

# The goals are ratios to the named peer.
QUESTIONS = [
    Question(name="32 B, a call a message", size=32, mode="call", goals={"an empty method": 0.6}),
    Question(name="256 B, a call a message", size=256, mode="call", goals={"pyaeron": 1.0}),
    Question(name="1 KiB, a call a message", size=1024, mode="call", goals={"pyaeron": 1.0}),
    Question(name="32 B, batches", size=32, mode="batch"),
    Question(name="256 B, batches", size=256, mode="batch"),
    Question(name="1 KiB, batches", size=1024, mode="batch", goals={"pyaeron": 1.0, "memcpy": 0.8}),
    Question(name="round trip, 32 B", size=32, mode="round trip", goals={"pyaeron": 1.5}),
]


def main() -> None:
    report = Report(options=comparison_options(__doc__, [question.name for question in QUESTIONS]))
    compare(report, QUESTIONS, transport="ipc")
    report.print()


if __name__ == "__main__":
    main()
