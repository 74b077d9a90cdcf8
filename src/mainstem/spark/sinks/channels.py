"""The options of ``mainstem.channel``, and a class for each protocol that sends a task's messages.

A Spark worker runs many tasks, so it keeps each connection until that fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mainstem._internal.urls import split_url
from mainstem._internal.validation import as_message
from mainstem.errors import ConfigurationError, ConnectionLost, MainstemError, NotConnected
from mainstem.message_keys import KEY_MASK, MessageKey, framed
from mainstem.spark.option_table import option, parsed, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql.types import StructType


# -- options -----------------------------------------------------------------------------------------------------------


PROTOCOLS = ("aeron", "bymux", "jmux", "aqueduct")


def _number(value: str, name: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigurationError(f"{name} must be an integer (got {value!r})") from None


def _epoch(value: str, name: str) -> int:
    epoch = _number(value, name)
    if not 0 <= epoch <= KEY_MASK:
        raise ConfigurationError(f"{name} must be from 0 to 2**63 - 1 (got {epoch})")
    return epoch


def _seconds(value: str, name: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if seconds <= 0:
        raise ConfigurationError(f"{name} must be a number of seconds above 0 (got {value!r})")
    return seconds


@dataclass(frozen=True, kw_only=True)
class ChannelOptions:
    """The options of ``mainstem.channel``, in the order of the documentation."""

    channel: str = option(
        "channel",
        text,
        "`aeron:...`, `bymux://HOST:PORT`, `jmux://HOST:PORT` or `aqueduct://HOST:PORT`. Required",
        default="",
    )
    stream_id: int = option("streamId", _number, "Aeron: the stream. Required for it", default="0", shown=" ")
    driver_directory: str = option(
        "directory",
        text,
        "Aeron: the media driver's directory on each executor's host",
        default="",
        shown="the user's default directory",
    )
    column: str = option("column", text, "the messages: binary or string, never null", default="payload")
    timeout: float = option(
        "timeout",
        _seconds,
        "seconds that a task waits under back pressure or without a connection before it fails",
        default="30",
    )
    epoch: int | None = option(
        "epoch",
        _epoch,
        "batch: the first part of the keys, an integer from 0 to 2**63 - 1. Use the same value to send the same batch again, and "
        "never for another batch",
        shown="random",
    )
    ca: str = option("ca", text, "Aqueduct: the authority that signed the server's certificate", default="")

    @property
    def protocol(self) -> str:
        return self.channel.partition(":")[0]

    @property
    def address(self) -> tuple[str, int]:
        """The host and port. Not used for Aeron channels. Raises ConfigurationError if no address has that form."""
        parts = split_url(self.channel, f"channel: {self.channel!r}")
        return parts.hostname or "", parts.port or 0


def parse_options(options: Mapping[str, str]) -> ChannelOptions:
    """Parse the options. Raises ConfigurationError with the option, its value and the accepted values."""
    texts = {name.lower(): value for name, value in options.items()}
    texts.pop("checkpointlocation", None)
    path = texts.pop("path", "")
    made = ChannelOptions(**parsed(ChannelOptions, "mainstem.channel", texts))
    made = made if made.channel else replace(made, channel=path)
    if made.protocol not in PROTOCOLS:
        raise ConfigurationError(
            f"channel must be aeron:..., bymux://HOST:PORT, jmux://HOST:PORT or aqueduct://HOST:PORT (got {made.channel!r})"
        )
    if made.protocol == "aeron" and "streamid" not in texts:
        raise ConfigurationError("mainstem.channel needs the option 'streamId' for an Aeron channel")
    if made.protocol != "aeron":
        host, port = made.address
        if not host or not port:
            raise ConfigurationError(
                f"channel: {made.channel!r} has no host and port, as in {made.protocol}://localhost:7000"
            )
    return made


def check_schema(schema: StructType, column: str) -> None:
    """Raise ConfigurationError unless the DataFrame has a usable message column."""
    kinds = {item.name: item.dataType.simpleString() for item in schema.fields}
    if column not in kinds:
        raise ConfigurationError(
            f"mainstem.channel sends the column {column!r}, but there are only {', '.join(kinds)}; set the option 'column'"
        )
    if kinds[column] not in ("binary", "string"):
        raise ConfigurationError(f"column {column!r} must be binary or string (got {kinds[column]}); cast it first")


# -- one class for each protocol ---------------------------------------------------------------------------------------

# The number of bytes written to a stream at once.
PIECE = 256 << 10
# The number of messages passed to the event loop at once.
AT_ONCE = 256


class Channel(Protocol):
    """A channel that a partition's messages are sent to."""

    def send(self, epoch: int, partition: int, messages: Iterable[Any]) -> int:
        """Send messages in order, waiting under back pressure. Returns their number once they are delivered."""
        ...

    def close(self) -> None: ...


class AeronChannel:
    """A concurrent publication, shared by all workers on one media driver. The key is the reserved value of each frame.

    Once a message is in the publication's log, it survives this process: the media driver sends it and repairs loss.
    """

    def __init__(self, options: ChannelOptions) -> None:
        from mainstem.aeron.client import Aeron

        self._options = options
        self._aeron = Aeron.connect(options.driver_directory or None, client_name="mainstem.channel")
        try:
            self._publication = self._aeron.add_publication(options.channel, options.stream_id, timeout=options.timeout)
        except BaseException:
            self._aeron.close()
            raise

    def send(self, epoch: int, partition: int, messages: Iterable[Any]) -> int:
        """Send messages. Raises OfferError if the stream accepts nothing for the timeout, or has no subscriber."""
        send, timeout, row = self._publication.send, self._options.timeout, 0
        first = MessageKey(epoch, partition, 0).reserved_value()
        for row, message in enumerate(messages, 1):
            if row & 0xFFFF == 0:
                # Raises if the row number is too large for a key.
                MessageKey(epoch, partition, row).reserved_value()
            send(message, timeout=timeout, reserved_value=first + row - 1 & KEY_MASK)
        return row

    def close(self) -> None:
        """Close the publication and the client. The media driver still sends the offered messages."""
        self._publication.close()
        self._aeron.close()


class MuxChannel:
    """A bymux stream or a Jmux request for each partition. The peer ends its direction once it has received everything."""

    def __init__(self, options: ChannelOptions) -> None:
        from mainstem import bymux, jmux

        self._timeout = options.timeout
        self._is_jmux = options.protocol == "jmux"
        if self._is_jmux:
            self._connection: Any = jmux.connect(*options.address)
            self._open: Any = self._connection.open_session
        else:
            self._connection = bymux.connect(*options.address)
            self._open = self._connection.open_stream

    def send(self, epoch: int, partition: int, messages: Iterable[Any]) -> int:
        """Send messages. Raises ConnectionLost or Aborted if the stream ends before the peer has received them, and Timeout."""
        with self._open(timeout=self._timeout) as stream:
            count = _write(partial(stream.write, timeout=self._timeout), epoch, partition, messages)
            stream.finish()
            if self._is_jmux:
                stream.read(-1, timeout=self._timeout)  # the timeout and the read limit are for the whole response
            else:
                while stream.read(timeout=self._timeout):
                    pass
        return count

    def close(self) -> None:
        self._connection.close()


class AqueductChannel:
    """The entrypoint channel of an Aqueduct connection. It keeps order, and the peer acknowledges a partition's last message."""

    def __init__(self, options: ChannelOptions) -> None:
        from mainstem._internal.loop_thread import LoopThread

        self._options = options
        self._thread = LoopThread("mainstem-aqueduct")
        try:
            self._connection: Any = self._thread.run(self._connect())
        except BaseException:
            self._thread.stop()
            raise

    def send(self, epoch: int, partition: int, messages: Iterable[Any]) -> int:
        """Send messages. Raises ChannelError if the channel ends first, and Timeout if there is no progress for the timeout."""
        rows = [
            MessageKey(epoch, partition, row).encode() + as_message(message) for row, message in enumerate(messages)
        ]
        for first in range(0, len(rows), AT_ONCE):
            self._thread.run(
                self._send(rows[first : first + AT_ONCE], first + AT_ONCE >= len(rows)), self._options.timeout
            )
        return len(rows)

    async def _connect(self) -> Any:
        from mainstem.aqueduct.aio import connect

        options = self._options
        return await connect(*options.address, ca=options.ca or None, timeout=options.timeout)

    async def _send(self, messages: list[bytes], is_last: bool) -> None:
        sender = self._connection.sender
        for message in messages[:-1]:
            await sender.send(message)
        # Messages arrive in order, so acknowledging the last one acknowledges all.
        await (sender.send_acknowledged if is_last else sender.send)(messages[-1])

    def close(self) -> None:
        self._thread.call(self._connection.abort)
        self._thread.stop()


def _write(write: Callable[[bytes], object], epoch: int, partition: int, messages: Iterable[Any]) -> int:
    """Write messages with their key and length, and return their number."""
    count, size = 0, 0
    held: list[bytes] = []
    for message in messages:
        held.append(framed(MessageKey(epoch, partition, count).encode() + as_message(message)))
        count, size = count + 1, size + len(held[-1])
        if size >= PIECE:
            write(b"".join(held))
            held, size = [], 0
    if held:
        write(b"".join(held))
    return count


_KINDS: dict[str, Callable[[ChannelOptions], Channel]] = {
    "aeron": AeronChannel,
    "bymux": MuxChannel,
    "jmux": MuxChannel,
    "aqueduct": AqueductChannel,
}
_kept: dict[ChannelOptions, Channel] = {}


def send(options: ChannelOptions, epoch: int, partition: int, messages: Iterable[Any]) -> int:
    """Send a partition's messages over this worker's connection.

    If a connection from an earlier task turns out to be broken, this replaces it once. Protocol errors are raised with a note that
    names the partition. Spark then repeats it with the same keys.
    """
    rows = list(messages)
    was_kept = options in _kept
    try:
        return _send(options, epoch, partition, rows)
    except (ConnectionLost, NotConnected):
        if not was_kept:
            raise
    return _send(options, epoch, partition, rows)


def _send(options: ChannelOptions, epoch: int, partition: int, rows: list[Any]) -> int:
    try:
        if options not in _kept:
            _kept[options] = _KINDS[options.protocol](options)
        return _kept[options].send(epoch, partition, rows)
    except MainstemError as error:
        broken = _kept.pop(options, None)
        if broken is not None:
            broken.close()
        error.add_note(f"while sending partition {partition} of epoch {epoch} ({len(rows)} rows) to {options.channel}")
        raise
