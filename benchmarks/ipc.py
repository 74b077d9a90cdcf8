"""How fast do two processes on one host exchange messages over IPC, and how long does a round trip take?

``python benchmarks/ipc.py [--json] [--quick] [--pairs N] [--only TEXT] [--peer NAME]``.

Compared in one run, in turn, with pyaeron (if MAINSTEM_PYAERON_PYTHON names a Python that has it), pyzmq over ipc:// and plain
AF_UNIX sockets, and with two upper limits: batches that two processes only copy through shared memory (``memcpy``), and one call
per message of a compiled method that does nothing (``an empty method``). The CPU time of a driver is compared with the reference
driver's, which MAINSTEM_AERONMD names, with the same client on both.
"""

from __future__ import annotations

from harness.comparison import Question, compare, comparison_options
from harness.drivers import NO_REFERENCE, has_reference
from harness.report import Report
from harness.streams import driver_us, every_peer

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
# Size and mode, by the name of the question.
OF_DRIVERS = {
    "driver's processor time, 32 B, a call a message": (32, "call"),
    "driver's processor time, 32 B, batches": (32, "batch"),
    "driver's processor time, 256 B, batches": (256, "batch"),
    "driver's processor time, 1 KiB, batches": (1024, "batch"),
}
DRIVER_GOAL = 1.0
DRIVER_SECONDS, QUICK_DRIVER_SECONDS = 3.0, 0.5


def main() -> None:
    names = [question.name for question in QUESTIONS]
    peers = [*(peer.name for peer in every_peer()), "reference"]
    report = Report(options=comparison_options(__doc__, [*names, *OF_DRIVERS], peers=peers))
    compare(report, QUESTIONS, transport="ipc")
    compare_drivers(report)
    report.print()


def compare_drivers(report: Report) -> None:
    """Compare the CPU time of each driver while our client publishes."""
    asked = [name for name in OF_DRIVERS if name in report.options.parts]
    if "reference" not in report.options.peers or not asked:
        return
    if not has_reference():
        report.skipped["reference"] = NO_REFERENCE
        return
    seconds = report.options.either(DRIVER_SECONDS, QUICK_DRIVER_SECONDS)
    for name in asked:
        size, mode = OF_DRIVERS[name]
        for _ in range(report.options.pairs):
            ours, theirs = (
                driver_us(kind, size=size, mode=mode, seconds=seconds) for kind in ("mainstem", "reference")
            )
            report.figure(f"mainstem: {name} [us a thousand]", ours)
            report.figure(f"reference: {name} [us a thousand]", theirs)
            report.pair(
                f"{name} / reference",
                peer="reference driver",
                ours=ours,
                theirs=theirs,
                goal=DRIVER_GOAL,
                smaller_is_better=True,
            )


if __name__ == "__main__":
    main()
