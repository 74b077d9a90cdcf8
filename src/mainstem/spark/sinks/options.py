"""What ``mainstem.channel`` can be told, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

PROTOCOLS = ("aeron", "bymux", "jmux", "aqueduct")
KNOWN = ("channel", "streamid", "directory", "column", "timeout", "epoch", "ca")


@dataclass(frozen=True, kw_only=True)
class ChannelOptions:
    """The options of ``mainstem.channel``."""

    channel: str
    stream_id: int
    directory: str
    column: str
    timeout: float
    epoch: int | None
    ca: str

    @property
    def protocol(self) -> str:
        """Which of ``PROTOCOLS``."""
        return self.channel.partition(":")[0]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of a channel that is none of Aeron's."""
        parts = urlsplit(self.channel)
        return parts.hostname or "", parts.port or 0


def parse_options(options: Mapping[str, str]) -> ChannelOptions:
    """Checked options. Raises ConfigurationError that names the option, its value and what would be accepted."""
    given = {key.lower(): value for key, value in options.items()}
    if unknown := sorted(set(given) - set(KNOWN) - {"path", "checkpointlocation"}):
        raise ConfigurationError(f"mainstem.channel has no option {unknown[0]!r}; it has {', '.join(KNOWN)}")
    channel = given.get("channel") or given.get("path") or ""
    made = ChannelOptions(
        channel=channel,
        stream_id=_number(given, "streamid", 0),
        directory=given.get("directory", ""),
        column=given.get("column", "payload"),
        timeout=_seconds(given),
        epoch=_number(given, "epoch", 0) if "epoch" in given else None,
        ca=given.get("ca", ""),
    )
    if made.protocol not in PROTOCOLS:
        raise ConfigurationError(
            f"channel: {channel!r} is none of 'aeron:...', 'bymux://HOST:PORT', 'jmux://HOST:PORT', 'aqueduct://HOST:PORT'"
        )
    if made.protocol == "aeron" and "streamid" not in given:
        raise ConfigurationError("mainstem.channel needs the option 'streamId' for an Aeron channel")
    if made.protocol != "aeron":
        try:
            host, port = made.address
        except ValueError as error:
            raise ConfigurationError(f"channel: {channel!r}: {error}") from None
        if not host or not port:
            raise ConfigurationError(
                f"channel: {channel!r} has no host and port, as in {made.protocol}://localhost:7000"
            )
    return made


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(given.get(name, default))
    except ValueError:
        raise ConfigurationError(f"{name}: {given[name]!r} is not a whole number") from None


def _seconds(given: Mapping[str, str]) -> float:
    try:
        value = float(given.get("timeout", 30.0))
    except ValueError:
        value = -1.0
    if value <= 0:
        raise ConfigurationError(f"timeout: {given['timeout']!r} is no number of seconds above zero")
    return value


def check_schema(schema: StructType, column: str) -> None:
    """Raises ConfigurationError when the DataFrame has no column of messages."""
    kinds = {item.name: item.dataType.simpleString() for item in schema.fields}
    if column not in kinds:
        raise ConfigurationError(
            f"mainstem.channel sends the column {column!r}, and there are only {', '.join(kinds)}; set 'column'"
        )
    if kinds[column] not in ("binary", "string"):
        raise ConfigurationError(f"column {column!r} is {kinds[column]}; a message is binary or string: cast it first")
