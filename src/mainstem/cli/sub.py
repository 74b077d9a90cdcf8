"""Print the messages of a stream, or their rate."""

from __future__ import annotations

import sys
from base64 import b64encode
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.aeron.client.resource import raise_error_of
from mainstem.aeron.tools.channel_checks import check_subscription
from mainstem.aeron.tools.latency import RateMeter
from mainstem.aeron.tools.message_text import TEMPLATE_HELP, Message, as_json, formatter, with_length
from mainstem.cli._drivers import SlowStepNotice, connect
from mainstem.cli._options import (
    CODEC_OPTIONS,
    ChannelArgument,
    CountOption,
    DirectoryOption,
    ExitAtEndOption,
    StatsOption,
    StreamId,
    TimeoutOption,
    choice,
    option,
)
from mainstem.cli._output import amount, totals
from mainstem.cli._process import say, stopping
from mainstem.codecs.lookup import CodecChoice
from mainstem.errors import ConfigurationError, MissingExtraError, StoreError, Timeout
from mainstem.recording.export import json_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client import Fragment, Subscription
    from mainstem.cli._process import Stop
    from mainstem.codecs import Codec

BATCH = 1024  # maximum messages per poll
WAIT_S = 0.01
OUTPUTS: dict[str, Callable[[Message], bytes] | None] = {
    "text": None,
    "hex": formatter("%x"),
    "json": as_json,
    "length-prefixed": with_length,
}


@dataclass(kw_only=True)
class Printing:
    """The options that select how messages are printed, or only counted."""

    output: Annotated[str, choice("--output", tuple(OUTPUTS), "How messages are printed.")] = "text"
    template: Annotated[str, option("--template", "TEXT", TEMPLATE_HELP)] = ""
    codec: Annotated[CodecChoice, CODEC_OPTIONS]
    stats: StatsOption = False

    def layout(self) -> Callable[[Message], bytes] | None:
        """Return the function that formats a message; None prints it as it is. Raises ConfigurationError for several layouts."""
        codec = self.codec.chosen_codec()
        if (self.output != "text") + bool(self.template) + (codec is not None) > 1:
            raise ConfigurationError("--output, --template and --codec exclude one another")
        if self.template:
            return formatter(self.template)
        return partial(_rows, codec) if codec is not None else OUTPUTS[self.output]


def run(
    channel: ChannelArgument,
    stream: StreamId,
    printing: Printing,
    directory: DirectoryOption = "",
    count: CountOption = 0,
    exit_at_end: ExitAtEndOption = False,
    timeout: TimeoutOption = 0.0,
) -> None:
    """Print the messages of a stream, one per line, or their rate.

    --output says how messages are printed: `text` (as they are, each with a line feed after it), `hex`, `json` (a line with
    the message, its position, session, time and reserved value) or `length-prefixed` (each after its length in four bytes,
    big-endian). `mainstem pub --input` reads `json` and `length-prefixed`. With --stats the rate is printed instead. With
    --codec the rows of a message are printed as JSON lines; one that cannot be read is a line with `problem` and `payload`.
    Rates and totals go to standard error.

    Example: mainstem sub 'aeron:udp?endpoint=localhost:20121' 1001

    Example: mainstem sub aeron:ipc --stream 1001 --template '%t %s %p %m'

    Example: mainstem sub aeron:ipc --stream 1001 --output json --count 10
    """
    check_subscription(channel)
    lay_out = printing.layout()
    with (
        connect(directory, "sub") as aeron,
        stopping() as stop,
        aeron.add_subscription(channel, stream.chosen) as subscription,
    ):
        if printing.stats:
            say(f"listening on {channel}, stream {stream.chosen}")
        reader = Reader(subscription, printing.stats, lay_out)
        try:
            reader.read(stop, count, exit_at_end, timeout)
        finally:
            reader.report_all()


def _rows(codec: Codec, message: Message) -> bytes:
    return decoded_lines(codec, message.payload)


def decoded_lines(codec: Codec, message: bytes) -> bytes:
    """Return a JSON line for each row of a message, or one with ``problem`` and ``payload`` if it cannot be decoded."""
    try:
        return _json_lines(codec.decode(message))
    except (StoreError, MissingExtraError):
        raise
    except Exception as error:
        from mainstem.codecs.base import reason_of

        problem = reason_of(error).encode("utf-8", "backslashreplace").decode()
        return _json_lines([{"problem": problem, "payload": b64encode(message).decode()}])


def _json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json_of(row) + "\n" for row in rows).encode()


class Reader:
    """Reads a subscription, and prints or counts its messages."""

    def __init__(self, subscription: Subscription, stats: bool, lay_out: Callable[[Message], bytes] | None) -> None:
        self.subscription = subscription
        self.stats = stats
        self.lay_out = lay_out
        self.meter = RateMeter(SYSTEM_CLOCK.monotonic_ns())

    def read(self, stop: Stop, count: int, exit_at_end: bool, timeout: float) -> None:
        """Read until a limit, the end of the stream, or a signal."""
        now_ns = last_ns = SYSTEM_CLOCK.monotonic_ns()
        report_ns = now_ns + NS_PER_SECOND
        notice = SlowStepNotice(
            f"no publisher on {self.subscription.channel} stream {self.subscription.stream_id} yet; waiting"
        )
        while not stop.requested and (count == 0 or self.meter.messages < count):
            limit = BATCH if count == 0 else min(BATCH, count - self.meter.messages)
            messages = self._poll(limit)
            now_ns = SYSTEM_CLOCK.monotonic_ns()
            if messages:
                last_ns = now_ns
                self._write(messages)
            elif exit_at_end and self.subscription.is_end_of_stream:
                return
            else:
                raise_error_of(self.subscription)
                if not self.subscription.is_connected:
                    notice.step()
                if 0 < timeout < (now_ns - last_ns) / 1e9:
                    raise Timeout(f"nothing came on {self.subscription!r} for {timeout:g} s", timeout=timeout)
                self.subscription.wait_for_data(timeout=WAIT_S)
            if self.stats and now_ns >= report_ns:
                say(amount(*self.meter.step(now_ns)))
                report_ns = now_ns + NS_PER_SECOND

    def _poll(self, limit: int) -> list[bytes] | list[Message]:
        if self.stats or self.lay_out is None:
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
            elif not self.stats:
                out.writelines((payload, b"\n"))
        out.flush()

    def report_all(self) -> None:
        """Report the totals."""
        say(f"received {totals(self.meter)}")
