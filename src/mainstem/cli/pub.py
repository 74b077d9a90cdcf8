"""Publish lines of standard input, or generated messages, to a stream."""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.aeron.client import OfferStatus
from mainstem.aeron.client.publication import offer_error_of
from mainstem.aeron.tools.channel_checks import check_publication
from mainstem.aeron.tools.latency import Pacer, RateMeter
from mainstem.aeron.tools.message_text import Outgoing, read_json, read_lines, read_with_length
from mainstem.cli._drivers import check_length, connect, wait_until
from mainstem.cli._options import (
    CODEC_OPTIONS,
    SIZE_HELP,
    ChannelArgument,
    CountOption,
    DirectoryOption,
    StreamId,
    TimeoutOption,
    choice,
    finite,
    flag,
    option,
    size,
)
from mainstem.cli._output import amount, totals
from mainstem.cli._process import say, stopping
from mainstem.codecs import find_codec
from mainstem.codecs.lookup import CodecChoice
from mainstem.codecs.numerals import is_held
from mainstem.errors import ConfigurationError, MissingExtraError, StoreError, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem.aeron.client import ExclusivePublication, Publication
    from mainstem.cli._process import Stop
    from mainstem.codecs import Codec

COUNTER_BYTES = 8
MIN_PAUSE_S = 0.0002  # shorter sleeps cost just as much
INPUTS: dict[str, Callable[[IO[bytes]], Iterator[Outgoing]]] = {
    "lines": read_lines,
    "json": read_json,
    "length-prefixed": read_with_length,
}


def run(
    channel: ChannelArgument,
    stream: StreamId,
    codec: Annotated[CodecChoice, CODEC_OPTIONS],
    directory: DirectoryOption = "",
    message_size: Annotated[int | None, size("--size", SIZE_HELP, "read messages")] = None,
    rate: Annotated[
        float, option("--rate", "N", "Send N messages a second (0 = as fast as possible).", min=0, callback=finite)
    ] = 0.0,
    count: CountOption = 0,
    exclusive: Annotated[bool, flag("--exclusive -x", "Use an exclusive publication.")] = False,
    timeout: TimeoutOption = 10.0,
    file: Annotated[Path | None, option("--file", "FILE", "Read messages from this file.", "standard input")] = None,
    input_format: Annotated[str, choice("--input", tuple(INPUTS), "How messages are read.")] = "lines",
) -> None:
    """Publish lines of standard input, or generated messages, to a stream.

    --input says how messages are read: `lines` (without their line feed), `json` (lines as `mainstem sub --output json` prints
    them: message or message_base64, reserved_value) or `length-prefixed` (each after its length in four bytes, big-endian).
    With --codec a line is a JSON object, which is encoded.

    With --size, messages are generated instead; each begins with its index (int64, little-endian) if it is long enough. It
    waits for slow subscribers. Rates go to standard error.

    Example: echo high water | mainstem pub 'aeron:udp?endpoint=localhost:20121' 1001

    Example: mainstem pub aeron:ipc --stream 1001 --size 64 --rate 10000 --count 100000

    Example: mainstem pub aeron:ipc --stream 1001 --file messages.jsonl --input json
    """
    own_stream = stream.chosen
    check_publication(channel)
    reader = _input_reader(input_format, codec.chosen_codec())
    if message_size is not None and (file is not None or input_format != "lines" or codec.codec):
        raise ConfigurationError("--size generates messages: it excludes --file, --input and --codec")
    with ExitStack() as stack:
        source = _open(stack, file) if message_size is None else None
        aeron = stack.enter_context(connect(directory, "pub"))
        stop = stack.enter_context(stopping())
        add = aeron.add_exclusive_publication if exclusive else aeron.add_publication
        with add(channel, own_stream) as publication:
            check_length(message_size or 0, publication)
            try:
                wait_until(lambda: publication.is_connected, "no subscriber connected", timeout=timeout, stop=stop)
            except Timeout as error:
                not_connected = offer_error_of(publication, OfferStatus.NOT_CONNECTED, str(error))
                raise not_connected if getattr(not_connected, "receivers", None) else error from None
            sender = _Sender(publication, stop, timeout)
            pacer = Pacer(rate, sender.meter.start_ns)
            if source is not None:
                _forward(sender, pacer, reader(source), count)
            else:
                _generate(sender, pacer, message_size or 0, count)
            sender.report_all()


def _input_reader(input_format: str, codec: Codec | None) -> Callable[[IO[bytes]], Iterator[Outgoing]]:
    """Return the function that reads messages. Raises ConfigurationError if a codec is combined with anything but lines."""
    if codec is None:
        return INPUTS[input_format]
    if input_format != "lines":
        raise ConfigurationError(f"--codec encodes lines: it excludes --input {input_format}")
    encode = LineEncoder(codec).encode
    return lambda file: (Outgoing(encode(line.payload)) for line in read_lines(file))


def _open(stack: ExitStack, file: Path | None) -> IO[bytes]:
    if file is None or str(file) == "-":
        return sys.stdin.buffer
    return stack.enter_context(open(file, "rb"))


class _Sender:
    """Sends whole batches, reports the rate every second, and counts refused offers."""

    def __init__(self, publication: Publication | ExclusivePublication, stop: Stop, timeout: float) -> None:
        self.publication = publication
        self.stop = stop
        self.timeout = timeout
        self.meter = RateMeter(SYSTEM_CLOCK.monotonic_ns())
        self.refused = 0
        self._next_report_ns = self.meter.start_ns + NS_PER_SECOND

    def send(self, batch: list[bytes], reserved_value: int | None = None) -> None:
        """Send all messages in order, waiting for room. Stop early on a signal."""
        left = batch
        refused_since = 0
        while left and not self.stop.requested:
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
        except ValueError as error:  # one of the messages is too long
            number = self.meter.messages + 1
            raise ConfigurationError(
                f"{self.publication!r}: message {number:,} or one soon after it: {error}"
            ) from None
        return (1, position) if position > 0 else (0, position)

    def _refused(self, position: int, seconds: float) -> None:
        status = OfferStatus(position)
        if status.is_final:
            raise offer_error_of(self.publication, status, repr(self.publication))
        if status is OfferStatus.NOT_CONNECTED and 0 < self.timeout < seconds:
            raise offer_error_of(self.publication, status, repr(self.publication), f", for {self.timeout:g} s")
        if status is not OfferStatus.ADMIN_ACTION:
            time.sleep(MIN_PAUSE_S)

    def report(self, now_ns: int) -> None:
        """Report the rate of the last second, once a second."""
        if now_ns >= self._next_report_ns:
            say(f"{amount(*self.meter.step(now_ns))}  refused {self.refused:,}")
            self._next_report_ns = now_ns + NS_PER_SECOND

    def report_all(self) -> None:
        """Report the totals."""
        say(f"sent {totals(self.meter)}, refused {self.refused:,}")


def _pause(sender: _Sender, pacer: Pacer) -> None:
    now_ns = SYSTEM_CLOCK.monotonic_ns()
    sender.report(now_ns)
    time.sleep(max(MIN_PAUSE_S, min(pacer.next_ns() - now_ns, NS_PER_SECOND // 10) / 1e9))


def _generate(sender: _Sender, pacer: Pacer, length: int, count: int) -> None:
    index = 0
    rest = bytes(max(0, length - COUNTER_BYTES))
    while not sender.stop.requested and (count == 0 or index < count):
        due = pacer.due(SYSTEM_CLOCK.monotonic_ns())
        if count:
            due = min(due, count - index)
        if due <= 0:
            _pause(sender, pacer)
            continue
        batch = [(i.to_bytes(COUNTER_BYTES, "little") + rest)[:length] for i in range(index, index + due)]
        sender.send(batch)
        index += due


def _forward(sender: _Sender, pacer: Pacer, messages: Iterator[Outgoing], count: int) -> None:
    for message in islice(messages, count or None):
        while pacer.per_second > 0 and pacer.due(SYSTEM_CLOCK.monotonic_ns()) <= 0 and not sender.stop.requested:
            _pause(sender, pacer)
        if sender.stop.requested:
            return
        sender.send([message.payload], message.reserved_value)


class LineEncoder:
    """Encodes JSON lines as messages. If the codec has its own columns, strings become times and decimals."""

    def __init__(self, codec: Codec) -> None:
        self._codec, self._lines, self._schema, self._count = codec, find_codec("json"), None, 0
        try:
            self._schema = codec.schema([])
        except ConfigurationError:
            raise
        except ValueError:
            # The format has no types of its own, so the values keep their JSON types.
            self._schema = None

    def encode(self, line: bytes) -> bytes:
        """Encode a line as a message. Raises a ConfigurationError that names the line."""
        self._count += 1
        try:
            return self._codec.encode(self._row(line))
        except (StoreError, MissingExtraError):
            raise
        except Exception as error:
            raise ConfigurationError(f"line {self._count}: {error}") from None

    def _row(self, line: bytes) -> dict[str, Any]:
        (row,) = self._lines.decode(line)
        if self._schema is None:
            exact: dict[str, Any] = json.loads(line, parse_float=_float)
            return exact
        decoded = self._lines.decode_batch([line], self._schema)
        if decoded.problems or decoded.rescued:
            raise ValueError(decoded.problems.get(0) or f"the schema has no field for {decoded.rescued[0]}")
        columns = zip(self._schema.names, decoded.columns, strict=True)
        nested: dict[str, Any] = {"maps_as_pydicts": "strict"}
        # A field that the line lacks gets the format's default, which is not always null.
        return {name: column.to_pylist(**nested)[0] for name, column in columns if name in row}


def _float(text: str) -> float:
    """Convert a number for a format without decimals. Raises ValueError if it would be rounded."""
    value = float(text)
    if not is_held(text, value):
        raise ValueError(f"{text} has more digits than a floating-point number holds")
    return value
