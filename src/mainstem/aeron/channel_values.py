"""Kinds of values in a channel URI: how each is read and written (docs/protocols/aeron.md, 23). Readers raise ValueError."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, NamedTuple

from mainstem.errors import ConfigurationError
from mainstem.units import format_duration_ns, format_size, parse_duration_ns, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable

INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)
RESERVED_VALUE_OFFSET = -8  # "reserved": the timestamp goes into the frame header's reserved value
RESPONSE_PROTOTYPE = -2  # "prototype" as a response correlation id
MAX_PORT = 65535
HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")


class ControlMode(StrEnum):
    """How destinations come and go."""

    MANUAL = "manual"
    DYNAMIC = "dynamic"
    RESPONSE = "response"


class CongestionControlChoice(StrEnum):
    """How a receiver chooses its window."""

    STATIC = "static"
    CUBIC = "cubic"


class FlowControlStrategy(StrEnum):
    """How a sender to several receivers chooses its limit."""

    MAX = "max"
    MIN = "min"
    TAGGED = "tagged"


@dataclass(frozen=True, slots=True)
class FlowControlParams:
    """The value of ``fc``: a strategy and its options; None leaves an option to the driver's setting."""

    strategy: FlowControlStrategy
    group_tag: int | None = None
    group_min_size: int | None = None
    receiver_timeout_ns: int | None = None
    retransmit_window_multiple: int | None = None

    def __str__(self) -> str:
        parts = [str(self.strategy)]
        if self.group_tag is not None or self.group_min_size is not None:
            tag = "" if self.group_tag is None else self.group_tag
            parts.append(f"g:{tag}" + ("" if self.group_min_size is None else f"/{self.group_min_size}"))
        if self.receiver_timeout_ns is not None:
            parts.append(f"t:{format_duration_ns(self.receiver_timeout_ns)}")
        if self.retransmit_window_multiple is not None:
            parts.append(f"rrwm:{self.retransmit_window_multiple}")
        return ",".join(parts)


class Address(NamedTuple):
    """A host (a name or an IP address, without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Interface(NamedTuple):
    """Which network interface: an address, how many of its bits count, and a port to bind."""

    host: str
    prefix_length: int | None
    port: int


def parse_address(text: str) -> Address:
    """``host:port`` or ``[v6]:port``."""
    host, rest = _host(text)
    if not rest.startswith(":"):
        raise ValueError("a port is missing (host:port)")
    return Address(host, _port(rest[1:]))


def parse_interface(text: str) -> Interface:
    """``addr``, ``addr/prefix``, ``addr:port`` or ``addr/prefix:port``; a v6 address stands in brackets."""
    host, rest = _host(text)
    prefix, port = None, 0
    if rest.startswith("/"):
        digits, colon, after = rest[1:].partition(":")
        prefix, rest = integer(0, 128 if ":" in host else 32)(digits), colon + after
    if rest.startswith(":"):
        port, rest = _port(rest[1:]), ""
    if rest:
        raise ValueError(f"{rest!r} is left over after the address")
    return Interface(host, prefix, port)


def _host(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise ValueError("the bracket of the IPv6 address is not closed")
        try:
            IPv6Address(host)
        except ValueError:
            raise ValueError(f"{host!r} is not an IPv6 address") from None
        return host, rest
    end = next((at for at, letter in enumerate(text) if letter in ":/"), len(text))
    if text.count(":") > 1:
        raise ValueError("an IPv6 address stands in brackets, as in [::1]:40456")
    if not HOST.fullmatch(text[:end]):
        raise ValueError(f"{text[:end]!r} is not a host name or an address")
    return text[:end], text[end:]


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_PORT:
        raise ValueError(f"{text!r} is not a port (0 to {MAX_PORT})")
    return int(text)


def address(text: str) -> str:
    """The text of an address, checked."""
    parse_address(text)
    return text


def interface(text: str) -> str:
    """The text of an interface, checked."""
    parse_interface(text)
    return text


def text_value(text: str) -> str:
    """Any text."""
    return text


def integer(low: int, high: int) -> Callable[[str], int]:
    """A whole number within limits."""

    def read(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,20}", text):
            raise ValueError(f"{text!r} is not a whole number")
        return within(int(text), low, high, str)

    return read


def within(value: int, low: int, high: int, show: Callable[[int], str]) -> int:
    """The value, if it is in the range."""
    if not low <= value <= high:
        raise ValueError(f"{show(value)} is not in {show(low)} to {show(high)}")
    return value


def size(low: int, high: int, *, multiple: int = 1, power_of_two: bool = False) -> Callable[[str], int]:
    """A size in bytes within limits, with k, m or g after it."""

    def read(text: str) -> int:
        try:
            value = parse_size(text)
        except ConfigurationError:
            raise ValueError(f"{text!r} is not a size (a whole number with k, m or g after it, as in 64k)") from None
        within(value, low, high, format_size)
        if value % multiple:
            raise ValueError(f"{value} is not a multiple of {multiple}")
        if power_of_two and value & (value - 1):
            raise ValueError(f"{value} is not a power of two")
        return value

    return read


def duration(text: str) -> int:
    """Nanoseconds from a duration with ns, us, ms or s after it."""
    try:
        return within(parse_duration_ns(text), 0, INT64[1], str)
    except ConfigurationError:
        raise ValueError(f"{text!r} is not a duration (a whole number with ns, us, ms or s, as in 10ms)") from None


def boolean(text: str) -> bool:
    """``true`` or ``false``."""
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def group(text: str) -> bool | None:
    """``true``, ``false``, or ``infer`` (None): whether loss is handled as in a group of receivers."""
    return None if text == "infer" else boolean(text)


def choice(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    """One of an enumeration's names."""

    def read(text: str) -> StrEnum:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is not one of {', '.join(kind)}") from None

    return read


def response_correlation_id(text: str) -> int:
    """An id of -1 or above, or ``prototype``."""
    return RESPONSE_PROTOTYPE if text == "prototype" else integer(-1, INT64[1])(text)


def timestamp_offset(text: str) -> int:
    """An offset into the payload, or ``reserved``."""
    return RESERVED_VALUE_OFFSET if text == "reserved" else integer(0, INT32[1])(text)


def flow_control(text: str) -> FlowControlParams:
    """``max``, ``min`` or ``tagged``, then ``g:[tag][/size]``, ``t:duration`` and ``rrwm:n`` after commas."""
    name, *options = text.split(",")
    strategy = FlowControlStrategy(choice(FlowControlStrategy)(name))
    values: dict[str, int] = {}
    for option in options:
        key, colon, value = option.partition(":")
        if key not in ("g", "t", "rrwm") or not colon or not value:
            raise ValueError(f"{option!r} is not a flow control option (g:tag/size, t:duration or rrwm:n)")
        if key in ("g", "t") and strategy is FlowControlStrategy.MAX:
            raise ValueError(f"max flow control knows no receivers, so {option!r} has no meaning")
        if key == "g":
            tag, _, count = value.partition("/")
            if tag and strategy is not FlowControlStrategy.TAGGED:
                raise ValueError(f"only tagged flow control takes a group tag ({option!r})")
            if tag:
                values["group_tag"] = integer(*INT64)(tag)
            if "/" in value:
                values["group_min_size"] = integer(0, INT32[1])(count)
        elif key == "t":
            values["receiver_timeout_ns"] = duration(value)
        else:
            values["retransmit_window_multiple"] = integer(1, INT32[1])(value)
    return FlowControlParams(strategy, **values)
