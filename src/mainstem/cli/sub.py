"""Print the messages of a stream, or their rate."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.aeron.client.resource import raise_error_of
from mainstem.aeron.tools.latency import RateMeter
from mainstem.cli._channels import check_subscription
from mainstem.cli._codecs import CodecOption, CodecOptions, codec_of, decoded_lines
from mainstem.cli._directory import DirectoryOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._logs import say
from mainstem.cli._messages import FORMAT_HELP, Message, as_json, formatter, with_length
from mainstem.cli._numbers import finite
from mainstem.cli._stream import (
    ChannelArgument,
    StreamArgument,
    StreamIdOption,
    Word,
    amount,
    connect,
    stopping,
    stream_id,
)
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client import Fragment, Subscription
    from mainstem.cli._stream import Stop
    from mainstem.codecs import Codec

BATCH = 1024  # messages polled at once
WAIT_S = 0.01


def run(
    channel: ChannelArgument,
    stream: StreamArgument = None,
    stream_option: StreamIdOption = None,
    directory: DirectoryOption = "",
    rates: Annotated[bool, typer.Option("--rate", "-r", help="Report rates each second instead of printing.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="End after so many messages; 0: without end.")] = 0,
    until_end: Annotated[
        bool, typer.Option("--end", "-e", help="End when every publisher has ended its stream.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            "-t",
            min=0,
            callback=finite,
            help="Fail when nothing came for so many seconds; 0: without limit.",
        ),
    ] = 0.0,
    as_hex: Annotated[bool, typer.Option("--hex", help="Print messages in hexadecimal.")] = False,
    layout: Annotated[str, typer.Option("--format", "-f", help=FORMAT_HELP)] = "",
    json_lines: Annotated[
        bool,
        typer.Option("--json", help="Print each as a line of JSON, with position, session, time and reserved value."),
    ] = False,
    length_prefixed: Annotated[
        bool, typer.Option("--length-prefixed", help="Print each behind its length in four bytes, big-endian.")
    ] = False,
    codec: CodecOption = "",
    option: CodecOptions = None,
) -> None:
    """Print the messages of a stream, one a line, or their rate.

    Messages go to standard output as they are, each with a line feed after it; rates and the sum go to standard error. What
    --json and --length-prefixed print `mainstem pub` reads. With --codec the rows of a message are printed as JSON lines; one that
    cannot be read is a line with `problem` and `payload`.

    Example: mainstem sub aeron:udp?endpoint=localhost:20121 1001

    Example: mainstem sub aeron:ipc --stream 1001 --format '%t %s %p %m'

    Example: mainstem sub aeron:ipc --stream 1001 --json --count 10
    """
    own_stream = stream_id(stream, stream_option)
    check_subscription(channel)
    lay_out = _layout(as_hex, layout, json_lines, length_prefixed, codec_of(codec, option))
    with (
        connect(directory, "sub") as aeron,
        stopping() as stop,
        aeron.add_subscription(channel, own_stream) as subscription,
    ):
        if rates:
            say(f"listening on {channel}, stream {own_stream}")
        reader = _Reader(subscription, rates, lay_out)
        try:
            reader.read(stop, count, until_end, timeout)
        finally:
            reader.report_all()


def _layout(
    as_hex: bool, layout: str, json_lines: bool, length_prefixed: bool, codec: Codec | None
) -> Callable[[Message], bytes] | None:
    """How messages are printed; None for as they are. Raises ConfigurationError where several ways are chosen."""
    chosen = [
        lay_out
        for wanted_so, lay_out in (
            (as_hex, "%x"),
            (bool(layout), layout),
            (json_lines, as_json),
            (length_prefixed, with_length),
            (codec is not None, partial(_rows, codec)),
        )
        if wanted_so
    ]
    if len(chosen) > 1:
        raise ConfigurationError("--hex, --format, --json, --length-prefixed and --codec exclude one another")
    if not chosen:
        return None
    return formatter(chosen[0]) if isinstance(chosen[0], str) else chosen[0]


def _rows(codec: Codec | None, message: Message) -> bytes:
    assert codec is not None, "chosen only with a codec"
    return decoded_lines(codec, message.payload)


class _Reader:
    def __init__(self, subscription: Subscription, rates: bool, lay_out: Callable[[Message], bytes] | None) -> None:
        self.subscription = subscription
        self.rates = rates
        self.lay_out = lay_out
        self.meter = RateMeter(SYSTEM_CLOCK.monotonic_ns())

    def read(self, stop: Stop, count: int, until_end: bool, timeout: float) -> None:
        """Reads until a limit, an end or a signal."""
        now_ns = last_ns = SYSTEM_CLOCK.monotonic_ns()
        report_ns = now_ns + NS_PER_SECOND
        word = Word(f"no publisher on {self.subscription.channel} stream {self.subscription.stream_id} yet; waiting")
        while not stop.asked and (count == 0 or self.meter.messages < count):
            limit = BATCH if count == 0 else min(BATCH, count - self.meter.messages)
            messages = self._poll(limit)
            now_ns = SYSTEM_CLOCK.monotonic_ns()
            if messages:
                last_ns = now_ns
                self._write(messages)
            elif until_end and self.subscription.is_end_of_stream:
                return
            else:
                raise_error_of(self.subscription)
                if not self.subscription.is_connected:
                    word.step()
                if 0 < timeout < (now_ns - last_ns) / 1e9:
                    raise Timeout(f"nothing came on {self.subscription!r} for {timeout:g} s", timeout=timeout)
                self.subscription.wait_for_data(timeout=WAIT_S)
            if self.rates and now_ns >= report_ns:
                say(amount(*self.meter.step(now_ns)))
                report_ns = now_ns + NS_PER_SECOND

    def _poll(self, limit: int) -> list[bytes] | list[Message]:
        if self.rates or self.lay_out is None:
            return self.subscription.poll_bytes(limit)
        messages: list[Message] = []
        time_ns = SYSTEM_CLOCK.epoch_ns()

        def collect(fragment: Fragment) -> None:
            header = fragment.header
            messages.append(
                Message(
                    bytes(fragment),
                    time_ns,
                    header.session_id,
                    header.stream_id,
                    header.position,
                    header.reserved_value,
                )
            )

        self.subscription.poll_messages(collect, limit)
        return messages

    def _write(self, messages: list[bytes] | list[Message]) -> None:
        out = sys.stdout.buffer
        for message in messages:
            payload = message.payload if isinstance(message, Message) else message
            self.meter.add(len(payload))
            if isinstance(message, Message) and self.lay_out is not None:
                out.write(self.lay_out(message))
            elif not self.rates:
                out.writelines((payload, b"\n"))
        out.flush()

    def report_all(self) -> None:
        """Reports the totals."""
        meter = self.meter
        overall = amount(*meter.overall(SYSTEM_CLOCK.monotonic_ns())).strip()
        say(f"received {meter.messages:,} messages, {meter.octets:,} bytes: {overall}")
