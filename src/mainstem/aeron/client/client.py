"""Aeron: a program's connection to the media driver of its machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from mainstem.aeron.client.base import AeronBase, Attaching
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.client.counter import Counter
from mainstem.aeron.client.operation import Waiting
from mainstem.aeron.client.publication import ExclusivePublication, Publication
from mainstem.aeron.client.resource import Closing
from mainstem.aeron.client.subscription import Subscription
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS
from mainstem.aeron.idle import SleepIdle

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from mainstem.aeron.client.operation import Operation
    from mainstem.aeron.client.settings import ClientSettings
    from mainstem.aeron.client.subscription import Image
    from mainstem.recording.persistent.subscription import PersistentSubscription


class Aeron(AeronBase, Closing):
    """A client of a media driver: it adds publications, subscriptions and counters.

    Create one with ``connect``. It is a context manager, and ``close`` may be called twice. Every ``add_...`` waits for the
    driver's response; its ``async_add_...`` form returns at once.

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
        """Attaches to the driver in a directory, and waits until the driver is ready.

        Args:
            directory: The driver's directory; by default ``AERON_DIR``, or ``/dev/shm/aeron-USER``.
            settings: The client's settings; those of the environment by default.
            context: Handlers, clock and files; the defaults of ``ClientContext`` when left out.
            timeout: Seconds to wait for the driver; at most ``driver_timeout_ns``, which is also the default.
            **overrides: Single fields of the settings or of the context, by name.

        Returns:
            The client.

        Raises:
            DriverTimeout: No driver is ready in the directory in time.
            ConfigurationError: The driver's CnC version is another one, a setting is not accepted, or the directory belongs to
                another user and ``require_own_driver`` is set.

        Example:
            >>> aeron = Aeron.connect("/dev/shm/aeron-prices", client_name="pricing")
        """
        context = ClientContext.build(directory, settings, context, overrides)
        invokers = () if context.driver_invoker is None else (context.driver_invoker,)
        waiting = Waiting(SleepIdle(ATTACH_POLL_INTERVAL_NS), context.clock, None, invokers)
        attaching = Attaching(context, timeout)
        while (conductor := attaching.step()) is None:
            waiting.step()
        return cls(conductor)

    def add_publication(self, channel: str, stream_id: int, *, timeout: float | None = None) -> Publication:
        """Adds a concurrent publication, and waits for the driver.

        Every client that adds the same channel and stream shares one stream.

        Args:
            channel: The channel URI, as ``aeron:ipc`` or ``aeron:udp?endpoint=localhost:20121``.
            stream_id: The stream id, an int32.
            timeout: Seconds to wait; at most the driver timeout, which is also the default.

        Returns:
            The publication.

        Raises:
            ChannelUriError: A key of the channel is a likely typing error of a known one.
            RegistrationError: The driver refused; ``code`` is Aeron's error code.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The client is closed.

        Example:
            >>> publication = aeron.add_publication("aeron:ipc", 1001)
        """
        return self._conductor.add_publication(Publication, channel, stream_id)._wait_or_cancel(timeout)

    def async_add_publication(self, channel: str, stream_id: int) -> Operation[Publication]:
        """Adds a concurrent publication without waiting.

        Args:
            channel: The channel URI.
            stream_id: The stream id, an int32.

        Returns:
            The pending operation; poll it or wait for it.

        Raises:
            ChannelUriError: A key of the channel is a likely typing error of a known one.
            DriverTimeout: The driver's command buffer is full.
            ClosedError: The client is closed.

        Example:
            >>> operation = aeron.async_add_publication("aeron:ipc", 1001)
            >>> while (publication := operation.poll()) is None:
            ...     work()
        """
        return self._conductor.add_publication(Publication, channel, stream_id)

    def add_exclusive_publication(
        self, channel: str, stream_id: int, *, timeout: float | None = None
    ) -> ExclusivePublication:
        """Adds a publication with one writer and a session of its own, and waits for the driver.

        Args:
            channel: The channel URI.
            stream_id: The stream id, an int32.
            timeout: Seconds to wait; at most the driver timeout, which is also the default.

        Returns:
            The publication.

        Raises:
            ChannelUriError: A key of the channel is a likely typing error of a known one.
            RegistrationError: The driver refused; ``code`` is Aeron's error code.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The client is closed.

        Example:
            >>> publication = aeron.add_exclusive_publication("aeron:ipc", 1001)
        """
        return self._conductor.add_publication(ExclusivePublication, channel, stream_id)._wait_or_cancel(timeout)

    def async_add_exclusive_publication(self, channel: str, stream_id: int) -> Operation[ExclusivePublication]:
        """Adds an exclusive publication without waiting.

        Args:
            channel: The channel URI.
            stream_id: The stream id, an int32.

        Returns:
            The pending operation; poll it or wait for it.

        Raises:
            ChannelUriError: A key of the channel is a likely typing error of a known one.
            DriverTimeout: The driver's command buffer is full.
            ClosedError: The client is closed.

        Example:
            >>> operation = aeron.async_add_exclusive_publication("aeron:ipc", 1001)
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
        """Adds a subscription, and waits for the driver.

        The handlers run on the conductor's thread and must not wait: an available image is passed before it is polled, an
        unavailable one after it was closed.

        Args:
            channel: The channel URI; ``aeron-spy:`` in front subscribes to a publication of this driver.
            stream_id: The stream id, an int32.
            on_available_image: Called with each image that becomes available; the context's by default.
            on_unavailable_image: Called with each image that became unavailable; the context's by default.
            timeout: Seconds to wait; at most the driver timeout, which is also the default.

        Returns:
            The subscription.

        Raises:
            ChannelUriError: A key of the channel is a likely typing error of a known one.
            RegistrationError: The driver refused; ``code`` is Aeron's error code.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The client is closed.

        Example:
            >>> subscription = aeron.add_subscription("aeron:udp?endpoint=localhost:20121", 1001)
        """
        return self.async_add_subscription(
            channel, stream_id, on_available_image=on_available_image, on_unavailable_image=on_unavailable_image
        )._wait_or_cancel(timeout)

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
        """Adds a subscription that begins with what was recorded and goes on with the live stream.

        No message is missing and none comes twice, however long the recordings take to read and however slow the reader is, while
        a recorder runs. The live stream is joined when nearly everything recorded was read.

        Args:
            channel: The channel URI of the live stream.
            stream_id: The stream id, an int32.
            recordings: Where the stream is recorded: a directory or a URL.
            start: ``earliest``; ``latest``, from now on; a time, ``datetime`` or ISO 8601 in UTC, exact to an entry of the index; a
                position, after which messages are wanted; or positions by recording id, as ``positions`` of an earlier one.
            recorded_channel: The channel that was recorded, where the place has the stream of several; by default ``channel``.
            strict: Whether positions that are missing or damaged raise; otherwise they are logged and passed over.
            options: Options of the store, for a URL.
            timeout: Seconds to open: to read the catalog, and to wait for the driver. A read that has begun is not interrupted. By
                default the store's own retries and the driver timeout are the limits.

        Returns:
            The subscription.

        Raises:
            Timeout: The recordings were not read in time.
            ConfigurationError: ``start`` is not possible, or it is not clear which recordings are meant.
            RecordingError: There are no recordings, or they are damaged.
            StoreError: The store cannot be read.
            RegistrationError: The driver refused; ``code`` is Aeron's error code.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The client is closed.

        Example:
            >>> subscription = aeron.add_persistent_subscription("aeron:ipc", 1001, recordings="tides", start="earliest")
        """
        # The one import that points upwards: this belongs beside add_subscription, and is made of recordings.
        from mainstem.recording.persistent.stream import PersistentStream
        from mainstem.recording.persistent.subscription import PersistentSubscription

        stream = PersistentStream(
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
        """Adds a subscription without waiting.

        Args:
            channel: The channel URI.
            stream_id: The stream id, an int32.
            on_available_image: Called with each image that becomes available; the context's by default.
            on_unavailable_image: Called with each image that became unavailable; the context's by default.

        Returns:
            The pending operation; poll it or wait for it.

        Raises:
            ChannelUriError: A key of the channel is a likely typing error of a known one.
            DriverTimeout: The driver's command buffer is full.
            ClosedError: The client is closed.

        Example:
            >>> operation = aeron.async_add_subscription("aeron:ipc", 1001)
        """
        return self._conductor.add_subscription(
            Subscription, channel, stream_id, on_available_image, on_unavailable_image
        )

    def add_counter(self, type_id: int, label: str, *, key: bytes = b"", timeout: float | None = None) -> Counter:
        """Adds a counter that lives as long as this client, and waits for the driver.

        Args:
            type_id: The type; ids from 1000 on are for applications.
            label: The text that tools show, at most 380 bytes.
            key: Bytes that identify the counter to programs, at most 112.
            timeout: Seconds to wait; at most the driver timeout, which is also the default.

        Returns:
            The counter.

        Raises:
            RegistrationError: The driver refused.
            DriverTimeout: The driver did not respond in time.
            LocalProtocolError: The key or the label is too long.
            ClosedError: The client is closed.

        Example:
            >>> orders = aeron.add_counter(1001, "orders accepted")
            >>> orders.add(1)
        """
        return self._conductor.add_counter(Counter, type_id, key, label)._wait_or_cancel(timeout)

    def async_add_counter(self, type_id: int, label: str, *, key: bytes = b"") -> Operation[Counter]:
        """Adds a counter without waiting.

        Args:
            type_id: The type; ids from 1000 on are for applications.
            label: The text that tools show, at most 380 bytes.
            key: Bytes that identify the counter to programs, at most 112.

        Returns:
            The pending operation; poll it or wait for it.

        Raises:
            LocalProtocolError: The key or the label is too long.
            DriverTimeout: The driver's command buffer is full.
            ClosedError: The client is closed.

        Example:
            >>> operation = aeron.async_add_counter(1001, "orders accepted")
        """
        return self._conductor.add_counter(Counter, type_id, key, label)

    def add_static_counter(
        self, type_id: int, label: str, *, registration_id: int, key: bytes = b"", timeout: float | None = None
    ) -> Counter:
        """Adds a counter that belongs to no client and outlives this one.

        Added again with the same type and registration id it is the same counter.

        Args:
            type_id: The type; ids from 1000 on are for applications.
            label: The text that tools show, at most 380 bytes.
            registration_id: The number that, with the type, identifies the counter.
            key: Bytes that identify the counter to programs, at most 112.
            timeout: Seconds to wait; at most the driver timeout, which is also the default.

        Returns:
            The counter.

        Raises:
            RegistrationError: The driver refused.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The client is closed.

        Example:
            >>> version = aeron.add_static_counter(1002, "schema version", registration_id=7)
        """
        return self._conductor.add_counter(Counter, type_id, key, label, registration_id)._wait_or_cancel(timeout)

    def next_session_id(self, stream_id: int, *, timeout: float | None = None) -> int:
        """Returns a session id that is free for a stream; the driver must have control protocol 1.0.0 or later.

        Args:
            stream_id: The stream id, an int32.
            timeout: Seconds to wait; at most the driver timeout, which is also the default.

        Returns:
            The session id, for ``session-id=`` in a channel.

        Raises:
            RegistrationError: The driver refused.
            DriverTimeout: The driver did not respond, as one that does not have the command.
            ClosedError: The client is closed.

        Example:
            >>> channel = f"aeron:ipc?session-id={aeron.next_session_id(1001)}"
        """
        return self._conductor.next_session_id(stream_id)._wait_or_cancel(timeout)

    def close(self) -> None:
        """Ends the client with its publications, subscriptions and counters. May be called twice.

        Example:
            >>> aeron.close()
        """
        self._end()


connect = Aeron.connect
"""``Aeron.connect``, under the name that it has in every family."""
