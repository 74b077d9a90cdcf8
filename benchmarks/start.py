"""How long does a media driver take from its command until clients can connect?

``python benchmarks/start.py [--json] [--quick] [--pairs N]``. Each driver is a process with default settings and one thread. The
drivers are started in turn. MAINSTEM_AERONMD names the reference driver.
"""

from __future__ import annotations

from harness.drivers import NO_REFERENCE, has_reference, launched
from harness.options import parse_options
from harness.report import Report

GOAL = 0.5


def main() -> None:
    report = Report(options=parse_options(__doc__, (), peers=("reference",), pairs=11, quick_pairs=2))
    if has_reference():
        for _ in range(report.options.pairs):
            times = {}
            for kind in ("mainstem", "reference"):
                with launched(kind) as driver:
                    times[kind] = driver.start_s
                report.figure(f"{kind}: driver start [ms]", times[kind] * 1e3)
            report.pair(
                "driver start / reference",
                peer="reference driver",
                ours=times["mainstem"],
                theirs=times["reference"],
                goal=GOAL,
                smaller_is_better=True,
            )
    else:
        report.skipped["reference"] = NO_REFERENCE
    report.print()


if __name__ == "__main__":
    main()
