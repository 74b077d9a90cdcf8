"""Channel URIs: ``[aeron-spy:]aeron:<udp|ipc>[?key=value|key=value...]`` (docs/protocols/aeron.md, 23).

The driver accepts every channel that the reference driver accepts. Values are parsed on access, so a parameter that a command
does not use can have any value, and an unknown key is allowed. Before the client sends a command, it also rejects likely mistakes
(`check_channel`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, overload

from mainstem._internal.frozen import frozen
from mainstem.aeron import channel_values as kinds
from mainstem.aeron.channel_values import ControlMode
from mainstem.errors import ChannelUriError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AERON_PREFIX = "aeron:"
SPY_PREFIX = "aeron-spy:"
UDP = "udp"
IPC = "ipc"
MAX_URI_LENGTH = 4095  # bytes: the records and log metadata of other implementations have no space for a longer one
# For these keys the last occurrence counts, for all other keys the first, as in the reference.
LAST_COUNTS = {
    UDP: frozenset({"endpoint", "interface", "control", "control-mode", "ttl", "tags"}),
    IPC: frozenset({"control-mode", "tags"}),
}

T = TypeVar("T")


class Value(Generic[T]):
    """A parameter descriptor: ``uri.mtu`` is the value, or None if the URI does not have it. Raises ChannelUriError if invalid."""

    def __init__(self, key: str, read: Callable[[str], T]) -> None:
        self.key = key
        self._read = read

    @overload
    def __get__(self, uri: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, uri: ChannelUri, owner: type[Any]) -> T | None: ...
    def __get__(self, uri: ChannelUri | None, owner: type[Any]) -> Self | T | None:
        if uri is None:
            return self
        text = uri.values.get(self.key)
        if text is None:
            return None
        try:
            return self._read(text)
        except ValueError as error:
            raise ChannelUriError(uri.text, f"{self.key}: {error}", uri.places[self.key]) from None


@frozen
class ChannelUri:
    """A parsed channel: its medium, and its parameters as attributes. Sizes are in bytes, names ending in ``_ns`` in nanoseconds.

    ``values`` maps each key to its text, and ``places`` maps each key to the offset of its value in ``text``.
    """

    text: str
    media: str
    spy: bool
    values: Mapping[str, str]
    places: Mapping[str, int]

    endpoint = Value("endpoint", str)
    interface = Value("interface", str)
    control = Value("control", str)
    control_mode = Value("control-mode", kinds.control_mode)
    ttl = Value("ttl", kinds.hops)
    mtu = Value("mtu", kinds.mtu)
    term_length = Value("term-length", kinds.term_length)
    init_term_id = Value("init-term-id", kinds.int32)
    term_id = Value("term-id", kinds.int32)
    term_offset = Value("term-offset", kinds.term_offset)
    linger_ns = Value("linger", kinds.duration)
    eos = Value("eos", kinds.boolean)
    spies_simulate_connection = Value("ssc", kinds.boolean)
    flow_control = Value("fc", kinds.flow_control)
    max_resend = Value("max-resend", kinds.max_resend)
    publication_window_length = Value("pub-wnd", kinds.size)
    response_correlation_id = Value("response-correlation-id", kinds.response_correlation_id)
    sparse = Value("sparse", kinds.boolean)
    reliable = Value("reliable", kinds.boolean)
    tether = Value("tether", kinds.boolean)
    rejoin = Value("rejoin", kinds.boolean)
    group = Value("group", kinds.group)
    group_tag = Value("gtag", kinds.int64)
    congestion_control = Value("cc", kinds.congestion_control)
    receiver_window_length = Value("rcv-wnd", kinds.size)
    nak_delay_ns = Value("nak-delay", kinds.duration)
    so_rcvbuf = Value("so-rcvbuf", kinds.size)
    so_sndbuf = Value("so-sndbuf", kinds.size)
    untethered_window_limit_timeout_ns = Value("untethered-window-limit-timeout", kinds.duration)
    untethered_linger_timeout_ns = Value("untethered-linger-timeout", kinds.duration)
    untethered_resting_timeout_ns = Value("untethered-resting-timeout", kinds.duration)
    tags = Value("tags", kinds.tags)
    media_receive_timestamp_offset = Value("media-rcv-ts-offset", kinds.timestamp_offset)
    channel_receive_timestamp_offset = Value("channel-rcv-ts-offset", kinds.timestamp_offset)
    channel_send_timestamp_offset = Value("channel-snd-ts-offset", kinds.timestamp_offset)
    ats = Value("ats", kinds.boolean)
    _session_id = Value("session-id", kinds.int32)

    @classmethod
    def parse(cls, text: str) -> ChannelUri:
        """Split a channel into its parameters, without parsing their values. Raises ChannelUriError."""
        spy = text.startswith(SPY_PREFIX)
        start = len(SPY_PREFIX) if spy else 0
        length = len(text[start:].encode("utf-8", "surrogateescape"))
        if length > MAX_URI_LENGTH:
            raise ChannelUriError(
                text[:MAX_URI_LENGTH], f"URI length ({length}) exceeds max supported length ({MAX_URI_LENGTH})"
            )
        if not text.startswith(AERON_PREFIX, start):
            raise ChannelUriError(text, "Aeron URIs must start with 'aeron:': begin with aeron:udp or aeron:ipc", start)
        at = start + len(AERON_PREFIX)
        media, mark, rest = text[at:].partition("?")
        if media not in (UDP, IPC):
            raise ChannelUriError(text, f"unknown media: {media!r} is neither udp nor ipc", at)
        if spy and media == IPC:
            raise ChannelUriError(text, "a spy watches a network publication, and aeron:ipc has none", at)
        if media == UDP and not mark:
            raise ChannelUriError(text, "aeron:udp needs parameters, as in aeron:udp?endpoint=localhost:20121", at)
        values, places = _read(text, rest, at + len(media) + 1, LAST_COUNTS[media])
        return cls(text=text, media=media, spy=spy, values=values, places=places)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"ChannelUri({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChannelUri) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def is_ipc(self) -> bool:
        return self.media == IPC

    @property
    def is_response(self) -> bool:
        """Whether the channel carries responses to requesters."""
        return self.values.get("control-mode") == ControlMode.RESPONSE

    @property
    def endpoint_address(self) -> kinds.Address | None:
        return None if self.endpoint is None else self.address_of("endpoint", self.endpoint)

    def address_of(self, key: str, text: str) -> kinds.Address:
        """Parse ``text``, which is used in place of the value of ``key``, as host and port."""
        try:
            return kinds.address(text)
        except ValueError as error:
            raise ChannelUriError(self.text, f"{key}: {error}", self.places[key]) from None

    @property
    def network_interface(self) -> kinds.Interface | None:
        return self._parsed_interface

    _parsed_interface = Value("interface", kinds.interface)

    @property
    def channel_tag(self) -> int | None:
        """The tag that lets channels share sockets. Raises ChannelUriError if it isn't a number."""
        text = None if self.tags is None else self.tags.channel
        if text is None:
            return None
        try:
            return kinds.channel_tag(text)
        except ValueError as error:
            raise ChannelUriError(self.text, f"tags: {error}", self.places["tags"]) from None

    @property
    def entity_tag(self) -> int | None:
        text = None if self.tags is None else self.tags.entity
        if text is None:
            return None
        try:
            return kinds.entity_tag(text)
        except ValueError as error:
            raise self.fault(f"tags: {error}", "tags") from None

    @property
    def session_id(self) -> int | None:
        """The session id, if the channel gives it as a number; see `session_id_tag` for ``tag:N``."""
        return self._session_id

    @property
    def session_id_tag(self) -> int | None:
        """The N of ``session-id=tag:N``, which selects the session of the publication with that entity tag."""
        text = self.values.get("session-id", "")
        if not text.startswith("tag:"):
            return None
        try:
            return kinds.int64(text[4:]) if text[4:] else 0
        except ValueError as error:
            raise self.fault(f"session-id: {error}", "session-id") from None

    def check_udp(self) -> None:
        """Raise ChannelUriError unless the channel has an address, or a control mode that adds one later."""
        mode = self.control_mode
        if mode is ControlMode.DYNAMIC and self.control is None:
            raise ChannelUriError(
                self.text, f"explicit control expected with {mode} control mode", self.places["control-mode"]
            )
        places = (self.endpoint, self.control, None if self.tags is None else self.tags.channel)
        if mode not in (ControlMode.MANUAL, ControlMode.RESPONSE) and all(place is None for place in places):
            raise ChannelUriError(
                self.text, "URIs for UDP must specify an endpoint, control, tags, or control-mode=manual/response"
            )

    def check_timestamps(self) -> None:
        """Raise ChannelUriError if one timestamp would overwrite another."""
        seen: list[tuple[str, int]] = []
        for key, offset in (
            ("media-rcv-ts-offset", self.media_receive_timestamp_offset),
            ("channel-rcv-ts-offset", self.channel_receive_timestamp_offset),
            ("channel-snd-ts-offset", self.channel_send_timestamp_offset),
        ):
            if offset is None or offset == kinds.NO_OFFSET:
                continue
            for other, at in seen:
                if abs(offset - at) < 8:
                    raise self.fault(f"{key} and {other} overlap: each timestamp takes 8 bytes", key)
            seen.append((key, offset))

    def check_ats(self) -> None:
        """Raise ChannelUriError if the channel requests encryption."""
        if self.ats:
            raise self.fault("the encrypted transport is not available", "ats")

    def check_destination(self) -> None:
        """Raise ChannelUriError if the channel cannot be a destination."""
        for key in ("mtu", "rcv-wnd", "so-rcvbuf", "so-sndbuf", "response-correlation-id"):
            if key in self.values:
                raise ChannelUriError(
                    self.text, f"destinations must not contain the key: {key} belongs to the channel", self.places[key]
                )
        if not self.is_ipc and self.control_mode is ControlMode.RESPONSE:
            raise ChannelUriError(
                self.text, "destinations may not specify control-mode=response", self.places["control-mode"]
            )

    def fault(self, reason: str, key: str = "") -> ChannelUriError:
        return ChannelUriError(self.text, reason, self.places.get(key, -1))


def with_values(channel: str, values: Mapping[str, object], *, without: tuple[str, ...] = ()) -> str:
    """Return the channel with these parameters replaced or added, and those in ``without`` removed. Raises ChannelUriError."""
    uri = ChannelUri.parse(channel)
    merged = {key: value for key, value in uri.values.items() if key not in without} | dict(values)
    text = "|".join(f"{key}={value}" for key, value in merged.items())
    prefix = SPY_PREFIX if uri.spy else ""
    return f"{prefix}{AERON_PREFIX}{uri.media}" + (f"?{text}" if text else "")


class _Pair(NamedTuple):
    key: str
    value: str
    position: int  # of the value in the text


def _pairs(text: str, rest: str, start: int) -> list[_Pair]:
    """Return the parameters with their offsets. Like the reference, allow a trailing ``|`` or key, and an empty last value."""
    pairs = []
    at = start
    parts = rest.split("|")
    for number, part in enumerate(parts):
        key, equals, value = part.partition("=")
        is_last = number == len(parts) - 1
        if not key and equals:
            raise ChannelUriError(text, f"{part!r} is a value without a key", at)
        if not equals and not is_last:
            raise ChannelUriError(text, f"{part!r} is not a parameter (key=value)", at)
        if equals and not value and not is_last:
            raise ChannelUriError(text, f"{key} has no value", at + len(key) + 1)
        if equals:
            pairs.append(_Pair(key, value, at + len(key) + 1))
        at += len(part) + 1
    return pairs


def _read(text: str, rest: str, start: int, last_counts: frozenset[str]) -> tuple[dict[str, str], dict[str, int]]:
    values: dict[str, str] = {}
    places: dict[str, int] = {}
    for pair in _pairs(text, rest, start):
        if not pair.value:  # treated as absent
            if pair.key in last_counts:
                values.pop(pair.key, None)
        elif pair.key in last_counts or pair.key not in values:
            values[pair.key] = pair.value
            places[pair.key] = pair.position
    return values, places


MODES = tuple(str(mode.value) for mode in ControlMode)
UNREAD = ("alias", "stream-id", "response-endpoint")  # labels, and values for tools: any text is valid
KEYS = frozenset(each.key for each in vars(ChannelUri).values() if isinstance(each, Value)) | set(UNREAD)
SHORT_KEY = 2  # letters: nearly every other key of this length differs by a single letter
LONG_KEY = 8  # letters: in a key of this length or more, two may be wrong


def check_channel(channel: str, stream_id: int | None = None) -> None:
    """Raise ChannelUriError for likely mistakes that drivers ignore.

    Likely mistakes are a misspelled key, a parameter without a value, an unknown control mode, and a stream-id that differs from
    ``stream_id``. Other unknown keys are allowed, because a newer driver may know them.
    """
    head, _, rest = channel.partition("?")
    for pair in _pairs_of_anything(rest, len(head) + 1):
        key, value, at = pair
        if key not in KEYS:
            if (known := _likely(key)) is not None:
                raise ChannelUriError(channel, f"{key!r} is not a parameter: {known!r} is", at - len(key) - 1)
        elif not value and key != "alias":
            raise ChannelUriError(channel, f"{key} has no value; leave it out", at)
        elif key == "control-mode" and value not in MODES:
            raise ChannelUriError(channel, f"control-mode: {value!r} is not one of {', '.join(MODES)}", at)
        elif key == "stream-id" and stream_id is not None and value != str(stream_id):
            raise ChannelUriError(channel, f"stream-id: {value!r} is not the stream {stream_id} that was requested", at)


def _pairs_of_anything(rest: str, at: int) -> list[_Pair]:
    pairs = []
    for part in rest.split("|"):
        key, equals, value = part.partition("=")
        if key and equals:
            pairs.append(_Pair(key, value, at + len(key) + 1))
        at += len(part) + 1
    return pairs


def _likely(key: str) -> str | None:
    """Return the known key that ``key`` probably misspells, or None."""
    plain = _plain(key)
    for known in sorted(KEYS):
        if _plain(known) == plain:
            return known
        allowed = 0 if len(known) <= SHORT_KEY else 1 if len(known) < LONG_KEY else 2
        if abs(len(known) - len(key)) <= allowed and _distance(known, key) <= allowed:
            return known
    return None


def _plain(key: str) -> str:
    return key.strip().lower().replace("-", "").replace("_", "")


def _distance(one: str, other: str) -> int:
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
