"""A snapshot's counters, grouped into publications and images with their stages, and into the streams that they carry."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from mainstem.aeron.counters import CounterType
from mainstem.aeron.tools.archives import Archives
from mainstem.aeron.tools.snapshot import stream_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aeron.counters import CounterSnapshot
    from mainstem.aeron.tools.archives import ActiveRecording
    from mainstem.aeron.tools.log_state import LogState
    from mainstem.aeron.tools.snapshot import Snapshot, StreamKey

SPY_PREFIX = "aeron-spy:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The owner of a resource. ``heartbeat_ms`` is its last heartbeat."""

    client_id: int
    name: str = ""
    heartbeat_ms: int = 0

    @property
    def shown(self) -> str:
        return self.name or (str(self.client_id) if self.client_id >= 0 else "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """One subscription's position in a stream.

    ``archive_id`` is set if an archive has the subscription, and ``recording`` if it is recording the stream through it.
    """

    registration_id: int
    counter_id: int
    channel: str
    position: int
    join_position: int | None
    client: Client
    recording: ActiveRecording | None = None
    archive_id: int | None = None

    @property
    def is_spy(self) -> bool:
        return self.channel.startswith(SPY_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A publication's stages. A stage is None if the driver has no counter for it.

    ``subscribers`` are those that read the publication's log directly: spies, or all subscribers for IPC. ``purpose`` says what an
    archive publishes there, such as a replay. It is empty for publications that do not belong to an archive. ``log`` is its log
    buffer's metadata; None if it was not requested or cannot be read.
    """

    key: StreamKey
    client: Client
    limit: int
    position: int
    sender_position: int | None
    sender_limit: int | None
    back_pressure_events: int | None
    naks: int | None
    receivers: int | None
    destinations: int | None
    channel_status: int | None
    subscribers: tuple[Subscriber, ...]
    log: LogState | None
    purpose: str = ""

    @property
    def is_ipc(self) -> bool:
        return self.sender_position is None

    @property
    def window(self) -> int | None:
        """How far the producer can be ahead of its slowest consumer, in bytes."""
        if self.log is None:
            return None
        return self.log.publication_window_length or self.log.term_length // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A receiver's stages. ``cubic_window`` is the congestion window in bytes, if there is one."""

    key: StreamKey
    high_water_mark: int
    position: int
    naks: int | None
    cubic_window: int | None
    subscribers: tuple[Subscriber, ...]
    log: LogState | None

    @property
    def window(self) -> int | None:
        """How far the sender can be ahead of the slowest subscriber, in bytes, as configured."""
        if self.log is None or self.log.receiver_window_length <= 0:
            return None
        # The metadata contains the configured window, but the receiver never grants more than half a term.
        return min(self.log.receiver_window_length, self.log.term_length // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One stream as far as this driver sees it: its publication, its images, or both."""

    publication: Publication | None
    images: tuple[Image, ...]

    @property
    def key(self) -> StreamKey:
        return self.publication.key if self.publication else self.images[0].key

    @property
    def session_id(self) -> int:
        return self.key.session_id

    @property
    def stream_id(self) -> int:
        return self.key.stream_id

    @property
    def channel(self) -> str:
        return self.key.channel

    @property
    def subscribers(self) -> list[Subscriber]:
        """Those of the publication's log, then those of each image."""
        own = self.publication.subscribers if self.publication else ()
        return [*own, *(subscriber for image in self.images for subscriber in image.subscribers)]


class _Index:
    """An index of the counters by type and registration, so that grouping takes one pass."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.keys: dict[int, StreamKey] = {}
        self.by_type: dict[int, list[CounterSnapshot]] = {}
        self._values: dict[tuple[int, int], int] = {}
        self.logs = snapshot.logs
        self.archives = Archives(snapshot)
        self._clients = {client.client_id: client for client in clients(snapshot)}
        for counter in snapshot.counters:
            self.by_type.setdefault(counter.type_id, []).append(counter)
            key = stream_key(counter)
            if key is not None:
                self.keys[counter.counter_id] = key
                self._values.setdefault((counter.type_id, key.registration_id), counter.value)
            else:
                self._values.setdefault((counter.type_id, counter.registration_id), counter.value)

    def keyed(self, type_id: int) -> Iterator[tuple[CounterSnapshot, StreamKey]]:
        """Yield the counters of a type, with their streams."""
        for counter in self.by_type.get(type_id, ()):
            if (key := self.keys.get(counter.counter_id)) is not None:
                yield counter, key

    def value(self, type_id: int, registration_id: int) -> int | None:
        return self._values.get((type_id, registration_id))

    def client(self, client_id: int) -> Client:
        return self._clients.get(client_id, Client(client_id=client_id))

    def labelled(self, type_id: int, registration_id: int, word: str) -> int | None:
        """Return the value of the counter with ``word`` in its label, because some types have several counters per registration."""
        for counter, key in self.keyed(type_id):
            if key.registration_id == registration_id and word in counter.label.partition(":")[0]:
                return counter.value
        return None


def _client_name(label: str) -> str:
    _, separator, rest = label.partition(" name=")
    return rest.partition(" version=")[0].strip() if separator else ""


def clients(snapshot: Snapshot) -> tuple[Client, ...]:
    found = (
        Client(
            client_id=int.from_bytes(counter.key[0:8], "little", signed=True),
            name=_client_name(counter.label),
            heartbeat_ms=counter.value,
        )
        for counter in snapshot.counters
        if counter.type_id == CounterType.CLIENT_HEARTBEAT
    )
    return tuple(sorted(found, key=lambda client: (client.name, client.client_id)))


_grouped: WeakKeyDictionary[Snapshot, tuple[Stream, ...]] = WeakKeyDictionary()


def group_streams(snapshot: Snapshot) -> tuple[Stream, ...]:
    """Return all streams, ordered by stream id, session id and channel. A snapshot's streams are grouped once."""
    if snapshot not in _grouped:
        _grouped[snapshot] = _group(snapshot)
    return _grouped[snapshot]


def _group(snapshot: Snapshot) -> tuple[Stream, ...]:
    index = _Index(snapshot)
    followers = _subscribers(index)
    publications = [_publication(*each, index, followers) for each in index.keyed(CounterType.PUBLISHER_LIMIT)]
    rivals = Counter(_ids(publication) for publication in publications)
    images: dict[tuple[int, int], list[Image]] = {}
    for each in index.keyed(CounterType.RECEIVER_POSITION):
        image = _image(*each, index, followers)
        images.setdefault(_ids(image), []).append(image)
    streams = []
    for publication in publications:
        candidates = () if publication.is_ipc else images.get(_ids(publication), ())
        # Session ids that were chosen by hand can be the same on another address. In that case, compare the addresses.
        own = [each for each in candidates if rivals[_ids(publication)] == 1 or _share_address(publication, each)]
        for image in own:
            images[_ids(image)].remove(image)
        streams.append(Stream(publication=publication, images=tuple(own)))
    streams += [Stream(publication=None, images=(image,)) for left in images.values() for image in left]
    return tuple(sorted(streams, key=lambda s: (s.stream_id, s.session_id, s.channel)))


def _subscribers(index: _Index) -> dict[int, list[Subscriber]]:
    """Return the subscribers by the publication or image that they follow."""
    followers: dict[int, list[Subscriber]] = {}
    for counter, key in index.keyed(CounterType.SUBSCRIBER_POSITION):
        subscriber = Subscriber(
            registration_id=key.registration_id,
            counter_id=counter.counter_id,
            channel=key.channel,
            position=counter.value,
            join_position=key.join_position,
            client=index.client(counter.owner_id),
            recording=index.archives.recording(counter.owner_id, key),
            archive_id=index.archives.archive_of(counter.owner_id),
        )
        followers.setdefault(counter.reference_id, []).append(subscriber)
    return followers


def _publication(
    counter: CounterSnapshot, key: StreamKey, index: _Index, followers: dict[int, list[Subscriber]]
) -> Publication:
    own = key.registration_id
    log = index.logs.get(own)
    # Use the counter, not the log's tail: the driver sets it together with the limit, while the log was read a little later.
    position = index.value(CounterType.PUBLISHER_POSITION, own)
    if position is None:
        position = log.producer_position if log is not None else counter.value
    return Publication(
        key=key,
        client=index.client(counter.owner_id),
        limit=counter.value,
        position=position,
        sender_position=index.value(CounterType.SENDER_POSITION, own),
        sender_limit=index.value(CounterType.SENDER_LIMIT, own),
        back_pressure_events=index.value(CounterType.SENDER_BACK_PRESSURE_EVENTS, own),
        naks=index.value(CounterType.SENDER_NAKS_RECEIVED, own),
        receivers=index.value(CounterType.FLOW_CONTROL_RECEIVERS, own),
        destinations=index.value(CounterType.DESTINATIONS, own),
        channel_status=_channel_status(index, key),
        subscribers=tuple(followers.get(own, ())),
        log=log,
        purpose=index.archives.purpose(counter.owner_id, key),
    )


def _image(counter: CounterSnapshot, key: StreamKey, index: _Index, followers: dict[int, list[Subscriber]]) -> Image:
    own = key.registration_id
    mark = index.value(CounterType.RECEIVER_HIGH_WATER_MARK, own)
    return Image(
        key=key,
        high_water_mark=max(counter.value, mark if mark is not None else counter.value),
        position=counter.value,
        naks=index.value(CounterType.RECEIVER_NAKS_SENT, own),
        cubic_window=index.labelled(CounterType.PER_IMAGE, own, "wnd"),
        subscribers=tuple(followers.get(own, ())),
        log=index.logs.get(own),
    )


def _channel_status(index: _Index, key: StreamKey) -> int | None:
    """Return the send channel's status, which is registered under the first publication that shares the channel."""
    status = index.value(CounterType.SEND_CHANNEL_STATUS, key.registration_id)
    if status is not None:
        return status
    for counter in index.by_type.get(CounterType.SEND_CHANNEL_STATUS, ()):
        if counter.label.partition(": ")[2].partition(" ")[0] == key.channel:
            return counter.value
    return None


def _ids(end: Publication | Image) -> tuple[int, int]:
    return end.key.session_id, end.key.stream_id


def _share_address(publication: Publication, image: Image) -> bool:
    return bool(_addresses(publication.key.channel) & _addresses(image.key.channel))


def _addresses(channel: str) -> set[str]:
    parameters = channel.partition("?")[2].split("|")
    return {p.partition("=")[2] for p in parameters if p.startswith(("endpoint=", "control="))}
