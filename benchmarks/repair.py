"""What does repairing loss cost in time, requests and retransmitted bytes?

``python benchmarks/repair.py [--json] [--table] [--quick] [--pairs N] [--loss 0.01,...]
[--ways unicast,multicast] [--delays 0,50] [--senders reference,mainstem]``.

A publication under a reference driver, or under Mainstem's (``--senders``), sends through a relay that loses only data. In one
run, Mainstem's receiver and the reference's, one after the other, lose the same frames: one pair per seed. Over multicast, three
receivers lose frames independently. Every driver runs with default settings. MAINSTEM_AERONMD names the binary of the reference
driver.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from harness.drivers import NO_REFERENCE, has_reference, launched
from harness.options import parse_options
from harness.relay import relaying
from harness.report import Report

import mainstem
from mainstem._core.system_counter import SystemCounter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

T = TypeVar("T")
LOSSES = [0.01, 0.02, 0.05, 0.1, 0.2]
# Three take a quarter of an hour, mostly for the reference's receiver, which repairs one gap at a time.
SEEDS = 3
LENGTH = 200
STREAM = 1001
# A round trip of 100 ms limits the rate to ten windows per second, and the reference's receiver repairs ten gaps per second.
MESSAGES, DELAYED_MESSAGES = 100_000, 5_000
RECEIVERS = 3  # over multicast
FIRST_PORT = 21_000
TIMEOUT_S = 300.0
SETTLE_S = 0.2
# Retransmit at most 10% more bytes than the reference's receiver causes.
BYTES_GOAL = 1 / 1.1


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    sender: str
    way: str
    delay_ms: int
    loss: float

    @property
    def name(self) -> str:
        return f"{self.sender} sends, {self.way}, {self.delay_ms} ms, {self.loss:.0%}"


@dataclass(frozen=True)
class Driver:
    """A media driver, through one of its clients."""

    aeron: mainstem.Aeron

    def count(self, counter: SystemCounter) -> int:
        return self.aeron.counters.value(counter)


@dataclass(frozen=True)
class Cost:
    """The cost of one transfer."""

    seconds: float
    naks: int
    bytes_again: int


@dataclass
class Outcome:
    """The transfers of one case: by receiver, then one pair per seed."""

    costs: dict[str, list[Cost]] = field(default_factory=lambda: {"mainstem": [], "reference": []})


@contextmanager
def driver(kind: str) -> Iterator[Driver]:
    """Run a driver of one implementation, with a client, until the block ends."""
    with launched(kind) as process, mainstem.Aeron.connect(process.directory) as aeron:
        yield Driver(aeron)


def relay(case: Case, port: int, seed: int) -> AbstractContextManager[None]:
    """Return a lossy relay between ``port`` and the next one, or between groups."""
    way: dict[str, Any] = {"back": port + 1} if case.way == "unicast" else {"branches": RECEIVERS}
    return relaying(port=port, loss=case.loss, delay_ms=case.delay_ms, seed=seed, **way)


def channels(case: Case, port: int) -> tuple[str, list[str]]:
    """Return the publication's channel, and each subscription's."""
    if case.way == "unicast":
        return f"aeron:udp?endpoint=127.0.0.1:{port}", [f"aeron:udp?endpoint=127.0.0.1:{port + 1}"]
    groups = [f"aeron:udp?endpoint=224.20.30.{11 + 2 * i}:{port}|interface=localhost" for i in range(RECEIVERS)]
    return f"aeron:udp?endpoint=224.20.30.1:{port}|interface=localhost|fc=min,g:/{RECEIVERS}", groups


def carry(case: Case, near: Driver, far: Driver, port: int, seed: int) -> Cost:
    """Transfer every message from ``near`` to ``far``, in order, to every receiver."""
    there, here = channels(case, port)
    messages = DELAYED_MESSAGES if case.delay_ms else MESSAGES
    deadline = time.monotonic() + TIMEOUT_S
    with ExitStack() as held, relay(case, port, seed):
        subscriptions = [held.enter_context(far.aeron.add_subscription(channel, STREAM)) for channel in here]
        publication = held.enter_context(near.aeron.add_exclusive_publication(there, STREAM))
        while not (publication.is_connected and all(each.is_connected for each in subscriptions)):
            if time.monotonic() > deadline:
                raise SystemExit(f"{case.name}: no connection")
            time.sleep(0.01)
        time.sleep(SETTLE_S)
        naks, again = far.count(SystemCounter.NAKS_SENT), near.count(SystemCounter.RETRANSMITTED_BYTES)
        sent, received = 0, [0] * len(subscriptions)
        body = bytes(LENGTH - 4)

        def reader(index: int):  # type: ignore[no-untyped-def]
            def on_message(fragment) -> None:  # type: ignore[no-untyped-def]
                number = int.from_bytes(bytes(fragment[:4]), "big")
                if number != received[index]:
                    raise SystemExit(f"{case.name}: message {number} where {received[index]} was due")
                received[index] += 1

            return on_message

        readers = [reader(index) for index in range(len(subscriptions))]
        begin = time.monotonic()
        while min(received) < messages:
            work = 0
            while sent < messages and work < 64 and publication.offer(sent.to_bytes(4, "big") + body) > 0:
                sent += 1
                work += 1
            for subscription, on_message in zip(subscriptions, readers, strict=True):
                work += subscription.poll(on_message, 256)
            if not work:
                time.sleep(0.0002)
                if time.monotonic() > deadline:
                    raise SystemExit(f"{case.name}: {received} of {messages} arrived")
        seconds = time.monotonic() - begin
        # Wait for retransmissions that are still in flight, which this transfer requested.
        time.sleep(SETTLE_S + 2 * case.delay_ms / 1000)
        return Cost(
            seconds,
            far.count(SystemCounter.NAKS_SENT) - naks,
            near.count(SystemCounter.RETRANSMITTED_BYTES) - again,
        )


def compare(case: Case, drivers: dict[str, Driver], near: Driver, seeds: int, ports: Iterator[int]) -> Outcome:
    outcome = Outcome()
    for seed in range(1, seeds + 1):
        for kind, costs in outcome.costs.items():
            costs.append(carry(case, near, drivers[kind], next(ports), seed))
    return outcome


def add(report: Report, case: Case, outcome: Outcome) -> None:
    ours, theirs = outcome.costs["mainstem"], outcome.costs["reference"]
    for kind, costs in outcome.costs.items():
        for cost in costs:
            report.figure(f"{kind} receives: {case.name} [s]", cost.seconds)
            report.figure(f"{kind} receives: {case.name} [NAKs]", cost.naks)
            report.figure(f"{kind} receives: {case.name} [bytes again]", cost.bytes_again)
    for our, their in zip(ours, theirs, strict=True):
        peer = "reference"
        report.pair(f"{case.name}: time", peer=peer, ours=our.seconds, theirs=their.seconds, smaller_is_better=True)
        ours_naks, theirs_naks = max(1, our.naks), max(1, their.naks)
        report.pair(f"{case.name}: NAKs", peer=peer, ours=ours_naks, theirs=theirs_naks, smaller_is_better=True)
        report.pair(
            f"{case.name}: bytes",
            peer=peer,
            ours=max(1, our.bytes_again),
            theirs=max(1, their.bytes_again),
            goal=BYTES_GOAL,
            smaller_is_better=True,
        )


def row(case: Case, outcome: Outcome) -> str:
    """Return a line of the table in docs/performance.md: medians over the seeds, and the reference's divided by Mainstem's."""
    cells = [case.sender, case.way, f"{case.delay_ms} ms", f"{case.loss:.0%}"]
    for figure in (
        lambda cost: cost.seconds,
        lambda cost: cost.naks,
        lambda cost: cost.bytes_again / 1e6,
    ):
        ours, theirs = ([figure(cost) for cost in outcome.costs[kind]] for kind in ("mainstem", "reference"))
        ratio = statistics.median(their / max(our, 1e-6) for our, their in zip(ours, theirs, strict=True))
        shown = [
            f"{statistics.median(each):,.2f}" if max(theirs) < 1000 else f"{statistics.median(each):,.0f}"
            for each in (ours, theirs)
        ]
        cells += [*shown, f"{ratio:.2f}"]
    return "| " + " | ".join(cells) + " |"


def _several(convert: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Return a parser for comma-separated values. argparse reports the invalid one."""

    def several(text: str) -> list[T]:
        return [convert(word) for word in text.split(",")]

    return several


def _of_repair(parser: argparse.ArgumentParser) -> None:
    several = "several with commas between them"
    parser.add_argument(
        "--loss", type=_several(float), default=LOSSES, metavar="SHARE,...", help=f"of the data; {several}"
    )
    parser.add_argument(
        "--delays", type=_several(int), default=[0, 50], metavar="MS,...", help=f"of the way; {several}"
    )
    parser.add_argument("--ways", type=_several(str), default=["unicast", "multicast"], metavar="WAY,...", help=several)
    parser.add_argument(
        "--senders", type=_several(str), default=["reference"], metavar="KIND,...", help="reference, mainstem"
    )
    parser.add_argument("--port", type=int, default=FIRST_PORT, help="the first port of those that are used")
    parser.add_argument("--table", action="store_true", help="print rows for docs/performance.md")


def main() -> None:
    options = parse_options(__doc__, (), peers=("reference",), pairs=SEEDS, more=_of_repair)
    report = Report(options=options)
    if not has_reference():
        report.skipped["reference"] = NO_REFERENCE
        report.print()
        return
    values = options.values
    cases = [
        Case(sender, way, delay, loss)
        for sender in values.senders
        for way in values.ways
        for delay in values.delays
        for loss in values.loss
    ]
    ports = iter(range(values.port, 32_000, 2))
    with ExitStack() as held:
        senders = {kind: held.enter_context(driver(kind)) for kind in {case.sender for case in cases}}
        drivers = {kind: held.enter_context(driver(kind)) for kind in ("mainstem", "reference")}
        for case in cases:
            outcome = compare(case, drivers, senders[case.sender], options.pairs, ports)
            add(report, case, outcome)
            if values.table:
                print(row(case, outcome), flush=True)
            else:
                print(
                    json.dumps({case.name: {k: [c.__dict__ for c in v] for k, v in outcome.costs.items()}}),
                    file=sys.stderr,
                )
    if not values.table:
        report.print()


if __name__ == "__main__":
    main()
