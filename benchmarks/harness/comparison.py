"""Asks the same question of Mainstem and of every peer, in turn, and adds the ratios to a report."""

from __future__ import annotations

import platform
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.processes import RoleFailed
from harness.streams import Peer, mainstem, peers, round_trip_us, throughput

if TYPE_CHECKING:
    from harness.report import Report

PAIRS = 5
QUICK_PAIRS = 1


@dataclass(frozen=True, kw_only=True)
class Question:
    """One line of a report. ``goals`` are ratios to a peer, larger is better."""

    name: str
    size: int
    mode: str
    invoker: bool = False
    goals: dict[str, float] = field(default_factory=dict)

    def measure(self, peer: Peer, transport: str) -> float:
        if self.mode == "round trip":
            return round_trip_us(peer, transport=transport, size=self.size)
        return throughput(peer, transport=transport, size=self.size, mode=self.mode)

    @property
    def unit(self) -> str:
        return "us" if self.mode == "round trip" else "messages/s"


def chosen(name: str, default: str) -> str:
    """The value of ``--name=VALUE`` on the command line."""
    found = [argument.partition("=")[2] for argument in sys.argv if argument.startswith(f"--{name}=")]
    return found[-1] if found else default


def compare(report: Report, questions: list[Question], *, transport: str) -> None:
    """Runs every question ``PAIRS`` times: ourselves, then each peer, and again.

    ``--quick`` runs it once, ``--pairs=N`` so many times; ``--peer=NAME`` leaves the others out.
    """
    pairs = int(chosen("pairs", str(QUICK_PAIRS if "--quick" in sys.argv else PAIRS)))
    only = chosen("peer", "")
    available = []
    for peer in peers():
        if only and peer.name != only:
            report.skipped[peer.name] = f"only {only} was asked for"
        elif peer.unavailable:
            report.skipped[peer.name] = peer.unavailable
        else:
            available.append(peer)
            _note_interpreter(report, peer)
    for question in questions:
        for _ in range(pairs):
            _ask(report, question, available, transport)


def _note_interpreter(report: Report, peer: Peer) -> None:
    """Says when a ratio would compare two Pythons as well: a call a message costs mostly what the interpreter does."""
    if peer.python == sys.executable:
        return
    ask = "import platform, sysconfig; print(platform.python_version(), sysconfig.get_config_var('CONFIG_ARGS'))"
    version, _, build = subprocess.check_output([peer.python, "-c", ask], text=True).strip().partition(" ")
    ours = platform.python_version()
    if (version, build) != (ours, str(sysconfig.get_config_var("CONFIG_ARGS"))):
        report.notes.append(
            f"{peer.name} runs under Python {version}, Mainstem under {ours}, or one built in another way: these ratios compare"
            f" both. Install Mainstem beside {peer.name} and run this there to compare the libraries alone."
        )


def _ask(report: Report, question: Question, available: list[Peer], transport: str) -> None:
    ours = question.measure(mainstem(invoker=question.invoker), transport)
    report.figure(f"mainstem: {question.name} [{question.unit}]", ours)
    for peer in available:
        try:
            theirs = question.measure(peer, transport)
        except RoleFailed as failure:
            print(f"{peer.name}, {question.name}: {failure}", file=sys.stderr)
            continue
        report.figure(f"{peer.name}: {question.name} [{question.unit}]", theirs)
        report.pair(
            f"{question.name} / {peer.name}",
            peer=peer.name,
            ours=ours,
            theirs=theirs,
            goal=question.goals.get(peer.name),
            smaller_is_better=question.mode == "round trip",
        )
