"""How fast do two processes exchange messages over UDP on loopback, and how long does a round trip take?

``python benchmarks/udp.py [--json] [--quick] [--pairs N] [--only TEXT] [--peer NAME]``.

Compared in one run, in turn, with pyaeron (if MAINSTEM_PYAERON_PYTHON names a Python that has it), pyzmq over tcp:// and plain
UDP sockets (which lose data, so only received messages count). Every Aeron driver runs with default settings.
"""

from __future__ import annotations

from harness.comparison import Question, compare, comparison_options
from harness.report import Report

QUESTIONS = [
    Question(name="32 B, a call a message", size=32, mode="call"),
    Question(name="256 B, a call a message", size=256, mode="call"),
    Question(name="1 KiB, a call a message", size=1024, mode="call", goals={"pyzmq": 1.5}),
    Question(name="32 B, batches", size=32, mode="batch"),
    Question(name="256 B, batches", size=256, mode="batch"),
    Question(name="1 KiB, batches", size=1024, mode="batch", goals={"pyzmq": 1.5}),
    Question(name="round trip, 32 B, driver process", size=32, mode="round trip", goals={"pyaeron": 1.5}),
    Question(name="round trip, 32 B, INVOKER", size=32, mode="round trip", invoker=True, goals={"pyaeron": 4.0}),
]


def main() -> None:
    report = Report(options=comparison_options(__doc__, [question.name for question in QUESTIONS]))
    compare(report, QUESTIONS, transport="udp")
    report.print()


if __name__ == "__main__":
    main()
