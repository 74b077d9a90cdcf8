"""The options of ``mainstem.channel``: one table, from which parsing and documentation are derived."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mainstem.errors import ConfigurationError
from mainstem.spark.option_table import option, parsed, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

PROTOCOLS = ("aeron", "bymux", "jmux", "aqueduct")


def _number(value: str, name: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigurationError(f"{name}: {value!r} is not a whole number") from None


def _seconds(value: str, name: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if seconds <= 0:
        raise ConfigurationError(f"{name}: {value!r} is not a number of seconds above zero")
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
        _number,
        "batch: the first part of the keys. Give the same one to send the same batch again",
        shown="the time",
    )
    ca: str = option("ca", text, "Aqueduct: the authority that signed the server's certificate", default="")

    @property
    def protocol(self) -> str:
        return self.channel.partition(":")[0]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of a channel that is none of Aeron's."""
        parts = urlsplit(self.channel)
        return parts.hostname or "", parts.port or 0


def parse_options(options: Mapping[str, str]) -> ChannelOptions:
    """Checked options. Raises ConfigurationError that names the option, its value and what would be accepted."""
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
        try:
            host, port = made.address
        except ValueError as error:
            raise ConfigurationError(f"channel: {made.channel!r}: {error}") from None
        if not host or not port:
            raise ConfigurationError(
                f"channel: {made.channel!r} has no host and port, as in {made.protocol}://localhost:7000"
            )
    return made


def check_schema(schema: StructType, column: str) -> None:
    """Raises ConfigurationError when the DataFrame has no column of messages."""
    kinds = {item.name: item.dataType.simpleString() for item in schema.fields}
    if column not in kinds:
        raise ConfigurationError(
            f"mainstem.channel sends the column {column!r}, and there are only {', '.join(kinds)}; set 'column'"
        )
    if kinds[column] not in ("binary", "string"):
        raise ConfigurationError(f"column {column!r} is {kinds[column]}; a message is binary or string: cast it first")
