"""Run the same measurement for Mainstem and every peer in turn, and add the ratios to a report."""

from __future__ import annotations

import platform
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.options import Options, parse_options
from harness.processes import RoleFailed
from harness.streams import Peer, every_peer, mainstem, round_trip_us, throughput

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from harness.report import Report


@dataclass(frozen=True, kw_only=True)
class Question:
    """One measurement of a report. ``goals`` are ratios to peers; larger is better."""

    name: str
    size: int
    mode: str
    invoker: bool = False
    goals: dict[str, float] = field(default_factory=dict)

    def measure(self, peer: Peer, transport: str) -> dict[str, float]:
        """Return the results of one run, by name."""
        if self.mode == "round trip":
            median, p99 = round_trip_us(peer, transport=transport, size=self.size)
            return {self.name: median, f"{self.name}, p99": p99}
        return {self.name: throughput(peer, transport=transport, size=self.size, mode=self.mode)}

    @property
    def unit(self) -> str:
        return "us" if self.mode == "round trip" else "messages/s"


def comparison_options(doc: str | None, names: Iterable[str], *, peers: Iterable[str] | None = None) -> Options:
    """Parse the command line of a comparison with these peers, by default every peer that can carry a stream."""
    return parse_options(doc, names, peers=peers or [peer.name for peer in every_peer()], more=_any_python)


def _any_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--any-python", action="store_true", help="also a peer under another version of Python")


def compare(report: Report, questions: list[Question], *, transport: str) -> None:
    """Run every selected question in pairs: Mainstem, then each peer, repeatedly."""
    chosen = available(report)
    for question in questions:
        if question.name in report.options.parts:
            for _ in range(report.options.pairs):
                _ask(report, question, chosen, transport)


def available(report: Report) -> list[Peer]:
    """Return the selected peers that can run. The report says why the others cannot."""
    chosen = []
    for peer in every_peer():
        if peer.name not in report.options.peers:
            report.skipped[peer.name] = "it was not asked for"
        elif peer.unavailable:
            report.skipped[peer.name] = peer.unavailable
        elif why := _compares_pythons(report, peer):
            report.skipped[peer.name] = why
        else:
            chosen.append(peer)
    return chosen


def _compares_pythons(report: Report, peer: Peer) -> str:
    """Return why a ratio would compare two versions of Python; empty if it would not.

    With one call per message, most of the cost is the interpreter's. A different build of the same version only adds a note.
    """
    if peer.python == sys.executable:
        return ""
    ask = "import platform, sysconfig; print(platform.python_version(), sysconfig.get_config_var('CONFIG_ARGS'))"
    version, _, build = subprocess.check_output([peer.python, "-c", ask], text=True).strip().partition(" ")
    ours = platform.python_version()
    if version.split(".")[:2] != ours.split(".")[:2] and not report.options.values.any_python:
        return (
            f"it runs under Python {version}, Mainstem under {ours}: install Mainstem beside it and run this there, or add"
            " --any-python to compare both"
        )
    if (version, build) != (ours, str(sysconfig.get_config_var("CONFIG_ARGS"))):
        report.notes.append(
            f"{peer.name} runs under Python {version}, Mainstem under {ours}, or one built in another way: these ratios compare"
            " both"
        )
    return ""


def _ask(report: Report, question: Question, chosen: list[Peer], transport: str) -> None:
    ours = question.measure(mainstem(invoker=question.invoker), transport)
    for name, figure in ours.items():
        report.figure(f"mainstem: {name} [{question.unit}]", figure)
    for peer in chosen:
        if not peer.has(transport, question.mode):
            continue
        try:
            theirs = question.measure(peer, transport)
        except RoleFailed as failure:
            print(f"{peer.name}, {question.name}: {failure}", file=sys.stderr)
            continue
        for name, figure in theirs.items():
            report.figure(f"{peer.name}: {name} [{question.unit}]", figure)
            report.pair(
                f"{name} / {peer.name}",
                peer=peer.name,
                ours=ours[name],
                theirs=figure,
                goal=question.goals.get(peer.name),
                smaller_is_better=question.mode == "round trip",
            )
