"""The names of a driver's counters: type ids, keys and labels (docs/protocols/aeron.md, 8.3 to 8.6)."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mainstem._core.layout import COUNTER_KEY_MAX_LENGTH, COUNTER_LABEL_MAX_LENGTH
from mainstem._core.system_counter import DescribedId
from mainstem._internal.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem._core.memory.counters import CountersReader

# The space that remains for the channel after the fixed part of each 112-byte key. Longer channels are truncated.
STREAM_CHANNEL_LENGTH = COUNTER_KEY_MAX_LENGTH - 20
STATUS_CHANNEL_LENGTH = COUNTER_KEY_MAX_LENGTH - 4
ADDRESS_LENGTH = COUNTER_KEY_MAX_LENGTH - 8

_STREAM_KEY = struct.Struct("<qiii")
_I32 = struct.Struct("<i")
_I32_I32 = struct.Struct("<ii")
_I64 = struct.Struct("<q")


class CounterType(DescribedId):
    SYSTEM = 0, "", "what the driver itself counts"
    PUBLISHER_LIMIT = 1, "pub-lmt", "the position up to which publishers may claim"
    SENDER_POSITION = 2, "snd-pos", "the position up to which was sent"
    RECEIVER_HIGH_WATER_MARK = 3, "rcv-hwm", "the highest position that was received"
    SUBSCRIBER_POSITION = 4, "sub-pos", "the position up to which a subscriber has read; one for each subscriber"
    RECEIVER_POSITION = 5, "rcv-pos", "the position below which nothing is missing"
    SEND_CHANNEL_STATUS = 6, "", "a sending channel: -1 error, 0 initializing, 1 active, 2 closing"
    RECEIVE_CHANNEL_STATUS = 7, "", "a receiving channel: the same values"
    SENDER_LIMIT = 9, "snd-lmt", "the position up to which may be sent"
    PER_IMAGE = 10, "", "a counter of one image, such as its congestion control's"
    CLIENT_HEARTBEAT = 11, "", "a client's last heartbeat, in milliseconds since 1970; its name is in the label"
    PUBLISHER_POSITION = 12, "pub-pos", "the position up to which publishers have claimed"
    SENDER_BACK_PRESSURE_EVENTS = 13, "snd-bpe", "times that the stream had data and no window"
    LOCAL_ADDRESS = 14, "", "the address that a socket is bound to, in the label"
    RESOLVER_NEIGHBORS = 15, "", "drivers that exchange names with this one"
    RESOLVER_CACHE_ENTRIES = 16, "", "names that are known by exchange"
    FLOW_CONTROL_RECEIVERS = 17, "fc-receivers", "receivers that flow control waits for"
    DESTINATIONS = 18, "", "destinations of a multi-destination-cast"
    SENDER_NAKS_RECEIVED = 19, "snd-naks-received", "NAKs for this stream received"
    RECEIVER_NAKS_SENT = 20, "rcv-naks-sent", "NAKs for this image sent"
    BOOTSTRAP_NEIGHBOR = 21, "", "whether the neighbor in the label, of those to begin with, has sent anything"
    NAME_TABLE_ROW = 2001, "", "which address of a csv_table's row is used: 0 the first, 1 the second, -1 none"


class ArchiveCounterType(DescribedId):
    """Types of the counters that an Aeron Archive and its clients allocate.

    Their labels are free text, so this enumeration gives them names.
    """

    RECORDING_POSITION = 100, "rec-pos", "the position up to which a recording is written; freed when it stops"
    ERRORS = 101, "archive-errors", "errors of the archive"
    CONTROL_SESSIONS = 102, "archive-control-sessions", "clients that are connected to the archive"
    MAX_CYCLE_TIME = 103, "archive-max-cycle-time", "the longest duty cycle of an agent of the archive, in ns"
    CYCLE_TIME_EXCEEDED = 104, "archive-cycle-time-exceeded", "duty cycles that took longer than their threshold"
    RECORDER_MAX_WRITE_TIME = 105, "archive-max-write-time", "the longest write of the recorder, in ns"
    RECORDER_WRITE_BYTES = 106, "archive-write-bytes", "bytes that the recorder has written"
    RECORDER_WRITE_TIME = 107, "archive-write-time", "how long the recorder has been writing, in ns"
    REPLAYER_MAX_READ_TIME = 108, "archive-max-read-time", "the longest read of the replayer, in ns"
    REPLAYER_READ_BYTES = 109, "archive-read-bytes", "bytes that the replayer has read"
    REPLAYER_READ_TIME = 110, "archive-read-time", "how long the replayer has been reading, in ns"
    RECORDING_SESSIONS = 111, "archive-recordings", "recordings that are active"
    REPLAY_SESSIONS = 112, "archive-replays", "replays that are active"
    CONTROL_SESSION = 113, "control-session", "the id of a control session; its client is in the label"
    PERSISTENT_SUBSCRIPTION_STATE = 114, "persistent-subscription-state", "the state of a persistent subscription"
    PERSISTENT_SUBSCRIPTION_JOIN_DIFFERENCE = (
        115,
        "persistent-subscription-join-difference",
        "how far the live stream is ahead of the replay, in bytes; -2^63 if that is not known",
    )
    PERSISTENT_SUBSCRIPTION_LIVE_LEFT = 116, "persistent-subscription-live-left", "times that it fell back to a replay"
    PERSISTENT_SUBSCRIPTION_LIVE_JOINED = (
        117,
        "persistent-subscription-live-joined",
        "times that it joined the live stream",
    )


STREAM_COUNTER_TYPES = frozenset(kind for kind in CounterType if kind.label)


class ChannelStatus(IntEnum):
    """Values of the channel status counters."""

    ERRORED = -1
    INITIALIZING = 0
    ACTIVE = 1
    CLOSING = 2


class Gauge(Protocol):
    """A counter that shows a current value."""

    def set_release(self, value: int) -> None: ...


class CounterSpec(NamedTuple):
    """The type, key and label of a counter: ``manager.allocate(*spec, now_ms=...)`` creates it."""

    type_id: int
    key: bytes
    label: str


class StreamKey(NamedTuple):
    """The key of a stream's counter. The channel may be truncated."""

    registration_id: int
    session_id: int
    stream_id: int
    channel: str


def stream_counter(
    type_id: CounterType, registration_id: int, *, session_id: int, stream_id: int, channel: str, name: str = ""
) -> CounterSpec:
    """Return the counter of one stream. Only PER_IMAGE counters need ``name``."""
    name = name or type_id.label
    data = _text(channel, STREAM_CHANNEL_LENGTH)
    key = _STREAM_KEY.pack(registration_id, session_id, stream_id, len(data)) + data
    return CounterSpec(type_id, key, _label(f"{name}: {registration_id} {session_id} {stream_id} {channel}"))


def publisher_position(
    registration_id: int, *, session_id: int, stream_id: int, channel: str, exclusive: bool
) -> CounterSpec:
    """Return the counter of how far a publication has been written."""
    name = "pub-pos (exclusive)" if exclusive else "pub-pos (concurrent)"
    kind = CounterType.PUBLISHER_POSITION
    return stream_counter(kind, registration_id, session_id=session_id, stream_id=stream_id, channel=channel, name=name)


def subscriber_position(
    registration_id: int, *, session_id: int, stream_id: int, channel: str, join_position: int
) -> CounterSpec:
    """Return the counter of how far a subscriber has read. Its label ends with the join position."""
    kind = CounterType.SUBSCRIBER_POSITION
    spec = stream_counter(kind, registration_id, session_id=session_id, stream_id=stream_id, channel=channel)
    suffix = f" @{join_position}"
    return spec._replace(label=spec.label[: COUNTER_LABEL_MAX_LENGTH - len(suffix)] + suffix)


def send_channel_status(channel: str, bind_address: str) -> CounterSpec:
    return _channel_counter(CounterType.SEND_CHANNEL_STATUS, "snd-channel", channel, bind_address)


def receive_channel_status(channel: str, bind_address: str) -> CounterSpec:
    return _channel_counter(CounterType.RECEIVE_CHANNEL_STATUS, "rcv-channel", channel, bind_address)


def destinations(channel: str) -> CounterSpec:
    return _channel_counter(CounterType.DESTINATIONS, "mdc-num-dest", channel, "")


def _channel_counter(type_id: CounterType, name: str, channel: str, address: str) -> CounterSpec:
    data = _text(channel, STATUS_CHANNEL_LENGTH)
    label = f"{name}: {channel} {address}".rstrip()
    return CounterSpec(type_id, _I32.pack(len(data)) + data, _label(label))


def local_address(channel_status_id: int, address: str, *, receive: bool) -> CounterSpec:
    """Return the counter of an address that an endpoint is bound to, with its actual port. Its value is a ChannelStatus."""
    data = _text(address, ADDRESS_LENGTH)
    name = "rcv-local-sockaddr" if receive else "snd-local-sockaddr"
    key = _I32_I32.pack(channel_status_id, len(data)) + data
    return CounterSpec(CounterType.LOCAL_ADDRESS, key, _label(f"{name}: {channel_status_id} {address}"))


def client_heartbeat(client_id: int) -> CounterSpec:
    """Return the counter of a client's last heartbeat, in epoch milliseconds."""
    return CounterSpec(CounterType.CLIENT_HEARTBEAT, _I64.pack(client_id), f"client-heartbeat: id={client_id}")


def resolver_neighbors(bound: str) -> CounterSpec:
    """Return the counter of how many other drivers' resolvers are known."""
    return CounterSpec(CounterType.RESOLVER_NEIGHBORS, b"", _label(f"Resolver neighbors: bound {bound}"))


def resolver_cache_entries(name: str) -> CounterSpec:
    """Return the counter of how many names other drivers have announced."""
    return CounterSpec(CounterType.RESOLVER_CACHE_ENTRIES, b"", _label(f"Resolver cache entries: name={name}"))


def bootstrap_neighbor(index: int, name: str, address: str = "") -> CounterSpec:
    """Return the counter that is 1 once a bootstrap neighbor has sent anything, else 0.

    ``index`` is the neighbor's place in the settings, from 0. ``address`` is its resolved address, if known.
    """
    label = _label(f"Bootstrap neighbor: name={name} resolved={address}")
    return CounterSpec(CounterType.BOOTSTRAP_NEIGHBOR, _I32.pack(index), label)


def name_table_row(name: str, address: str, second: str) -> CounterSpec:
    """Return the counter that selects the address of a ``csv_table``'s row: 0 the first, 1 the second, -1 none."""
    data = _text(name, STATUS_CHANNEL_LENGTH)
    label = f"NameEntry{{name='{name}', initialResolutionHost='{address}', reResolutionHost='{second}'}}"
    return CounterSpec(CounterType.NAME_TABLE_ROW, _I32.pack(len(data)) + data, _label(label))


def parse_stream_key(key: bytes) -> StreamKey:
    registration_id, session_id, stream_id, length = _STREAM_KEY.unpack_from(key)
    return StreamKey(registration_id, session_id, stream_id, _cut(key, 20, length))


def parse_local_address_key(key: bytes) -> tuple[int, str]:
    """Return the id of the channel status counter, and the address."""
    channel_status_id, length = _I32_I32.unpack_from(key)
    return channel_status_id, _cut(key, 8, length)


def _text(text: str, limit: int) -> bytes:
    return text.encode("utf-8", "replace")[:limit]


def _label(text: str) -> str:
    return text[:COUNTER_LABEL_MAX_LENGTH]


def _cut(key: bytes, start: int, length: int) -> str:
    return key[start : start + max(length, 0)].decode("utf-8", "replace")


def find_local_addresses(reader: CountersReader, channel_status_id: int) -> list[str]:
    addresses = []
    for counter_id in reader:
        if reader.type_id(counter_id) != CounterType.LOCAL_ADDRESS:
            continue
        endpoint, text = parse_local_address_key(reader.key(counter_id))
        if endpoint == channel_status_id and reader.value(counter_id) == ChannelStatus.ACTIVE:
            addresses.append(text)
    return addresses


@frozen
class CounterSnapshot:
    counter_id: int
    type_id: int
    value: int
    registration_id: int
    owner_id: int
    reference_id: int
    key: bytes
    label: str


def snapshot(reader: CountersReader) -> Iterator[CounterSnapshot]:
    for counter_id in reader:
        yield CounterSnapshot(
            counter_id=counter_id,
            type_id=reader.type_id(counter_id),
            value=reader.value(counter_id),
            registration_id=reader.registration_id(counter_id),
            owner_id=reader.owner_id(counter_id),
            reference_id=reader.reference_id(counter_id),
            key=reader.key(counter_id),
            label=reader.label(counter_id),
        )
