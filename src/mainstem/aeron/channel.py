"""Channel URIs: ``[aeron-spy:]aeron:<udp|ipc>[?key=value|key=value...]`` (docs/protocols/aeron.md, 23)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from mainstem._core import layout
from mainstem.aeron import channel_values as kinds
from mainstem.aeron.channel_values import (
    INT32,
    INT64,
    Address,
    CongestionControlChoice,
    ControlMode,
    FlowControlParams,
    parse_address,
)
from mainstem.errors import ChannelUriError
from mainstem.units import format_duration_ns, format_size

if TYPE_CHECKING:
    from collections.abc import Callable

AERON_PREFIX = "aeron:"
SPY_PREFIX = "aeron-spy:"
MEDIA = ("udp", "ipc")
MAX_URI_LENGTH = 4095  # records and log metadata of other implementations have room for no more
MAX_RESEND = 256  # what the reference's retransmit pool may hold


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelUri:
    """A channel, typed. None means that the URI leaves a value out, so that the driver's own setting holds.

    ``parse`` reads text and ``str`` writes it; both ways, and when built from values, every value is checked. Raises
    ChannelUriError. Sizes are in bytes, names that end in ``_ns`` in nanoseconds.
    """

    media: str = "udp"
    spy: bool = False
    endpoint: str | None = None
    interface: str | None = None
    control: str | None = None
    control_mode: ControlMode | None = None
    ttl: int | None = None
    mtu: int | None = None
    term_length: int | None = None
    init_term_id: int | None = None
    term_id: int | None = None
    term_offset: int | None = None
    session_id: int | None = None
    session_id_tag: int | None = None  # ``session-id=tag:N``: as the publication with that entity tag
    linger_ns: int | None = None
    eos: bool | None = None
    spies_simulate_connection: bool | None = None
    flow_control: FlowControlParams | None = None
    max_resend: int | None = None
    publication_window_length: int | None = None
    response_correlation_id: int | None = None  # RESPONSE_PROTOTYPE for ``prototype``
    sparse: bool | None = None
    reliable: bool | None = None
    tether: bool | None = None
    rejoin: bool | None = None
    group: bool | None = None  # None is ``infer``
    group_tag: int | None = None
    congestion_control: CongestionControlChoice | None = None
    receiver_window_length: int | None = None
    nak_delay_ns: int | None = None
    so_rcvbuf: int | None = None
    so_sndbuf: int | None = None
    untethered_window_limit_timeout_ns: int | None = None
    untethered_linger_timeout_ns: int | None = None
    untethered_resting_timeout_ns: int | None = None
    channel_tag: int | None = None
    entity_tag: int | None = None
    alias: str | None = None
    media_receive_timestamp_offset: int | None = None  # RESERVED_VALUE_OFFSET for ``reserved``
    channel_receive_timestamp_offset: int | None = None
    channel_send_timestamp_offset: int | None = None
    stream_id: int | None = None
    response_endpoint: str | None = None
    ats: bool | None = None

    @classmethod
    def parse(cls, text: str) -> ChannelUri:
        """Parses a channel URI. The error names the wrong value, the reason, and the character."""
        return cls(**_read(text))

    def __post_init__(self) -> None:
        # One set of rules for parsing and for building from values: the text of what was built must parse to the same values.
        text = str(self)
        parsed = _read(text)
        for field in fields(self):
            value = getattr(self, field.name)
            if value != parsed.get(field.name):
                raise ChannelUriError(text, f"{field.name}={value!r} cannot be written in a channel URI")

    def __str__(self) -> str:
        parts = []
        for key, parameter in PARAMETERS.items():
            value = parameter.get(self)
            if value is not None:
                parts.append(f"{key}={value}")
        head = f"{SPY_PREFIX if self.spy else ''}{AERON_PREFIX}{self.media}"
        return head + ("?" + "|".join(parts) if parts else "")

    @property
    def is_ipc(self) -> bool:
        """Whether the channel stays on this machine, in shared memory."""
        return self.media == "ipc"

    @property
    def endpoint_address(self) -> Address | None:
        """The endpoint as host and port."""
        return None if self.endpoint is None else parse_address(self.endpoint)

    @property
    def control_address(self) -> Address | None:
        """The control address as host and port."""
        return None if self.control is None else parse_address(self.control)

    def check_publication(self) -> None:
        """Raises ChannelUriError where this cannot be a publication's channel."""
        if self.spy:
            raise self._fault("a spy can only subscribe")
        if (endpoint := self.endpoint_address) is not None and endpoint.port == 0:
            raise self._fault("a publication cannot send to port 0", key="endpoint")
        self._check_ats()

    def check_subscription(self) -> None:
        """Raises ChannelUriError where this cannot be a subscription's channel."""
        self._check_ats()

    def check_destination(self, *, receive: bool) -> None:
        """Raises ChannelUriError where this cannot be a destination: of a subscription, or else of a publication."""
        if not receive and (self.spy or self.is_ipc):
            raise self._fault("a publication sends to udp destinations only")
        for key in ("mtu", "rcv-wnd", "so-rcvbuf", "so-sndbuf", "response-correlation-id"):
            if PARAMETERS[key].get(self) is not None:
                raise self._fault(f"{key} belongs to the channel and not to one destination", key=key)
        if self.control_mode is ControlMode.RESPONSE:
            raise self._fault("a destination cannot be a response channel", key="control-mode")
        self._check_ats()

    def _check_ats(self) -> None:
        if self.ats:
            raise self._fault("the encrypted transport is not available", key="ats")

    def _fault(self, reason: str, key: str = "") -> ChannelUriError:
        text = str(self)
        return ChannelUriError(text, reason, _position_of(text, key) if key else -1)


class Parameter(NamedTuple):
    """One key of the table: the attribute it sets, how its text is read, and how it is written."""

    attribute: str
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str

    def get(self, uri: ChannelUri) -> str | None:
        if self.attribute == "tags":
            return _write_tags(uri)
        if self.attribute == "session_id" and uri.session_id_tag is not None:
            return f"tag:{uri.session_id_tag}"
        value = getattr(uri, self.attribute)
        return None if value is None else self.write(value)


def _write_tags(uri: ChannelUri) -> str | None:
    if uri.channel_tag is None and uri.entity_tag is None:
        return None
    channel = "" if uri.channel_tag is None else str(uri.channel_tag)
    return channel if uri.entity_tag is None else f"{channel},{uri.entity_tag}"


def _write_boolean(value: bool) -> str:
    return "true" if value else "false"


def _write_response_id(value: int) -> str:
    return "prototype" if value == kinds.RESPONSE_PROTOTYPE else str(value)


def _write_offset(value: int) -> str:
    return "reserved" if value == kinds.RESERVED_VALUE_OFFSET else str(value)


def _size(attribute: str, low: int, high: int, **rules: Any) -> Parameter:
    return Parameter(attribute, kinds.size(low, high, **rules), format_size)


def _boolean(attribute: str) -> Parameter:
    return Parameter(attribute, kinds.boolean, _write_boolean)


def _duration(attribute: str) -> Parameter:
    return Parameter(attribute, kinds.duration, format_duration_ns)


def _offset(attribute: str) -> Parameter:
    return Parameter(attribute, kinds.timestamp_offset, _write_offset)


_MTU = (layout.MTU_MIN_LENGTH, layout.MTU_MAX_LENGTH)
_TERM = (layout.TERM_MIN_LENGTH, layout.TERM_MAX_LENGTH)

PARAMETERS: dict[str, Parameter] = {
    "endpoint": Parameter("endpoint", kinds.address),
    "interface": Parameter("interface", kinds.interface),
    "control": Parameter("control", kinds.address),
    "control-mode": Parameter("control_mode", kinds.choice(ControlMode)),
    "ttl": Parameter("ttl", kinds.integer(0, 255)),
    "mtu": _size("mtu", *_MTU, multiple=layout.FRAME_ALIGNMENT),
    "term-length": _size("term_length", *_TERM, power_of_two=True),
    "init-term-id": Parameter("init_term_id", kinds.integer(*INT32)),
    "term-id": Parameter("term_id", kinds.integer(*INT32)),
    "term-offset": _size("term_offset", 0, _TERM[1], multiple=layout.FRAME_ALIGNMENT),
    "session-id": Parameter("session_id", kinds.integer(*INT32)),
    "linger": _duration("linger_ns"),
    "eos": _boolean("eos"),
    "ssc": _boolean("spies_simulate_connection"),
    "fc": Parameter("flow_control", kinds.flow_control),
    "max-resend": Parameter("max_resend", kinds.integer(1, MAX_RESEND)),
    "pub-wnd": _size("publication_window_length", _MTU[0], _TERM[1] // 2),
    "response-correlation-id": Parameter("response_correlation_id", kinds.response_correlation_id, _write_response_id),
    "sparse": _boolean("sparse"),
    "reliable": _boolean("reliable"),
    "tether": _boolean("tether"),
    "rejoin": _boolean("rejoin"),
    "group": Parameter("group", kinds.group, _write_boolean),
    "gtag": Parameter("group_tag", kinds.integer(*INT64)),
    "cc": Parameter("congestion_control", kinds.choice(CongestionControlChoice)),
    "rcv-wnd": _size("receiver_window_length", _MTU[0], _TERM[1] // 2),
    "nak-delay": _duration("nak_delay_ns"),
    "so-rcvbuf": _size("so_rcvbuf", 0, INT32[1]),
    "so-sndbuf": _size("so_sndbuf", 0, INT32[1]),
    "untethered-window-limit-timeout": _duration("untethered_window_limit_timeout_ns"),
    "untethered-linger-timeout": _duration("untethered_linger_timeout_ns"),
    "untethered-resting-timeout": _duration("untethered_resting_timeout_ns"),
    "tags": Parameter("tags", str),
    "alias": Parameter("alias", kinds.text_value),
    "media-rcv-ts-offset": _offset("media_receive_timestamp_offset"),
    "channel-rcv-ts-offset": _offset("channel_receive_timestamp_offset"),
    "channel-snd-ts-offset": _offset("channel_send_timestamp_offset"),
    "stream-id": Parameter("stream_id", kinds.integer(*INT32)),
    "response-endpoint": Parameter("response_endpoint", kinds.address),
    "ats": _boolean("ats"),
}


class _Pair(NamedTuple):
    key: str
    value: str
    position: int  # of the value in the text


def _position_of(text: str, key: str) -> int:
    return next((pair.position for pair in _pairs(text)[1] if pair.key == key), -1)


def _pairs(text: str) -> tuple[dict[str, Any], list[_Pair]]:
    """Returns medium and prefix, and the parameters with their places."""
    if len(text) > MAX_URI_LENGTH:
        raise ChannelUriError(text[:80] + "...", f"{len(text)} characters exceed the maximum of {MAX_URI_LENGTH}")
    for at, letter in enumerate(text):
        if not letter.isascii() or not letter.isprintable():
            raise ChannelUriError(text, f"{letter!r} is not a printable ASCII character", at)
    spy = text.startswith(SPY_PREFIX)
    at = len(SPY_PREFIX) if spy else 0
    if not text.startswith(AERON_PREFIX, at):
        raise ChannelUriError(text, "a channel begins with aeron:udp or aeron:ipc", at)
    at += len(AERON_PREFIX)
    media, mark, rest = text[at:].partition("?")
    if media not in MEDIA:
        raise ChannelUriError(text, f"medium {media!r} is neither udp nor ipc", at)
    at += len(media) + 1
    pairs = []
    for part in rest.split("|") if mark else []:
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise ChannelUriError(text, f"{part!r} is not a parameter (key=value)", at)
        if not value:
            raise ChannelUriError(text, f"{key} has no value", at + len(key) + 1)
        pairs.append(_Pair(key, value, at + len(key) + 1))
        at += len(part) + 1
    return {"media": media, "spy": spy}, pairs


def _read(text: str) -> dict[str, Any]:
    """Returns the attributes in the text, checked one by one and together."""
    values, pairs = _pairs(text)
    places: dict[str, int] = {}
    for pair in pairs:
        parameter = PARAMETERS.get(pair.key)
        if parameter is None:
            raise ChannelUriError(text, f"{pair.key!r} is not a known parameter", pair.position - len(pair.key) - 1)
        places[pair.key] = pair.position
        try:
            if pair.key == "tags":
                _read_tags(pair.value, values)
            elif pair.key == "session-id" and pair.value.startswith("tag:"):
                values["session_id_tag"] = kinds.integer(*INT64)(pair.value[4:])
                values.pop("session_id", None)
            else:
                values[parameter.attribute] = parameter.read(pair.value)
                if pair.key == "session-id":
                    values.pop("session_id_tag", None)
        except ValueError as error:
            raise ChannelUriError(text, f"{pair.key}: {error}", pair.position) from None
    for rule in RULES:
        if (fault := rule(values)) is not None:
            key, reason = fault
            raise ChannelUriError(text, reason, places.get(key, -1))
    return values


def _read_tags(text: str, values: dict[str, Any]) -> None:
    channel, comma, entity = text.partition(",")
    number = kinds.integer(*INT64)
    values["channel_tag"] = number(channel) if channel else None
    values["entity_tag"] = number(entity) if comma else None


Fault = tuple[str, str] | None


def _network_parameters_need_a_network(values: dict[str, Any]) -> Fault:
    if values["media"] != "ipc":
        return None
    if values["spy"]:
        return "", "a spy watches a network publication, and aeron:ipc has none"
    for key in ("endpoint", "interface", "control", "ttl"):
        if values.get(key) is not None:
            return key, f"aeron:ipc stays on this machine and takes no {key}"
    if values.get("control_mode") == ControlMode.DYNAMIC:
        return "control-mode", "aeron:ipc has no dynamic destinations"
    return None


def _a_network_channel_has_an_address(values: dict[str, Any]) -> Fault:
    if values["media"] != "udp":
        return None
    mode = values.get("control_mode")
    if mode in (ControlMode.DYNAMIC, ControlMode.RESPONSE) and values.get("control") is None:
        return "control-mode", f"control-mode={mode} needs a control address"
    places = (values.get(name) for name in ("endpoint", "control", "channel_tag"))
    if mode != ControlMode.MANUAL and all(place is None for place in places):
        return "", "aeron:udp needs an endpoint, a control address, tags or control-mode=manual"
    return None


def _a_start_position_is_whole(values: dict[str, Any]) -> Fault:
    names = ("init_term_id", "term_id", "term_offset")
    present = [values.get(name) is not None for name in names]
    if not any(present):
        return None
    if not all(present):
        first = names[present.index(True)].replace("_", "-")
        return first, "init-term-id, term-id and term-offset come together or not at all"
    if (values["term_id"] - values["init_term_id"]) & 0xFFFFFFFF > INT32[1]:
        return "term-id", f"term-id {values['term_id']} lies before init-term-id {values['init_term_id']}"
    term_length = values.get("term_length")
    if term_length is not None and values["term_offset"] > term_length:
        return "term-offset", f"term-offset {values['term_offset']} exceeds the term length of {term_length}"
    return None


def _windows_fit(values: dict[str, Any]) -> Fault:
    window, mtu, term_length = (values.get(name) for name in ("publication_window_length", "mtu", "term_length"))
    if window is not None and mtu is not None and window < mtu:
        return "pub-wnd", f"a window of {window} is below the mtu of {mtu}"
    if window is not None and term_length is not None and window > term_length // 2:
        return "pub-wnd", f"a window of {window} exceeds half the term length of {term_length}"
    window, receive_buffer = values.get("receiver_window_length"), values.get("so_rcvbuf")
    if window is not None and receive_buffer and window > receive_buffer:
        return "rcv-wnd", f"a window of {window} exceeds so-rcvbuf of {receive_buffer}"
    return None


def _timestamps_do_not_overlap(values: dict[str, Any]) -> Fault:
    seen: list[tuple[str, int]] = []
    for key in ("media-rcv-ts-offset", "channel-rcv-ts-offset", "channel-snd-ts-offset"):
        offset = values.get(PARAMETERS[key].attribute)
        if offset is None:
            continue
        for other, at in seen:
            if abs(offset - at) < 8:
                return key, f"{key} and {other} overlap: each timestamp takes 8 bytes"
        seen.append((key, offset))
    return None


RULES: tuple[Callable[[dict[str, Any]], Fault], ...] = (
    _network_parameters_need_a_network,
    _a_network_channel_has_an_address,
    _a_start_position_is_whole,
    _windows_fit,
    _timestamps_do_not_overlap,
)
