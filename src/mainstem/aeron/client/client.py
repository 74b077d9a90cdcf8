"""The blocking client, an application's connection to the media driver on its machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from mainstem._internal.entry_points import entry_point
from mainstem.aeron.client.base import AeronBase, attaching
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.client.counter import Counter
from mainstem.aeron.client.operation import wait_or_cancel
from mainstem.aeron.client.persistent_subscription import PersistentSubscription
from mainstem.aeron.client.publication import ExclusivePublication, Publication
from mainstem.aeron.client.resource import Closing
from mainstem.aeron.client.subscription import Subscription
from mainstem.aeron.client.waiting import Waiting, run
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS
from mainstem.aeron.idle import SleepIdle

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from mainstem.aeron.client.operation import Operation
    from mainstem.aeron.client.persistent_subscription import RecordedStream
    from mainstem.aeron.client.settings import ClientSettings
    from mainstem.aeron.client.subscription import Image


class Aeron(AeronBase, Closing, made_by="Aeron.connect()"):
    """A client of a media driver. It adds publications, subscriptions and counters.

    Create one with ``connect``, and use it as a context manager. Every ``add_...`` waits for the driver's response. The
    corresponding ``async_add_...`` (Aeron's name, unrelated to asyncio) returns at once with an operation to poll.

    All of these calls raise ChannelUriError if the channel has a likely mistake (a misspelled key, an empty value or a different
    stream-id), and ClosedError if the client is closed. They, or the operation, raise RegistrationError if the driver refuses the
    command (``code`` is Aeron's error code), and DriverTimeout if it does not respond in time.

    Example:
        >>> with Aeron.connect() as aeron, aeron.add_publication("aeron:ipc", 1001) as publication:
        ...     publication.send(b"tick")
    """

    @classmethod
    def connect(
        cls,
        directory: str | os.PathLike[str] | None = None,
        *,
        settings: ClientSettings | None = None,
        context: ClientContext | None = None,
        timeout: float | None = None,
        **overrides: Any,
    ) -> Self:
        """Attach to the driver in a directory, and wait until the driver is ready.

        Args:
            directory: The driver's directory; by default ``AERON_DIR``, or ``/dev/shm/aeron-USER``.
            settings: The client's settings; by default, the environment's.
            context: Handlers, clock and files; by default, ``ClientContext()``.
            timeout: Seconds to wait for the driver. The default and maximum is ``driver_timeout_ns``.
            **overrides: Individual fields of the settings or the context, by name.

        Returns:
            The client.

        Raises:
            DriverTimeout: No driver in the directory became ready in time.
            ConfigurationError: The driver's CnC version is unknown, a setting is invalid, or the directory belongs to another user
                and ``require_own_driver`` is set.

        Example:
            >>> aeron = Aeron.connect("/dev/shm/aeron-prices", client_name="pricing")
        """
        context = ClientContext.build(directory, settings, context, overrides)
        invokers = () if context.driver_invoker is None else (context.driver_invoker,)
        return cls.made(run(attaching(context, timeout), Waiting(invokers, SleepIdle(ATTACH_POLL_INTERVAL_NS))))

    def add_publication(self, channel: str, stream_id: int, *, timeout: float | None = None) -> Publication:
        """Add a concurrent publication. All clients that add the same channel and stream share one stream.

        Args:
            channel: The channel URI, such as ``aeron:ipc`` or ``aeron:udp?endpoint=localhost:20121``.
            stream_id: The stream id, an int32.
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

        Returns:
            The publication.
        """
        return wait_or_cancel(self._conductor.add_publication(Publication, channel, stream_id), timeout)

    def async_add_publication(self, channel: str, stream_id: int) -> Operation[Publication]:
        """Add a concurrent publication without waiting.

        ``channel`` and ``stream_id`` are the same as for `add_publication`, and so are the errors raised immediately.

        Returns:
            The pending operation.

        Example:
            >>> operation = aeron.async_add_publication("aeron:ipc", 1001)
            >>> while (publication := operation.poll()) is None:
            ...     work()
        """
        return self._conductor.add_publication(Publication, channel, stream_id)

    def add_exclusive_publication(
        self, channel: str, stream_id: int, *, timeout: float | None = None
    ) -> ExclusivePublication:
        """Add a publication with one writer and its own session.

        Args:
            channel: The channel URI.
            stream_id: The stream id, an int32.
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

        Returns:
            The publication.
        """
        return wait_or_cancel(self._conductor.add_publication(ExclusivePublication, channel, stream_id), timeout)

    def async_add_exclusive_publication(self, channel: str, stream_id: int) -> Operation[ExclusivePublication]:
        """Add an exclusive publication without waiting. ``channel`` and ``stream_id`` are those of `add_exclusive_publication`.

        Returns:
            The pending operation.
        """
        return self._conductor.add_publication(ExclusivePublication, channel, stream_id)

    def add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available_image: Callable[[Image], object] | None = None,
        on_unavailable_image: Callable[[Image], object] | None = None,
        timeout: float | None = None,
    ) -> Subscription:
        """Add a subscription.

        The handlers run on the conductor's thread and must not wait. The client calls the first one before the image can be polled,
        and the second one after it has closed the image.

        Args:
            channel: The channel URI. The prefix ``aeron-spy:`` subscribes to a publication of this driver.
            stream_id: The stream id, an int32.
            on_available_image: Called with each image that becomes available; by default, the context's handler.
            on_unavailable_image: Called with each image that became unavailable; by default, the context's handler.
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

        Returns:
            The subscription.
        """
        operation = self.async_add_subscription(
            channel, stream_id, on_available_image=on_available_image, on_unavailable_image=on_unavailable_image
        )
        return wait_or_cancel(operation, timeout)

    def add_persistent_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        recordings: os.PathLike[str] | str,
        start: str | int | datetime | dict[int, int] = "earliest",
        recorded_channel: str | None = None,
        strict: bool = True,
        options: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> PersistentSubscription:
        """Add a subscription that starts with recorded messages and continues with the live stream.

        While a recorder is running, no message is lost or duplicated, however slow the reader is. The subscription joins the live
        stream once nearly all recorded messages have been read.

        Args:
            channel: The channel URI of the live stream.
            stream_id: The stream id, an int32.
            recordings: The location of the recordings: a directory, or a URL such as ``aeron-archive://host:port``, which is read
                through this client's driver.
            start: ``earliest``; ``latest`` for new messages only; a time (``datetime``, or ISO 8601 in UTC), as precise as the
                index; a position, for the messages after it; or a position for each recording id, as in ``positions`` of an
                earlier subscription.
            recorded_channel: The recorded channel, if the location has this stream from several channels; by default, ``channel``.
            strict: Whether a missing or corrupt position raises an error. If not, it is logged and skipped.
            options: Options of the store, if the location is a URL.
            timeout: Seconds to read the catalog and to wait for the driver. A read that has begun is not interrupted. By default,
                the store's own retries and the driver timeout are the limits.

        Returns:
            The subscription.

        Raises:
            Timeout: Reading the recordings took too long.
            ConfigurationError: ``start`` is invalid, or several recordings match.
            RecordingError: There are no recordings, or they are corrupt.
            StoreError: The store cannot be read.

        Example:
            >>> subscription = aeron.add_persistent_subscription("aeron:ipc", 1001, recordings="tides", start="earliest")
        """
        stream: RecordedStream = entry_point("persistent-stream")(
            self,
            channel,
            stream_id,
            recordings=recordings,
            clock=self._context.clock,
            start=start,
            recorded_channel=recorded_channel,
            strict=strict,
            options=options,
            timeout=timeout,
        )
        return PersistentSubscription(stream)

    def async_add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available_image: Callable[[Image], object] | None = None,
        on_unavailable_image: Callable[[Image], object] | None = None,
    ) -> Operation[Subscription]:
        """Add a subscription without waiting.

        ``channel``, ``stream_id``, ``on_available_image`` and ``on_unavailable_image`` are the same as for `add_subscription`.

        Returns:
            The pending operation.
        """
        return self._conductor.add_subscription(
            Subscription, channel, stream_id, on_available_image, on_unavailable_image
        )

    def add_counter(self, type_id: int, label: str, *, key: bytes = b"", timeout: float | None = None) -> Counter:
        """Add a counter that lives as long as this client.

        Args:
            type_id: The type; ids from 1000 on are for applications.
            label: The text that tools show, at most 380 bytes.
            key: Bytes that identify the counter to programs, at most 112.
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

        Returns:
            The counter.

        Raises:
            LocalProtocolError: The key or the label is too long.

        Example:
            >>> orders = aeron.add_counter(1001, "orders accepted")
            >>> orders.add(1)
        """
        return wait_or_cancel(self._conductor.add_counter(Counter, type_id, key, label), timeout)

    def async_add_counter(self, type_id: int, label: str, *, key: bytes = b"") -> Operation[Counter]:
        """Add a counter without waiting. ``type_id``, ``label`` and ``key`` are those of `add_counter`.

        Returns:
            The pending operation.
        """
        return self._conductor.add_counter(Counter, type_id, key, label)

    def add_static_counter(
        self, type_id: int, label: str, *, registration_id: int, key: bytes = b"", timeout: float | None = None
    ) -> Counter:
        """Add a counter that belongs to no client and outlives this one.

        Adding a counter with the same type and registration id again returns the same counter.

        Args:
            type_id: The type; ids from 1000 on are for applications.
            label: The text that tools show, at most 380 bytes.
            registration_id: The number that, together with the type, identifies the counter.
            key: Bytes that identify the counter to programs, at most 112.
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

        Returns:
            The counter.
        """
        return wait_or_cancel(self._conductor.add_counter(Counter, type_id, key, label, registration_id), timeout)

    def next_session_id(self, stream_id: int, *, timeout: float | None = None) -> int:
        """Return a session id that no publication on this stream uses. Requires control protocol 1.0.0 or later in the driver.

        Args:
            stream_id: The stream id, an int32.
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

        Returns:
            The session id, for ``session-id=`` in a channel.

        Raises:
            DriverTimeout: The driver did not respond in time. A driver without this command never responds.
        """
        return wait_or_cancel(self._conductor.next_session_id(stream_id), timeout)

    def close(self) -> None:
        """Close the client with its publications, subscriptions and counters. Calling it again does nothing."""
        self._end()


connect = Aeron.connect
"""``Aeron.connect``, under the name that every protocol family uses."""
