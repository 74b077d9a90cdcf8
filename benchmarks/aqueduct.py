"""How much of bare QUIC is left when channels run on it, and what does opening one cost?

``python benchmarks/aqueduct.py [--json] [--quick] [--pairs N] [--only PART] [--backend aioquic]``.

Beside the same QUIC library alone, driven through the same socket with the same batches, and beside gRPC's asyncio
streaming (no TLS), in turn, in one run. The bare peer puts its messages together and takes them apart in Python, Aqueduct
does it in compiled code: a ratio above 1 for small messages says that. Times are of two processes on this machine. A
channel that is open and idle costs its control stream: the figures with 100 and 1,000 live channels show where a
library's cost grows with them.
"""

from __future__ import annotations

import importlib.util
import tempfile
from typing import TYPE_CHECKING, Any

from harness.options import Options, parse_options
from harness.processes import Role, RoleFailed, free_port, running
from harness.report import Report

from mainstem.aqueduct import make_certificates
from mainstem.aqueduct.quic import BACKENDS

if TYPE_CHECKING:
    import argparse

SECONDS, QUICK_SECONDS = 1.5, 0.5
ONE_WAY = 0.01
BULK = 64 << 10
SMALL = 64

# What is measured, in what unit, against the bare library with which goal, and against gRPC without one.
QUESTIONS: list[tuple[str, dict[str, Any], str, float | None]] = [
    ("ordered, 64 KiB messages", {"what": "ordered", "size": BULK}, "megabytes", 0.8),
    ("ordered, 64 B messages", {"what": "ordered", "size": SMALL}, "messages", 0.8),
    ("unordered, 64 B messages", {"what": "unordered", "size": SMALL}, "messages", None),
    ("datagrams, 64 B", {"what": "datagrams", "size": SMALL}, "messages", None),
    ("open a channel and be answered", {"what": "open"}, "p50_us", None),
    ("be answered on an open channel", {"what": "again"}, "p50_us", None),
]
GRPC_ANSWERS = ("ordered", "open", "again")


def measure(options: Options, script: str, directory: str, **question: Any) -> dict[str, float]:
    """One peer's figures for one question."""
    words = {"port": free_port(), "directory": directory, "backend": options.values.backend}
    with running(script, "serve", words):
        role = Role(script, "ask", {**words, "seconds": options.either(SECONDS, QUICK_SECONDS), **question})
        try:
            return role.result()
        finally:
            role.stop()


def ask_all(report: Report, directory: str) -> None:
    has_grpc = importlib.util.find_spec("grpc") is not None
    if not has_grpc:
        report.skipped["grpc"] = "grpcio is not installed: pip install grpcio"
    for name, question, unit, goal in QUESTIONS:
        smaller = unit == "p50_us"
        for _ in range(report.options.pairs):
            ours = measure(report.options, "aqueduct_channels", directory, **question)[unit]
            bare = measure(report.options, "bare_quic", directory, **question)[unit]
            report.figure(f"{name}: aqueduct, {unit}", ours)
            report.figure(f"{name}: bare {report.options.values.backend}, {unit}", bare)
            report.pair(
                name,
                peer=f"bare {report.options.values.backend}",
                ours=ours,
                theirs=bare,
                goal=goal,
                smaller_is_better=smaller,
            )
            if has_grpc and question["what"] in GRPC_ANSWERS:
                grpc = measure(report.options, "grpc_streams", directory, **question)[unit]
                report.figure(f"{name}: grpc, {unit}", grpc)
                report.pair(f"{name}, beside grpc", peer="grpc", ours=ours, theirs=grpc, smaller_is_better=smaller)


def opening_costs_no_round_trip(report: Report, directory: str) -> None:
    """Over a path of 20 ms a round trip, the time of an answer through a new channel beside one through an open one: a
    round trip more would halve the ratio."""
    for _ in range(report.options.pairs):
        times = {}
        for what in ("open", "again"):
            options = {"port": free_port(), "directory": directory, "backend": report.options.values.backend}
            near = free_port()
            path = {"port": near, "to": options["port"], "delay": ONE_WAY}
            with running("aqueduct_channels", "serve", options), running("slow_path", "serve", path):
                role = Role("aqueduct_channels", "ask", {**options, "port": near, "what": what, "rounds": 40})
                try:
                    times[what] = role.result()["p50_us"]
                finally:
                    role.stop()
        report.figure("20 ms away, open and be answered: p50_us", times["open"])
        report.figure("20 ms away, be answered on an open channel: p50_us", times["again"])
        report.pair(
            "opening a channel, 20 ms away",
            peer="an open channel",
            ours=times["open"],
            theirs=times["again"],
            goal=0.8,
            smaller_is_better=True,
        )


def with_live_channels(report: Report, directory: str) -> None:
    """The same with other channels open: each has a control stream; the peer has as many open streams."""
    for live in (1, 100, 1000):
        question = {"what": "ordered", "size": SMALL, "live": live}
        for _ in range(report.options.pairs):
            ours = measure(report.options, "aqueduct_channels", directory, **question)["messages"]
            bare = measure(report.options, "bare_quic", directory, **question)["messages"]
            report.figure(f"ordered, 64 B, {live} live channels: messages", ours)
            report.pair(
                f"ordered, 64 B, {live} live",
                peer=f"bare {report.options.values.backend}",
                ours=ours,
                theirs=bare,
                goal=0.8,
            )
        report.figure(
            f"open and be answered, {live} live channels: p50_us",
            measure(report.options, "aqueduct_channels", directory, what="open", live=live)["p50_us"],
        )
    memory = measure(report.options, "aqueduct_channels", directory, what="memory", live=1000)
    report.figure("memory of a channel at the client: bytes", memory["bytes"])


def _of_backends(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", choices=BACKENDS, default="qh3", help="the QUIC library")


def main() -> None:
    parts = {part.__name__: part for part in (ask_all, opening_costs_no_round_trip, with_live_channels)}
    report = Report(options=parse_options(__doc__, parts, quick_pairs=2, more=_of_backends))
    with tempfile.TemporaryDirectory() as directory:
        make_certificates(directory)
        for name in report.options.parts:
            try:
                parts[name](report, directory)
            except RoleFailed as failure:
                report.skipped[name] = str(failure)
    report.print()


if __name__ == "__main__":
    main()
