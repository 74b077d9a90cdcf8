"""Events that an archive publishes about its recordings: started, progress, and stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from mainstem._internal.frozen import frozen
from mainstem.aeron.client.subscription import Subscription
from mainstem.archive.messages import MessageReader

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

S = TypeVar("S")


@frozen
class RecordingStarted:
    """A recording started, or was extended.

    Attributes:
        recording_id: The recording.
        start_position: The position of the stream at which the archive joined it, in bytes.
        session_id: The stream's session id.
        stream_id: The stream id.
        channel: The channel that the archive was asked to record.
        source_identity: The address that the stream comes from.
    """

    recording_id: int
    start_position: int
    session_id: int
    stream_id: int
    channel: str
    source_identity: str


@frozen
class RecordingProgress:
    """A recording grew. Events are samples: an archive may skip positions.

    Attributes:
        recording_id: The recording.
        start_position: The position of the stream at which the archive joined it, in bytes.
        position: The position up to which the stream has been recorded, in bytes.
    """

    recording_id: int
    start_position: int
    position: int


@frozen
class RecordingStopped:
    """A recording stopped.

    Attributes:
        recording_id: The recording.
        start_position: The position of the stream at which the archive joined it, in bytes.
        stop_position: The position at which the recording ends, in bytes.
    """

    recording_id: int
    start_position: int
    stop_position: int


_KINDS = {each.__name__: each for each in (RecordingStarted, RecordingProgress, RecordingStopped)}


class RecordingEventsBase(Generic[S]):
    """The part that never blocks."""

    def __init__(self, subscription: S) -> None:
        self.subscription = subscription
        self._reader = MessageReader()

    @property
    def refused(self) -> Counter[str]:
        """How many messages could not be decoded, by the rule that they violate."""
        return self._reader.refused

    def _event_of(self, data: bytes) -> RecordingStarted | RecordingProgress | RecordingStopped | None:
        """Return the event in a message; None if it is another message."""
        message = self._reader.read(data)
        kind = None if message is None else _KINDS.get(message.name)
        return None if message is None or kind is None else kind(**message.values)

    def __repr__(self) -> str:
        return f"<RecordingEvents of {self.subscription!r}>"


class RecordingEvents(RecordingEventsBase[Subscription]):
    """The recording events of an archive, read from a subscription to its events channel.

    The archive must be configured to publish them (``recording_events_channel``). They cover every recording of the archive,
    require no session with it, and can be received by any number of subscribers. The archive does not wait for subscribers: one
    that falls behind misses events.

    Args:
        subscription: A subscription to the archive's events channel, whose stream id is 30 by default. The caller closes it.

    Attributes:
        subscription: The subscription.

    Example:
        >>> channel = "aeron:udp?control=localhost:8030|endpoint=localhost:0"
        >>> with aeron.add_subscription(channel, 30) as subscription:
        ...     for event in RecordingEvents(subscription):
        ...         print(event)
    """

    def __iter__(self) -> Iterator[RecordingStarted | RecordingProgress | RecordingStopped]:
        """Iterate over `events` without a timeout."""
        return self.events()

    def events(
        self, *, timeout: float | None = None
    ) -> Iterator[RecordingStarted | RecordingProgress | RecordingStopped]:
        """Yield events as they arrive, until the archive ends or the subscription is closed.

        Args:
            timeout: Seconds to wait for the next event; None waits forever.

        Yields:
            One event after another. An event that was not consumed comes in the next iteration.

        Raises:
            MainstemError: The same errors as for ``messages`` of the subscription.
        """
        for data in self.subscription.messages(timeout=timeout):
            event = self._event_of(data)
            if event is not None:
                yield event
