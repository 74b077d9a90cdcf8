"""Print the messages of a stream, or their rate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.aeron.tools.latency import RateMeter
from mainstem.cli._directory import DirectoryOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._stream import ChannelArgument, StreamArgument, amount, connect, say, stopping
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import TimedOut

if TYPE_CHECKING:
    from mainstem.aeron.client import Subscription
    from mainstem.cli._stream import Stop

BATCH = 1024  # messages polled at once
WAIT_NS = NS_PER_SECOND // 100


def run(
    channel: ChannelArgument,
    stream: StreamArgument,
    directory: DirectoryOption = "",
    rates: Annotated[bool, typer.Option("--rate", "-r", help="Report rates each second instead of printing.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="End after so many messages; 0: without end.")] = 0,
    until_end: Annotated[
        bool, typer.Option("--end", "-e", help="End when every publisher has ended its stream.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", "-t", min=0, help="Fail when nothing came for so many seconds; 0: without limit."),
    ] = 0.0,
    as_hex: Annotated[bool, typer.Option("--hex", help="Print messages in hexadecimal.")] = False,
) -> None:
    """Print the messages of a stream, one a line, or their rate.

    Messages go to standard output as they are, each with a line feed after it; rates and the sum go to standard error.
    """
    with (
        connect(directory, "mainstem sub") as aeron,
        stopping() as stop,
        aeron.add_subscription(channel, stream) as subscription,
    ):
        reader = _Reader(subscription, rates, as_hex)
        try:
            reader.read(stop, count, until_end, timeout)
        finally:
            reader.report_all()


class _Reader:
    def __init__(self, subscription: Subscription, rates: bool, as_hex: bool) -> None:
        self.subscription = subscription
        self.rates = rates
        self.as_hex = as_hex
        self.meter = RateMeter(SYSTEM_CLOCK.monotonic_ns())

    def read(self, stop: Stop, count: int, until_end: bool, timeout: float) -> None:
        """Reads until a limit, an end or a signal."""
        now_ns = last_ns = SYSTEM_CLOCK.monotonic_ns()
        report_ns = now_ns + NS_PER_SECOND
        while not stop.asked and (count == 0 or self.meter.messages < count):
            limit = BATCH if count == 0 else min(BATCH, count - self.meter.messages)
            messages = self.subscription.poll_bytes(limit)
            now_ns = SYSTEM_CLOCK.monotonic_ns()
            if messages:
                last_ns = now_ns
                self._write(messages)
            elif until_end and self.subscription.is_end_of_stream:
                return
            else:
                self.subscription.raise_failure()
                if 0 < timeout < (now_ns - last_ns) / 1e9:
                    raise TimedOut(f"nothing came on {self.subscription!r} for {timeout:g} s", timeout=timeout)
                self.subscription.wait_for_data(WAIT_NS)
            if self.rates and now_ns >= report_ns:
                say(amount(*self.meter.step(now_ns)))
                report_ns = now_ns + NS_PER_SECOND

    def _write(self, messages: list[bytes]) -> None:
        for message in messages:
            self.meter.add(len(message))
        if self.rates:
            return
        out = sys.stdout.buffer
        if self.as_hex:
            out.writelines(message.hex().encode() + b"\n" for message in messages)
        else:
            out.writelines(part for message in messages for part in (message, b"\n"))
        out.flush()

    def report_all(self) -> None:
        """Reports the totals."""
        meter = self.meter
        overall = amount(*meter.overall(SYSTEM_CLOCK.monotonic_ns())).strip()
        say(f"received {meter.messages:,} messages, {meter.octets:,} bytes: {overall}")
