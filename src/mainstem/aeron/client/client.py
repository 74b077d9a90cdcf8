"""Aeron: a program's connection to the media driver of its machine."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

from mainstem.aeron.agent import AgentInvoker, AgentRunner
from mainstem.aeron.client.asynchronous import Waiting
from mainstem.aeron.client.conductor import ClientConductor
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.cnc import ATTACH_POLL_INTERVAL_NS, CncAttach
from mainstem.aeron.idle import SleepIdle
from mainstem.clock import NS_PER_MS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType

    from mainstem._core.memory.counters import CountersReader
    from mainstem.aeron.client.asynchronous import AsyncOperation
    from mainstem.aeron.client.counter import Counter
    from mainstem.aeron.client.image import Image
    from mainstem.aeron.client.publication import ExclusivePublication, Publication
    from mainstem.aeron.client.settings import ClientSettings
    from mainstem.aeron.client.subscription import Subscription

BUSY_SLEEP_NS = 1 * NS_PER_MS  # how long the conductor sleeps while somebody waits for an answer


class _ConductorIdle:
    """Sleeps as long as the settings say, and shortly while a command is unanswered."""

    name = "conductor"

    def __init__(self, conductor: ClientConductor) -> None:
        self._conductor = conductor
        self._long = SleepIdle(conductor.context.settings.client_idle_sleep_duration_ns)
        self._short = SleepIdle(min(BUSY_SLEEP_NS, conductor.context.settings.client_idle_sleep_duration_ns))

    def idle(self, work_count: int) -> None:
        (self._short if self._conductor.pending else self._long).idle(work_count)

    def reset(self) -> None:
        """Nothing to forget."""


def start_attaching(context: ClientContext) -> CncAttach:
    """Begins to wait for the context's driver."""
    timeout_ms = context.settings.driver_timeout_ns // NS_PER_MS
    now_ns = context.clock.monotonic_ns()
    return CncAttach(context.files, context.settings.dir, driver_timeout_ms=timeout_ms, now_ns=now_ns)


class Aeron:
    """A client of a media driver. A context manager; ``close`` may be called twice. Make one with ``connect``.

    Every ``add_...`` waits for the driver's answer and raises RegistrationError when it refused (with Aeron's error code),
    DriverTimeout when no answer came in time, and ClientTimeout or ClosedError when the client has ended. Its
    ``async_add_...`` form returns at once.
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

    @classmethod
    def connect(
        cls,
        directory: str | os.PathLike[str] | None = None,
        *,
        settings: ClientSettings | None = None,
        context: ClientContext | None = None,
        **overrides: Any,
    ) -> Self:
        """Attaches to the driver in ``directory`` (by default where ``AERON_DIR`` says, or ``/dev/shm/aeron-USER``).

        ``settings`` are those of the environment when left out; ``context`` brings handlers and doors; ``overrides``
        change single fields of either by name. Waits for the driver to be ready. Raises DriverTimeout when there is none,
        ConfigurationError when its version is not ours.
        """
        made = ClientContext.build(directory, settings, context, overrides)
        invokers = () if made.driver_invoker is None else (made.driver_invoker,)
        waiting = Waiting(SleepIdle(ATTACH_POLL_INTERVAL_NS), made.clock, None, invokers)
        attach = start_attaching(made)
        while (client := cls.attached(made, attach)) is None:
            waiting.step()
        return client

    @classmethod
    def attached(cls, context: ClientContext, attach: CncAttach) -> Self | None:
        """One step of attaching: the client once its driver is ready."""
        clock = context.clock
        cnc = attach.step(clock.monotonic_ns(), epoch_ms=clock.epoch_ms())
        return None if cnc is None else cls(context, ClientConductor(context, cnc, clock.monotonic_ns()))

    @property
    def client_id(self) -> int:
        """The number by which the driver knows this client."""
        return self._conductor.client_id

    @property
    def context(self) -> ClientContext:
        """What the client was made with."""
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
    def failure(self) -> BaseException | None:
        """Why the client ended, when it was not closed: a DriverTimeout or a ClientTimeout."""
        return self._conductor.failure

    @property
    def counters(self) -> CountersReader:
        """All counters of the driver and its clients."""
        return self._conductor.counters

    def add_publication(self, channel: str, stream_id: int, *, timeout: float | None = None) -> Publication:
        """A concurrent publication: shared by all who ask for the same channel and stream."""
        return self._conductor.add_publication(channel, stream_id).wait(timeout)

    def async_add_publication(self, channel: str, stream_id: int) -> AsyncOperation[Publication]:
        """The same without waiting."""
        return self._conductor.add_publication(channel, stream_id)

    def add_exclusive_publication(
        self, channel: str, stream_id: int, *, timeout: float | None = None
    ) -> ExclusivePublication:
        """A publication with one writer and a session of its own."""
        return self._conductor.add_exclusive_publication(channel, stream_id).wait(timeout)

    def async_add_exclusive_publication(self, channel: str, stream_id: int) -> AsyncOperation[ExclusivePublication]:
        """The same without waiting."""
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
        """A subscription. The handlers run on the conductor's thread: an available image is handed over before it is
        polled, an unavailable one after it was closed. Left out, they are the context's."""
        return self.async_add_subscription(
            channel, stream_id, on_available_image=on_available_image, on_unavailable_image=on_unavailable_image
        ).wait(timeout)

    def async_add_subscription(
        self,
        channel: str,
        stream_id: int,
        *,
        on_available_image: Callable[[Image], object] | None = None,
        on_unavailable_image: Callable[[Image], object] | None = None,
    ) -> AsyncOperation[Subscription]:
        """The same without waiting."""
        return self._conductor.add_subscription(
            channel,
            stream_id,
            on_available_image or self._context.on_available_image,
            on_unavailable_image or self._context.on_unavailable_image,
        )

    def add_counter(self, type_id: int, label: str, *, key: bytes = b"", timeout: float | None = None) -> Counter:
        """A counter; type ids from 1000 on are for applications. ``key`` is at most 112 bytes, ``label`` 380."""
        return self._conductor.add_counter(type_id, key, label).wait(timeout)

    def async_add_counter(self, type_id: int, label: str, *, key: bytes = b"") -> AsyncOperation[Counter]:
        """The same without waiting."""
        return self._conductor.add_counter(type_id, key, label)

    def add_static_counter(
        self, type_id: int, label: str, *, registration_id: int, key: bytes = b"", timeout: float | None = None
    ) -> Counter:
        """A counter that belongs to no client and stays; asked again for the same type and id it is the same one."""
        return self._conductor.add_counter(type_id, key, label, registration_id).wait(timeout)

    def next_session_id(self, stream_id: int, *, timeout: float | None = None) -> int:
        """A session id that is free for that stream (a driver with control protocol 1.0.0 or later)."""
        return self._conductor.next_session_id(stream_id).wait(timeout)

    def next_correlation_id(self) -> int:
        """A number that no other client of this driver gets."""
        return self._conductor.cnc.to_driver.next_correlation_id()

    def invoke(self) -> int:
        """One duty cycle of the conductor, when ``use_invoker`` was asked for; how much work there was."""
        return 0 if self._invoker is None else self._invoker.invoke()

    def close(self) -> None:
        """Ends the client: its publications, subscriptions and counters with it. May be called twice."""
        self._conductor.close()
        if self._invoker is not None:
            self._invoker.close()
        if self._runner is not None:
            self._runner.close()

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
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)
            self.close()
