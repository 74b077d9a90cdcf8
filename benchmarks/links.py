"""Throughput over a link with loss and delay, and to many receivers, compared with pyaeron: the reference driver and its client.

``python benchmarks/links.py [--json] [--quick] [--pairs N] [--only TEXT] [--peer NAME]``.

Both send messages of 1 KiB with one call per message, from the same Python. The publication and each receiving host have their
own driver with default settings. A relay loses and delays datagrams, the same frames for both. MAINSTEM_PYAERON_PYTHON names the
Python that has pyaeron.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.comparison import available, comparison_options
from harness.processes import RoleFailed, free_port, free_ports
from harness.relay import relaying
from harness.report import Report
from harness.streams import Peer, mainstem, spread

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 1024
SECONDS, QUICK_SECONDS = 2.0, 0.5
GOAL = 1.5
LOSS, DELAY_MS = 0.01, 1.0
GROUP = "224.20.30.1"
DESTINATIONS = 20


@dataclass(frozen=True)
class Link:
    """One line of the report, and the function that measures a peer's messages per second."""

    name: str
    rate: Callable[[Peer, float], float]


def lossy(peer: Peer, seconds: float) -> float:
    port, back = free_ports(2)
    with relaying(port=port, back=back, loss=LOSS, delay_ms=DELAY_MS, seed=1):
        return spread(peer, _endpoint(port), [[_endpoint(back)]], size=SIZE, seconds=seconds)


def multicast(peer: Peer, seconds: float) -> float:
    group = f"aeron:udp?endpoint={GROUP}:{free_port()}|interface=localhost"
    return spread(peer, f"{group}|fc=min,g:/3", [[group]] * 3, size=SIZE, seconds=seconds)


def destinations(peer: Peer, seconds: float) -> float:
    own, *ports = free_ports(1 + DESTINATIONS)
    control = f"control=127.0.0.1:{own}|control-mode=dynamic"
    here = [f"{_endpoint(port)}|{control}" for port in ports]
    return spread(peer, f"aeron:udp?{control}|fc=min,g:/{DESTINATIONS}", [here], size=SIZE, seconds=seconds)


def _endpoint(port: int) -> str:
    return f"aeron:udp?endpoint=127.0.0.1:{port}"


LINKS = (
    Link("1 KiB, 1 % loss and 1 ms each way", lossy),
    Link("1 KiB, multicast to 3 hosts", multicast),
    Link(f"1 KiB, to {DESTINATIONS} destinations", destinations),
)


def main() -> None:
    report = Report(options=comparison_options(__doc__, [link.name for link in LINKS], peers=("pyaeron",)))
    peers = available(report)
    seconds = report.options.either(SECONDS, QUICK_SECONDS)
    for link in LINKS:
        if link.name not in report.options.parts:
            continue
        for _ in range(report.options.pairs):
            ours = link.rate(mainstem(), seconds)
            report.figure(f"mainstem: {link.name} [messages/s]", ours)
            for peer in peers:
                try:
                    theirs = link.rate(peer, seconds)
                except RoleFailed as failure:
                    report.notes.append(f"{peer.name}, {link.name}: {failure}")
                    continue
                report.figure(f"{peer.name}: {link.name} [messages/s]", theirs)
                report.pair(f"{link.name} / {peer.name}", peer=peer.name, ours=ours, theirs=theirs, goal=GOAL)
    report.print()


if __name__ == "__main__":
    main()
