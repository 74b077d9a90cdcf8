"""How much of the throughput of bare QUIC is left for channels, and what does opening a channel cost?

``python benchmarks/aqueduct.py [--json] [--quick] [--pairs N] [--only PART] [--peer NAME] [--backend aioquic]``.

Aqueduct is compared in one run, in turn, with the same QUIC library alone, driven through the same socket with the same batches,
and with gRPC's asyncio streaming (no TLS). The bare peer joins and separates messages in Python, Aqueduct in compiled code, so
ratios above 1 are possible for small messages. Times are between two processes on this host. An idle open channel costs its
control stream. The results with 100 and 1,000 live channels show how a library's cost grows with their number.
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
UNREAD = 20

# The library alone and gRPC's asyncio streaming.
SCRIPTS = {"bare": "bare_quic", "grpc": "grpc_streams"}
# The measurement, its unit, and its peers with their goals.
QUESTIONS: list[tuple[str, dict[str, Any], str, dict[str, float | None]]] = [
    ("ordered, 64 KiB messages", {"what": "ordered", "size": BULK}, "megabytes", {"bare": 0.95, "grpc": 0.8}),
    ("ordered, 64 B messages", {"what": "ordered", "size": SMALL}, "messages", {"bare": 0.8, "grpc": None}),
    ("unordered, 64 B messages", {"what": "unordered", "size": SMALL}, "messages", {"bare": None}),
    ("datagrams, 64 B", {"what": "datagrams", "size": SMALL}, "messages", {"bare": 0.9}),
    ("open a channel and get a response", {"what": "open"}, "p50_us", {"bare": 0.8, "grpc": None}),
    ("get a response on an open channel", {"what": "again"}, "p50_us", {"bare": 0.85, "grpc": None}),
]


def measure(options: Options, script: str, directory: str, **question: Any) -> dict[str, float]:
    """Measure one peer for one question."""
    words = {"port": free_port(), "directory": directory, "backend": options.values.backend}
    with running(script, "serve", words):
        role = Role(script, "ask", {**words, "seconds": options.either(SECONDS, QUICK_SECONDS), **question})
        try:
            return role.result()
        finally:
            role.stop()


def ask_all(report: Report, directory: str) -> None:
    peers = set(report.options.peers)
    if "grpc" in peers and importlib.util.find_spec("grpc") is None:
        report.skipped["grpc"] = "grpcio is not installed: pip install grpcio"
        peers.remove("grpc")
    for name, question, unit, goals in QUESTIONS:
        for _ in range(report.options.pairs):
            ours = measure(report.options, "aqueduct_channels", directory, **question)[unit]
            report.figure(f"{name}: aqueduct, {unit}", ours)
            for peer, goal in goals.items():
                if peer not in peers:
                    continue
                theirs = measure(report.options, SCRIPTS[peer], directory, **question)[unit]
                report.figure(f"{name}: {peer}, {unit}", theirs)
                report.pair(
                    f"{name} / {peer}",
                    peer=_named(report, peer),
                    ours=ours,
                    theirs=theirs,
                    goal=goal,
                    smaller_is_better=unit == "p50_us",
                )


def _named(report: Report, peer: str) -> str:
    """Return the name of a peer, with its library if that is selectable."""
    return f"bare {report.options.values.backend}" if peer == "bare" else peer


def opening_costs_no_round_trip(report: Report, directory: str) -> None:
    """Compare a response through a new channel with one through an open channel, over a path with a 20 ms round trip.

    If opening took an additional round trip, it would halve the ratio.
    """
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
        report.figure("20 ms away, open and get a response: p50_us", times["open"])
        report.figure("20 ms away, get a response on an open channel: p50_us", times["again"])
        report.pair(
            "opening a channel, 20 ms away",
            peer="an open channel",
            ours=times["open"],
            theirs=times["again"],
            goal=0.8,
            smaller_is_better=True,
        )


def with_live_channels(report: Report, directory: str) -> None:
    """Repeat with other channels open, each of which has a control stream. The peer has as many open streams."""
    for live in (1, 100, 1000):
        question = {"what": "ordered", "size": SMALL, "live": live}
        for _ in range(report.options.pairs):
            ours = measure(report.options, "aqueduct_channels", directory, **question)["messages"]
            bare = measure(report.options, "bare_quic", directory, **question)["messages"]
            report.figure(f"ordered, 64 B, {live} live channels: messages", ours)
            report.pair(
                f"ordered, 64 B, {live} live",
                peer=_named(report, "bare"),
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


def beside_unread_channels(report: Report, directory: str) -> None:
    """Compare bulk data on a channel next to others whose messages nobody reads, at default limits, with bulk data alone."""
    question = {"what": "ordered", "size": BULK}
    for _ in range(report.options.pairs):
        beside = measure(report.options, "aqueduct_channels", directory, **question, unread=UNREAD)["megabytes"]
        alone = measure(report.options, "aqueduct_channels", directory, **question)["megabytes"]
        report.figure(f"ordered, 64 KiB, beside {UNREAD} unread channels: megabytes", beside)
        report.pair(
            f"ordered, 64 KiB, beside {UNREAD} unread channels", peer="alone", ours=beside, theirs=alone, goal=0.8
        )


def _of_backends(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", choices=BACKENDS, default="qh3", help="the QUIC library")


PARTS = (ask_all, opening_costs_no_round_trip, with_live_channels, beside_unread_channels)


def main() -> None:
    parts = {part.__name__: part for part in PARTS}
    report = Report(options=parse_options(__doc__, parts, peers=SCRIPTS, quick_pairs=2, more=_of_backends))
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
