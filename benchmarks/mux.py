"""What does a multiplexer cost? Compares bymux and Jmux with raw asyncio TCP, h2, rsocket and gRPC's aio.

``python benchmarks/mux.py [--json] [--quick] [--pairs N] [--only TEXT] [--peer NAME]``. Two processes use one loopback connection
without TLS, with the same event loop on both sides (asyncio's own, or uvloop if the question says so). Each ratio is taken from
two consecutive runs.
"""

from __future__ import annotations

import importlib.util
import socket
from dataclasses import dataclass, field
from typing import Any

from harness.options import parse_options
from harness.processes import Role, RoleFailed, free_port, running
from harness.report import Report

SECONDS = 1.5
BESIDE = "beside bulk, and idle streams"


@dataclass(kw_only=True)
class Question:
    """One row: a mode (``ours`` if Mainstem's differs), and the goals of the ratio to each peer.

    ``peers`` has goals for the median, ``lowest`` goals for each pair.
    """

    name: str
    mode: str
    ours: str = ""
    streams: int = 1
    loop: str = "asyncio"
    peers: dict[str, float | None] = field(default_factory=dict)
    lowest: dict[str, float] = field(default_factory=dict)
    unit: str = "/s"


QUESTIONS = [
    Question(
        name="bulk, 1 stream",
        mode="bulk",
        unit="MB/s",
        peers={"tcp": 0.6, "h2": 2.0, "rsocket": None, "grpc": 2.0},
        lowest={"h2": 1.0, "grpc": 1.0},
    ),
    Question(
        name="bulk, 64 streams", mode="bulk", streams=64, unit="MB/s", peers={"h2": 2.5, "rsocket": 1.5, "grpc": 2.5}
    ),
    Question(
        name="64 B messages, each flushed", mode="small", peers={"tcp": None, "h2": 3.0, "rsocket": None, "grpc": None}
    ),
    # In the row above, bymux can combine the writes of one turn of the loop, because its `drain` promises no more. In this row
    # each message is a separate system call, as it is for raw TCP and h2 in both rows.
    Question(name="64 B messages, each a system call", mode="small", ours="flushed", peers={"tcp": 0.9, "h2": None}),
    Question(
        name="64 B requests, 1 in flight",
        mode="request",
        peers={"tcp": 0.85, "h2": None, "rsocket": None, "grpc": None},
    ),
    Question(name="64 B requests, 1 in flight, uvloop", mode="request", loop="uvloop", peers={"tcp": 0.5}),
    Question(
        name="64 B requests, 64 in flight",
        mode="request",
        streams=64,
        peers={"h2": None, "rsocket": 2.0, "grpc": None},
        lowest={"rsocket": 1.5},
    ),
]
NEEDS = {"h2": "h2", "rsocket": "rsocket", "grpc": "grpc", "tcp": ""}
MIXED_P99_MS, MIXED_GOAL = 2.0, 1.0


def measure(peer: str, mode: str, streams: int, seconds: float, loop: str = "asyncio") -> dict[str, Any]:
    """Run a server and a client once. Return the client's results."""
    port = free_port(socket.SOCK_STREAM)
    options = {"mode": mode, "streams": streams, "seconds": seconds, "port": port, "loop": loop}
    with running(f"mux_{peer}", "server", options):
        client = Role(f"mux_{peer}", "client", options)
        try:
            return client.result()
        finally:
            client.stop()


def main() -> None:
    options = parse_options(__doc__, [*(question.name for question in QUESTIONS), BESIDE], peers=NEEDS)
    pairs, seconds = options.pairs, options.either(SECONDS, 0.5)
    report = Report(options=options)
    missing = {peer for peer, module in NEEDS.items() if module and importlib.util.find_spec(module) is None}
    report.skipped.update({peer: f"the package {NEEDS[peer]} is not installed" for peer in sorted(missing)})
    for question in QUESTIONS:
        if question.name not in options.parts:
            continue
        if question.loop == "uvloop" and importlib.util.find_spec("uvloop") is None:
            report.skipped[question.name] = "the package uvloop is not installed"
            continue
        for peer, goal in question.peers.items():
            if peer in missing or peer not in options.peers:
                continue
            for _ in range(pairs):
                try:
                    theirs = measure(peer, question.mode, question.streams, seconds, question.loop)["rate"]
                except RoleFailed as error:
                    report.skipped[f"{peer}: {question.name}"] = str(error)
                    break
                mode = question.ours or question.mode
                ours = measure("mainstem", mode, question.streams, seconds, question.loop)["rate"]
                report.pair(
                    f"{question.name} / {peer}",
                    peer=peer,
                    ours=ours,
                    theirs=theirs,
                    goal=goal,
                    lowest_goal=question.lowest.get(peer),
                )
                report.figure(f"{question.name}: mainstem, {question.unit}", ours)
                report.figure(f"{question.name}: {peer}, {question.unit}", theirs)
    if BESIDE in options.parts:
        beside(report, pairs, seconds)
    report.print()


def beside(report: Report, pairs: int, seconds: float) -> None:
    """Measure a small message next to bulk data, and next to a thousand idle streams."""
    for _ in range(pairs):
        mixed = measure("mainstem", "mixed", 1, seconds)
        report.pair(
            "64 B round trip beside bulk, p99",
            peer="2 ms",
            ours=mixed["p99_us"] / 1e3,
            theirs=MIXED_P99_MS,
            goal=MIXED_GOAL,
            smaller_is_better=True,
        )
        report.figure("64 B round trip beside bulk: p99, ms", mixed["p99_us"] / 1e3)
        report.figure("64 B round trip beside bulk: bulk, MB/s", mixed["bulk"])
        alone = measure("mainstem", "idle", 0, seconds)["rate"]
        crowd = measure("mainstem", "idle", 1000, seconds)["rate"]
        report.pair("round trips beside 1000 idle streams", peer="none idle", ours=crowd, theirs=alone, goal=0.9)


if __name__ == "__main__":
    main()
