"""Aeron: a program's connection to the media driver of its machine."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

from mainstem.aeron.agent import AgentInvoker, AgentRunner
from mainstem.aeron.client.asynchronous import Waiting
from mainstem.aeron.client.conductor import ClientConductor
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.client.ownership import foreign_driver, warn_of
from mainstem.aeron.client.stats import client_stats
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS, CncAttach
from mainstem.aeron.idle import SleepIdle
from mainstem.clock import NS_PER_MS, NS_PER_SECOND
from mainstem.unclosed import finalise_at_exit

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from types import TracebackType

    from mainstem._core.memory.counters import CountersReader
    from mainstem.aeron.client.asynchronous import AsyncOperation
    from mainstem.aeron.client.counter import Counter
    from mainstem.aeron.client.image import Image
    from mainstem.aeron.client.publication import ExclusivePublication, Publication
    from mainstem.aeron.client.settings import ClientSettings
    from mainstem.aeron.client.stats import ClientStats
    from mainstem.aeron.client.subscription import Subscription
    from mainstem.recording.persistent.subscription import PersistentSubscription

BUSY_SLEEP_NS = 1 * NS_PER_MS  # how long the conductor sleeps while a command is pending


class _ConductorIdle:
    """Sleeps as long as the settings say, and briefly while a command is pending, which ends a sleep when it is written."""

    name = "conductor"

    def __init__(self, conductor: ClientConductor) -> None:
        self._conductor = conductor
        self._long_s = conductor.context.settings.client_idle_sleep_duration_ns / NS_PER_SECOND
        self._short_s = min(BUSY_SLEEP_NS / NS_PER_SECOND, self._long_s)

    def idle(self, work_count: int) -> None:
        if work_count <= 0:
            self._conductor.sleep(self._short_s if self._conductor.pending else self._long_s)

    def reset(self) -> None:
        """Nothing to forget."""


def start_attaching(context: ClientContext) -> CncAttach:
    """Begins to wait for the context's driver."""
    timeout_ms = context.settings.driver_timeout_ns // NS_PER_MS
    now_ns = context.clock.monotonic_ns()
    return CncAttach(context.files, context.settings.dir, driver_timeout_ms=timeout_ms, now_ns=now_ns)


class Aeron:
    """A client of a media driver: it adds publications, subscriptions and counters.

    Create one with ``connect``. It is a context manager, and ``close`` may be called twice. Every ``add_...`` waits for the
    driver's response; its ``async_add_...`` form returns at once.

    Example:
        >>> with Aeron.connect() as aeron, aeron.add_publication("aeron:ipc", 1001) as publication:
        ...     publication.send(b"tick")
    """

    def __init__(self, context: ClientContext, conductor: ClientConductor) -> None:
        self._context = context
        self._conductor = conductor
        self._invoker: AgentInvoker | None = None
        self._runner: AgentRunner | None = None
        on_error: Any = context.on_error
        if context.use_invoker:
            self._invoker = AgentInvoker(conductor, clock=context.clock, error_handler=on_error)
            conductor.invokers += (self._invoker.invoke,)
        else:
            idle = _ConductorIdle(conductor)
            self._runner = AgentRunner(conductor, idle, clock=context.clock, error_handler=on_error).start()
        if context.driver_invoker is not None:
            conductor.invokers += (context.driver_invoker,)
        finalise_at_exit(self)

    @classmethod
    def connect(
        cls,
        directory: str | os.PathLike[str] | None = None,
        *,
        settings: ClientSettings | None = None,
        context: ClientContext | None = None,
        **overrides: Any,
    ) -> Self:
        """Attaches to the driver in a directory, and waits until the driver is ready.

        Args:
            directory: The driver's directory; by default ``AERON_DIR``, or ``/dev/shm/aeron-USER``.
            settings: The client's settings; those of the environment by default.
            context: Handlers, clock and files; the defaults of ``ClientContext`` when left out.
            **overrides: Single fields of the settings or of the context, by name.

        Returns:
            The client.

        Raises:
            DriverTimeout: No driver is ready in the directory within ``driver_timeout_ns``.
            ConfigurationError: The driver's CnC version is another one, a setting is not accepted, or the directory belongs to
                another user and ``require_own_driver`` is set.

        Example:
            >>> aeron = Aeron.connect("/dev/shm/aeron-prices", client_name="pricing")
        """
        context = ClientContext.build(directory, settings, context, overrides)
        invokers = () if context.driver_invoker is None else (context.driver_invoker,)
        waiting = Waiting(SleepIdle(ATTACH_POLL_INTERVAL_NS), context.clock, None, invokers)
        attach = start_attaching(context)
        while (client := cls.attached(context, attach)) is None:
            waiting.step()
        return client

    @classmethod
    def attached(cls, context: ClientContext, attach: CncAttach) -> Self | None:
        """Runs one step of attaching, for a caller that must not wait.

        Args:
            context: The client's context.
            attach: What ``start_attaching`` returned.

        Returns:
            The client once its driver is ready, else None.

        Raises:
            DriverTimeout: The wait is over.
            ConfigurationError: The driver's CnC version is another one, or the directory belongs to another user and
                ``require_own_driver`` is set.

        Example:
            >>> while (client := Aeron.attached(context, attach)) is None:
            ...     time.sleep(0.016)
        """
        clock = context.clock
        foreign = foreign_driver(context)
        cnc = attach.step(clock.monotonic_ns(), epoch_ms=clock.epoch_ms())
        if cnc is None:
            return None
        warn_of(foreign)
        return cls(context, ClientConductor(context, cnc, clock.monotonic_ns()))

    @property
    def client_id(self) -> int:
        """The number that identifies this client at the driver."""
        return self._conductor.client_id

    @property
    def context(self) -> ClientContext:
        """The context that the client was created with."""
        return self._context

    @property
    def directory(self) -> str:
        """The driver's directory."""
        return self._context.settings.dir

    @property
    def closed(self) -> bool:
        """Whether the client has ended, by ``close`` or by a failure."""
        return self._conductor.closed

    @property
    def error(self) -> Exception | None:
        """Why the client ended without ``close``: a DriverTimeout or a ClientTimeout; else None."""
        return self._conductor.failure

    @property
    def counters(self) -> CountersReader:
        """All counters of the driver and its clients."""
        return self._conductor.counters

    def stats(self) -> ClientStats:
        """Returns what the client has at this moment: publications, subscriptions and images with their positions.

        It costs the streams nothing: what it shows is there already.

        Returns:
            The figures; ``print`` shows them in some lines.

        Example:
            >>> print(aeron.stats())
        """
        return client_stats(self._conductor, self.directory)

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
        return self._conductor.add_publication(channel, stream_id).wait_or_cancel(timeout)

    def async_add_publication(self, channel: str, stream_id: int) -> AsyncOperation[Publication]:
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
        return self._conductor.add_publication(channel, stream_id)

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
        return self._conductor.add_exclusive_publication(channel, stream_id).wait_or_cancel(timeout)

    def async_add_exclusive_publication(self, channel: str, stream_id: int) -> AsyncOperation[ExclusivePublication]:
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
        return self._conductor.add_exclusive_publication(channel, stream_id)

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
        ).wait_or_cancel(timeout)

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

        Returns:
            The subscription.

        Raises:
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

        clock = self._context.clock
        stream = PersistentStream(
            self,
            channel,
            stream_id,
            recordings=recordings,
            clock=clock,
            start=start,
            recorded_channel=recorded_channel,
            strict=strict,
            options=options,
        )
        return PersistentSubscription(stream, self, clock)

    def async_add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available_image: Callable[[Image], object] | None = None,
        on_unavailable_image: Callable[[Image], object] | None = None,
    ) -> AsyncOperation[Subscription]:
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
            channel,
            stream_id,
            on_available_image or self._context.on_available_image,
            on_unavailable_image or self._context.on_unavailable_image,
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
        return self._conductor.add_counter(type_id, key, label).wait_or_cancel(timeout)

    def async_add_counter(self, type_id: int, label: str, *, key: bytes = b"") -> AsyncOperation[Counter]:
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
        return self._conductor.add_counter(type_id, key, label)

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
        return self._conductor.add_counter(type_id, key, label, registration_id).wait_or_cancel(timeout)

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
        return self._conductor.next_session_id(stream_id).wait_or_cancel(timeout)

    def next_correlation_id(self) -> int:
        """Returns a number that is unique among all clients of this driver.

        Returns:
            The number.

        Example:
            >>> request_id = aeron.next_correlation_id()
        """
        return self._conductor.cnc.to_driver.next_correlation_id()

    def invoke(self) -> int:
        """Runs one duty cycle of the conductor, of a client that was connected with ``use_invoker=True``.

        Returns:
            How much work was done; 0 for a client with a conductor's thread.

        Example:
            >>> while running:
            ...     aeron.invoke()
        """
        return 0 if self._invoker is None else self._invoker.invoke()

    def close(self) -> None:
        """Ends the client with its publications, subscriptions and counters. May be called twice.

        Example:
            >>> aeron.close()
        """
        self._conductor.close()
        if self._invoker is not None:
            self._invoker.close()
        if self._runner is not None:
            self._runner.close()

    def _leave_to_parent(self) -> None:
        """Ends the client in a forked child, in this process only: nothing is sent to the driver."""
        self._conductor.leave_to_parent()
        self._invoker = self._runner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Aeron client {self.client_id} of {self.directory}{', closed' if self.closed else ''}>"

    def __del__(self) -> None:
        conductor = getattr(self, "_conductor", None)
        if conductor is not None and not conductor.closed:
            try:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)
            finally:
                self.close()
