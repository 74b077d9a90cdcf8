"""The options of ``mainstem.channel``, checked once."""

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
    texts = {key.lower(): value for key, value in options.items()}
    if unknown := sorted(set(texts) - set(KNOWN) - {"path", "checkpointlocation"}):
        raise ConfigurationError(f"mainstem.channel has no option {unknown[0]!r}; it has {', '.join(KNOWN)}")
    channel = texts.get("channel") or texts.get("path") or ""
    parsed = ChannelOptions(
        channel=channel,
        stream_id=_number(texts, "streamid", 0),
        directory=texts.get("directory", ""),
        column=texts.get("column", "payload"),
        timeout=_seconds(texts),
        epoch=_number(texts, "epoch", 0) if "epoch" in texts else None,
        ca=texts.get("ca", ""),
    )
    if parsed.protocol not in PROTOCOLS:
        raise ConfigurationError(
            f"channel: {channel!r} is none of 'aeron:...', 'bymux://HOST:PORT', 'jmux://HOST:PORT', 'aqueduct://HOST:PORT'"
        )
    if parsed.protocol == "aeron" and "streamid" not in texts:
        raise ConfigurationError("mainstem.channel needs the option 'streamId' for an Aeron channel")
    if parsed.protocol != "aeron":
        try:
            host, port = parsed.address
        except ValueError as error:
            raise ConfigurationError(f"channel: {channel!r}: {error}") from None
        if not host or not port:
            raise ConfigurationError(
                f"channel: {channel!r} has no host and port, as in {parsed.protocol}://localhost:7000"
            )
    return parsed


def _number(texts: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(texts.get(name, default))
    except ValueError:
        raise ConfigurationError(f"{name}: {texts[name]!r} is not a whole number") from None


def _seconds(texts: Mapping[str, str]) -> float:
    try:
        value = float(texts.get("timeout", 30.0))
    except ValueError:
        value = -1.0
    if value <= 0:
        raise ConfigurationError(f"timeout: {texts['timeout']!r} is no number of seconds above zero")
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
