"""The values in a channel URI, parsed as the reference driver parses them (docs/protocols/aeron.md, 23).

Parsers raise ValueError for an invalid text. Numbers follow C: some may have a suffix, which is ignored.
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, NamedTuple

from mainstem._core import layout
from mainstem._internal.units import format_duration_ns, format_size
from mainstem._internal.validation import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from mainstem.aeron.logbuffer.descriptor import wrap_i32
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

INT32 = (INT32_MIN, INT32_MAX)
INT64 = (INT64_MIN, INT64_MAX)
UINT64_MAX = (1 << 64) - 1
RESERVED_VALUE_OFFSET = -8  # "reserved": the timestamp goes into the frame header's reserved value
NO_OFFSET = -1  # the same as an absent parameter
RESPONSE_PROTOTYPE = -2  # "prototype" as a response correlation id
NO_TAG = -1
MAX_PORT = 65535
MAX_PORT_DIGITS = 7
MAX_PREFIX_DIGITS = 6
MAX_HOST_LENGTH = 383
MAX_INTERFACE_NAME_LENGTH = 15
MAX_RESEND = 256  # the capacity of the reference's retransmit pool
# Compiled on first use, because starting a driver needs none of them.
HOST = r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?"
NUMBER = {
    0: r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)",
    10: r"[ \t\n\v\f\r]*([+-]?)([0-9]+)",
}
SIZE_FACTORS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
DURATION_FACTORS = {"n": 1, "u": 1_000, "m": 1_000_000, "s": 1_000_000_000}


class ControlMode(StrEnum):
    MANUAL = "manual"
    DYNAMIC = "dynamic"
    RESPONSE = "response"


class CongestionControlChoice(StrEnum):
    STATIC = "static"
    CUBIC = "cubic"


class FlowControlStrategy(StrEnum):
    MAX = "max"
    MIN = "min"
    TAGGED = "tagged"


class FlowControlParams(NamedTuple):
    """The value of ``fc``: a strategy and its options. If an option is None, the driver's setting applies."""

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
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Interface(NamedTuple):
    """A network interface: an address (or a name in its place), its prefix length, and a port to bind."""

    host: str
    prefix_length: int | None
    port: int
    name: str = ""


class Tags(NamedTuple):
    """The value of ``tags``, as texts. A missing part is None."""

    channel: str | None
    entity: str | None


# -- settings: one form, with no text after it ---------------------------------------------------------------------


def parse_address(text: str) -> Address:
    """Parse ``host:port`` or ``[v6]:port`` from a setting."""
    host, rest = _host(text)
    if not rest.startswith(":"):
        raise ValueError("a port is missing (host:port)")
    return Address(host, _port(rest[1:]))


def listen_address(text: str, name: str) -> Address:
    """Parse an address like `parse_address`, for a server: ``:port`` means 127.0.0.1.

    Raises ConfigurationError, whose message contains ``name``.
    """
    try:
        return parse_address(text if not text.startswith(":") else f"127.0.0.1{text}")
    except ValueError as error:
        raise ConfigurationError(f"{name}: {text!r}: {error}") from None


def parse_interface(text: str) -> Interface:
    """Parse ``addr``, ``addr/prefix``, ``addr:port`` or ``addr/prefix:port`` from a setting. IPv6 addresses are in brackets."""
    host, rest = _host(text)
    prefix, port = None, 0
    if rest.startswith("/"):
        digits, colon, after = rest[1:].partition(":")
        prefix, rest = _whole(digits, 0, 128 if ":" in host else 32), colon + after
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
        raise ValueError("an IPv6 address must be in brackets, as in [::1]:40456")
    if not re.fullmatch(HOST, text[:end]):
        raise ValueError(f"{text[:end]!r} is not a host name or an address")
    return text[:end], text[end:]


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_PORT:
        raise ValueError(f"{text!r} is not a port (0 to {MAX_PORT})")
    return int(text)


def _whole(text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"-?[0-9]{1,20}", text):
        raise ValueError(f"{text!r} is not a whole number")
    return within(int(text), low, high, str)


def within(value: int, low: int, high: int, show: Callable[[int], str] = str) -> int:
    if not low <= value <= high:
        raise ValueError(f"{show(value)} is not in {show(low)} to {show(high)}")
    return value


# -- numbers, parsed as C parses them ------------------------------------------------------------------------------


def leading_number(text: str, base: int) -> tuple[int, str]:
    """Split the leading number from a text and return both parts. Base 0 also accepts ``0x10`` and ``010``."""
    match = re.match(NUMBER[base], text)
    if match is None:
        raise ValueError(f"{text!r} is not a whole number")
    digits = match[2]
    if base == 10:
        value = int(digits)
    elif digits[:2] in ("0x", "0X"):
        value = int(digits, 16)
    else:
        value = int(digits, 8 if digits[0] == "0" else 10)
    return -value if match[1] == "-" else value, text[match.end() :]


def _number(text: str, low: int, high: int, base: int = 0) -> int:
    value, rest = leading_number(text, base)
    if rest:
        raise ValueError(f"{text!r} is not a whole number")
    return within(value, low, high)


def int32(text: str) -> int:
    return _number(text, *INT32)


def int64(text: str) -> int:
    return _number(text, *INT64)


def _unsigned(text: str) -> tuple[int, str]:
    """Parse an unsigned 64-bit number and return it with the rest. Negative numbers wrap; larger ones saturate."""
    value, rest = leading_number(text, 0)
    return (UINT64_MAX if abs(value) > UINT64_MAX else value & UINT64_MAX), rest


def size(text: str) -> int:
    """Parse a size in bytes, with an optional k, m or g. Anything after that letter is ignored."""
    try:
        value, rest = leading_number(text, 10)
        factor = SIZE_FACTORS[rest[0].lower()] if rest else 1
    except (ValueError, KeyError):
        raise ValueError(f"{text!r} is not a size (a whole number with k, m or g after it, as in 64k)") from None
    value = min(value, INT64_MAX)
    if value < 0 or value * factor > INT64_MAX:
        raise ValueError(f"{text} is not in 0 to 8g of gibibytes")
    return value * factor


def mtu(text: str) -> int:
    value = within(size(text), layout.MTU_MIN_LENGTH, layout.MTU_MAX_LENGTH, format_size)
    if value % layout.FRAME_ALIGNMENT:
        raise ValueError(f"{value} is not a multiple of {layout.FRAME_ALIGNMENT}")
    return value


def term_length(text: str) -> int:
    value = within(size(text), layout.TERM_MIN_LENGTH, layout.TERM_MAX_LENGTH, format_size)
    if value & (value - 1):
        raise ValueError(f"{value} is not a power of two")
    return value


def term_offset(text: str) -> int:
    """Parse a multiple of the frame alignment. Suffixes are ignored: ``64k`` is 64."""
    value, _ = _unsigned(text)
    if value % layout.FRAME_ALIGNMENT:
        raise ValueError(f"{value} is not a multiple of {layout.FRAME_ALIGNMENT}")
    return value


def max_resend(text: str) -> int:
    return within(size(text), 1, MAX_RESEND)


def duration(text: str) -> int:
    """Return the nanoseconds of a duration in ns, us, ms or s. Large values saturate."""
    try:
        value, unit = leading_number(text, 10)
        factor = 1
        if unit:
            factor = DURATION_FACTORS[unit[0].lower()]
            # Like the reference, accept n, u or m before an s with any text after it, or before any other single character.
            if not (unit in "sS" if factor == DURATION_FACTORS["s"] else unit[1:2] in ("s", "S") or len(unit) == 2):
                raise ValueError(text)
    except (ValueError, KeyError):
        raise ValueError(f"{text!r} is not a duration (a whole number with ns, us, ms or s, as in 10ms)") from None
    if value < 0:
        raise ValueError(f"{text} is below 0")
    return min(value * factor, INT64_MAX)


def boolean(text: str) -> bool:
    """Parse ``true`` or ``false``. Anything after it is ignored."""
    if text.startswith(("true", "false")):
        return text.startswith("true")
    raise ValueError(f"{text!r} is not true or false")


def group(text: str) -> bool | None:
    """Parse whether loss is handled as in a group of receivers: ``true``, ``infer`` (None), or anything else for false."""
    return None if text == "infer" else text == "true"


def control_mode(text: str) -> ControlMode | None:
    return ControlMode(text) if text in tuple(ControlMode) else None


def congestion_control(text: str) -> CongestionControlChoice:
    try:
        return CongestionControlChoice(text)
    except ValueError:
        raise ValueError(f"{text!r} is not one of {', '.join(CongestionControlChoice)}") from None


def hops(text: str) -> int:
    """Parse the TTL: at most 255, or 0 (the system's default) if the text isn't a number."""
    try:
        return min(_unsigned(text)[0], 255)
    except ValueError:
        return 0


def response_correlation_id(text: str) -> int:
    """Parse an id of -1 or above, or ``prototype``."""
    if text == "prototype":
        return RESPONSE_PROTOTYPE
    try:
        return _number(text, -1, INT64_MAX)
    except ValueError as error:
        rule = "invalid response-correlation-id, must be a number greater than or equal to -1, or 'prototype'"
        raise ValueError(f"{rule}: {error}") from None


def timestamp_offset(text: str) -> int:
    """Parse an offset into the payload, or ``reserved``.

    Only the lower 32 bits count. ``reserved`` is the only valid negative value.
    """
    if text == "reserved":
        return RESERVED_VALUE_OFFSET
    value, rest = leading_number(text, 0)
    if rest:
        raise ValueError(f"{text!r} is not a whole number")
    return wrap_i32(max(INT64_MIN, min(value, INT64_MAX)))


def written_offset(offset: int | None) -> int | None:
    """Return the offset at which a timestamp is written, or None."""
    return offset if offset is not None and (offset >= 0 or offset == RESERVED_VALUE_OFFSET) else None


def tags(text: str) -> Tags:
    channel, _, entity = text.partition(",")
    return Tags(channel or None, entity or None)


def channel_tag(text: str) -> int:
    value, _ = leading_number(text, 10)
    value = UINT64_MAX if abs(value) > UINT64_MAX else value & UINT64_MAX
    value = value - (1 << 64) if value >> 63 else value
    if value == NO_TAG:
        raise ValueError(f"{text} is not a tag")
    return value


def entity_tag(text: str) -> int:
    return _number(text, *INT64, base=10)


# -- addresses -----------------------------------------------------------------------------------------------------


def address(text: str) -> Address:
    """Parse ``host:port``, split at the last colon. Brackets around an IPv6 address are optional."""
    host, port, _ = _split(text)
    return Address(host, _udp_port(port))


def interface(text: str) -> Interface:
    """Parse ``addr[:port][/prefix]``, with an IPv6 address in brackets, or ``{name}[:port]``."""
    if text.startswith("{"):
        return _named_interface(text)
    host, port, prefix = _split(text, prefix=True)
    if len(prefix) > MAX_PREFIX_DIGITS:
        raise ValueError(f"{prefix!r} is not a prefix length")
    is_v6 = ":" in host
    bits = _unsigned(prefix)[0] if prefix else None
    if bits is not None and bits > (128 if is_v6 else 32):
        raise ValueError(f"{prefix} is not in 0 to {128 if is_v6 else 32}")
    return Interface(host, bits, _udp_port(port) if port else 0)


def _named_interface(text: str) -> Interface:
    name, brace, rest = text[1:].rpartition("}")
    if not brace or not 0 < len(name) <= MAX_INTERFACE_NAME_LENGTH:
        raise ValueError(f"{text!r} is not the name of an interface in braces, as in {{eth0}}")
    if rest and not (rest[0] == ":" and 1 <= len(rest) - 1 <= 5):
        raise ValueError(f"{rest!r} after the interface's name is not a port")
    return Interface("", None, _udp_port(rest[1:]) if rest else 0, name)


def _split(text: str, *, prefix: bool = False) -> tuple[str, str, str]:
    """Return host, port and prefix as texts; missing parts are empty."""
    opened, closed = text.rfind("["), text.rfind("]")
    is_v6 = opened > 0 or closed > 0
    if is_v6 and (opened < 0 or closed < opened):
        raise ValueError("the brackets of the IPv6 address do not match")
    slash = text.rfind("/") if prefix else -1
    colon = text.rfind(":")
    if 0 <= slash < colon:
        raise ValueError("the port must come before the prefix length, as in 10.0.0.0:40456/8")
    end = len(text)
    bits = text[slash + 1 :] if slash >= 0 else ""
    port = ""
    if colon > closed:
        port = text[colon + 1 : slash if slash > colon else end]
        if not port or len(port) > MAX_PORT_DIGITS:
            raise ValueError(f"{text[colon + 1 :]!r} is not a port (0 to {MAX_PORT})")
        end = colon
    elif slash >= 0:
        end = slash
    host = text[1 : end - 1].partition("%")[0] if is_v6 else text[:end]
    if len(host) > MAX_HOST_LENGTH:
        raise ValueError(f"a host name of {len(host)} characters exceeds the maximum of {MAX_HOST_LENGTH}")
    return host, port, bits


def _udp_port(text: str) -> int:
    try:
        value = _unsigned(text)[0]
    except ValueError:
        value = -1
    if not 0 <= value <= MAX_PORT:
        raise ValueError(f"{text!r} is not a port (0 to {MAX_PORT})")
    return value


# -- flow control --------------------------------------------------------------------------------------------------


def flow_control(text: str) -> FlowControlParams:
    """Parse ``max``, ``min`` or ``tagged``, followed by ``g:[tag][/size]``, ``t:duration`` and ``rrwm:n`` after commas."""
    name, *options = text.split(",")
    if name not in tuple(FlowControlStrategy):
        raise ValueError(f"{name!r} is not one of {', '.join(FlowControlStrategy)}")
    strategy = FlowControlStrategy(name)
    values: dict[str, int] = {}
    if options and not options[-1]:
        del options[-1]
    for option in options:
        key, colon, value = option.partition(":")
        if strategy is FlowControlStrategy.MAX:
            if option.startswith("max"):
                continue
            if key in ("g", "t"):
                raise ValueError(f"max flow control knows no receivers, so {option!r} has no meaning")
        if key not in ("g", "t", "rrwm") or not colon or not value:
            raise ValueError(f"{option!r} is not a flow control option (g:tag/size, t:duration or rrwm:n)")
        if key == "g":
            values |= _group(value)
        elif key == "t":
            values["receiver_timeout_ns"] = duration(value)
        else:
            values["retransmit_window_multiple"] = _multiple(value)
    return FlowControlParams(strategy, **values)


def _multiple(text: str) -> int:
    """Parse the number of windows per retransmission. Large values saturate."""
    return min(within(leading_number(text, 10)[0], 1, INT64_MAX), INT32_MAX)


def _group(text: str) -> dict[str, int]:
    """Parse ``[tag][/size]``. Only ``tagged`` uses the tag, and a text that isn't a number is not a tag."""
    try:
        tag, rest = leading_number(text, 10)
    except ValueError:
        if not text.startswith("/"):
            return {}
        tag, rest = None, text
    values: dict[str, int] = {}
    if tag is not None:
        values["group_tag"] = within(tag, *INT64)
    if rest.startswith("/"):
        values["group_min_size"] = _number(rest[1:], 0, INT32_MAX, base=10)
    elif rest:
        raise ValueError(f"{text!r} is not a group (tag/size)")
    return values
