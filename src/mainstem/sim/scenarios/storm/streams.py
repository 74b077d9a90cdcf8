"""Streams that outlive their programs. Whole images may be lost, but never a message inside one.

Each message names its stream, the incarnation of its publication and its number there; the remaining bytes follow from these. So
a reader recognizes a message that is invented, lost, duplicated, out of order or changed without a list of those in flight.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random
from struct import Struct
from typing import TYPE_CHECKING

from mainstem.sim.checkers import CHECKED, Violation
from mainstem.sim.scenarios.storm.workload import GONE, Workload, runs

if TYPE_CHECKING:
    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.publication import ExclusivePublication, Publication
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.sim.host import Host
    from mainstem.sim.world import World

_HEADER = Struct("<HIII")  # stream, incarnation, number in it, length of the filling
_FILLING = Random(1).randbytes(1 << 16)
MAX_FILLING = 4_000


def message(stream: int, incarnation: int, number: int) -> bytes:
    start = (stream * 7_919 + incarnation * 104_729 + number * 1_299_709) % (len(_FILLING) - MAX_FILLING)
    length = (number * 2_654_435_761 % MAX_FILLING) * (number % 3) // 2  # a third of them are empty
    return _HEADER.pack(stream, incarnation, number, length) + _FILLING[start : start + length]


class Reader:
    """One subscription to a stream, added again whenever its client is replaced."""

    def __init__(self, stream: StreamWorkload, host: Host, channel: str) -> None:
        self.stream = stream
        self.host = host
        self.channel = channel
        self.newest = (-1, -1)  # incarnation and number of the last message
        self.subscription: Subscription | None = None
        self._images: dict[int, tuple[int, int, int]] = {}
        self._starts = -1

    def poll(self) -> None:
        if self.subscription is None or self._starts != self.host.starts or self.subscription.closed:
            self.subscription = None
            self._starts = self.host.starts
            self._images = {}
            self.subscription = self.host.aeron.add_subscription(self.channel, self.stream.stream_id)
        for image in self.subscription.images:
            image.poll_messages(partial(self._on_message, image.correlation_id), 10)

    def leave(self) -> None:
        """Close the subscription, so that it does not stall the stream."""
        if self.subscription is not None and not self.subscription.closed:
            with suppress(*GONE):
                self.subscription.close()
        self.subscription = None

    def _on_message(self, key: int, fragment: Fragment) -> None:
        if self.stream.world.network.has_damaged:
            # No part of the protocol but UDP's checksum holds the content, and here it did not.
            return
        payload, position = bytes(fragment), fragment.header.position
        name = f"stream {self.stream.number} at {self.host.name}"
        incarnation, number = self.stream.checked(payload, name)
        before = self._images.get(key)
        if before is not None and not self.stream.follows(before[:2], (incarnation, number)):
            raise Violation(f"{name}: {incarnation}:{number} follows {before[0]}:{before[1]} in one image")
        if before is not None and position <= before[2]:
            raise Violation(f"{name}: position went from {before[2]} to {position} in one image")
        self._images[key] = (incarnation, number, position)
        self.newest = (incarnation, number)
        CHECKED.messages += 1
        CHECKED.bytes += len(payload)


class StreamWorkload(Workload):
    """One stream: a publication, added again whenever it is gone, and its readers."""

    def __init__(self, number: int, world: World, host: Host, channel: str, *, is_exclusive: bool) -> None:
        self.number = number
        self.stream_id = 1_001 + number
        self.host = host
        self.world = world
        self.channel = channel
        self.readers: list[Reader] = []
        self.offered: dict[int, int] = {}
        self.incarnation = -1
        self.publication: Publication | ExclusivePublication | None = None
        self._goal = 0
        self._is_exclusive = is_exclusive
        self._starts = -1

    def read_by(self, host: Host, channel: str) -> None:
        self.readers.append(Reader(self, host, channel))

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:
        for reader in self.readers:
            if runs(reader.host) and self.world.rng.random() >= pause_probability.get(reader.host.name, 0.0):
                try:
                    reader.poll()
                except GONE:
                    reader.leave()
        if offers and runs(self.host):
            try:
                self._offer()
            except GONE:
                self.publication = None

    def _offer(self) -> None:
        if self.publication is None or self._starts != self.host.starts or self.publication.closed:
            self.publication = None
            self._starts = self.host.starts
            aeron = self.host.aeron
            add = aeron.add_exclusive_publication if self._is_exclusive else aeron.add_publication
            self.publication = add(self.channel, self.stream_id)
            self.incarnation += 1
            self.offered[self.incarnation] = 0
        number = self.offered[self.incarnation]
        # Counted before: a reader in the same memory may have it at once.
        self.offered[self.incarnation] = number + 1
        if self.publication.offer(message(self.number, self.incarnation, number)) < 0:
            self.offered[self.incarnation] = number

    def checked(self, payload: bytes, name: str) -> tuple[int, int]:
        """Return the incarnation and number of a message. Raises Violation if it is not from this stream."""
        stream, incarnation, number, _ = _HEADER.unpack_from(payload)
        if stream != self.number or number >= self.offered.get(incarnation, 0):
            raise Violation(
                f"{name}: message {number} of incarnation {incarnation} of stream {stream} was never offered"
            )
        if payload != message(stream, incarnation, number):
            raise Violation(f"{name}: message {number} of incarnation {incarnation} has other bytes than were offered")
        return incarnation, number

    def follows(self, before: tuple[int, int], after: tuple[int, int]) -> bool:
        """Whether one message directly follows another in a log.

        A shared publication outlives the client that added it: its successor continues after the last message.
        """
        if before[0] == after[0]:
            return before[1] + 1 == after[1]
        between = range(before[0] + 1, after[0])
        return (
            before[0] < after[0]
            and after[1] == 0
            and before[1] + 1 == self.offered[before[0]]
            and not any(self.offered[each] for each in between)
        )

    def restart(self) -> None:
        for end in (self.publication, *(reader.subscription for reader in self.readers)):
            if end is not None and not end.closed:
                end.close()

    @property
    def is_connected(self) -> bool:
        publication = self.publication
        return (
            publication is not None
            and not publication.closed
            and publication.is_connected
            and all(
                reader.subscription is not None
                and any(image.session_id == publication.session_id for image in reader.subscription.images)
                for reader in self.readers
            )
        )

    def aim(self, count: int) -> None:
        self._goal = self.offered[self.incarnation] + count

    @property
    def has_offered(self) -> bool:
        return self.offered.get(self.incarnation, 0) >= self._goal

    @property
    def is_read(self) -> bool:
        last = (self.incarnation, self.offered.get(self.incarnation, 0) - 1)
        return all(reader.newest == last for reader in self.readers)
