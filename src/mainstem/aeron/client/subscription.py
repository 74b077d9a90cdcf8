"""Subscriptions. Compiled readers do the polling."""

from __future__ import annotations

from functools import partial
from operator import length_hint
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar, overload

from mainstem._core.log.columns import Columns
from mainstem._core.log.read import SubscriptionReader
from mainstem._internal.clock import Deadline, timeout_of
from mainstem.aeron.client.arrow import COLUMNS, poll_arrow
from mainstem.aeron.client.image import ImageBase
from mainstem.aeron.client.polled import polled
from mainstem.aeron.client.resource import Destinations, Resource, StreamEnd
from mainstem.aeron.client.stats import SubscriptionStats
from mainstem.aeron.client.waiting import Wait, Waiting, run
from mainstem.errors import ClosedError, CorruptLogError, LocalProtocolError, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from mainstem._core.log.read import Message
    from mainstem.aeron.client.operation import Conductor, Operation
    from mainstem.aeron.client.waiting import Steps
    from mainstem.aeron.command.responses import OnAvailableImage, OnUnavailableImage

I = TypeVar("I", bound=ImageBase)  # noqa: E741 - an image

MESSAGES_AT_ONCE = 256  # how many messages an iterator takes from the log before it yields the first one


class Feed(Protocol):
    """A source of a subscription with a known end, such as a replay.

    Attributes:
        image: The image that was removed last.
    """

    image: Any

    @property
    def is_lost(self) -> bool:
        """Whether no image will arrive."""
        ...

    def check(self, subscription: Any) -> Any:
        """Raise an error if the images ended before the source did. Return a coroutine in asyncio."""
        ...


def next_batch(
    conductor: Conductor,
    owner: Any,
    take: Callable[[], Iterator[Any] | None],
    end: StreamEnd,
    timeout: float | None,
    waits_for: SubscriptionReader | None = None,
) -> Steps[Iterator[Any] | None]:
    """Wait until ``take`` finds messages, and return them; None once the streams of a subscription or poller have ended."""
    deadline = Deadline(conductor.context.clock, timeout)
    while not end.is_reached():
        if (left := deadline.left) == 0:
            if end.is_seen:
                break
            raise Timeout(f"no message arrived on {owner!r} within {timeout:g} s", timeout=timeout)
        yield Wait(left, waits_for)
        if (batch := take()) is not None:
            return batch
    conductor.raise_failure()
    return None


def iterate(
    get_conductor: Callable[[], Conductor | None],
    owner: Any,
    take: Callable[[], Iterator[Any] | None],
    has_ended: Callable[[], bool],
    timeout: float | None,
    *,
    waits_for: SubscriptionReader | None = None,
    at_end: Callable[[], None] | None = None,
) -> Iterator[Any]:
    """Yield messages, batch by batch, until the streams of a subscription or poller have ended.

    A poller has no conductor before its first subscription.
    """
    conductor = get_conductor()
    if conductor is None:
        return
    timeout = timeout_of(timeout)
    waiting = Waiting(conductor.invokers)
    end = StreamEnd(conductor, has_ended)
    while True:
        if (batch := take()) is None:
            waiting.restart()
            batch = run(next_batch(conductor, owner, take, end, timeout, waits_for), waiting)
            if batch is None:
                break
        yield from batch
    if at_end is not None:
        at_end()


class SubscriptionBase(Resource, SubscriptionReader, Generic[I]):
    """The part of a subscription that both variants share."""

    _image_kind: ClassVar[type[ImageBase]]
    images: tuple[I, ...]

    def __init__(
        self,
        conductor: Conductor,
        registration_id: int,
        channel: str,
        stream_id: int,
        channel_status_id: int,
        on_available_image: Callable[[Image], object] | None,
        on_unavailable_image: Callable[[Image], object] | None,
    ) -> None:
        super().__init__()
        self._open(conductor, registration_id)
        self._is_invoked = bool(conductor.invokers)
        self.channel = channel
        self.stream_id = stream_id
        self.channel_status_id = channel_status_id
        self.on_available_image = on_available_image
        self.on_unavailable_image = on_unavailable_image
        self._had_image = False
        self._feed: Feed | None = None
        self._next_arrow = 0
        self._columns = Columns(COLUMNS)
        self._taken: Iterator[Any] = iter(())
        self._taken_with_metadata = False

    @property
    def is_connected(self) -> bool:
        """Whether there is an image to read from."""
        return any(not image.closed for image in self.images)

    @property
    def is_end_of_stream(self) -> bool:
        """Whether the subscription has had images and all of them have ended and been read."""
        return self._had_image and all(image.is_end_of_stream for image in self.images)

    def _has_ended(self) -> bool:
        """Return whether an iterator has nothing left to wait for."""
        if self._closed or self.is_end_of_stream:
            return True
        return self._feed is not None and not self._had_image and self._feed.is_lost

    def image_by_session_id(self, session_id: int) -> I | None:
        """Return the image with a ``session_id``, or None if there is none."""
        return next((image for image in self.images if image.session_id == session_id), None)

    def stats(self) -> SubscriptionStats:
        """Return the subscription's images with their positions."""
        return SubscriptionStats(self.channel, self.stream_id, tuple(image.stats() for image in self.images))

    def _taken_messages(self, metadata: bool) -> Iterator[Any]:
        """Return the messages that an iterator took but did not yield. All callers share one iterator.

        Raises LocalProtocolError if ``metadata`` is true but the messages were taken without metadata.
        """
        if metadata == self._taken_with_metadata:
            return self._taken
        rest: list[Any] = []
        kept, taken = iter(rest), self._taken
        # The next two lines call no function, so no signal handler runs between them.
        rest += taken
        self._taken = kept
        if not rest:
            return self._taken
        if metadata:
            raise LocalProtocolError(
                f"{self!r}: an iterator without metadata was left with {len(rest)} messages: iterate without metadata first"
            )
        payloads = iter([message.payload for message in rest])
        self._taken, self._taken_with_metadata = payloads, False
        return self._taken

    def _take_messages(self, limit: int, metadata: bool) -> Iterator[Any] | None:
        """Take up to ``limit`` messages, beginning with those left over from other iterators. Return None if there are none.

        Messages that are not yielded stay with the subscription. Raises LocalProtocolError in the same case as ``messages``.
        """
        rest = self._taken_messages(metadata)
        if length_hint(rest):
            return rest
        batch: list[Any] = []
        taken = iter(batch)
        # Store the iterator before the messages leave the log, so that none is lost if a signal handler raises here.
        self._taken, self._taken_with_metadata = taken, metadata
        batch.extend(polled(self.poll_with_metadata if metadata else self.poll_bytes, limit))
        return taken if batch else None

    def _receiving(self, timeout: float | None) -> Steps[Iterator[bytes]]:
        """Wait for a message and return an iterator over it and later ones; over none once the streams have ended."""
        take = partial(self._take_messages, MESSAGES_AT_ONCE, False)
        batch = take()
        if batch is None:
            end = StreamEnd(self._conductor, self._has_ended)
            batch = yield from next_batch(self._conductor, self, take, end, timeout_of(timeout), self)
        return iter(()) if batch is None else batch

    def _nothing_follows(self) -> ClosedError:
        return ClosedError(f"{self!r} is closed" if self._closed else f"every stream of {self!r} has ended")

    def _waiting_for_data(self, timeout: float | None) -> Steps[bool]:
        deadline = Deadline(self._conductor.context.clock, timeout)
        while not self.has_data():
            if self._closed or (left := deadline.left) == 0:
                return False
            yield Wait(left, self)
        return True

    def _taking_arrow(self, limit: int, timeout: float | None) -> Steps[pa.RecordBatch]:
        if not (yield from self._waiting_for_data(timeout)):
            self._conductor.raise_failure()
            raise Timeout(f"no message arrived on {self!r}", timeout=timeout)
        return self.poll_arrow(limit)

    def poll_arrow(self, limit: int = 4096) -> pa.RecordBatch:
        """Return whole messages of all images as a record batch.

        Args:
            limit: The maximum number of messages.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload. It has no rows if there are no messages.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        images = self.images
        first = self._next_arrow % len(images) if images else 0
        self._next_arrow = first + 1
        return poll_arrow(images[first:] + images[:first], limit, self._columns)

    def _add_image(self, image: I) -> None:
        self._had_image = True
        self._set_images((*self.images, image))

    def _remove_image(self, correlation_id: int) -> I | None:
        """Close an image and return it, unless there is none."""
        image = next((image for image in self.images if image.correlation_id == correlation_id), None)
        if image is not None:
            self._set_images(other for other in self.images if other is not image)
            if self._feed is not None:
                self._feed.image = image
            self._close_image(image)
        return image

    def _close_image(self, image: ImageBase) -> None:
        if not image.closed:
            log = image.log
            image._detach()
            self._conductor.logs.linger(log)

    def _leave_to_parent(self) -> None:
        """Close in a forked child. The images stay open, because their positions belong to the parent."""
        self._closed = True
        self._taken = iter(())
        self._set_images(())

    def _release(self) -> None:
        self._closed = True
        images = self.images
        self._set_images(())
        for image in images:
            self._close_image(image)


def add_image(subscription: SubscriptionBase[Any], ready: OnAvailableImage, conductor: Conductor) -> None:
    """Map an image's log, tell the application, and then add the image, unless its handler has closed the subscription."""
    if any(image.correlation_id == ready.image_correlation_id for image in subscription.images):
        return
    # As in the reference, the image is not rejected: that would take the stream from the driver's other subscriptions, too.
    lost = (
        f"{subscription!r} does not receive session {ready.session_id}, and may stall its publisher until it is closed"
    )
    on_error = conductor.context.on_error
    try:
        log = conductor.logs.map(ready.log_file)
    except OSError as error:
        # Often, the driver has deleted the log already.
        conductor.guard(on_error, OSError(error.errno, f"{lost}: {error.strerror}", ready.log_file))
        return
    try:
        with conductor.logs.naming(log, ready.log_file):
            image = subscription._image_kind(
                conductor,
                subscription,
                log,
                conductor.counters.values,
                ready.subscriber_position_id,
                ready.source_identity,
                ready.log_file,
                conductor.cnc.start_timestamp_ms,
            )
    except CorruptLogError as error:
        conductor.guard(on_error, CorruptLogError(f"{lost}: {error}", log_file=error.log_file, position=error.position))
        return
    if subscription.on_available_image is not None:
        conductor.guard(subscription.on_available_image, image)
    if subscription.closed:
        subscription._close_image(image)
    else:
        subscription._add_image(image)


def remove_image(subscription: SubscriptionBase[Any], gone: OnUnavailableImage, conductor: Conductor) -> None:
    """Close an image, and then tell the application."""
    image = subscription._remove_image(gone.image_correlation_id)
    if image is not None and subscription.on_unavailable_image is not None:
        conductor.guard(subscription.on_unavailable_image, image)


class Image(ImageBase):
    """One publication's stream in a subscription. Poll it from one thread.

    A subscription polls all of its images in turn; an image's own poll methods read only that image.

    Attributes:
        subscription: The subscription that the image belongs to.
        log_file: The path of its log buffer file.
        source_identity: Where the stream comes from: ``ip:port``, or ``aeron:ipc``.
        driver_start_ms: When the driver started, in milliseconds since the epoch. Together with ``correlation_id``, it identifies
            the image.
        session_id: The publication's session id.
        position: The position up to which this subscriber has read.

    Example:
        >>> for image in subscription.images:
        ...     print(image.source_identity, image.position)
    """

    subscription: Subscription

    def reject(self, reason: str, *, timeout: float | None = None) -> None:
        """Reject the stream. Its publisher receives the reason, and the image becomes unavailable.

        Args:
            reason: The reason, at most 1023 bytes.
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

        Raises:
            RegistrationError: The driver refused the command.
            DriverTimeout: The driver did not respond in time.
        """
        timeout = timeout_of(timeout)
        self.async_reject(reason).wait(timeout)

    def async_reject(self, reason: str) -> Operation[None]:
        """Reject the stream without waiting. ``reason`` has at most 1023 bytes.

        Returns:
            The pending operation.
        """
        return self._conductor.reject_image(self, reason)


class Subscription(SubscriptionBase[Image], Destinations):
    """A subscription to a channel and a stream id. Iterating over it yields whole messages, like ``messages()``.

    ``poll`` and its variants never wait; ``receive``, ``messages``, ``wait_for_data`` and ``next_arrow`` do. Only one thread may
    poll.

    Attributes:
        channel: The channel that the subscription was added with.
        stream_id: The stream id.
        registration_id: The correlation id of the command that added the subscription.
        images: A tuple of the streams that the subscription receives, one for each publication.

    Example:
        >>> with aeron.add_subscription("aeron:ipc", 1001) as subscription:
        ...     for message in subscription:
        ...         print(message)
    """

    _image_kind = Image

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over `messages` without a timeout."""
        return self.messages()

    @overload
    def messages(self, *, timeout: float | None = None, metadata: Literal[False] = False) -> Iterator[bytes]: ...

    @overload
    def messages(self, *, timeout: float | None = None, metadata: Literal[True]) -> Iterator[Message]: ...

    @overload
    def messages(self, *, timeout: float | None = None, metadata: bool) -> Iterator[bytes] | Iterator[Message]: ...

    def messages(self, *, timeout: float | None = None, metadata: bool = False) -> Iterator[bytes] | Iterator[Message]:
        """Yield whole messages as they arrive until every image has ended or the subscription is closed.

        Leaving the iterator, through ``break`` or a timeout, loses no message: the next iterator continues after the last message
        that was yielded. ``poll`` does not see the messages that an iterator has taken from the log (at most 256).

        Args:
            timeout: Seconds to wait for the next message; None waits forever.
            metadata: Whether to yield ``Message`` objects (with position, session, reserved value and image) instead of bytes.

        Yields:
            The next message.

        Raises:
            Timeout: Nothing arrived for ``timeout`` seconds.
            DriverTimeout: The driver shut down or stopped responding.
            ClientTimeout: The driver timed this client out.
            LocalProtocolError: An iterator without metadata still has messages that it took but did not yield.

        Example:
            >>> for message in subscription.messages(timeout=10.0, metadata=True):
            ...     print(message.position, message.session_id, message.payload)
        """
        take = partial(self._take_messages, MESSAGES_AT_ONCE, metadata)
        return iterate(
            lambda: self._conductor,
            self,
            take,
            self._has_ended,
            timeout,
            waits_for=self,
            at_end=self._check_feed,
        )

    def receive(self, *, timeout: float | None = None) -> bytes:
        """Wait for the next message and return it. For many messages, iterate: that is faster.

        Args:
            timeout: Seconds to wait; None waits forever.

        Returns:
            The message, whole.

        Raises:
            Timeout: Nothing arrived for ``timeout`` seconds.
            ClosedError: Every image has ended, and all of their messages were received; or the subscription is closed.
            DriverTimeout: The driver shut down or stopped responding.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> subscription.receive(timeout=5.0)
            b'tide'
        """
        # No call follows that takes the message, so no signal handler runs in between.
        for message in run(self._receiving(timeout), Waiting(self._conductor.invokers)):
            return message
        self._check_feed()
        raise self._nothing_follows()

    def _check_feed(self) -> None:
        if self._feed is not None and not self._closed:
            self._feed.check(self)

    def _wait_long(self, timeout: float | None) -> bool:
        timeout = timeout_of(timeout)
        return self.has_data() or run(self._waiting_for_data(timeout), Waiting(self._conductor.invokers))

    def next_arrow(self, limit: int = 4096, *, timeout: float | None = None) -> pa.RecordBatch:
        """Wait for messages and return them as a record batch, like ``poll_arrow``.

        Args:
            limit: The maximum number of messages.
            timeout: Seconds to wait for the first one; None waits forever.

        Raises:
            Timeout: Nothing arrived in time, or the subscription is closed. If the client failed, DriverTimeout or ClientTimeout.
        """
        return run(self._taking_arrow(limit, timeout), Waiting(self._conductor.invokers))
