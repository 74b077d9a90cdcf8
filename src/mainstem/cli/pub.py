"""Publish lines of standard input, or generated messages, to a stream."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import IO, TYPE_CHECKING, Annotated

import typer

from mainstem.aeron.client import OfferStatus
from mainstem.aeron.client.publication import offer_error_of
from mainstem.aeron.tools.latency import Pacer, RateMeter
from mainstem.cli._channels import check_publication
from mainstem.cli._codecs import CodecOption, CodecOptions, LineEncoder, codec_of
from mainstem.cli._directory import DirectoryOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._logs import say
from mainstem.cli._messages import Outgoing, read_json, read_lines, read_with_length
from mainstem.cli._numbers import finite
from mainstem.cli._stream import (
    ChannelArgument,
    PatienceOption,
    StreamArgument,
    StreamIdOption,
    amount,
    connect,
    stopping,
    stream_id,
    wait_until,
)
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ClosedError, ConfigurationError, MaxPositionExceeded, Timeout
from mainstem.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem.aeron.client import ExclusivePublication, Publication
    from mainstem.cli._stream import Stop
    from mainstem.codecs import Codec

COUNTER_BYTES = 8
MIN_PAUSE_S = 0.0002  # shorter sleeps cost as much


def run(
    channel: ChannelArgument,
    stream: StreamArgument = None,
    stream_option: StreamIdOption = None,
    directory: DirectoryOption = "",
    size: Annotated[
        str, typer.Option("--size", help="Generate messages of so many bytes (64, 1k) instead of reading lines.")
    ] = "",
    rate: Annotated[
        float, typer.Option("--rate", "-r", min=0, callback=finite, help="Messages a second; 0 is as fast as can be.")
    ] = 0.0,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="How many to generate; 0: without end.")] = 0,
    exclusive: Annotated[bool, typer.Option("--exclusive", "-x", help="Use an exclusive publication.")] = False,
    patience: PatienceOption = 10.0,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read this file instead of standard input; - is standard input.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="A line is a message, without its line feed (the default).")
    ] = False,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json", help="A line is JSON: message or message_base64, reserved_value; as `mainstem sub --json` prints."
        ),
    ] = False,
    length_prefixed: Annotated[
        bool, typer.Option("--length-prefixed", help="A message stands behind its length in four bytes, big-endian.")
    ] = False,
    codec: CodecOption = "",
    option: CodecOptions = None,
) -> None:
    """Publish lines of standard input, or generated messages, to a stream.

    A line is a message, without its line feed; with --codec it is a JSON object, which is encoded. Generated messages begin
    with their index (int64, little-endian) where they are long enough. Waits where a subscriber is slow, and fails when there
    is none for --wait seconds. Rates go to standard error.

    Example: echo high water | mainstem pub aeron:udp?endpoint=localhost:20121 1001

    Example: mainstem pub aeron:ipc --stream 1001 --size 64 --rate 10000 --count 100000

    Example: mainstem pub aeron:ipc --stream 1001 --file messages.jsonl --json
    """
    own_stream = stream_id(stream, stream_option)
    check_publication(channel)
    length = parse_size(size, name="--size") if size else None
    if length is not None and length < 0:
        raise ConfigurationError(f"--size: {size!r} is below 0")
    reader = _input_reader(lines, json_lines, length_prefixed, codec_of(codec, option))
    if length is not None and (file is not None or lines or json_lines or length_prefixed or codec):
        raise ConfigurationError(
            "--size generates messages: it excludes --file, --lines, --json, --length-prefixed and --codec"
        )
    with ExitStack() as stack:
        source = _open(stack, file) if length is None else None
        aeron = stack.enter_context(connect(directory, "pub"))
        stop = stack.enter_context(stopping())
        add = aeron.add_exclusive_publication if exclusive else aeron.add_publication
        with add(channel, own_stream) as publication:
            try:
                wait_until(lambda: publication.is_connected, "no subscriber connected", patience=patience, stop=stop)
            except Timeout as error:
                not_connected = offer_error_of(publication, OfferStatus.NOT_CONNECTED, str(error))
                raise not_connected if getattr(not_connected, "receivers", None) else error from None
            sender = _Sender(publication, stop, patience)
            pacer = Pacer(rate, sender.meter.start_ns)
            if source is not None:
                _forward(sender, pacer, reader(source))
            else:
                _generate(sender, pacer, length or 0, count)
            sender.report_all()


def _input_reader(
    lines: bool, json_lines: bool, length_prefixed: bool, codec: Codec | None
) -> Callable[[IO[bytes]], Iterator[Outgoing]]:
    """How messages are read. Raises ConfigurationError where several ways are chosen."""
    if lines + json_lines + length_prefixed > 1:
        raise ConfigurationError("--lines, --json and --length-prefixed exclude one another")
    if codec is None:
        return read_json if json_lines else read_with_length if length_prefixed else read_lines
    if json_lines or length_prefixed:
        raise ConfigurationError("--codec encodes lines: it excludes --json and --length-prefixed")
    encode = LineEncoder(codec).encode
    return lambda file: (Outgoing(encode(line.payload)) for line in read_lines(file))


def _open(stack: ExitStack, file: Path | None) -> IO[bytes]:
    if file is None or str(file) == "-":
        return sys.stdin.buffer
    return stack.enter_context(open(file, "rb"))


class _Sender:
    """Sends batches whole, reports the rate each second, and counts refused offers."""

    def __init__(self, publication: Publication | ExclusivePublication, stop: Stop, patience: float) -> None:
        self.publication = publication
        self.stop = stop
        self.patience = patience
        self.meter = RateMeter(SYSTEM_CLOCK.monotonic_ns())
        self.refused = 0
        self._next_report_ns = self.meter.start_ns + NS_PER_SECOND

    def send(self, batch: list[bytes], reserved_value: int | None = None) -> None:
        """Sends all messages, in order, waiting for room; stops early on a signal."""
        left = batch
        refused_since = 0
        while left and not self.stop.asked:
            accepted, position = self._offer(left, reserved_value)
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

    def _offer(self, messages: list[bytes], reserved_value: int | None) -> tuple[int, int]:
        try:
            if reserved_value is None:
                return self.publication.offer_many(messages)
            position = self.publication.offer(messages[0], reserved_value=reserved_value)
        except ValueError as error:  # one of them is too long
            number = self.meter.messages + 1
            raise ConfigurationError(
                f"{self.publication!r}: message {number:,} or one soon after it: {error}"
            ) from None
        return (1, position) if position > 0 else (0, position)

    def _refused(self, position: int, seconds: float) -> None:
        status = OfferStatus(position)
        if status is OfferStatus.CLOSED:
            raise ClosedError(f"{self.publication!r} was closed")
        if status is OfferStatus.MAX_POSITION_EXCEEDED:
            raise MaxPositionExceeded(f"{self.publication!r} has used up its positions")
        if status is OfferStatus.NOT_CONNECTED and 0 < self.patience < seconds:
            raise offer_error_of(self.publication, status, repr(self.publication), f", for {self.patience:g} s")
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


def _forward(sender: _Sender, pacer: Pacer, messages: Iterator[Outgoing]) -> None:
    for message in messages:
        while pacer.per_second > 0 and pacer.due(SYSTEM_CLOCK.monotonic_ns()) <= 0 and not sender.stop.asked:
            _pause(sender, pacer)
        if sender.stop.asked:
            return
        sender.send([message.payload], message.reserved_value)
