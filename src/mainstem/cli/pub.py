"""Publish lines of standard input, or generated messages, to a stream."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.aeron.client import OfferStatus
from mainstem.aeron.tools.latency import Pacer, RateMeter
from mainstem.cli._directory import DirectoryOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._stream import (
    ChannelArgument,
    PatienceOption,
    StreamArgument,
    amount,
    connect,
    say,
    stopping,
    wait_until,
)
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ClosedError, ConfigurationError, MaxPositionExceeded, TimedOut
from mainstem.units import parse_size

if TYPE_CHECKING:
    from mainstem.aeron.client import ExclusivePublication, Publication
    from mainstem.cli._stream import Stop

COUNTER_BYTES = 8
MIN_PAUSE_S = 0.0002  # shorter sleeps cost as much


def run(
    channel: ChannelArgument,
    stream: StreamArgument,
    directory: DirectoryOption = "",
    size: Annotated[
        str, typer.Option("--size", help="Generate messages of so many bytes (64, 1k) instead of reading lines.")
    ] = "",
    rate: Annotated[
        float, typer.Option("--rate", "-r", min=0, help="Messages a second; 0 is as fast as can be.")
    ] = 0.0,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="How many to generate; 0: without end.")] = 0,
    exclusive: Annotated[bool, typer.Option("--exclusive", "-x", help="Use an exclusive publication.")] = False,
    patience: PatienceOption = 10.0,
) -> None:
    """Publish lines of standard input, or generated messages, to a stream.

    A line is a message, without its line feed. Generated messages begin with their index (int64, little-endian) where they
    are long enough. Waits where a subscriber is slow, and fails when there is none for --wait seconds. Rates go to standard
    error.
    """
    length = parse_size(size, name="--size") if size else None
    if length is not None and length < 0:
        raise ConfigurationError(f"--size: {size!r} is below 0")
    with connect(directory, "mainstem pub") as aeron, stopping() as stop:
        add = aeron.add_exclusive_publication if exclusive else aeron.add_publication
        with add(channel, stream) as publication:
            try:
                wait_until(lambda: publication.is_connected, "no subscriber connected", patience=patience, stop=stop)
            except TimedOut as error:
                not_connected = publication.offer_error(OfferStatus.NOT_CONNECTED, str(error))
                raise not_connected if getattr(not_connected, "receivers", None) else error from None
            sender = _Sender(publication, stop, patience)
            pacer = Pacer(rate, sender.meter.start_ns)
            if length is None:
                _lines(sender, pacer)
            else:
                _generate(sender, pacer, length, count)
            sender.report_all()


class _Sender:
    """Sends batches whole, reports the rate each second, and counts refused offers."""

    def __init__(self, publication: Publication | ExclusivePublication, stop: Stop, patience: float) -> None:
        self.publication = publication
        self.stop = stop
        self.patience = patience
        self.meter = RateMeter(SYSTEM_CLOCK.monotonic_ns())
        self.refused = 0
        self._next_report_ns = self.meter.start_ns + NS_PER_SECOND

    def send(self, batch: list[bytes]) -> None:
        """Sends all messages, in order, waiting for room; stops early on a signal."""
        left = batch
        refused_since = 0
        while left and not self.stop.asked:
            accepted, position = self.publication.offer_many(left)
            for message in left[:accepted]:
                self.meter.add(len(message))
            left = left[accepted:]
            now_ns = SYSTEM_CLOCK.monotonic_ns()
            if accepted:
                refused_since = 0
            else:
                self.refused += 1
                refused_since = refused_since or now_ns
                self._refused(position, (now_ns - refused_since) / 1e9)
            self.report(now_ns)

    def _refused(self, position: int, seconds: float) -> None:
        status = OfferStatus(position)
        if status is OfferStatus.CLOSED:
            raise ClosedError(f"{self.publication!r} was closed")
        if status is OfferStatus.MAX_POSITION_EXCEEDED:
            raise MaxPositionExceeded(f"{self.publication!r} has used up its positions")
        if status is OfferStatus.NOT_CONNECTED and 0 < self.patience < seconds:
            raise self.publication.offer_error(status, repr(self.publication), f", for {self.patience:g} s")
        if status is not OfferStatus.ADMIN_ACTION:
            time.sleep(MIN_PAUSE_S)

    def report(self, now_ns: int) -> None:
        """Reports the rate of the last second, once a second."""
        if now_ns >= self._next_report_ns:
            say(f"{amount(*self.meter.step(now_ns))}  refused {self.refused:,}")
            self._next_report_ns = now_ns + NS_PER_SECOND

    def report_all(self) -> None:
        """Reports the totals."""
        meter = self.meter
        overall = amount(*meter.overall(SYSTEM_CLOCK.monotonic_ns())).strip()
        say(f"sent {meter.messages:,} messages, {meter.octets:,} bytes: {overall}, refused {self.refused:,}")


def _pause(sender: _Sender, pacer: Pacer) -> None:
    now_ns = SYSTEM_CLOCK.monotonic_ns()
    sender.report(now_ns)
    time.sleep(max(MIN_PAUSE_S, min(pacer.next_ns() - now_ns, NS_PER_SECOND // 10) / 1e9))


def _generate(sender: _Sender, pacer: Pacer, length: int, count: int) -> None:
    index = 0
    rest = bytes(max(0, length - COUNTER_BYTES))
    while not sender.stop.asked and (count == 0 or index < count):
        due = pacer.due(SYSTEM_CLOCK.monotonic_ns())
        if count:
            due = min(due, count - index)
        if due <= 0:
            _pause(sender, pacer)
            continue
        batch = [(i.to_bytes(COUNTER_BYTES, "little") + rest)[:length] for i in range(index, index + due)]
        sender.send(batch)
        index += due


def _lines(sender: _Sender, pacer: Pacer) -> None:
    for line in sys.stdin.buffer:
        while pacer.per_second > 0 and pacer.due(SYSTEM_CLOCK.monotonic_ns()) <= 0 and not sender.stop.asked:
            _pause(sender, pacer)
        if sender.stop.asked:
            return
        sender.send([line.removesuffix(b"\n")])
