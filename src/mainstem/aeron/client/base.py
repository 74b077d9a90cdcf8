"""The part that the blocking and asyncio clients share."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NS_PER_MS, seconds_ns
from mainstem._internal.exit_cleanup import close_at_exit
from mainstem._internal.log_throttle import warn_once
from mainstem._internal.made import Made
from mainstem.aeron.agent import AgentInvoker, AgentRunner
from mainstem.aeron.client.conductor import ClientConductor
from mainstem.aeron.client.publication import PublicationBase
from mainstem.aeron.client.stats import ClientStats
from mainstem.aeron.client.subscription import SubscriptionBase
from mainstem.aeron.cnc import CncAttach
from mainstem.aeron.directory import cnc_path
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CountersReader
    from mainstem.aeron.client.context import ClientContext
    from mainstem.aeron.client.waiting import Steps


log = logging.getLogger("mainstem.aeron.client")


def _foreign_driver(context: ClientContext) -> str:
    """Return a warning if the driver's directory belongs to another user, who can read and change everything in it."""
    directory = context.settings.dir
    for path in (directory, cnc_path(directory)):
        if owner := context.files.foreign_owner(path):
            text = f"{path} belongs to user {owner}, who can read and change what this client sends and receives"
            if context.settings.require_own_driver:
                raise ConfigurationError(f"{text}; require_own_driver refuses that")
            return text
    return ""


def attaching(context: ClientContext, timeout: float | None = None) -> Steps[ClientConductor]:
    """Wait for the context's driver. Check for it every ``ATTACH_POLL_INTERVAL_NS``."""
    clock = context.clock
    attach = CncAttach(
        context.files,
        context.settings.dir,
        driver_timeout_ms=context.settings.driver_timeout_ns // NS_PER_MS,
        timeout_ns=None if timeout is None else seconds_ns(timeout),
        now_ns=clock.monotonic_ns(),
    )
    while True:
        foreign = _foreign_driver(context)
        cnc = attach.step(clock.monotonic_ns(), epoch_ms=clock.epoch_ms())
        if cnc is not None:
            if foreign:
                warn_once(log, foreign)
            return ClientConductor(context, cnc, clock.monotonic_ns())
        yield None


class AeronBase(metaclass=Made):
    """The non-blocking part of a client."""

    def __init__(self, conductor: ClientConductor) -> None:
        self._conductor = conductor
        self._context = context = conductor.context
        self._invoker: AgentInvoker | None = None
        self._runner: AgentRunner | None = None
        on_error: Any = context.on_error
        if context.use_invoker:
            self._invoker = AgentInvoker(conductor, clock=context.clock, error_handler=on_error)
            conductor.invokers += (self._invoker.invoke,)
        else:
            self._runner = AgentRunner(conductor, conductor, clock=context.clock, error_handler=on_error).start()
        if context.driver_invoker is not None:
            conductor.invokers += (context.driver_invoker,)
        close_at_exit(self)

    @property
    def client_id(self) -> int:
        """The number by which the driver identifies this client."""
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
        """Whether the client has ended, through ``close`` or a failure."""
        return self._conductor.closed

    @property
    def error(self) -> Exception | None:
        """The error that ended the client: a DriverTimeout or a ClientTimeout. None if it is open or ``close`` ended it."""
        return self._conductor.failure

    @property
    def counters(self) -> CountersReader:
        """All counters of the driver and its clients."""
        return self._conductor.counters

    def stats(self) -> ClientStats:
        """Return the client's publications, subscriptions and images with their positions, without slowing the streams down."""
        conductor = self._conductor
        with conductor.lock:
            # In the order in which they were added.
            resources: list[Any] = [each for _, each in sorted(conductor.resources.items()) if not each.closed]
            publications = [each.stats() for each in resources if isinstance(each, PublicationBase)]
            subscriptions = [each.stats() for each in resources if isinstance(each, SubscriptionBase)]
            heartbeat_ms = -1 if conductor.closed else conductor.cnc.to_driver.consumer_heartbeat_ms
            return ClientStats(
                client_id=self.client_id,
                name=self._context.settings.client_name,
                directory=self.directory,
                driver_heartbeat_age_ms=-1 if heartbeat_ms < 0 else self._context.clock.epoch_ms() - heartbeat_ms,
                publications=tuple(publications),
                subscriptions=tuple(subscriptions),
                counters=len(resources) - len(publications) - len(subscriptions),
                pending=len(conductor.pending),
            )

    def next_correlation_id(self) -> int:
        """Return a number that is unique among all clients of this driver."""
        return self._conductor.cnc.to_driver.next_correlation_id()

    def invoke(self) -> int:
        """Run one duty cycle of the conductor, for a client that was connected with ``use_invoker=True``.

        Returns:
            How much work was done; always 0 if the client has a conductor thread.
        """
        return 0 if self._invoker is None else self._invoker.invoke()

    def _end(self) -> None:
        self._conductor.close()
        if self._invoker is not None:
            self._invoker.close()
        if self._runner is not None:
            self._runner.close()

    def _leave_to_parent(self) -> None:
        """Close the client in a forked child without notifying the driver."""
        self._conductor.leave_to_parent()
        self._invoker = self._runner = None

    def __repr__(self) -> str:
        return f"<Aeron client {self.client_id} of {self.directory}{', closed' if self.closed else ''}>"

    def __del__(self) -> None:
        conductor = getattr(self, "_conductor", None)
        if conductor is not None and not conductor.closed:
            try:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)
            finally:
                self._end()


def conductor_of(aeron: AeronBase) -> ClientConductor:
    """Return the conductor of a client, for what is built on clients."""
    return aeron._conductor
